"""Loop detection over HTTP: events, the message to the model, and the count of a loop that was stored."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from attrs import define, field

from tests.kit.concurrency import async_wire, either_kind, run_async, sync_wire
from tests.kit.each import each
from tests.kit.support import expect_completed, results_in
from tests.kit.tools import params, user
from tests.kit.world import open_over_http
from toolloop import Completed, Continue, LoopConfig, LoopDetection, Texts, ToolLoopHandle, sub_loop, tool
from toolloop.events import LoopFinished, MessageHeld, RepetitionDetected
from toolloop.terminations import LoopDetected, NaturalEnd
from toolloop.testing import ScriptedProvider, call, reply

SEARCH = reply(calls=[("search", {"query": "the same"})])
END = reply("end")


@tool
def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


@tool
def read(path: str) -> str:
    """Read a file."""
    return f"text of {path}"


@define
class Lived:
    """A loop that was driven to its end over HTTP; the API refused nothing. `sent`: the messages of each request."""

    done: Completed
    sent: list[Any]
    seen: list[Any] = field(factory=list)

    def circles(self) -> list[Any]:
        return [event for event in self.seen if isinstance(event, RepetitionDetected)]


def live(kind: str, script: Any, **config: Any) -> Lived:
    """Drive such a loop."""
    seen: list[Any] = []
    parts: dict[str, Any] = {"observers": [seen.append], **config}
    if kind == "sync":
        with sync_wire(script, [search, read], **parts) as (handle, api):
            return Lived(handle.run().unwrap(), [request.json["messages"] for request in api.requests], seen)

    async def main() -> Lived:
        async with async_wire(script, [search, read], **parts) as (handle, api):
            done = (await handle.run()).unwrap()
            return Lived(done, [request.json["messages"] for request in api.requests], seen)

    return run_async(kind, main)


def warning(name: str, count: int) -> dict[str, Any]:
    return user(Texts().loop_warning.format(name=name, count=count))


# --- the ancestor's checklist, "Loop detection" ----------------------------------------------------------------------


def test_the_defaults() -> None:
    """Three times in a row, and a warning; without a setting, no configuration looks for loops."""
    assert LoopDetection() == LoopDetection(threshold=3, action="warn")
    assert LoopConfig().loop_detection is None


def test_the_repr_of_a_configuration_shows_the_setting() -> None:
    """It shows in the configuration."""
    assert "loop_detection=LoopDetection(threshold=3, action='stop')" in repr(
        LoopConfig(loop_detection=LoopDetection(action="stop"))
    )


@either_kind
def test_warn_tells_of_the_repetition_once_and_goes_on(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Exactly one event, at the third time; and the loop goes on."""
    with caplog.at_level(logging.WARNING, "toolloop"):
        lived = live(kind, [SEARCH, SEARCH, SEARCH, END], loop_detection=LoopDetection())
    assert lived.circles() == [RepetitionDetected(3, "search", 3, "warn")]
    assert (lived.done.termination, lived.done.iterations) == (NaturalEnd(), 4)
    assert "identical arguments" not in str(lived.sent)
    (record,) = (known for known in caplog.records if "in a row" in known.message)
    told = {name: getattr(record, name) for name in ("loop_id", "tool", "count")}
    assert (record.name, told) == ("toolloop", {"loop_id": "loop", "tool": "search", "count": 3})


def test_stop_ends_the_loop_before_the_round_runs() -> None:
    """An end, not an error: no call of the round ran, none was judged, and each has a result that says so."""
    asked: list[str] = []

    def policy(shown: Any, view: Any) -> None:
        asked.append(shown.name)

    lived = live("sync", [SEARCH] * 3, loop_detection=LoopDetection(action="stop"), on_tool_call=policy)
    assert (lived.done.termination, lived.done.iterations) == (LoopDetected("search", 3), 3)
    assert asked == ["search", "search"]
    assert lived.seen[-2:] == [RepetitionDetected(3, "search", 3, "stop"), LoopFinished(3, LoopDetected("search", 3))]


