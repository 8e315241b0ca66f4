"""What a store lists loops by: whose turn it is, at every stop of a story."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import evolve
from hypothesis import given

from tests.kit.concurrency import either_kind
from tests.kit.effort import examples
from tests.kit.machine.worlds import World as WorldOfEvents, lives
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import SEND
from tests.kit.world import APPROVED, World, each_store, store_at, wait
from toolloop import Approve, Deny, InjectMessages, LoopConfig, Stop, ToolLoopHandle, sub_loop, tool
from toolloop._interface.heads import PendingRows, head_of
from toolloop._interface.results import Turn
from toolloop.errors import CallerError, Conflict, LoopNotFound, ModelError
from toolloop.machine import Waiting
from toolloop.stores.memory import MemoryStore
from toolloop.testing import ScriptedProvider, call, reply


def test_the_status_is_right_at_every_stop() -> None:
    """From the creation to the end, also while a request or a tool is under way."""
    world = World("sync", MemoryStore())
    seen: list[tuple[str, str]] = []

    def look(at: str) -> None:
        seen.append((at, world.status()))

    for place in ("request", "t1", "t2", "t3"):
        world.on[place] = lambda place=place: look(place)  # type: ignore[misc]
    party = world.open()
    look("created")
    expect_yielded(party.next_turn())
    look("tools executed")
    party.say(party.turn().continue_loop)
    look("continued")
    expect_yielded(party.next_turn())
    look("two wait")
    party.decide(t2=Deny("no"))
    look("decided")
    party.say(party.turn().continue_loop)
    look("to run")
    expect_yielded(party.next_turn())
    party.say(party.turn().continue_loop)
    expect_completed(party.next_turn())
    look("done")
    party.say(lambda: party.handle.follow_up([{"role": "user", "content": "more"}]))
    look("followed up")
    party.say(lambda: party.handle.resume(Stop()))
    look("stopped")
    assert seen == [
        ("created", "runnable"),
        ("request", "running"),
        ("t1", "running"),
        ("tools executed", "needs_command"),
        ("continued", "runnable"),
        ("request", "running"),
        ("two wait", "needs_decision"),
        ("decided", "needs_command"),
        ("to run", "runnable"),
        ("t3", "running"),
        ("request", "running"),
        ("done", "ended"),
        ("followed up", "runnable"),
        ("stopped", "ended"),
    ]


@either_kind
def test_the_head_always_says_what_the_journal_says(kind: str) -> None:
    """After every single turn and command, of every caller."""
    world = World(kind, MemoryStore())
    parties = [party := world.open(), world.open()]
    for number in range(30):
        world.assert_head()
        party = parties[number % 2]
        if party.handle.is_finished:
            break
        turn = party.handle.pending_turn
        with suppress(CallerError, Conflict):  # the other was there meanwhile; now this one has seen it
            if turn is None:
                party.next_turn()
            elif turn.pending:
                party.decide(**{turn.pending[0].id: APPROVED})
            else:
                party.say(turn.continue_loop)
    world.assert_once()
    assert expect_completed(party.run()).text == "done"


# --- who may go on ----------------------------------------------------------------------------------------------------


@either_kind
def test_a_loop_that_run_leaves_may_be_driven_by_any_process(kind: str) -> None:
    """Only next_turn() gives its caller a turn; between the turns of run() the list says that the loop can go on."""
    world, seen = World(kind, MemoryStore()), list[str]()
    world.on["request"] = lambda: seen.append(world.status())
    party = world.open()
    expect_yielded(party.run())
    assert world.status() == "needs_decision"
    world.open().decide(t2=Deny("no"))
    assert (world.status(), type(world.state().root.phase)) == ("runnable", Waiting)
    assert expect_completed(world.open().run()).text == "done"
    assert seen == ["running"] * 3


@either_kind
def test_a_run_that_has_to_end_leaves_its_loop_to_any_driver(kind: str) -> None:
    """`until` is asked after each turn; nothing waits then."""
    world, requests = World(kind, MemoryStore()), list[str]()
    world.on["request"] = lambda: requests.append(world.status())
    handle = world.open().handle
    turn = expect_yielded(cast("Turn", wait(kind, handle.run(until=lambda: True))))
    assert (turn.reason, turn.pending, len(requests)) == ("tools_executed", (), 1)
    assert (world.status(), world.row().lease) == ("runnable", None)
    assert expect_completed(world.open().run(lambda turn: turn.approve_all())).text == "done"


@either_kind
def test_a_turn_that_a_caller_has_stays_theirs(kind: str) -> None:
    """Whatever others say about the loop meanwhile."""
    world = World(kind, MemoryStore())
    expect_yielded(world.open().next_turn())
    other = world.open()
    other.say(lambda: other.handle.update_params(max_tokens=9))
    assert world.status() == "needs_command"
    assert expect_completed(other.run(lambda turn: turn.approve_all())).text == "done"
    assert world.status() == "ended"


def test_an_empty_conversation_waits_for_the_first_words() -> None:
    """There is nothing that a worker could drive."""
    world = World("sync", MemoryStore())
    party = world.open(params={"model": "claude-opus-5-5", "max_tokens": 9})
    assert world.status() == "needs_command"
    party.say(lambda: party.handle.follow_up("Pay"))
    assert world.status() == "runnable"


# --- what failed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ModelError("busy", retryable=True, retry_after=30.0), (True, 1030.0)),
        (ModelError("gone", retryable=True), (True, 1001.0)),
        (ModelError("no such model"), (False, None)),
    ],
    ids=["in half a minute", "soon", "never"],
)
def test_a_failed_loop_says_when_it_may_be_tried_again(error: ModelError, expected: tuple[bool, float | None]) -> None:
    """After a second, or when the API said; a person is needed where trying again is of no use."""
    world = World("sync", MemoryStore(), script=[error], clock=lambda: 1000.0)
    expect_error(world.open().run())
    head = world.row().head
    assert (head.status, (head.retryable, head.retry_at), head.attempts) == ("failed", expected, 0)


@each_store
def test_attempts_are_counted_without_driving_and_begin_again_with_an_answer(where: str, tmp_path: Path) -> None:
    """A worker writes into the head; events that do not answer a request leave its number alone."""
    busy = ModelError("busy", retryable=True)
    world = World("sync", store_at(where, tmp_path), script=[busy])
    party = world.open()
    for attempts in (1, 2):
        expect_error(party.run())
        row = world.row()
        later = evolve(row.head, retry_at=row.head.changed + 60.0 * attempts, attempts=attempts)
        assert world.store.append(row.loop_id, [], expected_rev=row.rev, head=later) == row.rev
        assert world.row().head == later
        with pytest.raises(Conflict):
            world.store.append(row.loop_id, [], expected_rev=row.rev - 1, head=row.head)
        party.handle.retry()
        assert (world.status(), world.row().head.attempts) == ("runnable", attempts)
        assert party.handle.pending == ()
    world.script = [reply("done")]
    expect_completed(party.run())
    assert (world.status(), world.row().head.attempts) == ("ended", 0)


# --- the calls that wait ----------------------------------------------------------------------------------------------


@each_store
def test_the_calls_that_wait_are_shown_without_the_journal(where: str, tmp_path: Path) -> None:
    """What is shown of a call is what the handle shows, also of one inside another; its digest binds a decision."""

    @tool(needs_approval=True)
    def send(to: str, text: str) -> str:
        """Send."""
        return f"sent {to}"

    inner = sub_loop("clerk", "Writes.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[send])
    short, long = {"to": "ana", "text": "hi"}, {"to": "bo", "text": "ü" * 5000}
    script: list[Any] = [
        reply(calls=[call("clerk", {"prompt": "Write"}, id="p"), call("send", short, id="c")]),
        reply(calls=[call("send", long, id="c")]),
        reply("sent"),
        reply("done"),
    ]
    store = store_at(where, tmp_path)
    parts: dict[str, Any] = {"tools": [inner, send], "params": {"model": "claude-opus-5-5", "max_tokens": 9}}
    parts["config"] = LoopConfig(execution="ready", decision_timeout=60.0)
    with ToolLoopHandle.open(store, "mail", ScriptedProvider(script), **parts) as handle:
        handle.follow_up("Write to ana and bo")
        expect_yielded(handle.next_turn()).continue_loop()
        expect_yielded(handle.next_turn())
        loop = store.head("mail")
        shown = {each.path: each for each in loop.pending}
        assert [each.path for each in handle.pending] == list(shown) == [("c",), ("p", "c")]
        for each in handle.pending:
            short_call = shown[each.path]
            assert (short_call.id, short_call.name, short_call.why) == (each.id, each.name, each.why)
            assert (short_call.digest, short_call.takes) == (each.digest, ("approve", "deny", "answer"))
            assert short_call.expires_at == (None if each.expires_at is None else each.expires_at.timestamp())
        assert loop.deadline == min(each.expires_at for each in loop.pending if each.expires_at)
        assert (shown["c",].input, shown["c",].truncated, shown["c",].names) == (short, False, ("send",))
        cut = shown["p", "c"]
        assert (cut.input, cut.truncated) == ({"to": "bo", "text": "ü" * 200 + "…"}, True)
        assert cut.names == ("clerk", "send")
        handle.decide({"/".join(("", *each.path)): Approve(digest=each.digest) for each in loop.pending})
        assert store.head("mail").pending == ()


# --- metadata ---------------------------------------------------------------------------------------------------------


@either_kind
def test_metadata_is_kept_with_a_new_loop(kind: str) -> None:
    """It finds the loop in the list. Of a loop that exists it is not looked at."""
    world = World(kind, MemoryStore())
    world.open("one", metadata={"owner": "ana", "title": "Bill"})
    world.open("two")
    world.open("one", metadata={"owner": "bo"})
    assert world.row("one").metadata == {"owner": "ana", "title": "Bill"}
    assert [loop.loop_id for loop in world.store.list("runnable", metadata={"owner": "ana"})] == ["one"]
    assert world.row("two").metadata == {}


@pytest.mark.parametrize("bad", ["ana", {"owner": 7}, {"owner": "x" * 5000}, {"": "ana"}])
def test_bad_metadata_is_refused_before_anything_is_stored(bad: Any) -> None:
    """With a word about what to give."""
    world = World("sync", MemoryStore())
    with pytest.raises((TypeError, ValueError), match="metadata"):
        world.open(metadata=bad)
    assert world.store.list() == []


def test_a_row_says_when_the_loop_was_created_and_last_changed() -> None:
    """By the clock of the handle that created or changed it."""
    now = [1000.0]
    world = World("sync", MemoryStore(), clock=lambda: now[0])
    party = world.open()
    now[0] = 1060.0
    party.run()
    assert (world.row().created, world.row().head.changed) == (1000.0, 1060.0)


# --- another loop of the same id --------------------------------------------------------------------------------------


@each_store
@either_kind
def test_a_decision_about_a_deleted_loop_does_not_reach_its_successor(kind: str, where: str, tmp_path: Path) -> None:
    """A handle of the first loop says that it is gone, and the loop that has its id now stays as it is."""
    world = World(kind, store_at(where, tmp_path / kind), script=(reply(calls=[SEND]), reply("done")))
    (tmp_path / kind).mkdir()
    party = world.open()
    expect_yielded(party.run())
    world.store.delete("loop")
    successor = world.open()
    expect_yielded(successor.run())
    before, row = world.journal(), world.row()
    for act in (
        lambda: party.decide(t2=APPROVED),
        lambda: party.say(lambda: party.handle.resume(InjectMessages(["more"]))),
        lambda: party.say(party.handle.stop),
        party.run,
    ):
        with pytest.raises(LoopNotFound, match="another loop was created under its id"):
            act()
    assert (world.journal(), world.row()) == (before, row)
    successor.decide(t2=APPROVED)
    assert expect_completed(successor.run()).text == "done"
    world.assert_once()


@examples(15)
@given(lives)
def test_rows_that_are_kept_are_those_that_would_be_made(world: WorldOfEvents) -> None:
    """For each event of any life, also with loops in calls."""
    rows, kept, fresh = PendingRows(), None, None
    for number, state in enumerate(world.states):
        kept = head_of(state, number, is_handed_over=False, earlier=kept, rows=rows)
        fresh = head_of(state, number, is_handed_over=False, earlier=fresh)
        assert kept == fresh
