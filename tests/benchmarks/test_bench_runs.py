"""The benchmark compares like with like; no time is asserted here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.benchmarks import scenario
from tests.benchmarks.machine_turn import seconds_per_turn
from tests.benchmarks.measure import CONTESTANTS, hold, measure
from tests.benchmarks.report import report
from tests.benchmarks.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = 3


@pytest.fixture(scope="module")
def recorder() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, serving("--record") as url:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        yield url


def requests_of(name: str, url: str) -> list[Any]:
    contestant = import_module(f"tests.benchmarks.contestants.{name}")
    with contestant.connect(url) as client:
        hold(contestant.conversation(client, TURNS), TURNS)
    return list(httpx2.get(url).json())


def expected_messages() -> list[list[Any]]:
    messages = scenario.params(TURNS)["messages"]
    requests = [messages]
    for turn in range(1, TURNS):
        content = scenario.reply(turn, TURNS)["content"]
        call = content[-1]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": scenario.add(**call["input"])}
        messages = [*messages, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
        requests.append(messages)
    return requests


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_sends_the_same_conversation(name: str, recorder: str) -> None:
    """What costs less than another's turn does not cost less because it sends less."""
    sent = requests_of(name, recorder)
    assert expected_messages() == [body["messages"] for body in sent]
    for body in sent:
        assert scenario.system(TURNS) == body["system"]
        assert (body["model"], body["max_tokens"]) == (scenario.MODEL, scenario.MAX_TOKENS)
        assert [(scenario.ADD["name"], scenario.ADD["description"])] == [
            (tool["name"], tool["description"]) for tool in body["tools"]
        ]


def test_a_contestant_that_stops_early_is_caught() -> None:
    """Ending after a part of the conversation is an error, not a good figure."""
    with pytest.raises(ValueError, match="a conversation of 3 turns ended with 'enough'"):
        hold(lambda: "enough", TURNS)


def test_a_contestant_is_measured_in_its_own_process(recorder: str) -> None:
    """Every length that was asked for has its figure, and it is more than nothing."""
    figures = measure("floor", recorder, [2, TURNS])
    assert list(figures) == [2, TURNS]
    assert all(seconds > 0 for seconds in figures.values())


def test_the_machine_is_measured_without_anything_around_it() -> None:
    """A turn at each round that was asked for has its figure; a turn of another course would have raised."""
    figures = seconds_per_turn(1, 4)
    assert list(figures) == [1, 4]
    assert all(seconds > 0 for seconds in figures.values())


def test_the_report_marks_each_target_as_met_or_missed() -> None:
    """A figure beyond its target is called missed, one within it met."""
    fast = {20: 0.001, 100: 0.001, 400: 0.0012}
    slow = {20: 0.002, 100: 0.004, 400: 0.0125}
    figures = {
        "toolloop_handle": fast,
        "client_post": fast,
        "floor": fast,
        "bare_post": fast,
        "sdk_runner": slow,
    }
    good = report(figures, {10: 99e-6}, import_seconds=0.1)
    assert good.count(": met") == 5
    assert good.count(": missed") == 0
    bad = report({**figures, "toolloop_handle": slow}, {10: 101e-6}, import_seconds=0.2)
    assert bad.count(": met") == 0
    assert bad.count(": missed") == 5
