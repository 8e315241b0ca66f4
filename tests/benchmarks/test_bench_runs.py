"""The benchmark compares like with like; no time is asserted here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attrs import evolve

from tests.benchmarks import gather, page, peers, scenario
from tests.benchmarks.contest import CONTESTANTS, Contestant
from tests.benchmarks.imports import seconds_to_import
from tests.benchmarks.machine_turn import seconds_per_turn
from tests.benchmarks.measure import hold, measure
from tests.benchmarks.profile import TURNS as PROFILED
from tests.benchmarks.profile import by_part, counts
from tests.benchmarks.server import serving

pytestmark = pytest.mark.bench

TURNS = 3
OWN = [each.name for each in CONTESTANTS if not each.is_peer]
PEERS = [each.name for each in CONTESTANTS if each.is_peer]
A_MOMENT = 1e-9


@pytest.fixture(scope="module")
def recorder() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, serving("--record") as url:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("no_proxy", "127.0.0.1")
        yield url


def received(url: str) -> list[Any]:
    """The headers and bodies of the last conversation."""
    return list(httpx2.get(url).json())[-TURNS:]


def recorded(url: str) -> list[Any]:
    """The bodies of the last conversation."""
    return [body for _, body in received(url)]


def requests_of(name: str, url: str) -> list[Any]:
    talk(name, url)
    return recorded(url)


def talk(name: str, url: str) -> None:
    contestant = import_module(f"tests.benchmarks.contestants.{name}")
    with contestant.connect(url) as client:
        hold(contestant.conversation(client, TURNS), TURNS)


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


def said_alike(body: Any) -> None:
    """Model, limit, system prompt and tool are the same for all."""
    assert blocks(body["system"]) == blocks(scenario.system(TURNS))
    assert (body["model"], body["max_tokens"]) == (scenario.MODEL, scenario.MAX_TOKENS)
    assert [(tool["name"], tool["description"]) for tool in body["tools"]] == [
        (scenario.ADD["name"], scenario.ADD["description"])
    ]


def blocks(content: Any) -> Any:
    """A content without what the peers add: a text is a block of text, and `is_error: false` says nothing."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    plain = [{key: value for key, value in block.items() if (key, value) != ("is_error", False)} for block in content]
    return [{**block, "content": blocks(block["content"])} if "content" in block else block for block in plain]


@pytest.mark.parametrize("name", [name for name in OWN if name != "sdk_runner_threads"])
def test_every_contestant_sends_the_same_conversation(name: str, recorder: str) -> None:
    """What costs less than another's turn does not cost less because it sends less."""
    sent = requests_of(name, recorder)
    assert expected_messages() == [body["messages"] for body in sent]
    for body in sent:
        said_alike(body)


def test_toolloop_and_the_post_that_it_is_held_against_send_the_same_headers(recorder: str) -> None:
    """The same ones in the same order, so neither pays for what the other leaves out; the bodies' lengths aside."""
    talk("client_post", recorder)
    post = [without_length(headers) for headers, _ in received(recorder)]
    talk("toolloop_handle", recorder)
    assert [without_length(headers) for headers, _ in received(recorder)] == post
    assert sum(line.lower() == "content-type: application/json" for line in post[0]) == 1


def without_length(headers: list[str]) -> list[str]:
    return [line for line in headers if not line.lower().startswith("content-length:")]


def test_with_threads_only_what_is_new_goes_out(recorder: str) -> None:
    """The API holds the rest: each request follows the reply before it, and has one message."""
    sent = requests_of("sdk_runner_threads", recorder)
    assert [messages[-1:] for messages in expected_messages()] == [body["messages"] for body in sent]
    said_alike(sent[0])
    follows = [body["thread"].get("previous_message_id") for body in sent]
    assert follows == [None, *(scenario.reply(turn, TURNS)["id"] for turn in range(1, TURNS))]


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_sends_the_same_conversation(name: str, recorder: str) -> None:
    """In its own environment, and but for words that say the same."""
    python = peers.python(make=True)
    assert measure(name, recorder, [TURNS], python=python, seconds=A_MOMENT)[TURNS] > 0
    sent = recorded(recorder)
    expected = [
        [{**message, "content": blocks(message["content"])} for message in messages] for messages in expected_messages()
    ]
    assert expected == [
        [{**message, "content": blocks(message["content"])} for message in body["messages"]] for body in sent
    ]
    for body in sent:
        said_alike(body)


