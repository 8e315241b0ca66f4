"""`snapshot` and `restore`: at every wait, in every state; the next request has the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from tests.handles.test_members import PAUSED, STATES, make_standing
from tests.interface.test_history_edits import ONWARD
from tests.kit.support import expect_completed, expect_yielded, results_in
from tests.kit.tools import TOOLS, params, user
from tests.kit.world import World, open_over_http
from toolloop import LoopConfig, LoopContext, Texts, ToolLoopHandle, tool
from toolloop.errors import MaxDepthExceeded, ModelError, UnreadableSnapshot
from toolloop.stores.codec import digest_snapshot
from toolloop.terminations import MaxIterations
from toolloop.testing import FakeMessagesAPI, call, fault, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
OTHER = call("write", {"path": "ä", "text": "\u2028"}, id="toolu_o")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
EDITED = {"path": "z", "text": "y"}


def sleep_and_wake(at: World, **more: Any) -> ToolLoopHandle:
    """The loop as another process would wake it: through JSON, with tools and a client of its own."""
    text = json.dumps(at.handle.snapshot())
    parts = {"tools": TOOLS, "context": LoopContext(state=at.did), **more}
    return ToolLoopHandle.restore(json.loads(text), at.api.client(), **parts)


@pytest.mark.parametrize("state", STATES)
def test_a_restored_loop_is_the_loop(state: str) -> None:
    """Restoring changes nothing: same snapshot, state, reads, view."""
    config = LoopConfig(stop_when=lambda view: False) if state == "Judging" else None
    with make_standing(state) as at:
        copy = sleep_and_wake(at, config=config)
        assert copy.snapshot() == at.handle.snapshot()
        assert copy.state == at.handle.state
        assert copy.view() == at.handle.view()
        assert (copy.loop_id, copy.depth, copy.iterations) == ("loop", at.handle.depth, at.handle.iterations)
        assert (copy.messages, copy.pending, copy.usage_log) == (
            at.handle.messages,
            at.handle.pending,
            at.handle.usage_log,
        )
        assert next(iter(at.handle.snapshot())) == "format"


@pytest.mark.parametrize("state", ONWARD)
def test_the_next_request_has_the_same_bytes(state: str) -> None:
    """Original and copy go on in the same way, and the API sees the same raw body."""
    with make_standing(state, reply("fine"), reply("fine")) as at:
        copy = evolve(at, handle=sleep_and_wake(at))
        count = at.count
        for each in (at, copy):
            ONWARD[state](each)
            assert each.handle.run().unwrap().text == "fine"
        first, second = at.api.requests[count:]
        assert first.body == second.body
        assert copy.handle.messages == at.handle.messages


def test_a_loop_that_sleeps_at_every_wait_sends_what_one_that_never_sleeps_sends() -> None:
    """Approvals, an edit, an injection, a pause, big integers, text beyond ASCII: byte by byte the same."""
    big = call("write", {"path": "n", "text": "x", "n": 12345678901234567890123}, id="toolu_b")
    script = [
        reply("Löschen?\ud83d\ude00", calls=[WRITE, OTHER, big]),
        reply(calls=[ADD], thinking="hm"),
        PAUSED,
        reply(
            "end", content=[{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_fake_000001", "content": []}]
        ),
        reply("end"),
    ]
    bodies = []
    for sleeps in (False, True):
        search = params(tools=[{"type": "web_search_20250305", "name": "web_search"}], system="Sei kurz. \u2028")
        with open_over_http(script, asked=search) as at:
            for step in range(20):
                handle = sleep_and_wake(at) if sleeps else at.handle
                at.handle = handle
                turn = handle.pending_turn
                if turn is None:
                    if handle.is_finished:
                        break
                    handle.next_turn()
                elif turn.pending:
                    chosen = turn.pending[0]
                    turn.approve(chosen, EDITED) if chosen.id == "toolu_w" else turn.approve(chosen)
                elif step % 2:
                    turn.inject_and_continue([user(f"iteration {turn.iterations}")])
                else:
                    turn.continue_loop()
            bodies.append([request.body for request in at.api.requests])
            assert expect_completed(at.handle.next_turn()).text == "end"
            assert len(at.did) == 3
    assert len(bodies[0]) == len(script)
    assert bodies[0] == bodies[1]


def test_an_error_survives_sleep_with_all_its_parts() -> None:
    """Status, type, retryable, seconds to wait, request id; `retry` works."""
    with open_over_http([fault(429, retry_after=7), reply("fine")]) as at:
        before = at.expect_failed()
        copy = sleep_and_wake(at)
        after = copy.next_turn()
        assert (type(after), after.error.__class__) == (type(before), ModelError)  # type: ignore[union-attr]
        assert vars(after.error) == vars(before.error)  # type: ignore[union-attr]
        assert (after.retryable, after.retry_after) == (True, 7.0)  # type: ignore[union-attr]
        copy.retry()
        assert copy.run().unwrap().text == "fine"


def test_the_depth_is_the_stored_one() -> None:
    """A context given at `restore` brings the state back, not another depth."""
    with open_over_http([], depth=3) as at:
        at.expect_failed()
        copy = sleep_and_wake(at, context=LoopContext(depth=0))
        assert copy.depth == 3
        assert isinstance(copy.into_result().error, MaxDepthExceeded)


def test_limits_are_the_stored_ones_unless_given() -> None:
    """No config keeps them; a config replaces them."""
    with open_over_http([reply(calls=[ADD]), reply("fine")], max_iterations=1) as at:
        at.turn()
        assert sleep_and_wake(at).run().unwrap().termination == MaxIterations(1)
        assert sleep_and_wake(at, config=LoopConfig(max_iterations=2)).run().unwrap().text == "fine"


@pytest.mark.parametrize(("effect", "why"), [("once", ["uncertain"]), ("pure", []), ("keyed", [])])
def test_a_call_that_was_running_is_uncertain_or_runs_again(effect: Any, why: list[str]) -> None:
    """A snapshot taken while tools ran: `once` waits for the caller, `pure` and `keyed` run again by themselves."""
    snapshots: list[dict[str, Any]] = []
    handles: list[ToolLoopHandle] = []

    @tool(name="sleeper", effect=effect)
    def sleeper() -> str:
        """Take a snapshot of the loop of this very call."""
        snapshots.append(handles[0].snapshot())
        return "done"

    with FakeMessagesAPI([reply(calls=[call("sleeper", id="toolu_s")]), reply("fine")]) as api:
        handles.append(ToolLoopHandle(api.client(), params=params(), tools=[sleeper], loop_id="loop"))
        expect_yielded(handles[0].next_turn())
        copy = handles[0] = ToolLoopHandle.restore(snapshots[0], api.client(), tools=[sleeper])
        assert [call.why for call in copy.pending] == why
        if why:
            expect_yielded(copy.next_turn()).answer("toolu_s", "it had ended")
        assert copy.run().unwrap().text == "fine"
        (result,) = results_in(api.requests[-1].json["messages"][-1])
        assert result["content"] == ("it had ended" if why else "done")
        assert len(snapshots) == (1 if why else 2)


def _make_damaging(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    def damage(snapshot: dict[str, Any]) -> Any:
        change(snapshot)
        return snapshot

    return damage


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "nothing": (lambda snapshot: None, "format"),
    "a text": (json.dumps, "format"),
    "a list": (lambda snapshot: [snapshot], "format"),
    "an empty object": (lambda snapshot: {}, "format"),
    "something else": (lambda snapshot: {"version": 1, "state": "Ready"}, "format"),
    "a newer format": (_make_damaging(lambda snapshot: snapshot.update(format=99)), "99"),
    "a format that is none": (_make_damaging(lambda snapshot: snapshot.update(format="1")), "'1'"),
    "a format that is true": (_make_damaging(lambda snapshot: snapshot.update(format=True)), "True"),
    "a format that is a fraction": (_make_damaging(lambda snapshot: snapshot.update(format=1.0)), r"1\.0"),
    "no digest": (_make_damaging(lambda snapshot: snapshot.pop("digest")), "damaged"),
    "a changed limit": (_make_damaging(lambda snapshot: snapshot["loops"][0].update(iterations=0)), "damaged"),
    "a lost field": (_make_damaging(lambda snapshot: snapshot["loops"][0]["phase"].pop("round")), "damaged"),
    "no loops": (_make_damaging(lambda snapshot: snapshot.pop("loops")), "damaged"),
    "another phase": (_make_damaging(lambda snapshot: snapshot["loops"][0].update(phase={"name": "Ready"})), "damaged"),
    "an added field": (_make_damaging(lambda snapshot: snapshot.update(more=1)), "damaged"),
    "a value that is not JSON": (_make_damaging(lambda snapshot: snapshot.update(more={1})), "damaged"),
}


@pytest.mark.parametrize(("damage", "word"), BROKEN.values(), ids=BROKEN)
def test_an_incomplete_snapshot_is_refused(damage: Callable[[dict[str, Any]], Any], word: str) -> None:
    """Damaged, foreign or newer: one error, which says which."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        at.turn()
        with pytest.raises(UnreadableSnapshot, match=word):
            ToolLoopHandle.restore(damage(at.handle.snapshot()), at.api.client(), tools=TOOLS)


