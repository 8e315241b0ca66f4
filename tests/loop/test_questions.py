"""Questions to functions of the caller's: both ways to answer them agree, and whatever is raised reaches the asker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolloop.loop.questions import Questions, ask_each, await_each

ANSWERS = st.lists(st.one_of(st.integers(), st.sampled_from([ValueError("no"), KeyError("x")])))


def gives(answer: Any) -> Callable[[str], Any]:
    """A function that returns an answer, or raises it."""

    def function(_argument: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return function


def gives_later(answer: Any) -> Callable[[str], Any]:
    """The same, declared async."""

    async def function(argument: str) -> Any:
        return gives(answer)(argument)

    return function


def asking(functions: list[Callable[[str], Any]]) -> Questions[list[Any]]:
    """Ask each function; what it raises is its answer."""
    answers: list[Any] = []
    for function in functions:
        try:
            answers.append((yield function, ("what?",)))
        except Exception as error:  # noqa: BLE001 - any exception is an answer here
            answers.append(error)
    return answers


@given(ANSWERS)
def test_both_give_the_same_answers(answers: list[Any]) -> None:
    """Each answer, or the exception in its place, comes back in order."""
    functions = [gives(answer) for answer in answers]
    assert ask_each(asking(functions)) == answers
    assert asyncio.run(await_each(asking(functions))) == answers


@given(ANSWERS)
def test_async_functions_are_awaited(answers: list[Any]) -> None:
    """A function that is declared async is awaited, whether it returns or raises."""
    functions = [gives_later(answer) for answer in answers]
    assert asyncio.run(await_each(asking(functions))) == answers


@given(ANSWERS.filter(bool))
def test_the_first_question_may_be_known(answers: list[Any]) -> None:
    """A driver takes the first question itself, to see whether there is one; the rest goes on from there."""
    functions = [gives(answer) for answer in answers]
    questions = asking(functions)
    assert ask_each(questions, next(questions)) == answers
    questions = asking(functions)
    assert asyncio.run(await_each(questions, next(questions))) == answers


def test_what_the_asker_lets_through_is_raised() -> None:
    """An exception that the generator does not catch is raised to the driver."""

    def questions() -> Questions[None]:
        yield gives(ValueError("no")), ("what?",)

    with pytest.raises(ValueError, match="no"):
        ask_each(questions())
    with pytest.raises(ValueError, match="no"):
        asyncio.run(await_each(questions()))


def test_an_awaitable_of_a_plain_function_is_refused() -> None:
    """Only functions that are declared async are awaited."""
    later = gives_later(1)

    def plain(argument: str) -> Any:
        return later(argument)

    for answers in (ask_each(asking([plain])), asyncio.run(await_each(asking([plain])))):
        assert "returned an awaitable" in str(answers[0])
