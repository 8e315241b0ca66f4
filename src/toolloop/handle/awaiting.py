"""Awaiting what may be async: tools, policies, filters."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any

from toolloop.core.freezing import frozen
from toolloop.core.values import Result
from toolloop.handle.tooling import Job, failed, timed_out


def is_at_hand(value: Any, depth: int) -> bool:
    """Whether a result can be made of it at once: without reading a file, or running code of the caller's."""
    if type(value) in (str, type(None), bool, int, float):
        return True
    if type(value) not in (dict, list) or len(value) > _FEW or not depth:
        return False
    return all(is_at_hand(each, depth - 1) for each in (value.values() if type(value) is dict else value))


_FEW = 1000
DEPTH = 10  # what is nested deeper, or in itself, can wait for a thread


@frozen
class Value:
    """What a tool returned."""

    value: Any


async def called(job: Job) -> Value | Result:
    """Run an async tool to its end."""
    try:
        with job.around():
            return Value(await settled(job.run()))
    except Exception as error:  # noqa: BLE001 - a tool's exception is a result; cancellation and SystemExit are not
        return failed(job, error)


async def within_limit(job: Job) -> Value | Result:
    """The same, but cancel it when its time is over. If it answers in spite of that, it has answered."""
    import anyio  # noqa: PLC0415 - loaded already

    came: Value | Result | None = None
    scope = anyio.move_on_after(job.limit)
    try:
        with scope:
            came = await called(job)
    except Exception as error:  # noqa: BLE001 - what a task group made of the cancellation and errors of its own
        came = failed(job, error)
    if came is None or (scope.cancel_called and isinstance(came, Result)):
        return timed_out(job, left_behind=False)
    return came


async def settled(value: Any) -> Any:
    """What a function gave, awaited if that is to be awaited."""
    return await value if inspect.isawaitable(value) else value


async def await_each(questions: Generator[Any, Any, Any]) -> Any:
    """Answer each question of a generator by calling it, and awaiting what is to be awaited."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            function, arguments = questions.send(answer) if error is None else questions.throw(error)
        except StopIteration as done:
            return done.value
        except RuntimeError as wrapped:
            if error is not None and wrapped.__cause__ is error:
                raise error from None  # Python wraps a StopIteration that passes through a generator
            raise
        answer, error = None, None
        try:
            answer = await settled(function(*arguments))
        except Exception as raised:  # noqa: BLE001 - the generator knows what a failing policy means
            error = raised
