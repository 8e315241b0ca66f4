"""Counts how often each transition was taken, for the summary."""

from __future__ import annotations

import pytest

from tests import counted
from tests.properties.counting import TAKEN


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    for (before, event, after), times in TAKEN.items():
        way = f"{before.__name__:10} {event.__name__:16} {after.__name__}"
        counted.COUNTS["transitions of the whole loop"][way] = times
