"""What the tests of journal and lease share: loops in a store, a driver, a caller, and a store that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from toolloop._journal.lease import DriverLease
from toolloop._journal.shared_journal import SharedJournal
from toolloop._journal.store_access import Place
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.record.replies import ParsedReply, read_reply
from toolloop.machine.tree import begin, step
from toolloop.machine.values.calls import DecisionRecord, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Setup, ToolFacts
from toolloop.stores.codec import read_journal
from toolloop.stores.protocol import Store
from toolloop.testing.promises import check_promises

ID = "loop"
TOOLS = tuple(ToolFacts(name, effect, "never", name) for name, effect in (("pay", "once"), ("look", "pure")))  # type: ignore[arg-type] # they are


def make_first(loop_id: str = ID) -> ev.Opened:
    """The event that a journal begins with."""
    setup = Setup(loop_id, encode({"model": "m", "max_tokens": 9}), tools=TOOLS)
    return ev.Opened(setup, (encode({"role": "user", "content": "hi"}),))


def answer(*calls: str) -> ParsedReply:
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


def make_journal(store: Store, *, defers: bool = False, clock: Callable[[], float] = time.time) -> SharedJournal:
    """The journal of a loop that is not in the store yet."""
    opened = make_first()
    return SharedJournal(begin(opened), clock, Place(store, first=opened), defers=defers)


def open_journal(store: Store, *, defers: bool = False) -> SharedJournal:
    """One more journal of the loop that is in the store."""
    found = store.load(ID)
    return SharedJournal(read_journal(found.entries), time.time, Place(store, found.rev), defers=defers)


def names(store: Store) -> list[str]:
    """The names of the stored events."""
    return [entry.body.partition('"event":"')[2].partition('"')[0] for entry in store.load(ID).entries]


def read_stored_state(store: Store) -> State:
    return read_journal(store.load(ID).entries)


def assert_sound(store: Store) -> None:
    """The journal can be read, and breaks no promise."""
    assert check_promises(store.load(ID).entries).broken == ()


# --- what callers say ------------------------------------------------------------------------------------------------


def decide(*decisions: tuple[str, str]) -> Callable[[State], ev.Decided | None]:
    """Decide calls; a decision that was made already is not made again."""

    def command(state: State) -> ev.Decided | None:
        event = ev.Decided(tuple((call_id, DecisionRecord(kind)) for call_id, kind in decisions))  # type: ignore[arg-type] # it is one
        return None if step(state, event).root.round == step(state, ev.Ticked()).root.round else event

    return command


def stop(_: State) -> ev.Stopped:
    return ev.Stopped("enough")


# --- a driver --------------------------------------------------------------------------------------------------------


RUNNING = (ev.Requested(), ev.Replied(STORY[0]), ev.Judged(), ev.Started("t1"), ev.Started("t2"))
WAITING = (ev.Requested(), ev.Replied(STORY[1]), ev.Judged((("t3", Wait(Why.APPROVAL)),)))


def hold(lease: DriverLease) -> Callable[[], None]:
    """Take a lease, and need it as a turn does. Return what ends that: call it, or forget it."""

    def steps() -> Iterator[None]:
        lease.acquire()
        yield

    turn: Any = steps()
    lease.keep(turn)
    next(turn)

    def release() -> None:
        turn.close()
        lease.give_back_if_free()

    return release


@contextmanager
def hold_lease(lease: DriverLease) -> Iterator[None]:
    """Hold a lease inside of a `with`."""
    release = hold(lease)
    try:
        yield
    finally:
        release()


@define(eq=False)
class Driver:
    """A journal with its lease; a test records what a driver would."""

    journal: SharedJournal
    take_over: bool = False
    lease: DriverLease = field(init=False)
    release: Callable[[], None] = lambda: None

    def __attrs_post_init__(self) -> None:
        self.lease = DriverLease(self.journal, take_over=self.take_over)

    def hold(self) -> None:
        """Take the lease, until `release()`."""
        self.release = hold(self.lease)

    def record(self, *events: ev.Event) -> None:
        """Record and store these events."""
        for event in events:
            self.journal.record(event)
        self.journal.commit()


def make_running_loop(store: Store) -> Driver:
    """A loop whose first round runs; its driver holds the lease."""
    driver = Driver(make_journal(store))
    driver.hold()
    driver.record(*RUNNING)
    return driver


def make_waiting_loop(store: Store) -> Driver:
    """A loop that waits for a decision on `t3`, without a driver."""
    driver = Driver(make_journal(store))
    with hold_lease(driver.lease):
        driver.record(*WAITING)
    return driver


def take_over(store: Store) -> None:
    """Let another driver take the loop over."""
    driver = Driver(open_journal(store), take_over=True)
    with hold_lease(driver.lease):
        driver.record(ev.Woken())
