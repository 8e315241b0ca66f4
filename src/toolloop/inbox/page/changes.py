"""What changed since a page was made: open pages ask for it, and mark their rows in place.

A page asks `GET /changes?since=V&calls=KEY+KEY`, with the filters of its own address (`tool`, `why`, `q`, `sort`,
`after`), or with `loop=ID` if it shows a loop. `V` is the version that the page was made with, or that of the last
answer. `calls` has the keys (see `keys`) of the calls that it shows, with a space between them.

The answer is 204 if nothing changed, else this JSON:

    {
      "v": V,
      "calls": {KEY: {"state": "waiting", "why": "approval", "digest": "...", "approvals": 1, "missing": 1},
                KEY: {"state": "approved", "by": "bo", "at": 1800000000.0}, ...},
      "new": 2,
      "now": 1800000003.0
    }

- `calls` has each key that was given. A call that still waits is `waiting`, with the digest that binds a decision to
  it, how many approvals it has so far, and how many are missing.
  With another digest than on the page, it is another wait (it was edited, or its run ended unknown). Other states are
  `approved`, `denied`, `answered`, `rerun`, `expired`, `closed` (it got a result without a decision, such as after
  a stop) and `gone` (its loop was deleted).
- `by` and `at` are who decided and when, or None. Times are seconds since the epoch.
- `new` counts the calls that the page would show if it was made now, and that were not given.
- `now` is the server's clock, for the time that is left.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from math import inf
from typing import Any, Literal, Protocol
from weakref import finalize, ref

from attrs import field, frozen

from toolloop._drivers.event_loops import run_in_thread
from toolloop._journal.store_access import call_store
from toolloop.errors import LoopNotFound
from toolloop.inbox.items import InboxCall, TrailEntry
from toolloop.inbox.listing import CallFilter, InboxPage
from toolloop.inbox.shown.keys import from_key
from toolloop.inbox.shown.queue import alike
from toolloop.inbox.shown.recent import read_recent
from toolloop.inbox.trail import trail_of
from toolloop.stores.optional import NO_LIMIT, find_whole_store, watch_store
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Store, StoredLoop

LOOPS = 30  # loops on the first page
_POLL = 3.0  # seconds after which rows are read although the store has reported no change
_DELAY = 0.2  # seconds in which a store reports a change
_STATES = {
    "approve": "approved",
    "grant": "approved",
    "deny": "denied",
    "answer": "answered",
    "rerun": "rerun",
    "expired": "expired",
}
CallId = tuple[str, tuple[str, ...]]
State = dict[str, Any]


class Viewer(Protocol):
    """A person at a page: the store as this person sees it, and what identifies that."""

    @property
    def store(self) -> Store:
        """The store, as the person sees it."""
        ...

    @property
    def seen(self) -> str:
        """Identifies what the person sees."""
        ...


@frozen
class Snapshot:
    """The rows of a store that a page is made of, at one moment.

    Attributes:
        version: changes whenever the rows change, or a call expires.
        now: the time at that moment, in seconds since the epoch.
        loops: the loops with waiting calls, and those that failed; or one loop.
        settled: the states of calls that do not wait, as far as they were asked for.

    """

    version: str
    now: float
    loops: list[StoredLoop]
    settled: dict[CallId, State] = field(factory=dict)
    _open: dict[CallId, State] = field(init=False, factory=dict)

    @cached_property
    def calls(self) -> InboxPage:
        """All calls that can be decided."""
        return self.select()

    @cached_property
    def items(self) -> dict[CallId, InboxCall]:
        """The same calls, by the loop and the path."""
        return {(call.loop_id, call.path): call for call in self.calls}

    def select(
        self, tool: str | None = None, text: str | None = None, sort: Literal["deadline", "age"] = "deadline"
    ) -> InboxPage:
        """Return the calls that can be decided and that match. See `Inbox.pending`."""
        return InboxPage(self.loops, self.now, CallFilter(tool, None, text), sort=sort, limit=NO_LIMIT, cursor=None)

    @cached_property
    def until(self) -> float:
        """When the next of its calls expires."""
        ends = (call.expires_at for loop in self.loops for call in loop.pending)
        return min((at for at in ends if at is not None and at > self.now), default=inf)

    @cached_property
    def alike(self) -> dict[CallId, tuple[Any, ...] | None]:
        """What each of the same calls has in common with others. See `alike`."""
        return {place: alike(call) for place, call in self.items.items()}

    @cached_property
    def waiting(self) -> dict[CallId, tuple[StoredLoop, PendingCall]]:
        """Return the calls that wait for a decision, also those that have expired and no driver has noticed it."""
        return {(loop.loop_id, call.path): (loop, call) for loop in self.loops for call in loop.pending}

    def state_of(self, place: CallId, now: float) -> State:
        """Return the state of a call that waits, as a page gets it."""
        loop, call = self.waiting[place]
        if _is_over(call, now):
            return {"state": "expired", "by": None, "at": call.expires_at}
        if place not in self._open:  # once for all pages
            item = InboxCall.of(loop, call)
            counts = {"approvals": len(item.approvals), "missing": item.missing}
            self._open[place] = {"state": "waiting", "why": call.why, "digest": call.digest, **counts}
        return self._open[place]


class News:
    """Counts the changes that a store reports, from the first time that it is asked for."""

    def __init__(self) -> None:
        """Watch no store yet."""
        self.count: int = 0
        self._watch: ExitStack | None = None

    def begin(self, store: Store) -> None:
        """Watch a store, unless one is watched, until this object is gone."""
        whole = find_whole_store(store)
        if self._watch is None and hasattr(whole, "watch"):
            self._watch = ExitStack()
            this = ref(self)

            def add() -> None:
                if (news := this()) is not None:
                    news.count += 1

            self._watch.enter_context(watch_store(whole, add))
            finalize(self, self._watch.close).atexit = False

    @property
    def is_watched(self) -> bool:
        """Whether a store is watched."""
        return self._watch is not None


class Changes:
    """Answers pages that ask for changes.

    Pages of people who see the same loops share one read of the store in each interval. Nothing is read while the store
    reports no change, but for a poll every few seconds.
    """

    def __init__(self, clock: Callable[[], float], refresh: float) -> None:
        """Store the arguments.

        Args:
            clock: seconds since the epoch.
            refresh: the shortest interval between two reads of the same rows, in seconds.

        """
        self._clock = clock
        self._refresh = refresh
        self._news = News()
        self._read: dict[tuple[str, str | None], tuple[float, int, Snapshot]] = {}  # when, and after how many changes
        self._lock = threading.Lock()

    async def version(self, me: Viewer, loop_id: str | None) -> str:
        """Return the version of the queue, or of a loop. Read it before the rows, so that it is never newer."""
        return (await self._snapshot(me, loop_id)).version

    async def queue(self, me: Viewer) -> Snapshot:
        """Return the queue of a person as it is now."""
        return await run_in_thread(partial(self._take, me, None, is_fresh=True))

    async def since(
        self,
        me: Viewer,
        version: str | None,
        query: Mapping[str, str],
        wanted: CallFilter,
        fits: Callable[[StoredLoop, PendingCall], bool],
    ) -> dict[str, Any] | None:
        """Return the answer to a page with this version and these parameters; None if nothing changed.

        Args:
            me: the person at the page.
            version: the version that the page has.
            query: the parameters.
            wanted: which waiting calls the page would show, if it was made now.
            fits: returns whether it would show one of these.

        Raises:
            ValueError: a parameter is invalid.

        """
        shown = {key: from_key(key) for key in query.get("calls", "").split()}
        loop_id = query.get("loop")
        snapshot = await self._snapshot(me, loop_id)
        if snapshot.version == version:
            return None
        now = self._clock()
        waiting = snapshot.waiting
        await run_in_thread(
            partial(self._settle, me.store, snapshot, [each for each in shown.values() if each not in waiting])
        )
        known = {*shown.values()}
        states = {
            key: snapshot.state_of(call, now) if call in waiting else snapshot.settled[call]
            for key, call in shown.items()
        }
        new = sum(
            call not in known and not _is_over(rows[1], now) and wanted.matches(*rows) and fits(*rows)
            for call, rows in waiting.items()
        )
        return {"v": snapshot.version, "calls": states, "new": new, "now": now}

    async def _snapshot(self, me: Viewer, loop_id: str | None) -> Snapshot:
        recent = self._recent(me, loop_id)
        return await run_in_thread(partial(self._take, me, loop_id)) if recent is None else recent

    def _recent(self, me: Viewer, loop_id: str | None) -> Snapshot | None:
        if (last := self._read.get((me.seen, loop_id))) is None:
            return None
        read_at, count, snapshot = last
        age, is_same = time.monotonic() - read_at, self._news.is_watched and count == self._news.count
        is_known = is_same and self._refresh >= _DELAY and self._clock() < snapshot.until
        return snapshot if age < self._refresh or (is_known and age < _POLL) else None

    def _take(self, me: Viewer, loop_id: str | None, *, is_fresh: bool = False) -> Snapshot:
        with self._lock:  # pages that asked meanwhile get what the first one reads
            if not is_fresh and (recent := self._recent(me, loop_id)) is not None:
                return recent
            self._news.begin(me.store)
            now, at, key, count = time.monotonic(), self._clock(), (me.seen, loop_id), self._news.count
            read = {key: each for key, each in self._read.items() if now - each[0] < max(_POLL, self._refresh)}
            loops, version = self._queue(me.store, at) if loop_id is None else self._loop(me.store, loop_id, at)
            last = self._read.get(key)
            snapshot = last[2] if last is not None and last[2].version == version else Snapshot(version, at, loops)
            self._read = {**read, key: (now, count, snapshot)}
            return snapshot

    def _queue(self, store: Store, now: float) -> tuple[list[StoredLoop], str]:
        newest = store.list(limit=LOOPS)
        loops = store.list(("needs_decision", "failed"), limit=NO_LIMIT)
        return loops, self._version(now, loops, [(each.loop_id, each.created, each.status) for each in newest])

    def _loop(self, store: Store, loop_id: str, now: float) -> tuple[list[StoredLoop], str]:
        try:
            loops = [call_store(loop_id, partial(store.head, loop_id))]
        except LoopNotFound:
            loops = []
        return loops, self._version(now, loops)

    def _version(self, now: float, loops: Collection[StoredLoop], *more: object) -> str:
        expired = [[_is_over(call, now) for call in loop.pending] for loop in loops]
        heads = [(each.head.attempts, each.head.retry_at) for each in loops]
        rows = [(each.loop_id, each.created, each.rev, each.status) for each in loops]
        return hashlib.blake2b(repr((rows, heads, expired, more)).encode(), digest_size=8).hexdigest()

    def _settle(self, store: Store, snapshot: Snapshot, calls: Collection[CallId]) -> None:
        """Find the states of calls that do not wait, once for all pages."""
        with self._lock:
            missing: dict[str, list[tuple[str, ...]]] = {}
            for loop_id, path in calls:
                if (loop_id, path) not in snapshot.settled:
                    missing.setdefault(loop_id, []).append(path)
            for loop_id, paths in missing.items():
                snapshot.settled.update(_settled_in(store, loop_id, paths))


def _is_over(call: PendingCall, now: float) -> bool:
    return call.expires_at is not None and call.expires_at <= now


def _settled_in(store: Store, loop_id: str, paths: list[tuple[str, ...]]) -> dict[CallId, State]:
    try:
        recent = read_recent(store, loop_id, paths)
    except LoopNotFound:
        return {(loop_id, path): {"state": "gone", "by": None, "at": None} for path in paths}
    steps = recent.steps if recent.before is not None else recent.steps[1:]
    last = {entry.path: entry for entry in trail_of(recent.first_state, steps) if entry.kind in _STATES}
    return {(loop_id, path): _settled(last.get(path)) for path in paths}


def _settled(last: TrailEntry | None) -> State:
    """Return the state of a call by its last entry in the trail."""
    if last is None:
        return {"state": "closed", "by": None, "at": None}
    return {"state": _STATES[last.kind], "by": last.by, "at": last.at.timestamp()}
