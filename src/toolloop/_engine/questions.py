"""Call the caller's functions: policies, `stop_when`, result filters. Each of them may be declared async.

A generator yields each question as a function with its arguments. It is sent the value, or the exception is thrown into
it. So the order of the questions is defined once, for sync and async drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from toolloop.tools.signature import is_async, refuse_awaitable

T = TypeVar("T")
FunctionCall = tuple[Callable[..., Any], tuple[Any, ...]]
Questions = Generator[FunctionCall, Any, T]


class NotAwaitedError(Exception):
    """The answer is no longer awaited."""


def _say_yes() -> bool:
    return True


def ask_each(questions: Questions[T], first: FunctionCall | None = None, goes_on: Callable[[], bool] = _say_yes) -> T:
    """Answer each question by calling its function.

    Args:
        questions: the generator of the questions.
        first: the question that it has already yielded, if any.
        goes_on: called after each answer; returns whether the value is still awaited.

    Returns:
        The value that the generator returns.

    Raises:
        NotAwaitedError: the value is no longer awaited, so the other questions are not asked.

    """
    try:
        question = first or next(questions)
        while True:
            try:
                answer = _call(*question)
            except Exception as error:  # noqa: BLE001 - the generator handles every failure
                question = questions.throw(error)
            else:
                if not goes_on():
                    raise NotAwaitedError
                question = questions.send(answer)
    except StopIteration as done:
        value: T = done.value
        return value


def perform_each(questions: Questions[T]) -> Generator[None, None, T]:
    """Answer each question as `ask_each` does. An answer that is a generator is run, step by step."""
    try:
        function, arguments = next(questions)
        while True:
            try:
                answer = function(*arguments)
                if isinstance(answer, Generator):
                    answer = yield from answer
            except Exception as error:  # noqa: BLE001 - as in `ask_each`
                function, arguments = questions.throw(error)
            else:
                function, arguments = questions.send(answer)
    except StopIteration as done:
        value: T = done.value
        return value


async def await_each(
    questions: Questions[T], first: FunctionCall | None = None, goes_on: Callable[[], bool] = _say_yes
) -> T:
    """Answer each question as `ask_each` does, and await the functions that are declared async."""
    try:
        question = first or next(questions)
        while True:
            try:
                answer = await call_either(question[0], *question[1])
            except Exception as error:  # noqa: BLE001 - as in `ask_each`
                question = questions.throw(error)
            else:
                if not goes_on():
                    raise NotAwaitedError
                question = questions.send(answer)
    except StopIteration as done:
        value: T = done.value
        return value


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return refuse_awaitable(function(*arguments), name_function(function))


async def call_either(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and await it if it is declared async.

    Raises:
        TypeError: a plain function returned an awaitable.

    """
    value = function(*arguments)
    return await value if is_async(function) else refuse_awaitable(value, name_function(function))


def make_async(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that may block as one that an event loop can await: a plain one runs in a thread."""
    return function if is_async(function) else partial(_call_in_thread, function)


async def _call_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    from anyio import to_thread  # noqa: PLC0415 - an async handle has loaded it

    return await to_thread.run_sync(function, *arguments, abandon_on_cancel=True)


def name_function(function: Callable[..., Any]) -> str:
    """Return the name of a callable, for an error."""
    return str(getattr(function, "__qualname__", type(function).__name__))