def test_inject_warning_tells_the_model() -> None:
    """The fourth request holds it; as a user message of its own, after the results of the round it is about."""
    lived = live("sync", [SEARCH, SEARCH, SEARCH, END], loop_detection=LoopDetection(action="inject_warning"))
    assert lived.done.iterations == 4
    *before, results, told = lived.sent[3]
    assert told == warning("search", 3)
    assert "identical arguments" in told["content"]
    assert [block["content"] for block in results_in(results)] == ["nothing about the same"]
    assert "identical arguments" not in str(before)
    assert lived.circles() == [RepetitionDetected(3, "search", 3, "inject_warning")]
    assert [event for event in lived.seen if isinstance(event, MessageHeld)] == [MessageHeld(3, 1)]


# --- beyond it -------------------------------------------------------------------------------------------------------


@each(
    ("bad", "words"),
    [
        (3, "loop_detection is 3"),
        (LoopDetection(threshold=0), "loop_detection.threshold is 0"),
        (LoopDetection(threshold=-1), "loop_detection.threshold is -1"),
        (LoopDetection(threshold=True), "loop_detection.threshold is True"),
        (LoopDetection(threshold=2.0), "loop_detection.threshold is 2.0"),  # type: ignore[arg-type]  # refused
        (LoopDetection(threshold=None), "loop_detection.threshold is None"),  # type: ignore[arg-type]  # likewise
        (LoopDetection(action="panic"), "loop_detection.action is 'panic'; give one of warn, stop"),  # type: ignore[arg-type]  # likewise
    ],
)
def test_a_bad_value_names_its_field(bad: Any, words: str) -> None:
    """At once: a threshold of nought would divide by it later."""
    with pytest.raises(ValueError, match=words):
        LoopConfig(loop_detection=bad)


@each("action", ["warn", "stop", "inject_warning"])
def test_a_snapshot_keeps_the_count_and_the_setting(action: Any) -> None:
    """Stored and restored after every turn: found at the same round, reported once."""
    seen: list[Any] = []
    provider, config = ScriptedProvider([SEARCH] * 3 + [END]), LoopConfig(loop_detection=LoopDetection(action=action))
    handle = ToolLoopHandle(provider, params=params(), tools=[search], config=config)
    while not isinstance(turn := handle.next_turn(), Completed):
        seen += turn.events
        handle = ToolLoopHandle.restore(handle.snapshot(), provider, tools=[search])
        handle.resume(Continue())
    circles = [event for event in (*seen, *turn.events) if isinstance(event, RepetitionDetected)]
    assert circles == [RepetitionDetected(3, "search", 3, action)]
    assert turn.termination == (LoopDetected("search", 3) if action == "stop" else NaturalEnd())
    assert (warning("search", 3) in handle.messages) == (action == "inject_warning")


def test_a_loop_inside_a_call_is_looked_at_by_itself() -> None:
    """It ends, its call says so, and the event names its path; the loop above goes on."""
    inner = {"model": "claude-opus-5-5", "max_tokens": 100}
    config = LoopConfig(loop_detection=LoopDetection(2, "stop"))
    child = sub_loop("ask", "Ask a person.", params=inner, tools=[search], config=config)
    asks_child = reply(calls=[call("ask", {"prompt": "find it"}, id="t1")])
    seen: list[Any] = []
    with open_over_http([asks_child, SEARCH, SEARCH, END], tools=[child], observers=[seen.append]) as at:
        assert expect_completed(at.handle.run()).text == "end"
        (result,) = results_in(at.list_sent()[-1])
    assert (result["is_error"], "loop detected" in result["content"]) == (True, True)
    assert [event for event in seen if isinstance(event, RepetitionDetected)] == [
        RepetitionDetected(2, "search", 2, "stop", path=("t1",))
    ]
