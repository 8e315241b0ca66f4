"""Fixtures of the tests of the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import support
from tests.inbox.support import desk
from tests.kit.world import World


@pytest.fixture
def filled(tmp_path: Path) -> World:
    """A file with a loop in which two calls wait. Its clock stands in 2027."""
    found = desk("sqlite", tmp_path)
    found.drive(metadata={"owner": "ana"})
    return found


@pytest.fixture
def toolloop(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> support.Command:
    """Runs the command on the file, as ana: exit code, output, errors."""
    monkeypatch.setenv("LOGNAME", "ana")
    return support.command(capsys, tmp_path)
