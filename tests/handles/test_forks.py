"""A fork at an earlier point goes on as the loop did there: each of its requests has the same bytes."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given, strategies as st

from tests.kit.concurrency import either_kind
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.loop_trees import kid, task
from tests.kit.support import expect_yielded
from tests.kit.tools import LOOK, PAY, SEND, STORED_TOOLS, look, params, user
from tests.kit.world import ID, AnyHandle, World, approve_all, each_store, make_failing_world, store_at, wait
from toolloop import Budget, Inbox, MemoryStore, ToolLoopHandle
from toolloop.compaction import DropRounds
from toolloop.errors import CallerError, Conflict, IllegalCommand, LoopNotFound, NotAllowed, StoreError
from toolloop.terminations import MaxIterations
from toolloop.testing import ScriptedProvider, call, reply

DONE = reply("done")
TWO_ROUNDS = (reply(calls=[PAY]), reply(calls=[SEND]), DONE)


class Script(dict[str, Any]):
    """The model of the outermost loop, and of each loop inside it."""

    def __missing__(self, first: str) -> Any:
        return [reply(calls=[LOOK]), reply(f"{first} is done")]


@define
class Life:
    """A random life of a loop, and what persons said in it, by its ids."""

    random: random.Random
    ids: dict[str, str] = field(factory=dict)
    count: int = 0
    world: World = field(init=False)
    peer: AnyHandle = field(init=False)

    def __attrs_post_init__(self) -> None:
        often = self.random.random() < 0.5
        config: dict[str, Any] = {"compaction": DropRounds(keep_last=1, at_tokens=40)} if often else {}
        config["cache"] = self.random.choice((None, "5m", "1h"))
        self.world = World(
            "sync",
            MemoryStore(),
            script=Script(hello=[self.reply]),
            tools=(*STORED_TOOLS, kid([look])),
            config={"max_iterations": 99, **config},
        )
        self.peer = self.world.open()

    def reply(self) -> Any:
        self.count += 1
        number = self.count
        calls = [
            call("look", {"path": "a"}, id=f"look{number}"),
            call("send", {"to": "ana"}, id=f"send{number}"),
            task(f"kid{number}"),
        ]
        chosen = self.random.sample(calls, self.random.choice([0, 0, 1, 1, 2]))
        return reply(f"answer {number}", calls=chosen) if chosen else reply(f"answer {number}")

    def words(self) -> str:
        self.count += 1
        return f"words {self.count}"

    def note_ids(self) -> None:
        for message in self.peer.handle.view(messages=True)["messages"]:
            if isinstance(message["content"], str):
                self.ids[message["content"]] = message["id"]

    def live(self, steps: int) -> None:
        self.peer.next_turn()
        for _ in range(steps):
            self.note_ids()
            if self.random.random() < 0.2:
                self.peer.close()
                self.peer = self.world.open()
            turn = self.peer.handle.pending_turn
            if turn is None or self.random.random() < 0.2:
                self.peer.handle.say([self.words(), self.words()] if self.random.random() < 0.3 else self.words())
            if turn is not None:
                for waiting in turn.pending:
                    turn.approve(waiting) if self.random.random() < 0.5 else turn.deny(waiting, "no")
                turn.inject_and_continue(self.words()) if self.random.random() < 0.3 else turn.continue_loop()
            self.peer.next_turn()
        self.note_ids()
        self.peer.close()

    def list_sent(self) -> list[bytes]:
        """The requests of the outermost loop."""
        return [body for body in self.world.bodies if json.loads(body)["messages"][0]["content"] == "hello"]


def list_said_since(before: bytes | None, body: bytes) -> list[str]:
    """What persons said between two requests."""
    old = [] if before is None else [message["content"] for message in json.loads(before)["messages"]]
    told = [message["content"] for message in json.loads(body)["messages"] if message["role"] == "user"]
    return [content for content in told if isinstance(content, str) and content not in old]


def has_words(copy: ToolLoopHandle, text: str) -> bool:
    """Whether the loop has these words in its history, or keeps them for later."""
    root = copy.state.root
    return json.dumps(text) in "".join(
        [*root.messages, *root.queued, *(part for one in root.kept for part in one.messages)]
    )


def drop_marks(body: bytes) -> bytes:
    """A request without its cache marks."""
    return re.sub(rb',"cache_control":\{[^}]*\}', b"", body)


def goes_on(life: Life, copy: ToolLoopHandle, words: list[str]) -> bytes:
    """The next request of a copy, in which the same is said again."""
    before = len(life.list_sent())
    if new := [each for each in words if not has_words(copy, each)]:  # the others were said before the round closed
        copy.say(new)
    if (turn := copy.pending_turn) is not None:
        turn.continue_loop()
    copy.next_turn()
    return life.list_sent()[before]


@examples(20)
@given(st.integers(0, 2**32), st.integers(2, 9))
def test_a_fork_at_each_point_sends_what_the_loop_sent_then(seed: int, steps: int) -> None:
    """At each iteration, and before each message of a user; also before a compaction, a sleep, or a nested loop."""
    life = Life(random.Random(seed))
    life.live(steps)
    journal, sent = life.world.store.load(ID), life.list_sent()
    for number, body in enumerate(sent):
        words = list_said_since(sent[number - 1] if number else None, body)
        points: list[int | str] = [number] if number else []
        points += [life.ids[text] for text in words]
        for at in points:
            with life.world.open() as handle, handle.fork(at=at) as copy:
                assert (copy.total_usage.total_tokens, copy.usage_log) == (0, ())
                assert drop_marks(goes_on(life, copy, words)) == drop_marks(body), at
    for text, name in life.ids.items():
        with life.world.open() as handle, handle.fork(at=name) as copy:
            assert not has_words(copy, text)
            assert name not in [message["id"] for message in copy.view(messages=True)["messages"]]
    assert life.world.store.load(ID) == journal


@either_kind
def test_a_fork_of_a_stored_loop_is_stored_at_once(kind: str) -> None:
    """With the metadata of the loop, and where it comes from. No worker continues it before its caller."""
    world = World(kind, MemoryStore(), script=TWO_ROUNDS)
    peer = world.open(metadata={"owner": "ana"})
    expect_yielded(peer.run())
    copy = AnyHandle(kind, wait(kind, peer.handle.fork("copy", at=1, by="bo")))
    row = world.row("copy")
    assert (row.metadata, row.head.forked_from, row.status) == ({"owner": "ana"}, ID, "needs_command")
    assert (world.row().head.forked_from, world.work()) == (None, 0)
    (begins,) = world.inbox.trail("copy")
    assert (begins.kind, begins.by, begins.via, begins.content) == (
        "fork",
        "bo",
        "handle",
        {"forked_from": ID, "at": 1},
    )
    assert copy.run(approve_all).unwrap().text == "done"
    assert world.row("copy").head.forked_from == ID
    assert world.status() == "needs_decision"


def test_a_fork_that_could_not_be_stored_is_none() -> None:
    """The next one is. A loop that is not in its store yet stays so."""
    world, store = make_failing_world("sync", script=TWO_ROUNDS)
    peer = world.make()

    def fail(_: Any) -> None:
        raise StoreError("the disk is gone")

    store.before = fail
    with pytest.raises(StoreError):
        peer.handle.fork("copy")
    store.before = lambda _: None
    copy = peer.handle.fork("copy", metadata={"owner": "ana"})
    assert [row.loop_id for row in world.store.list()] == ["copy"]
    assert copy.run(approve_all).unwrap().text == "done"
    assert world.row("copy").metadata == {"owner": "ana"}


def test_limits_and_parameters_are_those_of_then() -> None:
    """A later change of them is not in the copy."""
    world = World("sync", MemoryStore(), script=TWO_ROUNDS, config={"max_iterations": 2})
    peer = world.open()
    peer.run(approve_all)
    assert peer.run().unwrap().termination == MaxIterations(2)
    peer.handle.extend(max_iterations=9, budget=Budget(requests=9))
    peer.handle.update_params(max_tokens=99, system="Be brief.")
    assert peer.text() == "done"
    copy = peer.handle.fork(at=2)
    assert copy.run(approve_all).unwrap().termination == MaxIterations(2)
    copy.extend(max_iterations=9)
    assert copy.run(approve_all).unwrap().text == "done"
    assert (world.requests[-1]["max_tokens"], "system" in world.requests[-1]) == (256, False)


@each("at", [0, -1, True, 1.5, b"x", 4, "unknown"])
def test_a_point_that_the_loop_does_not_have_is_refused(at: Any) -> None:
    """Nothing is stored."""
    world = World("sync", MemoryStore(), script=TWO_ROUNDS)
    peer = world.open()
    peer.run(approve_all)
    with pytest.raises((IllegalCommand, TypeError, ValueError), match=r"fork\(\)|at is"):
        peer.handle.fork(at=at)
    results = peer.handle.view(messages=True)["messages"][2]
    with pytest.raises(IllegalCommand, match="not one of a user"):
        peer.handle.fork(at=results["id"])
    assert [row.loop_id for row in world.store.list()] == [ID]


def test_an_open_round_has_not_ended_and_a_loop_without_a_store_has_no_journal() -> None:
    """The errors say what to do."""
    world = World("sync", MemoryStore(), script=TWO_ROUNDS)
    peer = world.open()
    expect_yielded(peer.run())
    with pytest.raises(IllegalCommand, match="iteration 2 has not ended"):
        peer.handle.fork(at=2)
    with pytest.raises(Conflict, match="copy"):
        [peer.handle.fork("copy") for _ in range(2)]
    alone = ToolLoopHandle(ScriptedProvider([DONE]), params=params())
    alone.run()
    with pytest.raises(IllegalCommand, match="Give the handle a MemoryStore"):
        alone.fork(at=1)
    assert alone.fork().messages == alone.messages


def test_a_message_of_before_a_fork_is_in_the_loop_that_it_came_from() -> None:
    """Ids are the same in both."""
    world = World("sync", MemoryStore(), script=(reply("one"), reply("two"), reply("three")))
    peer = world.open()
    peer.text()
    name = peer.handle.say("more")
    peer.text()
    copy = peer.handle.fork("copy")
    with pytest.raises(IllegalCommand, match="`forked_from` names"):
        copy.fork(at=name)
    again = peer.handle.fork(at=name)
    again.say("something else")
    assert again.run().unwrap().text == "two"
    assert again.messages[2] == user("something else")


@each_store
def test_a_person_forks_in_the_inbox(where: str, tmp_path: Any) -> None:
    """With the rights to fork, and to give other metadata that the person sees."""
    world = World("sync", store_at(where, tmp_path), script=TWO_ROUNDS)
    world.drive(metadata={"owner": "ana", "title": "Pay"})
    asked: list[str] = []

    def may(_person: Any, action: str, _loop: Any, _call: Any) -> bool:
        asked.append(action)
        return action == "fork" or bool(asked.count("metadata") > 1)

    mine = Inbox(world.store, clock=world.clock).as_("ana", may=may, sees=lambda _: [{"owner": "ana"}])
    mine.fork(ID, "one", at=1)
    assert (asked, mine.trail("one")[0].by) == (["fork"], "ana")
    with pytest.raises(NotAllowed, match="change the metadata"):
        mine.fork(ID, metadata={"owner": "ana"})
    with pytest.raises(NotAllowed, match="would not see"):
        mine.fork(ID, metadata={"owner": "bo"})
    with pytest.raises(LoopNotFound):
        Inbox(world.store).as_("bo", sees=lambda _: []).fork(ID)
    with pytest.raises(Conflict):
        mine.fork(ID, "one")
    two = mine.fork(ID, metadata={"owner": "ana"})
    assert (world.status("one"), world.status(two)) == ("needs_command", "needs_decision")
    Inbox(world.store, clock=world.clock).say("one", "go on")
    assert (world.status("one"), world.row(two).metadata) == ("runnable", {"owner": "ana"})
    with pytest.raises(CallerError):
        mine.fork(ID, at=7)
