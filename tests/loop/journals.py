"""What the tests of journal and lease share: a driver in a few lines, a caller, and a store that fails."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from attrs import define, field

from toolloop.errors import CallerError, StoreError
from toolloop.loop.event_bus import EventBus
from toolloop.loop.journal import PendingRecord
from toolloop.loop.lease import DriverLease
from toolloop.loop.stored_journal import StoredJournal
from toolloop.machine import events as ev
from toolloop.machine.effects import EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.jsontext import encode
from toolloop.machine.loop import Failed, Finished, Requesting, Running, Waiting, round_of
from toolloop.machine.queries import waiting
from toolloop.machine.replies import Reply, read_reply
from toolloop.machine.setup import Setup, ToolFacts
from toolloop.machine.state import State
from toolloop.machine.tree import begin, outstanding, step
from toolloop.machine.values import DecisionRecord, Result, Status, Wait, Why
from toolloop.stores.codec import read_journal
from toolloop.stores.protocol import Store
from toolloop.testing.promises import check_promises

ID = "loop"
TOOLS = tuple(ToolFacts(name, effect, "never", name) for name, effect in (("pay", "once"), ("look", "pure")))  # type: ignore[arg-type] # they are
Moment = Literal["before", "after"]


def first(loop_id: str = ID) -> ev.Opened:
    """The event that a journal begins with."""
    setup = Setup(loop_id, encode({"model": "m", "max_tokens": 9}), tools=TOOLS)
    return ev.Opened(setup, (encode({"role": "user", "content": "hi"}),))


def answer(*calls: str) -> Reply:
    """A reply that makes calls, each as its tool and its id, such as `pay:t1`; or the last one."""
    blocks: list[Any] = [
        {"type": "tool_use", "id": each.split(":")[1], "name": each.split(":")[0], "input": {}} for each in calls
    ]
    message = {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": blocks or [{"type": "text", "text": "done"}],
        "stop_reason": "tool_use" if calls else "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return read_reply(message)


# A round that needs nobody, one in which `send` waits for a decision, and the end.
STORY = (answer("pay:t1", "look:t2"), answer("send:t3", "pay:t4"), answer())
SHORT = (answer("send:t1"), answer())


def new_journal(store: Store, *, defers: bool = False, clock: Callable[[], float] = time.time) -> StoredJournal:
    """The journal of a loop that is not in the store yet."""
    opened = first()
    return StoredJournal(begin(opened), clock, EventBus(ID), store=store, first=opened, defers=defers)


def open_journal(store: Store, *, defers: bool = False) -> StoredJournal:
    """One more journal of the loop that is in the store."""
    found = store.load(ID)
    return StoredJournal(
        read_journal(found.entries), time.time, EventBus(ID), store=store, rev=found.rev, defers=defers
    )


def names(store: Store) -> list[str]:
    """The names of the stored events."""
    return [entry.body.partition('"event":"')[2].partition('"')[0] for entry in store.load(ID).entries]


def stored_state(store: Store) -> State:
    return read_journal(store.load(ID).entries)


def assert_sound(store: Store) -> None:
    """The journal can be read, and breaks no promise."""
    assert check_promises(store.load(ID).entries).broken == ()


def phase(journal: StoredJournal) -> Any:
    return journal.state.root.phase


# --- what callers say ------------------------------------------------------------------------------------------------


def decide(*decisions: tuple[str, str]) -> Callable[[State], ev.Decided | None]:
    """Decide calls; a decision that was made already is no further one."""

    def command(state: State) -> ev.Decided | None:
        event = ev.Decided(tuple((call_id, DecisionRecord(kind)) for call_id, kind in decisions))  # type: ignore[arg-type] # it is one
        return None if step(state, event).root.round == step(state, ev.Ticked()).root.round else event

    return command


def go_on(state: State) -> ev.Continued:
    event = ev.Continued()
    step(state, event)
    return event


def stop(_: State) -> ev.Stopped:
    return ev.Stopped("enough")


# --- a driver --------------------------------------------------------------------------------------------------------


@define(eq=False)
class Operation:
    """Something to perform. `event`: what came of it, until that is recorded."""

    record: PendingRecord
    launched: bool = False
    event: ev.Event | None = None


@define(eq=False)
class Driver:
    """Drives a loop in the manner of the engine: nothing is performed before its own record is stored.

    Attributes:
        ran: how often each run of a call was performed, by iteration, call and attempt.
        sent: how many requests were sent.
        uncertain: the calls that waited because nobody saw how they ended.

    """

    journal: StoredJournal
    story: tuple[Reply, ...] = STORY
    ran: Counter[tuple[int, str, int]] = field(factory=Counter)
    uncertain: list[str] = field(factory=list)
    sent: int = 0
    take_over: bool = False
    lease: DriverLease = field(init=False)
    operations: dict[str, Operation] = field(factory=dict)
    is_asleep: bool = False
    drives: int = 0

    def __attrs_post_init__(self) -> None:
        self.lease = DriverLease(self.journal, take_over=self.take_over)

    def turn(self) -> None:
        """Drive until it is the caller's turn. Store what happened also if that fails."""
        try:
            with self.lease.held():
                try:
                    self.wake()
                    while self.step():
                        pass
                finally:
                    self.leave()
        finally:
            with suppress(StoreError):
                self.journal.commit()

    def step(self) -> bool:
        """Do what can be done now. Return whether anything could."""
        if self.journal.lost is not None:
            raise self.journal.lost
        self.poll()
        self.journal.commit()
        self.journal.tell()
        waiting = [key for key, each in self.operations.items() if not each.launched]
        for key in waiting:
            self.launch(key)
        return bool(waiting)

    def wake(self) -> None:
        self.sort_out()
        if self.is_asleep or self.drives != self.journal.remote_drives:
            self.journal.record(ev.Woken())
        self.is_asleep, self.drives = False, self.journal.remote_drives

    def leave(self) -> None:
        self.journal.drop_steps()
        self.sort_out()

    def sort_out(self) -> None:
        """Record what came of operations. A call that was not begun may still be run, if its start is stored."""
        for key, each in tuple(self.operations.items()):
            if each.event is not None:
                self.complete(key)
            elif each.launched or key == "request" or not (each.record.stored or each.record.sent):
                if self.waits_for(key):
                    each.event = ev.RequestFailed() if key == "request" else self.end_of(key, None)
                self.complete(key)

    def poll(self) -> None:
        for key, each in tuple(self.operations.items()):
            if each.record.rejection is not None and not (each.launched or each.record.stored):
                del self.operations[
                    key
                ]  # its start was dropped, and is not stored: if the call is to start, it starts anew
        self.lose_orphans()
        while effects := [each for each in outstanding(self.journal.state) if _key(each) not in self.operations]:
            match effects[0]:
                case SendRequest():
                    self.operations["request"] = Operation(self.journal.record(ev.Requested()))
                case Judge(calls=calls):
                    self.judge(calls)
                case RunCall(call_id=call_id):
                    self.operations[call_id] = Operation(self.journal.record(ev.Started(call_id)))
                case EndTurn():
                    self.journal.record(ev.TurnEnded())

    def judge(self, calls: tuple[str, ...]) -> None:
        round_ = round_of(self.journal.state.root)
        assert round_ is not None
        wait = Wait(Why.APPROVAL)
        asked = [each.id for each in round_.calls if each.id in calls and each.name == "send"]
        self.journal.record(ev.Judged(tuple((call_id, wait) for call_id in asked)))

    def lose_orphans(self) -> None:
        loop = self.journal.state.root
        if isinstance(loop.phase, Requesting) and "request" not in self.operations:
            self.journal.record(ev.RequestFailed())
        running = loop.round.having(Status.RUNNING) if loop.round and isinstance(loop.phase, Running) else []
        for call in running:
            if call.id not in self.operations:
                self.journal.record(ev.Ended(call.id, None))

    def launch(self, key: str) -> None:
        """Perform an operation, if its own record is stored and the loop waits for it."""
        operation = self.operations[key]
        if not (operation.record.stored and self.waits_for(key)):
            del self.operations[key]
            return
        operation.launched = True
        if key == "request":
            self.sent += 1
            operation.event = ev.Replied(self.story[min(self.journal.state.root.iterations, len(self.story) - 1)])
        else:
            operation.event = self.end_of(key, Result(encode(f"did {key}")))
            assert isinstance(operation.event, ev.Ended)
            self.ran[operation.event.iteration, key, operation.event.attempt] += 1
        self.complete(key)

    def complete(self, key: str) -> None:
        operation = self.operations[key]
        if operation.event is not None and (self.waits_for(key) or isinstance(operation.event, ev.Ended)):
            self.journal.record(operation.event)
        del self.operations[key]

    def end_of(self, key: str, result: Result | None) -> ev.Ended:
        round_ = round_of(self.journal.state.root)
        call = round_.find(key) if round_ else None
        assert round_ is not None
        assert call is not None
        return ev.Ended(key, result, iteration=round_.iteration, attempt=call.attempts)

    def waits_for(self, key: str) -> bool:
        loop = self.journal.state.root
        if key == "request":
            return isinstance(loop.phase, Requesting)
        call = loop.round.find(key) if loop.round and isinstance(loop.phase, Running) else None
        return call is not None and call.status is Status.RUNNING

    # --- and its caller ---

    def act(self) -> bool:
        """Do what a caller does who looks at the loop: decide, continue, or drive. Return whether it has ended."""
        state = self.journal.state
        match state.root.phase:
            case Finished():
                return True
            case Waiting():
                for _, call in waiting(state):
                    if call.why is Why.UNCERTAIN:
                        self.uncertain.append(call.id)
                    kind = "rerun" if call.why is Why.UNCERTAIN else "approve"
                    self.journal.say(decide((call.id, kind)), firm=False)
                self.journal.say(go_on)
            case Failed():
                self.journal.say(go_on)
            case _:
                self.turn()
        return False

    def to_the_end(self, *allowed: type[BaseException]) -> None:
        """Act until the loop has ended, whatever of this is raised meanwhile."""
        for _ in range(300):
            try:
                if self.act() and not self.journal.is_behind:
                    return
                self.journal.commit()
                self.journal.tell()
            except allowed:
                with suppress(*allowed):
                    self.journal.refresh()
        raise AssertionError(f"it never ends: {self.journal.state.root.phase}, {self.operations}")


