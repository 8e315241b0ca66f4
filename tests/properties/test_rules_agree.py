"""The rules of the API are written twice: in `toolloop.history` and in the fake API. Here each checks the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.bad_requests import BAD_REQUESTS, GOOD_REQUESTS, WARNED_REQUESTS, BadRequest
from tests.history.bodies import OPUS, SONNET_4_5, TOOLS
from tests.testing.asking import judged
from toolloop.history import Problem, check, repair
from toolloop.testing.refusals import Context, Refusal
from toolloop.testing.rules import judge
from toolloop.testing.strategies import broken_histories, histories

MODELS = st.sampled_from([OPUS, SONNET_4_5])
NEXT = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}

#: Where the fake API refuses and `check` only warns: it cannot be sure of these.
ONLY_WARNED = {"prefill", "empty-message", "open-server-call", "reused-call"}


def request(history: Any, model: str) -> dict[str, Any]:
    return {"model": model, "max_tokens": 4096, "messages": history, "tools": TOOLS, "container": "container_1"}


def refusal(history: Any, model: str) -> Refusal | None:
    return judge(request(history, model), Context(), None)


def taker(history: list[Any], model: str) -> str:
    """The model, or one that takes system messages if there are some."""
    return OPUS if any(message["role"] == "system" for message in history) else model


def found(history: Any, model: str) -> list[Problem]:
    return check(history, model=model, tools=TOOLS)


def errors(problems: list[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.level == "error"]


@given(histories(), MODELS)
def test_a_history_that_a_loop_may_have_is_taken_by_both(history: list[Any], model: str) -> None:
    """Once a user message follows, `check` finds no error in a valid history, and the fake API takes it."""
    model = taker(history, model)
    history = until_the_users_turn(history, model)
    assert errors(found(history, model)) == []
    assert refusal(history, model) is None


@given(histories() | broken_histories(), MODELS)
def test_both_refuse_the_same_histories(history: list[Any], model: str) -> None:
    """What one refuses the other refuses, but for the few rules of which a local checker cannot be sure."""
    problems, refused = found(history, model), refusal(history, model)
    if errors(problems):
        assert refused is not None
    elif refused is not None:
        assert {problem.rule for problem in problems} & ONLY_WARNED


@given(broken_histories(), MODELS)
def test_what_was_repaired_is_taken_by_the_fake_api(broken: list[Any], model: str) -> None:
    """Whatever was broken, after `repair` the user's next message can be sent."""
    mended = repair([*broken, NEXT]).messages
    model = taker(mended, model)
    assert refusal(mended, model) is None
    assert errors(found(mended, model)) == []


def until_the_users_turn(history: list[Any], model: str) -> list[Any]:
    """The history with a user message after it, where its last word is the model's and is complete."""
    if history and history[-1]["role"] == "assistant":
        followed = [*history, NEXT]
        return history if errors(found(followed, model)) else followed
    return history


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=lambda bad: bad.name)
def test_a_bad_request_is_refused_over_http_and_found_by_check(bad: BadRequest) -> None:
    """The fake API refuses it with its status and type, and `check` says what it can know."""
    said = judged(bad.body, **({"anthropic_beta": bad.beta} if bad.beta else {}))
    assert (said.status, said.type) == (bad.status, bad.error)
    if "messages" not in bad.body:
        return
    problems = check(
        bad.body["messages"],
        model=bad.body.get("model"),
        tools=bad.body.get("tools"),
        thinking=bad.body.get("thinking"),
    )
    levels = {problem.level for problem in problems if problem.rule == bad.rule}
    assert levels == ({bad.checked} if bad.checked else set())
    assert bool(errors(problems)) == (bad.checked == "error")


@pytest.mark.parametrize(("name", "body"), GOOD_REQUESTS, ids=[name for name, _ in GOOD_REQUESTS])
def test_a_good_request_is_taken_by_both(name: str, body: dict[str, Any]) -> None:
    """The fake API answers 200, and `check` finds nothing at all."""
    assert judged(body).status == 200
    assert check(body["messages"], model=body["model"], tools=body.get("tools"), thinking=body.get("thinking")) == []


@pytest.mark.parametrize(("name", "rule", "body"), WARNED_REQUESTS, ids=[name for name, _, _ in WARNED_REQUESTS])
def test_a_doubtful_request_is_warned_of_and_no_error(name: str, rule: str, body: dict[str, Any]) -> None:
    """Of what the API may take, `check` warns by its rule."""
    problems = check(body["messages"], model=body["model"], tools=body.get("tools"), thinking=body.get("thinking"))
    assert rule in {problem.rule for problem in problems}
    assert errors(problems) == []
