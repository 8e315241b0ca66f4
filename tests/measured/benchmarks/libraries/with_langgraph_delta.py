"""LangGraph with delta channels (beta): each checkpoint keeps what is new, and every hundredth the whole."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from tests.measured.benchmarks.libraries import with_langgraph

hold, approve = with_langgraph.hold, with_langgraph.approve


def opened(path: Path | None) -> AbstractAsyncContextManager[Any]:
    return with_langgraph.opened(path, with_langgraph.DeltaState)