def _key(effect: Any) -> str:
    return effect.call_id if isinstance(effect, RunCall) else "request" if isinstance(effect, SendRequest) else ""


def driver_of(
    store: Store, *, story: tuple[Reply, ...] = STORY, take_over: bool = False, defers: bool = False
) -> Driver:
    """A driver that comes to a loop that is in the store."""
    return Driver(open_journal(store, defers=defers), story, take_over=take_over, is_asleep=True)


ALLOWED = (StoreError, CallerError)


# --- a store that fails ----------------------------------------------------------------------------------------------


class FailingStore:
    """A store that fails at chosen calls: before it does what it was asked, or after it, so that nobody knows.

    Attributes:
        fails: says how the call of a number, counted from 1, fails.
        error: makes what it raises.
        before_append: is called before the append of a number, counted from 1.
        asked: the names of the calls so far.

    """

    def __init__(self, inner: Any, fails: Callable[[int], Moment | None] = lambda _: None) -> None:
        self.inner = inner
        self.fails = fails
        self.error: Callable[[], BaseException] = lambda: StoreError("the disk is gone")
        self.before_append: Callable[[int], None] = lambda _: None
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def ask(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            if name == "append":
                self.before_append(self.asked.count("append"))
            moment = self.fails(len(self.asked))
            if moment == "before":
                raise self.error()
            result = method(*args, **kwargs)
            if moment == "after":
                raise self.error()
            return result

        return ask


def is_free(journal: StoredJournal) -> bool:
    """Whether another thread gets the locks of a journal."""
    free: list[bool] = []

    def look() -> None:
        for lock in (journal.io, journal.lock):
            with_it = lock.acquire(blocking=False)
            free.append(with_it)
            if with_it:
                lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return all(free)
