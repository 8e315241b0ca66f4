"""What a person says reaches the model once, in order, whatever the loop does; or it is kept, or was withdrawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given, strategies as st

from tests.kit.concurrency import either_kind
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.failing import FailingStore
from tests.kit.support import expect_completed, expect_error, expect_yielded
from tests.kit.tools import LOOK, PAY, SEND, params, user
from tests.kit.world import APPROVED, World, approve_all, hold_at, open_over_http, wait
from toolloop import Deny, Inbox, LoopConfig, MemoryStore, ToolLoopHandle
from toolloop.errors import (
    CallerError,
    Conflict,
    IllegalCommand,
    InvalidHistory,
    ModelError,
    StoreError,
    UndecidedCalls,
)
from toolloop.history import check
from toolloop.stores import Store
from toolloop.terminations import NaturalEnd, StopCondition
from toolloop.testing import ScriptedProvider, call, reply, server_call, server_result

DONE = reply("done")
WRITE = call("write", {"path": "a", "text": "b"}, id="w")


def list_said_in(request: Any) -> list[Any]:
    """What persons said, as a request carries it, without the first message and without results."""
    told = [message["content"] for message in request["messages"] if message["role"] == "user"]
    return [content for content in told if isinstance(content, str)][1:]


def list_kept(handle: Any) -> list[Any]:
    """What a handle or an inbox shows as kept."""
    view = handle.view() if hasattr(handle, "view") else handle.show("loop")
    return [(message["content"], one["by"]) for one in view["kept"] for message in one["messages"]]


# --- each state ------------------------------------------------------------------------------------------------------


@either_kind
def test_the_first_words_of_an_empty_loop(kind: str) -> None:
    """They make it runnable."""
    world = World(kind, MemoryStore(), script=(DONE,))
    peer = world.open(params=params(messages=[]))
    assert peer.say(lambda: peer.handle.say("Hi", by="ana"))
    assert (peer.text(), world.requests[0]["messages"]) == ("done", [user("Hi")])


@either_kind
def test_while_a_call_waits_it_is_kept_and_goes_out_with_the_result(kind: str) -> None:
    """It decides no call. The turn that waits stays valid, and its command sends it."""
    world = World(kind, MemoryStore(), script=(reply(calls=[SEND]), DONE))
    peer = world.open()
    turn = expect_yielded(peer.run())
    now = peer.handle.state.root.now
    peer.say(lambda: peer.handle.say("by mail", by="ana"))
    peer.say(lambda: peer.handle.say(["please", user("soon")]))
    assert [each.id for each in turn.pending] == ["t2"]
    assert (list_kept(peer.handle), world.status()) == (
        [("by mail", "ana"), ("please", None), ("soon", None)],
        "needs_decision",
    )
    assert peer.handle.state.root.now == now
    with pytest.raises(UndecidedCalls):
        turn.continue_loop()
    approve_all(turn)
    peer.say(turn.continue_loop)
    assert (peer.text(), list_said_in(world.requests[-1])) == ("done", ["by mail", "please", "soon"])
    assert list_kept(peer.handle) == []
    assert not check(peer.handle.messages)


def test_the_command_of_a_turn_sends_it_before_its_own_messages() -> None:
    """In the order in which it was said, also in a round that is closed."""
    with open_over_http([reply(calls=[("add", {"a": 1, "b": 2})]), DONE]) as at:
        turn = at.turn()
        assert turn.reason == "tools_executed"
        at.handle.say("first")
        assert list_kept(at.handle) == [("first", None)]
        turn.inject_and_continue("second")
        assert list_kept(at.handle) == []
        at.expect_done()
        assert list_said_in({"messages": at.list_sent()}) == ["first", "second"]


@each("where", ["request", "t3"])
@either_kind
def test_while_a_driver_works_elsewhere(kind: str, where: str) -> None:
    """Its message is kept until the reply or the results are there; the loop then goes on with it."""
    world = World(kind, MemoryStore(), script=(reply(calls=[LOOK]), DONE))
    driver, other = world.open(), world.open()
    expect_yielded(driver.next_turn()).continue_loop() if where == "request" else None
    with hold_at(world, where, driver) as standing:
        other.say(lambda: other.handle.say("hurry", by="bo"))
        assert (list_kept(other.handle), world.status()) == ([("hurry", "bo")], "running")
    standing.result()
    assert (driver.text(), list_said_in(world.requests[-1])) == ("done", ["hurry"])


def test_during_a_pause_it_is_kept_until_the_model_ends_its_turn() -> None:
    """The API takes a paused turn back only as it was."""
    opened = server_call("web_search", {"query": "x"}, id="srvtoolu_s")
    found = [server_result("web_search", id="srvtoolu_s"), {"type": "text", "text": "found"}]
    script = [reply("so far", content=[opened], stop_reason="pause_turn"), reply(content=found), DONE]
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    with open_over_http(script, asked=params(tools=tools)) as at:
        turn = at.turn()
        name = at.handle.say("hurry")
        gone = at.handle.say("never mind")
        at.handle.withdraw(gone)
        turn.continue_loop()
        assert [one["id"] for one in at.handle.view()["kept"]] == [name]
        assert (at.expect_done().text, at.list_sent(2)[-1]) == ("done", user("hurry"))
        assert len(at.list_sent(1)) == 2


def test_after_the_end_and_after_a_failure_it_begins_a_user_turn() -> None:
    """As `follow_up` does; the failed request is given up."""
    with open_over_http([DONE, ModelError("busy", retryable=True), reply("fine")]) as at:
        expect_completed(at.handle.next_turn())
        at.handle.say("and then?")
        expect_error(at.handle.next_turn())
        at.handle.say("hello?", by="ana")
        done = expect_completed(at.handle.next_turn())
        assert (done.text, done.termination, at.handle.iterations) == ("fine", NaturalEnd(), 2)
        assert list_said_in({"messages": at.list_sent()}) == ["and then?", "hello?"]


def test_what_a_stop_or_a_limit_left_goes_out_with_the_next_turn() -> None:
    """It is still kept after the end, and can be withdrawn."""
    for ends in ("stop", "limit"):
        with open_over_http([reply(calls=[WRITE]), DONE, DONE], max_iterations=1) as at:
            turn = at.turn()
            at.handle.say("one")
            gone = at.handle.say("two")
            if ends == "stop":
                turn.stop("enough")
                assert at.expect_done().termination == StopCondition("enough")
            else:
                at.handle.decide({call.id: Deny("no") for call in turn.pending})
                turn.continue_loop()
                expect_yielded(at.handle.next_turn()).continue_loop()
                at.expect_done()
                assert (list_kept(at.handle), at.handle.messages[-1]["content"]) == ([], "two")
                continue
            assert list_kept(at.handle) == [("one", None), ("two", None)]
            at.handle.withdraw(gone, by="ana")
            at.handle.say("three")
            assert at.expect_done().text == "done"
            assert list_said_in({"messages": at.list_sent()}) == ["one", "three"]


# --- keys, and what is refused ---------------------------------------------------------------------------------------


@either_kind
def test_the_same_key_says_it_once(kind: str) -> None:
    """Whatever it says, in whatever state, also after it went out or was withdrawn; and in a fork."""
    world = World(kind, MemoryStore(), script=(reply(calls=[SEND]), DONE))
    peer = world.open()
    expect_yielded(peer.run())
    first = peer.say(lambda: peer.handle.say("pay", key="hook 7"))
    gone = peer.say(lambda: peer.handle.say("wait", key="hook 8"))
    peer.say(lambda: peer.handle.withdraw(gone))
    rev = world.row().rev
    inbox = Inbox(world.store)
    assert [inbox.say("loop", "again", key="hook 7"), inbox.say("loop", "wait", key="hook 8")] == [first, gone]
    assert (inbox.say("loop", "x", key="Hook 7") == first, world.row().rev) == (False, rev + 1)
    peer.flush()
    approve_all(peer.turn())
    peer.say(peer.turn().continue_loop)
    peer.text()
    assert list_said_in(world.requests[-1]) == ["pay", "x"]
    assert peer.say(lambda: peer.handle.say("pay", key="hook 7")) == first
    assert (world.status(), len(world.requests)) == ("ended", 2)
    assert wait(kind, peer.handle.fork()).say("pay", key="hook 7") == first


@each("said", ["", [], [user("")], [{"role": "user"}], [user([{"type": "tool_result", "tool_use_id": "x"}])], 7])
def test_what_the_api_would_refuse_is_refused_at_once(said: Any) -> None:
    """In each state, and the loop is as before."""
    for script in ([DONE], [reply(calls=[WRITE])], [ModelError("no")]):
        with open_over_http(script) as at:
            at.handle.next_turn()
            before = at.handle.state
            with pytest.raises((InvalidHistory, TypeError, ValueError)):
                at.handle.say(said)
            assert at.handle.state is before


@each("key", ["", 7, "\ud800"])
def test_a_key_is_a_text(key: Any) -> None:
    """An empty one would make all messages one."""
    with open_over_http([DONE]) as at, pytest.raises((TypeError, ValueError), match="key"):
        at.handle.say("hi", key=key)


def test_what_is_not_kept_cannot_be_withdrawn() -> None:
    """The error says why."""
    with open_over_http([DONE, DONE]) as at:
        expect_completed(at.handle.next_turn())
        said = at.handle.say("hi")
        for name, why in ((said, "is in the conversation already, or was withdrawn before"), ("x", "nothing with")):
            with pytest.raises(IllegalCommand, match=why):
                at.handle.withdraw(name)


def test_a_follow_up_while_a_call_waits_names_the_call_and_what_to_do() -> None:
    """It named commands that would have been refused, too."""
    with open_over_http([reply(calls=[WRITE]), DONE]) as at:
        at.turn()
        with pytest.raises(IllegalCommand, match=r"the call 'w' \(write\) waits for a decision.*say\(\)"):
            at.handle.follow_up("hi")


# --- races and failures ----------------------------------------------------------------------------------------------


@either_kind
def test_a_withdrawal_that_comes_after_the_request_is_refused(kind: str) -> None:
    """The handle that withdraws has not seen yet that it went out."""
    world = World(kind, MemoryStore(), script=(reply(calls=[SEND]), DONE))
    driver, other = world.open(), world.open()
    expect_yielded(driver.run())
    said = other.say(lambda: other.handle.say("quick"))
    driver.flush()
    approve_all(driver.turn())
    driver.turn().continue_loop()
    driver.text()
    with pytest.raises(IllegalCommand, match="is in the conversation already"):
        other.say(lambda: other.handle.withdraw(said))
    assert list_said_in(world.requests[-1]) == ["quick"]


@either_kind
def test_a_handle_that_lost_its_loop_to_another_driver_still_says_it(kind: str) -> None:
    """What a person says belongs to no driver."""
    world = World(kind, MemoryStore(), script=(reply(calls=[LOOK]), reply(calls=[SEND]), DONE))
    lost = world.open()
    with hold_at(world, "t3", lost) as standing:
        other = world.open(take_over=True)
        expect_yielded(other.run())
        lost.say(lambda: lost.handle.say("hurry", by="ana"))
    with pytest.raises(Conflict):
        standing.result()
    other.flush()
    approve_all(other.turn())
    other.turn().continue_loop()
    assert (other.text(), list_said_in(world.requests[-1])) == ("done", ["hurry"])


@each("moment", ["before", "after"])
def test_a_store_that_fails_does_not_say_it_twice(moment: Any) -> None:
    """It is unknown whether it was stored; said again with the same key, it is there once."""
    inner = MemoryStore()
    faulty: Any = FailingStore(inner)
    peer = World("sync", faulty, script=(reply(calls=[SEND]), DONE)).open()
    expect_yielded(peer.run())
    faulty.fails = lambda _number: moment
    with pytest.raises(StoreError):
        peer.handle.say("once", key="k")
    faulty.fails = lambda _number: None
    name = peer.handle.say("once", key="k")
    assert [(one["id"], len(one["messages"])) for one in Inbox(inner).show("loop")["kept"]] == [(name, 1)]


# --- at random -------------------------------------------------------------------------------------------------------


@define
class Chat:
    """A stored loop, and persons who speak, decide, stop and withdraw; its handle is lost now and then."""

    rng: random.Random
    store: Store
    loop_id: str = "loop"
    said: dict[str, str] = field(factory=dict)  # texts by id, in order
    gone: set[str] = field(factory=set)
    requests: list[Any] = field(factory=list)
    _handle: ToolLoopHandle | None = None

    def answer(self, request: Any) -> Any:
        self.requests.append([*request["messages"]])
        spoken = sum(message["role"] == "assistant" for message in request["messages"])
        if self.rng.random() < 0.15:
            raise ModelError("busy", retryable=self.rng.random() < 0.5)
        calls = self.rng.choice(([], [PAY], [SEND], [PAY, SEND, LOOK]))
        named = [each_ | {"id": f"{each_['id']}_{spoken}"} for each_ in calls]
        return reply(calls=named) if named else reply("so", stop_reason=self.rng.choice(("end_turn", "max_tokens")))

    @property
    def handle(self) -> ToolLoopHandle:
        if self._handle is None:
            world = World("sync", self.store)
            config = LoopConfig(max_iterations=3)
            parts = world.parts(params=params(), config=config)
            provider = ScriptedProvider(self.answer)
            self._handle = ToolLoopHandle.open(self.store, self.loop_id, provider, take_over=True, **parts)
        return self._handle

    def say(self) -> None:
        text = f"words {len(self.said)}"
        if self.rng.random() < 0.5:
            name = self.handle.say(text, by="ana", key=text)
        else:
            self.handle.flush()
            name = Inbox(self.store).say(self.loop_id, text, by="bo", key=text)
        assert name not in self.said
        self.said[name] = text

    def say_again(self) -> None:
        if self.said:
            name, text = self.rng.choice([*self.said.items()])
            before = self.store.head(self.loop_id).rev
            assert Inbox(self.store).say(self.loop_id, "something else", key=text) == name
            assert self.store.head(self.loop_id).rev == before

    def withdraw(self) -> None:
        if self.said:
            name = self.rng.choice([*self.said])
            can = name in [one["id"] for one in Inbox(self.store).show(self.loop_id)["kept"]]
            try:
                if self.rng.random() < 0.5:
                    self.handle.withdraw(name)
                else:
                    Inbox(self.store).withdraw(self.loop_id, name)
            except IllegalCommand:
                assert not can
            else:
                assert can
                self.gone.add(name)

    def turn(self) -> None:
        self.handle.flush()
        with suppress(IllegalCommand):
            self.handle.next_turn()

    def decide(self) -> None:
        self.handle.flush()
        decisions = {call: self.rng.choice((APPROVED, Deny("no"))) for call in self.handle.pending}
        with suppress(CallerError):
            self.handle.decide(decisions)

    def go_on(self) -> None:
        self.handle.flush()
        turn = self.handle.pending_turn
        if turn is not None and not turn.pending:
            turn.continue_loop()

    def stop(self) -> None:
        self.handle.stop("enough")

    def retry(self) -> None:
        with suppress(IllegalCommand):
            self.handle.retry()

    def lose(self) -> None:
        """As if its process had died."""
        self._handle = None

    def fork(self) -> None:
        self.handle.flush()
        copy = self.handle.fork(f"{self.loop_id}x")
        copy.flush()
        copy.close()
        self.loop_id, self._handle = copy.loop_id, None

    def wake(self) -> None:
        """Go on with a snapshot, as another loop."""
        self.handle.flush()
        snapshot, parts = self.handle.snapshot(), World("sync", self.store).parts(params=params())
        self.store.delete(self.loop_id)
        with ToolLoopHandle.restore(snapshot, ScriptedProvider(self.answer), store=self.store, **parts) as restored:
            restored.flush()
        self._handle = None

    def look(self) -> None:
        """Each message stands once, in order, in the conversation or among the kept ones."""
        view = Inbox(self.store).show(self.loop_id)
        shown = [message["content"] for message in view["messages"] if message["role"] == "user"]
        there = [content for content in shown if isinstance(content, str) and content.startswith("words")]
        waits = [message["content"] for one in view["kept"] for message in one["messages"]]
        assert there + waits == [text for name, text in self.said.items() if name not in self.gone]
        for request in self.requests[-1:]:
            assert not [problem for problem in check(request) if problem.level == "error"]


WORDS: list[Callable[[Chat], None]] = [
    Chat.say,
    Chat.say_again,
    Chat.withdraw,
    Chat.turn,
    Chat.turn,
    Chat.decide,
    Chat.go_on,
    Chat.go_on,
    Chat.stop,
    Chat.retry,
    Chat.lose,
    Chat.fork,
    Chat.wake,
]


@examples(40)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(WORDS), max_size=40))
def test_all_that_is_said_is_said_once(seed: int, words: list[Callable[[Chat], None]]) -> None:
    """Whatever happens around it; at the end the model has read it all, but for what was withdrawn."""
    chat = Chat(random.Random(seed), MemoryStore())
    chat.handle.flush()
    for word in words:
        word(chat)
        chat.look()
    chat.say()
    chat.look()
