"""The world of the explorer: one stored loop, two drivers, what they are at, and what their tools did.

A world is a value that can be hashed. Its journal is a place in a tree of journals, for most worlds share most of
theirs; the state at each place is what the real machine makes of it. What a store does is asked of the real store,
which is built from the world, and remembered: it depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from attrs import define, field

from toolloop.core.errors import CallerError
from toolloop.errors import Conflict
from toolloop.machine import Ended, Event, State, begin, step
from toolloop.stores import Entry, Head, Lease, MemoryStore, Store
from toolloop.stores.events import encode_event
from toolloop.stores.memory import _Loop

LOOP = "loop"
HEAD = Head("runnable")


class Run(NamedTuple):
    """A run of a call. `ousted`: its driver's lease was rightly taken over since it was started."""

    iteration: int
    call_id: str
    attempt: int
    ousted: bool = False

    @property
    def entry_id(self) -> str:
        return f"end/{self.iteration}/{self.call_id}/{self.attempt}"


class Staged(NamedTuple):
    """An event on its way into the store: the id of its entry, and what becomes of it if the store will not have it."""

    entry_id: str
    kind: str


class Driver(NamedTuple):
    """A process that drives.

    Attributes:
        name, life: which one, and how often it was started anew: together they own leases.
        at: what it is about to do.
        node: the journal as it knows it.
        token: of its lease; `instead`: of a lease that it is about to take over.
        asleep: somebody else may have driven since it looked.
        staged: what it is about to store; `late`: ends that no longer belong to what it drives.
        ready: calls whose start is stored, and that it is about to run; `runs`: those that run; `strays`: those that
            still run, and that no longer belong to what it drives.

    """

    name: int
    life: int = 0
    at: str = "open"
    node: int = 0
    token: int | None = None
    instead: int | None = None
    asleep: bool = True
    staged: tuple[Staged, ...] = ()
    late: tuple[Staged, ...] = ()
    ready: tuple[Run, ...] = ()
    runs: tuple[Run, ...] = ()
    strays: tuple[Run, ...] = ()

    @property
    def owner(self) -> str:
        return f"{self.name}.{self.life}"


class World(NamedTuple):
    """Everything there is.

    Attributes:
        node: the stored journal; `lease`: its owner and token; `tokens`: how many were given.
        crashes: how many may still happen.
        slow: how many times the slow driver's lease may still be judged to be over.
        ran: each run that really happened, in order of calls; the witness outside.
        owed: ends that a living driver saw, and that are not in the journal yet.

    """

    node: int
    lease: tuple[str, int] | None
    tokens: int
    drivers: tuple[Driver, ...]
    crashes: int
    slow: int
    ran: tuple[str, ...] = ()
    owed: frozenset[str] = frozenset()


def with_driver(world: World, driver: Driver) -> World:
    drivers = (driver, world.drivers[1]) if driver.name == 0 else (world.drivers[0], driver)
    return world._replace(drivers=drivers)


def oust(world: World, lease: tuple[str, int] | None) -> World:
    """The lease of a driver that may live was rightly taken over: it no longer counts as at work."""
    for driver in world.drivers:
        if lease is not None and driver.owner == lease[0]:
            ready, runs, strays = (
                tuple(run._replace(ousted=True) for run in each) for each in (driver.ready, driver.runs, driver.strays)
            )
            world = with_driver(world, driver._replace(ready=ready, runs=runs, strays=strays))
    return world


