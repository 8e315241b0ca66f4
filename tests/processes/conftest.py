"""The process that forks all others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.scene import Scene
from tests.processes.zygote import Zygote


@pytest.fixture(scope="session")
def forking() -> Iterator[Zygote]:
    if not hasattr(os, "fork"):
        pytest.skip("processes are forked here, and this system cannot")
    with Zygote() as zygote:
        yield zygote


@pytest.fixture
def scene(forking: Zygote, tmp_path: Path) -> Iterator[Scene]:
    """A store and a witness in a folder of their own, and processes that are gone with the test."""
    try:
        yield Scene(forking, tmp_path)
    finally:
        forking.clear_away()
