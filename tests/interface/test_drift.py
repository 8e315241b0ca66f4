"""Waking up with other tools, policies and parameters: what is adopted, and what raises `Drift` once it is driven."""

from __future__ import annotations

import logging
import threading
from typing import Annotated, Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.kit.concurrency import cross
from tests.kit.each import each
from tests.kit.support import expect_yielded, results_in
from tests.kit.tools import MODEL, TOOLS, add, look, params, write
from tests.kit.world import World, open_over_http
from toolloop import Answer, Approve, LoopConfig, LoopContext, ToolLoopHandle, tool
from toolloop.errors import Drift
from toolloop.events import DriftAdopted, WatchEvent
from toolloop.machine import Judging
from toolloop.machine.values.jsontext import decode
from toolloop.terminations import StopCondition
from toolloop.testing import FakeMessagesAPI, ScriptedProvider, call, reply

LOOKUP = {"name": "lookup", "description": "Look up.", "input_schema": {"type": "object", "properties": {}}}
WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")


def policy(*_: Any) -> None:
    """A policy without an opinion."""


# --- any change of a loop in which a call of `write` waits -----------------------------------------------------------


@tool(name="save", needs_approval=lambda _: True)
def save(path: str) -> str:
    """Save a file."""
    return path


@tool(name="write", needs_approval=True)
def reworded(path: Annotated[str, "Where to."], text: str) -> str:
    """Replace a whole text file."""
    return path + text


@tool(name="write", needs_approval=True)
def other_schema(path: str, text: str, mode: str = "w") -> str:
    """Replace a text file."""
    return path + text + mode


def make_other(old: Any, **options: Any) -> Any:
    """The same tool with other options."""
    kept = {"needs_approval": old.needs_approval, "effect": old.effect}
    return tool(old.function, name=old.name, **{**kept, **options})


@tool(name="save", needs_approval=lambda _: True)
def other_save(name: str) -> str:
    """Save a file."""
    return name


@tool
def lookup() -> str:
    """Look up."""
    return "found"


# What may be different: the tools in place of `write` (a call of it waits) and of `save` (none does), a tool more, the
# configuration and the parameters; with the change that it makes, and whether that is adopted.
Kind = tuple[Any, str | None, bool]
OF_WRITE: list[Kind] = [
    (write, None, True),
    (None, "tool 'write' is missing", False),
    (reworded, "the definition of tool 'write' changed", True),
    (other_schema, "the schema of tool 'write' changed", False),
    (make_other(write, needs_approval=False), "the approval of tool 'write' changed from always to never", False),
    (make_other(write, needs_approval=policy), "the approval of tool 'write' changed from always to predicate", False),
    (make_other(write, effect="pure"), "the effect of tool 'write' changed from once to pure", False),
]
OF_SAVE: list[Kind] = [
    (save, None, True),
    (None, "tool 'save' is missing", True),
    (other_save, "the schema of tool 'save' changed", True),
    (make_other(save, needs_approval=False), "the approval of tool 'save' changed from predicate to never", False),
    (make_other(save, needs_approval=True), "the approval of tool 'save' changed from predicate to always", True),
    (make_other(save, effect="keyed"), "the effect of tool 'save' changed from once to keyed", False),
]
OF_TOOLS: list[Kind] = [(None, None, True), (look, "tool 'look' is new", True)]
OF_CONFIG: list[Kind] = [
    ({"on_tool_call": policy}, None, True),
    ({}, "config.on_tool_call is missing", False),
    ({"on_tool_call": policy, "stop_when": policy}, "config.stop_when is new", True),
    ({"on_tool_call": policy, "max_iterations": 7}, "config.max_iterations changed", True),
    ({"on_tool_call": policy, "tool_timeout": 7}, "config.tool_timeout changed", True),
]
OF_PARAMS: list[Kind] = [
    (None, None, True),
    (params(), None, True),
    (params(timeout=5, extra_headers={"x-mine": "1"}), None, True),
    (params(model="claude-opus-5"), "parameter 'model' changed", True),
    (params(system="New."), "parameter 'system' changed", True),
    (params(tools=[LOOKUP]), "parameter 'tools' changed", True),
]
ALL = (OF_WRITE, OF_SAVE, OF_TOOLS, OF_CONFIG, OF_PARAMS)
SAME = tuple(kinds[0] for kinds in ALL)
# One thing is different.
SINGLE = {
    kind[1]: (*SAME[:place], kind, *SAME[place + 1 :]) for place, kinds in enumerate(ALL) for kind in kinds if kind[1]
}


