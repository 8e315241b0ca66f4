"""A store that lets a test step in before and after each of its calls, and what the tests do there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from attrs import define, field, frozen

from tests.loop.stored import AnyHandle, Faulty, World
from tests.loop.support import params
from toolloop import LoopContext
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Entry, Store
from toolloop.testing.promises import check_promises

T = TypeVar("T")


@frozen
class Asked:
    """A call to a store: its name, and the events that it brings."""

    name: str
    events: tuple[str, ...] = ()


def _nothing(_: Asked) -> None:
    """Go on."""


@define
class Stepping(Faulty):
    """A store that tells what it is asked, before it does it and afterwards. It waits for who is told.

    Attributes:
        before: may raise; then the store does nothing.
        after: may raise; then it was done, and nobody knows.
        every: all that it was asked.

    """

    before: Callable[[Asked], object] = field(default=_nothing)
    after: Callable[[Asked], object] = field(default=_nothing)
    every: list[Asked] = field(factory=list)

    def _step(self, asked: Asked, work: Callable[[], T]) -> T:
        self.every.append(asked)
        self.before(asked)
        done = work()
        self.after(asked)
        return done

    def _ask(self, name: str, work: Callable[[], T]) -> T:
        if name in ("create", "append"):
            return super()._ask(name, work)
        return self._step(Asked(name), partial(super()._ask, name, work))

    def create(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        return self._step(Asked("create", names(entries)), partial(super().create, loop_id, entries, **more))

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        return self._step(Asked("append", names(entries)), partial(super().append, loop_id, entries, **more))


def names(entries: Sequence[Entry]) -> tuple[str, ...]:
    """The names of stored events."""
    return tuple(entry.body.partition('"event":"')[2].partition('"')[0] for entry in entries)


def stepping(kind: str, **more: Any) -> tuple[World, Stepping]:
    """A world over such a store. What others do there goes past it, if it is done in `past(world)`."""
    store = Stepping(MemoryStore())
    return World(kind, store, **more), store


def past(world: World) -> World:
    """The same loop for somebody whose calls to the store nobody steps into. What runs is listed in the first."""
    assert isinstance(world.store, Stepping)
    return World(
        world.kind,
        world.store.inner,
        world.script,
        world.tools,
        world.config,
        world.ran,
        world.requests,
        world.on,
        world.now,
        world.lock,
    )


def taken_over(world: World, **more: Any) -> AnyHandle:
    """Somebody else takes the loop over."""
    other = past(world)
    return other.open(params=params(), take_over=True, context=LoopContext(state=world), **more)


def assert_sound(store: Store, loop_id: str = "loop") -> None:
    """What is stored is a journal in which nothing is wrong."""
    journal = (store.inner if isinstance(store, Stepping) else store).load(loop_id)
    assert check_promises(journal.entries).broken == ()
