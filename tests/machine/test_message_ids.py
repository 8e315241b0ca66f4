"""Each message has one id, which it keeps: in later states, in snapshots, in forks, and through compactions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given

from tests.kit.concurrency import either_kind
from tests.kit.effort import examples
from tests.kit.machine.worlds import World as Life, lives
from tests.kit.support import expect_yielded
from tests.kit.tools import LOOK
from tests.kit.world import World, open_over_http
from toolloop import Inbox, LoopConfig, MemoryStore, ToolLoopHandle
from toolloop.compaction import DropRounds
from toolloop.events import RequestStarted
from toolloop.machine import Finished, State, Stopping, fold
from toolloop.machine.message_ids import derive_reply_id, list_with_ids
from toolloop.machine.record import journal_events as ev
from toolloop.machine.tree import fork
from toolloop.stores.codec import dump, load
from toolloop.testing import ScriptedProvider, fault, reply

DONE = reply("done")


def texts_by_id(state: State) -> dict[tuple[tuple[str, ...], str], str]:
    """The messages of each loop by their ids, which are unique in it."""
    found: dict[tuple[tuple[str, ...], str], str] = {}
    for path, loop in state.loops.items():
        named = list_with_ids(loop)
        assert Counter(name for name, _ in named).total() == len({name for name, _ in named})
        found |= {(path, name): text for name, text in named}
    return found


def ids(view: Any) -> list[str]:
    return [message["id"] for message in view["messages"]]


def requests_of(turn: Any) -> list[str | None]:
    return [event.message_id for event in turn.events if isinstance(event, RequestStarted)]


@examples(40)
@given(lives)
def test_an_id_names_one_message_for_ever(life: Life) -> None:
    """A message that stays keeps its id, and a reply has that of its request. A snapshot and a fork have the same."""
    seen: dict[Any, str] = {}
    for event, before, state in zip(life.journal[1:], life.states, life.states[1:], strict=False):
        now = texts_by_id(state)
        gone = set(seen) - set(now)
        came = {key: text for key, text in now.items() if key not in seen}
        assert not {(path, text) for (path, _), text in came.items()} & {(key[0], seen[key]) for key in gone}, event
        assert all(seen[key] == text for key, text in now.items() if key in seen and '"user"' in text), event
        if isinstance(event, ev.Replied) and (loop := state.at(event.path)) and loop.round and loop.round.reply:
            asked = before.loops[event.path]
            assert list_with_ids(loop)[-1][0] == derive_reply_id(asked._replace(requests=asked.requests - 1))
        seen = now
    last = fold(life.journal)
    assert texts_by_id(load(dump(last))) == texts_by_id(last)
    for state in life.states[::3]:
        for path, copy in fork(state, "other", state.root.now).loops.items():
            known = dict(list_with_ids(state.loops[path]))
            if not isinstance(state.loops[path].phase, (Finished, Stopping)):  # these join messages as they are copied
                assert known.keys() <= dict(list_with_ids(copy)).keys()


@either_kind
def test_what_was_said_keeps_its_id_in_a_fork_made_during_the_request(kind: str) -> None:
    """There it joins at once, as no request is sent any more."""
    world = World(kind, MemoryStore(), script=(DONE, DONE))
    peer, inbox, said = world.open(), Inbox(world.store), list[str]()

    def say_and_fork() -> None:
        if not said:
            said.append(inbox.say("loop", ["hurry", {"role": "system", "content": "Be brief."}]))
            inbox.fork("loop", "copy")

    world.on["request"] = say_and_fork
    peer.next_turn()
    first = ids(peer.handle.view(messages=True))[0]
    assert ids(inbox.show("copy"))[:2] == [first, *said]


@either_kind
def test_what_was_said_keeps_its_id_though_a_part_of_it_is_queued_again(kind: str) -> None:
    """The loop is stopped in its request: a system message is queued, because only a reply may follow it."""
    world = World(kind, MemoryStore(), script=(DONE,))
    peer, inbox, said = world.open(), Inbox(world.store), list[str]()

    def say_and_stop() -> None:
        said.append(inbox.say("loop", ["hurry", {"role": "system", "content": "Be brief."}]))
        inbox.stop("loop", "enough")

    world.on["request"] = say_and_stop
    peer.next_turn()
    messages = inbox.show("loop")["messages"]
    assert [each["id"] for each in messages if each["content"] == "hurry"] == said


@either_kind
def test_an_empty_reply_takes_the_id_of_no_other_message(kind: str) -> None:
    """What was said during its request has the id of that, and the history keeps its ids."""
    world = World(kind, MemoryStore(), script=(reply(content=[]), DONE))
    peer = world.open()
    said: list[str] = []
    world.on["request"] = lambda: said.append(Inbox(world.store).say("loop", "hurry")) if not said else None
    peer.next_turn()
    first, *names = ids(peer.handle.view(messages=True))
    assert (names, said) == ([*said], [*names])
    peer.run()
    assert ids(peer.handle.view(messages=True))[:2] == [first, *said]


@either_kind
def test_a_reply_has_the_id_of_its_request_and_what_is_said_that_of_say(kind: str) -> None:
    """On the handle, in another process, and in the inbox."""
    world = World(kind, MemoryStore(), script=(reply(calls=[LOOK]), DONE))
    peer = world.open()
    turn = expect_yielded(peer.next_turn())
    name = peer.say(lambda: peer.handle.say(["please", "soon"], key="mail 7"))
    turn.continue_loop()
    done = peer.run()
    named = ids(peer.handle.view(messages=True))
    assert (requests_of(turn), requests_of(done)) == ([named[1]], [named[-1]])
    assert named[3:5] == [name, f"{name}.2"]
    assert named == ids(world.open().handle.view(messages=True)) == ids(Inbox(world.store).show("loop"))
    assert "messages" not in peer.handle.view()


def test_a_repeated_request_has_a_new_id() -> None:
    """Nothing of the first one is in the conversation."""
    with open_over_http([fault(400), DONE]) as at:
        first = requests_of(at.expect_failed())
        at.handle.retry()
        second = requests_of(at.expect_done())
        assert ids(at.handle.view(messages=True))[-1:] == second != first


def test_messages_keep_their_ids_through_edits_and_compactions() -> None:
    """Only new messages have new ones."""
    script = [reply(f"answer {number}") for number in range(4)]
    config = LoopConfig(compaction=DropRounds(keep_last=1, at_tokens=1))
    handle = ToolLoopHandle(ScriptedProvider(script), params={"model": "m", "max_tokens": 9}, config=config)
    for _ in range(4):
        before = ids(handle.view(messages=True))
        handle.follow_up("go on")
        handle.run()
        after = ids(handle.view(messages=True))
        assert [name for name in after if name in before] == [name for name in before if name in after]
    handle.messages_mut()[0]["content"] = "Begin"
    handle.snapshot()
    assert ids(handle.view(messages=True))[1:] == after[1:]
