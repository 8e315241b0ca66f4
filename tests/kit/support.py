"""What the tests of handles expect of results, and of errors."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from toolloop import AsyncToolLoopHandle, Completed, Error, ToolLoopHandle, Yielded
from toolloop.errors import ToolLoopError
from toolloop.machine.record.loop import Waiting

E = TypeVar("E", bound=ToolLoopError)


def expect_yielded(result: object) -> Yielded:
    assert isinstance(result, Yielded), result
    return result


def expect_completed(result: object) -> Completed:
    assert isinstance(result, Completed), result
    return result


def expect_error(result: object) -> Error:
    assert isinstance(result, Error), result
    return result


def results_in(message: Mapping[str, Any]) -> list[Any]:
    """The `tool_result` blocks of a message."""
    assert message["role"] == "user"
    return [block for block in message["content"] if block["type"] == "tool_result"]


def place(handle: ToolLoopHandle | AsyncToolLoopHandle) -> str:
    """Where a loop is: the name of its phase, or what it waits for."""
    phase = handle.state.root.phase
    return phase.reason if isinstance(phase, Waiting) else type(phase).__name__


@contextmanager
def expect_refusal(
    handle: ToolLoopHandle | AsyncToolLoopHandle, kind: type[E], *words: str
) -> Iterator[pytest.ExceptionInfo[E]]:
    """The block raises this error, which says these words, survives pickling, and changed nothing."""
    before = handle.state
    with pytest.raises(kind) as caught:
        yield caught
    assert handle.state == before
    told = str(caught.value)
    assert [word for word in words if word not in told] == [], told
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), vars(copy)) == (type(caught.value), told, vars(caught.value))