def test_the_same_snapshot_restored_twice_is_two_loops() -> None:
    """It is not used up, and its dict is not kept."""
    with open_over_http([reply(calls=[WRITE]), reply("one"), reply("two")]) as at:
        at.turn()
        snapshot = at.handle.snapshot()
        text = json.dumps(snapshot)
        for words in ("one", "two"):
            copy = ToolLoopHandle.restore(snapshot, at.api.client(), tools=TOOLS)
            expect_yielded(copy.pending_turn).deny("toolu_w", "no")
            assert copy.run().unwrap().text == words
        assert json.dumps(snapshot) == text


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an unknown phase": lambda body: body["loops"][0]["phase"].update(name="Dreaming"),
    "no loops": lambda body: body.pop("loops"),
    "an empty tree": lambda body: body.update(loops=[]),
    "loops of another type": lambda body: body.update(loops=5),
    "an unknown field": lambda body: body.update(more=1),
    "an unknown field of a loop": lambda body: body["loops"][0].update(more=1),
    "a message that is not JSON": lambda body: body["loops"][0].update(messages=["{"]),
    "a message without a role": lambda body: body["loops"][0].update(messages=["{}"]),
    "an unknown termination": lambda body: body["loops"][0]["phase"]["termination"].update(kind="bored"),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_snapshot_whose_digest_fits_and_whose_content_does_not_is_refused(forge: Callable[[Any], Any]) -> None:
    """One error for whatever a foreign hand wrote, never a half-made loop."""
    with open_over_http([reply("so")]) as at:
        at.expect_done()
        body = {key: value for key, value in at.handle.snapshot().items() if key not in ("format", "digest")}
        forge(body)
        with pytest.raises(UnreadableSnapshot):
            ToolLoopHandle.restore({"format": 1, "digest": digest_snapshot(body), **body}, at.api.client(), tools=TOOLS)


