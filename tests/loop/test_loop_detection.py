"""Loop detection over HTTP: events, the message to the model, and the count of a loop that was stored."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests.each import each
from tests.loop.concurrency import async_wire, either_kind, run_async, sync_wire
from tests.loop.stored import World, each_store, store_at
from tests.loop.support import completed, params, results_in, scene, user, yielded
from toolloop import Completed, Continue, LoopConfig, LoopDetection, Texts, ToolLoopHandle, sub_loop, tool
from toolloop.events import LoopDetected, LoopFinished, MessageHeld
from toolloop.machine.jsontext import encode
from toolloop.terminations import LoopDetected as Circle
from toolloop.terminations import MaxIterations, NaturalEnd
from toolloop.testing import ScriptedProvider, call, reply, server_call, server_result

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
        return [event for event in self.seen if isinstance(event, LoopDetected)]


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


def test_loop_detection_config_default() -> None:
    """Three times in a row, and a warning; and no configuration looks unless it is told to."""
    assert LoopDetection() == LoopDetection(threshold=3, action="warn")
    assert LoopConfig().loop_detection is None


def test_loop_action_equality() -> None:
    """Two are equal if they say the same."""
    assert LoopDetection(action="stop") == LoopDetection(action="stop") != LoopDetection(action="warn")


def test_tool_loop_config_debug_with_loop_detection() -> None:
    """It shows in the configuration."""
    assert "loop_detection=LoopDetection(threshold=3, action='stop')" in repr(
        LoopConfig(loop_detection=LoopDetection(action="stop"))
    )


def test_loop_detection_state_no_loop() -> None:
    """Other arguments each time are no circle."""
    script = [reply(calls=[("search", {"query": str(number)})]) for number in range(5)]
    assert live("sync", [*script, END], loop_detection=LoopDetection()).circles() == []


@either_kind
def test_tool_loop_detects_loop_warn(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """`loop_detection_state_detects_loop` too: exactly one event, at the third time; and the loop goes on."""
    with caplog.at_level(logging.WARNING, "toolloop"):
        lived = live(kind, [SEARCH, SEARCH, SEARCH, END], loop_detection=LoopDetection())
    assert lived.circles() == [LoopDetected(3, "search", 3, "warn")]
    assert (lived.done.termination, lived.done.iterations) == (NaturalEnd(), 4)
    assert "identical arguments" not in str(lived.sent)
    (record,) = (known for known in caplog.records if "alike" in known.message)
    told = {name: getattr(record, name) for name in ("loop_id", "tool", "count")}
    assert (record.name, told) == ("toolloop", {"loop_id": "loop", "tool": "search", "count": 3})


def test_tool_loop_detects_loop_stop() -> None:
    """An end, no error: nothing of the round ran, nobody was asked about it, and its calls are told so."""
    asked: list[str] = []

    def policy(shown: Any, view: Any) -> None:
        asked.append(shown.name)

    lived = live("sync", [SEARCH] * 3, loop_detection=LoopDetection(action="stop"), on_tool_call=policy)
    assert (lived.done.termination, lived.done.iterations) == (Circle("search", 3), 3)
    assert asked == ["search", "search"]
    assert lived.seen[-2:] == [LoopDetected(3, "search", 3, "stop"), LoopFinished(3, Circle("search", 3))]


def test_tool_loop_detects_loop_inject_warning() -> None:
    """The fourth request holds it; PY: as a user message of its own, after the results of the round it is about."""
    lived = live("sync", [SEARCH, SEARCH, SEARCH, END], loop_detection=LoopDetection(action="inject_warning"))
    assert lived.done.iterations == 4
    *before, results, told = lived.sent[3]
    assert told == warning("search", 3)
    assert "identical arguments" in told["content"]
    assert [block["content"] for block in results_in(results)] == ["nothing about the same"]
    assert "identical arguments" not in str(before)
    assert lived.circles() == [LoopDetected(3, "search", 3, "inject_warning")]
    assert [event for event in lived.seen if isinstance(event, MessageHeld)] == [MessageHeld(3, 1)]


def test_tool_loop_no_false_positive_different_args() -> None:
    """Three different queries under `stop` complete."""
    script = [reply(calls=[("search", {"query": word})]) for word in ("one", "two", "three")]
    done = live("sync", [*script, END], loop_detection=LoopDetection(action="stop")).done
    assert (done.termination, done.iterations) == (NaturalEnd(), 4)


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


@each(("threshold", "counts"), [(1, list(range(1, 10))), (2, [2, 4, 6, 8]), (3, [3, 6, 9])])
def test_each_multiple_is_told(threshold: int, counts: list[int]) -> None:
    """And a threshold of one is reached by the first round."""
    lived = live("sync", [SEARCH] * 9 + [END], loop_detection=LoopDetection(threshold, "inject_warning"))
    assert [(event.iteration, event.count) for event in lived.circles()] == [(count, count) for count in counts]
    assert [message["content"] for message in lived.sent[-1] if isinstance(message["content"], str)] == [
        "hello",
        *(warning("search", count)["content"] for count in counts),
    ]


def test_calls_in_another_order_are_the_same_round() -> None:
    """Parallel calls may change places. Rounds that take turns (A-B-A-B) are not a repetition."""
    pair = [("search", {"query": "x"}), ("read", {"path": "y"})]
    one, other = ([call(name, given) for name, given in order] for order in (pair, pair[::-1]))
    lived = live("sync", [reply(calls=one), reply(calls=other)], loop_detection=LoopDetection(2, "stop"))
    assert lived.done.termination == Circle("read+search", 2)
    rounds = [reply(calls=[each]) for each in pair] * 2
    assert live("sync", [*rounds, END], loop_detection=LoopDetection(2, "stop")).done.termination == NaturalEnd()


def test_a_tool_whose_results_change_may_be_asked_again_and_again() -> None:
    """To wait for something is progress."""
    percent = iter(range(0, 100, 10))

    @tool
    def progress() -> str:
        """Say how far it is."""
        return f"{next(percent)} %"

    script = [reply(calls=[("progress", {})])] * 6
    with scene([*script, END], tools=[progress], loop_detection=LoopDetection(action="stop")) as at:
        assert completed(at.handle.run()).termination == NaturalEnd()


def test_a_further_user_turn_begins_anew_and_extend_is_none() -> None:
    """A circle is no limit that could be raised; what the user says next may help."""
    with scene([SEARCH, SEARCH, SEARCH, END], tools=[search], loop_detection=LoopDetection(2, "stop")) as at:
        done = at.handle.run().unwrap()
        assert done.termination == Circle("search", 2)
        at.handle.extend(max_iterations=99)
        assert completed(at.handle.run()).termination == done.termination
        at.handle.follow_up([user("try once more")])
        assert completed(at.handle.run()).termination == NaturalEnd()


def test_stop_when_comes_before_and_sees_the_round() -> None:
    """What it says is how the loop ends, and nobody is told of a circle."""
    lived = live(
        "sync",
        [SEARCH, SEARCH],
        loop_detection=LoopDetection(2, "stop"),
        stop_when=lambda view: "enough" if view.iteration == 2 else None,
    )
    assert lived.done.termination.kind == "stop_condition"
    assert lived.circles() == []


def test_an_edit_and_a_command_in_the_round_warn_once() -> None:
    """The call waits, its edited input is judged again, and what the caller says comes after the warning."""
    writes = reply(calls=[("write", {"path": "p", "text": "t"})])
    with scene([writes, writes, END], loop_detection=LoopDetection(2, "inject_warning")) as at:
        waits = at.turn()
        waits.approve_all()
        waits.continue_loop()
        at.turn().continue_loop()
        turn = at.turn()
        turn.approve(turn.pending[0], input={"path": "q", "text": "t"})
        turn.inject_and_continue([user("careful")])
        assert completed(at.handle.run()).text == "end"
        assert at.sent()[-2:] == [warning("write", 2), user("careful")]
        assert at.ran == [("write", "p", "t"), ("write", "q", "t")]


# --- where nothing but results may follow ----------------------------------------------------------------------------

CODE = {"type": "code_execution_20260120", "name": "code_execution"}
WEB = {"type": "web_search_20250305", "name": "web_search"}
PROGRAM = server_call("code_execution", {"code": "search()"}, id="srvtoolu_c")
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_c"}
RAN = {"type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []}
DONE = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_c", "content": RAN}
BY_CODE = call("search", {"query": "x"}, caller=CALLER)
LOOKING = server_call("web_search", {"query": "x"}, id="srvtoolu_w")
FOUND = server_result("web_search", id="srvtoolu_w")
OPEN: dict[str, Any] = {
    "code": ([PROGRAM], BY_CODE, [DONE], {"container": "container_1"}),
    "server": ([LOOKING], call("search", {"query": "x"}), [FOUND], {}),
}


@each("what", OPEN)
def test_a_warning_waits_for_a_legal_place(what: str) -> None:
    """The round goes out with nothing but its results; the warning joins after the next round that stands alone."""
    begins, asks, ends, more = OPEN[what]
    script = [
        reply(content=begins, calls=[asks], **more),
        reply(content=ends, calls=[call("read", {"path": "p"})], **more),
        END,
    ]
    tools = params(tools=[CODE, WEB])
    config: dict[str, Any] = {
        "loop_detection": LoopDetection(1, "inject_warning"),
        "texts": Texts(loop_warning="{name} {count}"),
    }
    with scene(script, tools=[search, read], asked=tools, **config) as at:
        assert completed(at.handle.run()).text == "end"
        assert [len(at.sent(number)) for number in range(3)] == [1, 3, 6]
        assert at.sent()[-1] == user("read 1")
        assert [message for message in at.sent() if message["content"] == "search 1"] == []


@each("what", OPEN)
def test_a_model_that_found_its_way_out_is_not_warned_any_more(what: str) -> None:
    """It ended by itself, and no further request is made to tell it that it went in circles."""
    begins, asks, ends, more = OPEN[what]
    script = [
        reply(content=begins, calls=[asks], **more),
        reply(content=[*ends, {"type": "text", "text": "found"}], **more),
    ]
    detection = LoopDetection(1, "inject_warning")
    with scene(script, tools=[search], asked=params(tools=[CODE, WEB]), loop_detection=detection) as at:
        assert completed(at.handle.run()).text == "found"
        assert (at.count, at.handle.messages[-1]["role"]) == (2, "assistant")


def test_a_limit_after_the_round_leaves_the_warning_in_the_history() -> None:
    """What goes on from there is told."""
    with scene(
        [SEARCH, SEARCH, END], tools=[search], max_iterations=2, loop_detection=LoopDetection(2, "inject_warning")
    ) as at:
        assert completed(at.handle.run()).termination == MaxIterations(2)
        assert at.handle.messages[-1] == warning("search", 2)
        at.handle.extend(max_iterations=3)
        assert completed(at.handle.run()).text == "end"
        assert at.sent()[-1] == warning("search", 2)


# --- sleep -----------------------------------------------------------------------------------------------------------


def asks(number: int) -> Any:
    return reply(calls=[call("look", {"path": "a"}, id=f"t{number}")])


@each("action", ["warn", "stop", "inject_warning"])
def test_a_snapshot_keeps_the_count_and_the_setting(action: Any) -> None:
    """Asleep after every turn: found at the same round, told once."""
    seen: list[Any] = []
    provider, config = ScriptedProvider([SEARCH] * 3 + [END]), LoopConfig(loop_detection=LoopDetection(action=action))
    handle = ToolLoopHandle(provider, params=params(), tools=[search], config=config)
    while not isinstance(turn := handle.next_turn(), Completed):
        seen += turn.events
        handle = ToolLoopHandle.restore(handle.snapshot(), provider, tools=[search])
        handle.resume(Continue())
    circles = [event for event in (*seen, *turn.events) if isinstance(event, LoopDetected)]
    assert circles == [LoopDetected(3, "search", 3, action)]
    assert turn.termination == (Circle("search", 3) if action == "stop" else NaturalEnd())
    assert (warning("search", 3) in handle.messages) == (action == "inject_warning")


@each_store
def test_a_store_keeps_the_count(where: str, tmp_path: Path) -> None:
    """Each turn by another handle, of which one dies before it has judged: warned once, and told by who judged."""
    seen: list[Any] = []
    dies = iter([False, False, True])

    def stop_when(_view: Any) -> bool:
        if next(dies, False):
            raise OSError("the end of a process")
        return False

    detection = LoopDetection(action="inject_warning")
    config = {"loop_detection": detection, "stop_when": stop_when, "observers": [seen.append]}
    world = World("sync", store_at(where, tmp_path), [asks(1), asks(2), asks(3), reply("done")], config=config)
    for _ in range(2):
        party = world.open()
        yielded(party.next_turn()).continue_loop()
        party.close()
    party = world.open()
    with pytest.raises(OSError, match="the end of a process"):
        party.next_turn()
    party.close()
    assert [event for event in seen if isinstance(event, LoopDetected)] == []
    assert completed(world.open().run()).text == "done"
    assert [event for event in seen if isinstance(event, LoopDetected)] == [
        LoopDetected(3, "look", 3, detection.action)
    ]
    assert world.requests[-1]["messages"][-1] == warning("look", 3)
    assert world.state().root.messages[-2] == encode(warning("look", 3))
    world.assert_once()


def test_a_loop_inside_a_call_is_looked_at_by_itself() -> None:
    """It ends, its call says so, and who watches is told where it was; the loop above goes on."""
    inner = {"model": "claude-opus-5-5", "max_tokens": 100}
    config = LoopConfig(loop_detection=LoopDetection(2, "stop"))
    child = sub_loop("ask", "Ask somebody.", params=inner, tools=[search], config=config)
    asks_child = reply(calls=[call("ask", {"prompt": "find it"}, id="t1")])
    seen: list[Any] = []
    with scene([asks_child, SEARCH, SEARCH, END], tools=[child], observers=[seen.append]) as at:
        assert completed(at.handle.run()).text == "end"
        (result,) = results_in(at.sent()[-1])
    assert (result["is_error"], "loop detected" in result["content"]) == (True, True)
    assert [event for event in seen if isinstance(event, LoopDetected)] == [
        LoopDetected(2, "search", 2, "stop", path=("t1",))
    ]