def test_the_floor_is_at_most_60_lines() -> None:
    """It is what a good hand could write in an hour, and nothing cleverer."""
    floor = Path(__file__).parent / "contestants" / "floor.py"
    assert len(floor.read_text().splitlines()) <= 60


def test_a_contestant_that_stops_early_is_caught() -> None:
    """Ending after a part of the conversation is an error, not a good figure."""
    with pytest.raises(ValueError, match="a conversation of 3 turns ended with 'enough'"):
        hold(lambda: "enough", TURNS)


def test_a_contestant_is_measured_in_its_own_process(recorder: str) -> None:
    """Every length that was asked for has its figure, and it is more than nothing."""
    figures = measure("floor", recorder, [2, TURNS], seconds=A_MOMENT)
    assert list(figures) == [2, TURNS]
    assert all(seconds > 0 for seconds in figures.values())


def test_the_machine_is_measured_without_anything_around_it() -> None:
    """A turn at each round that was asked for has its figure; a turn of another course would have raised."""
    figures = seconds_per_turn(1, 4, loops=2)
    assert list(figures) == [1, 4]
    assert all(seconds > 0 for seconds in figures.values())


def test_an_import_is_measured_beyond_an_empty_program() -> None:
    """One figure for each statement."""
    assert list(seconds_to_import(["import json", "import ssl"], runs=1)) == ["import json", "import ssl"]


def test_the_whole_program_measures_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small, and with a peer that is not there: it is named, and the others are measured."""
    monkeypatch.setattr(peers, "ENVIRONMENT", tmp_path)
    extent = evolve(
        gather.QUICK,
        contestants=(
            *(each for each in CONTESTANTS if each.name in {"client_post", "toolloop_handle"}),
            Contestant("pydantic_ai_agent", "pydantic-ai", is_peer=True),
        ),
        lengths=(2, TURNS),
        runs=1,
        seconds=A_MOMENT,
        rounds=12,
        loops=10,
        machine=(1, 2),
        repeats=1,
        starts=1,
    )
    figures = gather.run(extent)
    assert {name: list(each) for name, each in figures.cpu.items()} == {
        "client_post": [2, TURNS],
        "toolloop_handle": [2, TURNS],
    }
    assert list(figures.left_out) == ["pydantic_ai_agent"]
    assert figures.kept.rounds == 12
    assert set(figures.checkpoints.values()) == {"not set up; `make bench` does that"}
    said = page.text(figures)
    assert "pydantic-ai (not measured: not set up; `make bench` does that)" in said
    assert "CPython" in said


def test_a_peer_that_fails_is_left_out_and_the_project_s_own_is_not(recorder: str) -> None:
    """A peer's fault is its row's; a fault of ours stops the gather."""
    nobody = Contestant("nobody", "nobody")
    extent = evolve(gather.QUICK, contestants=(evolve(nobody, is_peer=True),), lengths=(2,), runs=2, seconds=A_MOMENT)
    python = Path(sys.executable)
    assert gather.cpu_per_turn(extent, recorder, python, "") == ({}, {"nobody": "it failed"})
    with pytest.raises(subprocess.CalledProcessError):
        gather.cpu_per_turn(evolve(extent, contestants=(nobody,)), recorder, python, "")


def test_the_profile_says_of_which_part_a_bytecode_is() -> None:
    """Nothing is left out of the table, and the floor passes by toolloop and the SDK."""
    found = counts("floor")
    parts = by_part(found)
    assert sum(parts.values()) == pytest.approx(sum(found.values()) / PROFILED)
    assert parts["httpx2"] > parts["the benchmark: its tool, its loop"] > 0
    assert parts["toolloop: the machine"] == parts["the SDK"] == 0
