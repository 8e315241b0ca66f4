"""Prints how often each transition was taken, where everybody sees it."""

from __future__ import annotations

import pytest

from tests.properties.counting import TAKEN, report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TAKEN:
        terminalreporter.section(f"transitions of the whole loop: {sum(TAKEN.values())}")
        terminalreporter.write_line(report(TAKEN))