def asleep() -> dict[str, Any]:
    """A loop that waits for an approval."""
    provider, config = ScriptedProvider([reply(calls=[WRITE])]), LoopConfig(on_tool_call=policy)
    handle = ToolLoopHandle(provider, params=params(), tools=[write, save], config=config, loop_id="loop")
    expect_yielded(handle.next_turn())
    return handle.snapshot()


SNAPSHOT = asleep()


def awake(kinds: tuple[Kind, ...], on_drift: Any = "raise", seen: Any = None) -> ToolLoopHandle:
    """The loop with these things."""
    (one, _, _), (two, _, _), (three, _, _), (config, _, _), (asked, _, _) = kinds
    observers = [] if seen is None else [seen.append]
    return ToolLoopHandle.restore(
        SNAPSHOT,
        ScriptedProvider([reply("done")] * 3),
        tools=[each for each in (one, two, three) if each is not None],
        config=LoopConfig(**config, observers=observers),
        params=asked,
        on_drift=on_drift,
    )


def read_stream(handle: ToolLoopHandle) -> None:
    with handle.stream() as stream:
        list(stream)


def command(handle: ToolLoopHandle) -> None:
    if handle.pending_turn is not None:
        handle.pending_turn.continue_loop()
    handle.next_turn()


def check(kinds: tuple[Kind, ...], on_drift: Any) -> None:
    """Look, decide, and drive."""
    changes = [change for _, change, _ in kinds if change]
    unsafe = [change for _, change, is_adopted in kinds if change and not is_adopted]
    refused = {"raise": unsafe, "strict": changes, "accept": []}[on_drift]
    seen: list[WatchEvent] = []
    handle = awake(kinds, on_drift, seen)
    assert [each.id for each in handle.pending] == [each["id"] for each in handle.view()["pending"]] == ["toolu_w"]
    assert expect_yielded(handle.run()).pending == handle.pending
    assert handle.snapshot() == SNAPSHOT
    handle.decide({"toolu_w": Approve()})
    if not refused:
        if any("'write'" in change and "missing" not in change for change in unsafe):
            assert [each.id for each in expect_yielded(handle.run()).pending] == [
                "toolu_w"
            ]  # its approval counts no more
            handle.decide({"toolu_w": Approve()})
        assert handle.run().unwrap().text == "done"
        adopted = [event.changes for event in seen if isinstance(event, DriftAdopted)]
        assert [set(found) for found in adopted] == ([set(changes)] if changes else [])
        return
    before = handle.snapshot()
    for drive in (ToolLoopHandle.run, read_stream, command, ToolLoopHandle.run):
        with pytest.raises(Drift, match=r'Restore it, or pass on_drift="accept"') as caught:
            drive(handle)
        assert set(caught.value.changes) == set(refused)
        assert all(change in str(caught.value) for change in refused)
        if drive is command:  # its command stands
            before = handle.snapshot()
        assert handle.snapshot() == before
    assert not any(isinstance(event, DriftAdopted) for event in seen)
    handle.stop()
    assert isinstance(handle.run().unwrap().termination, StopCondition)


@each("change", SINGLE)
def test_drift_is_judged_where_a_loop_is_driven(change: str) -> None:
    """Not for a caller that looks or decides. It names unsafe parts, under `strict` any change; else all is adopted."""
    for on_drift in ("raise", "strict", "accept"):
        check(SINGLE[change], on_drift)


@settings(deadline=None)
@given(st.tuples(*map(st.sampled_from, ALL)), st.sampled_from(("raise", "strict", "accept")))
def test_drift_names_every_change_that_it_refuses(kinds: tuple[Kind, ...], on_drift: str) -> None:
    """Whatever else is different."""
    check(kinds, on_drift)


