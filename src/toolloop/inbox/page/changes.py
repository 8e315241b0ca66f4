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
from functools import cached_property, partial
from typing import Any, Literal

from attrs import field, frozen

from toolloop._drivers.event_loops import in_thread
from toolloop._journal.store_access import safely
from toolloop.errors import LoopNotFound
from toolloop.inbox.items import InboxCall, TrailEntry
from toolloop.inbox.listing import CallFilter, InboxPage
from toolloop.inbox.page.shown.keys import from_key
from toolloop.inbox.trail import read_trail
from toolloop.stores.pending import PendingCall
from toolloop.stores.protocol import Store, StoredLoop

LOOPS = 30  # loops on the first page
_ALL = 2**62
_STATES = {"approve": "approved", "deny": "denied", "answer": "answered", "rerun": "rerun", "expired": "expired"}
CallId = tuple[str, tuple[str, ...]]
State = dict[str, Any]


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
        return InboxPage(self.loops, self.now, CallFilter(tool, None, text), sort=sort, limit=_ALL, cursor=None)

    def waiting(self) -> dict[CallId, tuple[StoredLoop, PendingCall]]:
        """Return the calls that wait for a decision, also those that have expired and no driver has noticed it."""
        return {(loop.loop_id, call.path): (loop, call) for loop in self.loops for call in loop.pending}


class Changes:
    """Answers pages that ask for changes. Any number of pages share one read of the store in each interval."""

    def __init__(self, store: Store, clock: Callable[[], float], refresh: float) -> None:
        """Store the arguments.

        Args:
            store: the store with the loops.
            clock: seconds since the epoch.
            refresh: the shortest interval between two reads of the same rows, in seconds.

        """
        self._store = store
        self._clock = clock
        self._refresh = refresh
        self._read: dict[str | None, tuple[float, Snapshot]] = {}
        self._lock = threading.Lock()

    async def version(self, loop_id: str | None) -> str:
        """Return the version of the queue, or of a loop. Read it before the rows, so that it is never newer."""
        return (await self._snapshot(loop_id)).version

    async def queue(self) -> Snapshot:
        """Return the queue as it is now."""
        return await in_thread(partial(self._take, None, is_fresh=True))

    async def since(
        self, version: str | None, query: Mapping[str, str], wanted: CallFilter, fits: Callable[[InboxCall], bool]
    ) -> dict[str, Any] | None:
        """Return the answer to a page with this version and these parameters; None if nothing changed.

        Args:
            version: the version that the page has.
            query: the parameters.
            wanted: which waiting calls the page would show, if it was made now.
            fits: returns whether it would show one of these.

        Raises:
            ValueError: a parameter is invalid.

        """
        shown = {key: from_key(key) for key in query.get("calls", "").split()}
        loop_id = query.get("loop")
        snapshot = await self._snapshot(loop_id)
        if snapshot.version == version:
            return None
        now = self._clock()
        waiting = snapshot.waiting()
        await in_thread(partial(self._settle, snapshot, [each for each in shown.values() if each not in waiting]))
        items, known = snapshot.items, {*shown.values()}
        states = {
            key: _waiting(waiting[call][1], items.get(call), now) if call in waiting else snapshot.settled[call]
            for key, call in shown.items()
        }
        new = sum(
            call not in known and not _is_over(rows[1], now) and wanted.matches(*rows) and fits(items[call])
            for call, rows in waiting.items()
            if call in items
        )
        return {"v": snapshot.version, "calls": states, "new": new, "now": now}

    async def _snapshot(self, loop_id: str | None) -> Snapshot:
        recent = self._recent(loop_id)
        return await in_thread(partial(self._take, loop_id)) if recent is None else recent

    def _recent(self, loop_id: str | None) -> Snapshot | None:
        last = self._read.get(loop_id)
        return last[1] if last is not None and time.monotonic() - last[0] < self._refresh else None

    def _take(self, loop_id: str | None, *, is_fresh: bool = False) -> Snapshot:
        with self._lock:  # pages that asked meanwhile get what the first one reads
            if not is_fresh and (recent := self._recent(loop_id)) is not None:
                return recent
            now, at = time.monotonic(), self._clock()
            read = {key: each for key, each in self._read.items() if now - each[0] < self._refresh}
            loops, version = self._queue(at) if loop_id is None else self._loop(loop_id, at)
            last = self._read.get(loop_id)
            snapshot = last[1] if last is not None and last[1].version == version else Snapshot(version, at, loops)
            self._read = {**read, loop_id: (now, snapshot)}
            return snapshot

    def _queue(self, now: float) -> tuple[list[StoredLoop], str]:
        newest = self._store.list(limit=LOOPS)
        loops = self._store.list(("needs_decision", "failed"), limit=_ALL)
        return loops, self._version(now, loops, [(each.loop_id, each.created, each.status) for each in newest])

    def _loop(self, loop_id: str, now: float) -> tuple[list[StoredLoop], str]:
        try:
            loops = [self._store.head(loop_id)]
        except LoopNotFound:
            loops = []
        return loops, self._version(now, loops)

    def _version(self, now: float, loops: Collection[StoredLoop], *more: object) -> str:
        expired = [[_is_over(call, now) for call in loop.pending] for loop in loops]
        heads = [(each.head.attempts, each.head.retry_at) for each in loops]
        rows = [(each.loop_id, each.created, each.rev, each.status) for each in loops]
        return hashlib.blake2b(repr((rows, heads, expired, more)).encode(), digest_size=8).hexdigest()

    def _settle(self, snapshot: Snapshot, calls: Collection[CallId]) -> None:
        """Find the states of calls that do not wait, once for all pages."""
        with self._lock:
            missing: dict[str, list[tuple[str, ...]]] = {}
            for loop_id, path in calls:
                if (loop_id, path) not in snapshot.settled:
                    missing.setdefault(loop_id, []).append(path)
            for loop_id, paths in missing.items():
                snapshot.settled.update(self._settled(loop_id, paths))

    def _settled(self, loop_id: str, paths: list[tuple[str, ...]]) -> dict[CallId, State]:
        try:
            trail = read_trail(safely(loop_id, partial(self._store.load, loop_id)).entries)
        except LoopNotFound:
            return {(loop_id, path): {"state": "gone", "by": None, "at": None} for path in paths}
        last = {entry.path: entry for entry in trail}
        return {(loop_id, path): _settled(last.get(path)) for path in paths}


def _is_over(call: PendingCall, now: float) -> bool:
    return call.expires_at is not None and call.expires_at <= now


def _waiting(call: PendingCall, item: InboxCall | None, now: float) -> State:
    if item is None or _is_over(call, now):
        return {"state": "expired", "by": None, "at": call.expires_at}
    counts = {"approvals": len(item.approvals), "missing": item.missing}
    return {"state": "waiting", "why": call.why, "digest": call.digest, **counts}


def _settled(last: TrailEntry | None) -> State:
    """Return the state of a call by its last entry in the trail."""
    if last is None:
        return {"state": "closed", "by": None, "at": None}
    return {"state": _STATES[last.kind], "by": last.by, "at": last.at.timestamp()}