def less(runs: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    return tuple(each for each in runs if each != run)


def is_in(owed: str, stored: frozenset[str]) -> bool:
    entry_id = owed.partition(":")[2]
    return entry_id in stored or f"late/{entry_id}" in stored


def normal(world: World) -> World:
    """One of all worlds that differ in nothing that counts: of tokens, only their order does."""
    world = world._replace(drivers=tuple(_normal(driver) for driver in world.drivers))
    held = {0 if world.lease is None else world.lease[1]}
    for driver in world.drivers:
        held |= {driver.token or 0, driver.instead or 0}
    rank: dict[int | None, int | None] = {token: at for at, token in enumerate(sorted(held | {0}))}
    tokens = len(rank) - 1
    if tokens == world.tokens:
        return world
    drivers = tuple(
        driver._replace(
            token=rank[driver.token] if driver.token else None, instead=rank[driver.instead] if driver.instead else None
        )
        for driver in world.drivers
    )
    lease = None if world.lease is None else (world.lease[0], rank[world.lease[1]] or 0)
    return world._replace(drivers=drivers, lease=lease, tokens=tokens)


def _normal(driver: Driver) -> Driver:
    if driver.at in ("open", "done") or (driver.asleep and driver.at in ("take", "seize", "read")):
        driver = driver._replace(node=0, asleep=True)  # it will read the whole journal
    return driver._replace(
        late=tuple(sorted(driver.late)), runs=tuple(sorted(driver.runs)), strays=tuple(sorted(driver.strays))
    )


class Asked(NamedTuple):
    """A question to a store. `holds`: with the lease of who asks; `instead`: of the lease that it saw last."""

    what: str
    owner: str = ""
    entry_ids: tuple[str, ...] = ()
    expected: int | None = None
    holds: int | None = None
    instead: int | None = None


class Told(NamedTuple):
    """What the store said: `ok`, `stale` or `conflict`; with its revision, the entries, or who has which lease."""

    said: str
    rev: int = 0
    lease: tuple[str, int] | None = None
    heard: tuple[str, ...] = ()


@define
class Place:
    """A place in the tree: a journal. `state` is None where the machine refuses its last event."""

    parent: int
    entry_id: str
    length: int
    state: State | None
    ids: frozenset[str]


@define
class Journals:
    """The tree of all journals that came up. Ends that follow each other stand in one order, for it is all one."""

    places: list[Place] = field(factory=list)
    entries: dict[str, Entry] = field(factory=dict)
    events: dict[str, Event] = field(factory=dict)
    children: dict[tuple[int, str], int] = field(factory=dict)

    def start(self, first: Any, *rest: Event) -> int:
        """A journal to begin with."""
        self.say("0", first)
        self.places.append(Place(-1, "0", 1, begin(first), frozenset("0")))
        node = len(self.places) - 1
        for number, event in enumerate(rest, start=1):
            node = self.extend(node, self.say(str(number), event))
        assert self.places[node].state is not None
        return node

    def say(self, entry_id: str, event: Event) -> str:
        """An event under its id."""
        if entry_id not in self.events:
            self.events[entry_id] = event
            self.entries[entry_id] = Entry(entry_id, encode_event(event))
        return entry_id

    def extend(self, node: int, *entry_ids: str) -> int:
        """The journal with further entries."""
        for entry_id in entry_ids:
            node = self.children.get((node, entry_id)) or self._grow(node, entry_id)
        return node

    def _commutes(self, node: int, entry_id: str) -> bool:
        """Whether an end may as well stand before the last one: two of different calls, in the order of their ids."""
        last, new = self.events[self.places[node].entry_id], self.events[entry_id]
        both = isinstance(last, Ended) and isinstance(new, Ended) and last.call_id != new.call_id
        return both and entry_id < self.places[node].entry_id

    def _grow(self, node: int, entry_id: str) -> int:
        parent = self.places[node]
        if self._commutes(node, entry_id):
            grown = self.children[node, entry_id] = self.extend(parent.parent, entry_id, parent.entry_id)
            return grown
        state = None if parent.state is None else after(parent.state, self.events[entry_id])
        self.places.append(Place(node, entry_id, parent.length + 1, state, parent.ids | {entry_id}))
        grown = self.children[node, entry_id] = len(self.places) - 1
        return grown

    def state(self, node: int) -> State | None:
        return self.places[node].state

    def length(self, node: int) -> int:
        return self.places[node].length

    def beyond(self, node: int, length: int) -> list[str]:
        """The entries of a journal after so many, oldest first."""
        found = []
        while node >= 0 and self.places[node].length > length:
            found.append(self.places[node].entry_id)
            node = self.places[node].parent
        return found[::-1]

    def news(self, node: int, known: int) -> list[str]:
        """What is in a journal beyond what was known of it."""
        ids = self.places[known].ids
        return [entry_id for entry_id in self.beyond(node, 0) if entry_id not in ids]

    def whole(self, node: int) -> list[Entry]:
        return [self.entries[entry_id] for entry_id in self.beyond(node, 0)]


def after(state: State, event: Event) -> State | None:
    """The state after an event; None where the machine refuses it."""
    try:
        return step(state, event)
    except CallerError:
        return None


@define
class Shop:
    """Asks the real store what it does in a world. `spoil`: makes another store of it."""

    journals: Journals
    spoil: Callable[[MemoryStore], Store] = lambda store: store
    _known: dict[Any, Any] = field(factory=dict)

    def ask(self, world: World, asked: Asked) -> tuple[Told, World]:
        """What the store says, and the world after that."""
        key = (world.node, world.lease, world.tokens, asked)
        if key not in self._known:
            self._known[key] = self._ask(world, asked)
        told, node, lease, tokens = self._known[key]
        return told, world._replace(node=node, lease=lease, tokens=tokens)

    def _ask(self, world: World, asked: Asked) -> Any:
        memory = MemoryStore()
        lease = None if world.lease is None else Lease(LOOP, *world.lease, 0.0)
        entries = self.journals.whole(world.node)
        memory._loops[LOOP] = _Loop(Head("x"), entries, {entry.id for entry in entries}, lease)
        memory._tokens = world.tokens
        before = len(entries)
        told = self.perform(self.spoil(memory), asked)
        loop = memory._loops[LOOP]
        assert asked.what != "load" or list(told.heard) == self.journals.beyond(world.node, asked.expected or 0)
        node = self.journals.extend(world.node, *(entry.id for entry in loop.entries[before:]))
        now = None if loop.lease is None else (loop.lease.owner, loop.lease.token)
        return told, node, now, memory._tokens

    def perform(self, store: Store, asked: Asked) -> Told:
        """Ask a store."""
        try:
            match asked.what:
                case "load":
                    journal = store.load(LOOP, after=asked.expected or 0)
                    return Told("ok", journal.rev, heard=tuple(entry.id for entry in journal.entries))
                case "take":
                    got = store.acquire(LOOP, asked.owner, until=0.0, instead_of=asked.instead)
                    return Told("ok", lease=(got.owner, got.token))
                case "release":
                    store.release(Lease(LOOP, asked.owner, asked.holds or 0, 0.0))
                    return Told("ok")
            lease = None if asked.holds is None else Lease(LOOP, asked.owner, asked.holds, 0.0)
            added = [self.journals.entries[entry_id] for entry_id in asked.entry_ids]
            return Told("ok", store.append(LOOP, added, expected_rev=asked.expected, head=HEAD, lease=lease))
        except Conflict as conflict:
            said = "stale" if hasattr(conflict, "rev") else "conflict"
            held = None if conflict.owner is None or conflict.token is None else (conflict.owner, conflict.token)
            return Told(said, lease=held)