def test_adopted_drift_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A line says what is different; the loop has it from then on."""
    handle = awake(SINGLE["parameter 'model' changed"])
    with caplog.at_level(logging.INFO, "toolloop"):
        handle.decide({"toolu_w": Approve()})
        handle.run()
        handle.follow_up("more")
        handle.run()
    (line,) = [record.getMessage() for record in caplog.records if "configuration" in record.getMessage()]
    assert "parameter 'model' changed" in line
    assert decode(handle.state.root.setup.params)["model"] == "claude-opus-5"


def test_what_is_changed_before_a_loop_is_driven_leaves_the_rest_of_what_was_given() -> None:
    """Each parameter and limit counts for itself."""
    given = (*SAME[:3], ({"on_tool_call": policy, "max_iterations": 7, "timeout": 60}, None, True))
    handle = awake((*given, (params(system="New."), None, True)))
    handle.update_params(max_tokens=77)
    handle.extend(max_iterations=9)
    handle.decide({"toolu_w": Approve()})
    assert handle.run().unwrap().text == "done"
    setup = handle.state.root.setup
    assert decode(setup.params) == {"model": MODEL, "max_tokens": 77, "system": "New."}
    assert (setup.limits.max_iterations, setup.limits.timeout) == (9, 60)


def test_a_loop_that_has_ended_is_not_judged() -> None:
    """There is nothing to drive; a further user turn is."""
    with open_over_http([reply("fine")]) as at:
        at.expect_done()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS[1:], on_drift="strict")
        assert copy.run().unwrap().text == "fine"
        copy.follow_up("more")
        with pytest.raises(Drift, match="tool 'add' is missing"):
            copy.run()


@each(
    ("stored", "tools", "problem"),
    [
        ({"tools": [LOOKUP]}, [lookup], "two tools are named 'lookup'"),
        ({"tool_choice": {"type": "tool", "name": "write"}}, [look], "'write'"),
    ],
)
def test_parameters_that_no_longer_fit_the_tools_are_drift(stored: Any, tools: Any, problem: str) -> None:
    """The API would refuse each request, whatever is accepted; other parameters mend it."""
    with open_over_http([reply("fine")], tools=[write], asked=params(**stored)) as at:
        snapshot = at.handle.snapshot()
        for on_drift in ("raise", "accept"):
            copy = ToolLoopHandle.restore(snapshot, at.api.client(), tools=tools, on_drift=on_drift)
            assert copy.snapshot() == snapshot
            with pytest.raises(Drift, match=problem):
                copy.run()
        mended = ToolLoopHandle.restore(snapshot, at.api.client(), tools=tools, params=params())
        assert mended.run().unwrap().text == "fine"


def test_the_model_learns_of_a_tool_that_is_gone() -> None:
    """Accepted drift: a call that was approved for a tool that is no longer there cannot run."""
    with open_over_http([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().approve_all()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=[add], on_drift="accept")
        assert copy.run().unwrap().text == "fine"
        (result,) = results_in(at.list_sent()[-1])
        assert result["is_error"] is True
        assert "'write'" in result["content"]


def test_an_external_name_stays_external() -> None:
    """Which names were external is part of the snapshot: without params it still waits for its answer."""
    external = call("lookup", {}, id="toolu_e")
    with open_over_http([reply(calls=[external]), reply("fine")], asked=params(tools=[LOOKUP])) as at:
        at.turn()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS)
        assert [call.why for call in copy.pending] == ["external"]
        assert copy.pending_turn is not None
        copy.pending_turn.answer("toolu_e", "found")
        assert copy.run().unwrap().text == "fine"


@pytest.mark.parametrize("word", ["ignore", "", None])
def test_on_drift_takes_three_words(word: Any) -> None:
    """Anything else is a mistake."""
    with open_over_http([]) as at, pytest.raises(ValueError, match="on_drift"):
        ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS, on_drift=word)


@pytest.mark.parametrize(
    "part", [{"params": "x"}, {"config": {}}, {"tools": 5}, {"context": 5}, {"provider": object()}]
)
def test_bad_parts_are_refused_at_restore(part: dict[str, Any]) -> None:
    """As they are when a handle is made."""
    with open_over_http([]) as at:
        given = {"provider": at.api.client(), "tools": TOOLS, **part}
        with pytest.raises(TypeError, match=next(iter(part))):
            ToolLoopHandle.restore(at.handle.snapshot(), given.pop("provider"), **given)


EXTERNAL = {"name": "write", "input_schema": {"type": "object"}}


def wake(at: World, *tools: Any, **parts: Any) -> ToolLoopHandle:
    """The same loop in another process, among these tools."""
    context = LoopContext(state=at.did)
    return ToolLoopHandle.restore(
        at.handle.snapshot(), at.api.client(), tools=tools, context=context, on_drift="accept", **parts
    )


def list_sent_results(at: World) -> list[str]:
    return [str(block["content"]) for block in results_in(at.list_sent()[-1])]


def go_half_way(api: FakeMessagesAPI) -> tuple[dict[str, Any], tuple[Any, ...], list[str]]:
    """A snapshot taken while a call of effect once and one of effect pure run; the tools, and what ran."""
    handles: list[ToolLoopHandle] = []
    snapshots: list[dict[str, Any]] = []
    ran: list[str] = []
    both = threading.Barrier(2)

    @tool
    def careful() -> str:
        """Run once."""
        ran.append("careful")
        if not snapshots:
            cross(both)
            snapshots.append(handles[0].snapshot())
            cross(both)
        return "careful"

    @tool(effect="pure")
    def harmless() -> str:
        """Run as often as you like."""
        ran.append("harmless")
        if not snapshots:
            cross(both)
            cross(both)
        return "harmless"

    tools = (careful, harmless)
    handles.append(ToolLoopHandle(api.client(), params=params(), tools=tools, loop_id="loop"))
    expect_yielded(handles[0].next_turn())
    ran.clear()
    return snapshots[0], tools, ran


SCRIPT = [reply(calls=[call("careful", id="toolu_c"), call("harmless", id="toolu_h")]), reply("fine")]


def test_what_waits_can_be_seen_and_decided_right_after_waking_up() -> None:
    """A call that a kill left uncertain waits at once, though the policies are still to judge the other."""
    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, ran = go_half_way(api)
        copy = ToolLoopHandle.restore(snapshot, api.client(), tools=tools)
        assert [(each.id, each.why) for each in copy.pending] == [("toolu_c", "uncertain")]
        assert [each["id"] for each in copy.view()["pending"]] == ["toolu_c"]
        copy.decide({"toolu_c": Answer("it had ended")})
        assert copy.pending == ()
        assert copy.run().unwrap().text == "fine"
        assert ran == ["harmless"]
        told = [block["content"] for block in results_in(api.requests[-1].json["messages"][-1])]
        assert (told, api.refused) == (["it had ended", "harmless"], [])


def test_calls_can_be_decided_while_the_policies_judge() -> None:
    """A decision that is made while another call is judged joins this very turn."""
    handles: list[ToolLoopHandle] = []

    def policy(asked: Any, view: Any) -> None:
        if isinstance(handles[-1].state.root.phase, Judging) and handles[-1].pending:
            handles[-1].decide({"toolu_c": Answer("it had ended")})

    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, ran = go_half_way(api)
        config = LoopConfig(on_tool_call=policy)
        handles.append(ToolLoopHandle.restore(snapshot, api.client(), tools=tools, config=config, on_drift="accept"))
        assert handles[0].run().unwrap().text == "fine"
        assert (ran, api.refused) == (["harmless"], [])


def test_what_may_no_longer_be_repeated_waits() -> None:
    """A call that a kill interrupted was to run again by itself; its tool is accepted with another effect."""
    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, (careful, harmless), ran = go_half_way(api)
        tools = (careful, make_other(harmless, effect="once"))
        copy = ToolLoopHandle.restore(snapshot, api.client(), tools=tools, on_drift="accept")
        copy.decide({"toolu_c": Answer("it had ended")})
        turn = expect_yielded(copy.run())
        assert [(each.id, each.why) for each in turn.pending] == [("toolu_h", "uncertain")]
        turn.rerun("toolu_h")
        assert copy.run().unwrap().text == "fine"
        assert ran == ["harmless"]


def test_a_rerun_of_a_tool_that_is_gone_settles_the_call() -> None:
    """It cannot run again: the model gets a result that says so, and that the first run may have had effects."""
    with FakeMessagesAPI(SCRIPT) as api:
        snapshot, tools, _ = go_half_way(api)
        copy = ToolLoopHandle.restore(snapshot, api.client(), tools=tools[1:], on_drift="accept")
        turn = expect_yielded(copy.next_turn())
        turn.rerun("toolu_c", by="ana")
        assert copy.run().unwrap().text == "fine"
        first, second = results_in(api.requests[-1].json["messages"][-1])
        assert (first["is_error"], second["content"]) == (True, "harmless")
        assert "may have had effects" in first["content"]
        assert "did not run" not in first["content"]
        assert api.refused == []


def test_a_call_whose_tool_became_external_waits_for_its_answer() -> None:
    """An approval does not answer it: what the caller approved was a tool of this loop's."""
    with open_over_http([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().approve_all()
        copy = wake(at, look, params=params(tools=[EXTERNAL]))
        turn = expect_yielded(copy.run())
        assert [(each.id, each.why) for each in turn.pending] == [("toolu_w", "external")]
        turn.answer("toolu_w", "written elsewhere")
        assert copy.run().unwrap().text == "fine"
        assert (list_sent_results(at), at.did) == (["written elsewhere"], [])