@pytest.mark.parametrize("state", [state for state in STATES if state not in ("Judging", "TooDeep")])
def test_a_fork_stands_where_its_original_stands(state: str) -> None:
    """Same state, history, usage and limits; an id of its own; the original is untouched."""
    with make_standing(state) as at:
        before = at.handle.snapshot()
        copy = at.handle.fork()
        assert at.handle.snapshot() == before
        assert (type(copy.state), copy.messages, copy.usage_log) == (
            type(at.handle.state),
            at.handle.messages,
            at.handle.usage_log,
        )
        assert copy.loop_id != at.handle.loop_id
        assert at.handle.fork("mine").loop_id == "mine"


def test_two_copies_go_their_own_ways() -> None:
    """What one does, the other does not see."""
    with open_over_http([reply(calls=[WRITE]), reply("one"), reply("two")]) as at:
        turn = at.turn()
        copy = at.handle.fork()
        turn.deny("toolu_w", "no")
        assert [call.status for call in copy.pending] == ["waiting"]
        assert at.handle.run().unwrap().text == "one"
        copied = expect_yielded(copy.pending_turn)
        copied.approve_all()
        assert copy.run().unwrap().text == "two"
        assert results_in(at.list_sent(1)[-1])[0]["is_error"] is True
        assert "is_error" not in results_in(at.list_sent(2)[-1])[0]


def test_a_started_call_is_uncertain_in_a_copy() -> None:
    """Forked while a tool runs: the copy cannot know how it ends, and runs it only if told so by name."""
    copies: list[Any] = []

    @tool
    def forks() -> str:
        """Fork the loop of this very call, the first time."""
        if not copies:
            copies.append(handles[0].fork())
        return "done"

    handles: list[Any] = []
    with open_over_http(
        [reply(calls=[call("forks", id="toolu_f")]), reply("fine"), reply("copied")], tools=[forks]
    ) as at:
        handles.append(at.handle)
        assert at.handle.run().unwrap().text == "fine"
        (copy,) = copies
        turn = expect_yielded(copy.pending_turn)
        assert [(call.id, call.why) for call in turn.pending] == [("toolu_f", "uncertain")]
        turn.deny("toolu_f", "who knows")
        assert copy.run().unwrap().text == "copied"
        assert results_in(at.list_sent(2)[-1])[0]["content"] == Texts().uncertain.format(reason="who knows")


def test_headers_of_one_copy_do_not_change_with_the_other() -> None:
    """Parameters of each are its own, the secret ones too."""
    with open_over_http([reply("one"), reply("two")]) as at:
        copy = at.handle.fork()
        copy.update_params(extra_headers={"x-mine": "copy"}, max_tokens=9)
        at.handle.run()
        copy.run()
        assert ["x-mine" in request.headers for request in at.api.requests] == [False, True]
        assert [request.json["max_tokens"] for request in at.api.requests] == [256, 9]
