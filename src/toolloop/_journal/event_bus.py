"""The event bus of a loop: delivers watch events to the observers, the log and the reader of a stream, in one order."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any
from weakref import ref

from attrs import fields

from toolloop._usage import Usage
from toolloop.events import (
    Compacted,
    Delta,
    DriftAdopted,
    RepetitionDetected,
    Source,
    ThreadRefused,
    WatchedLoop,
    WatchEvent,
)
from toolloop.machine.record.loop import Path

LOG = logging.getLogger("toolloop")

CalledObserver = Any  # its methods are looked up on its class
ObserversOf = Callable[[Path], Sequence[CalledObserver]]  # returns the observers of the loop at a path
_NOTHING = nullcontext()

# Only these texts of events are logged: names and ids. A new field is not logged until it is listed here.
_LOGGED = {
    "call_id": "call_id",
    "message_id": "message_id",
    "name": "tool",  # a log record already has a `name`
    "tool_name": "tool",
    "kind": "kind",
    "by": "by",
    "why": "why",
    "outcome": "outcome",
    "filter": "filter",
    "action": "action",
    "strategy": "strategy",
    "stop_reason": "stop_reason",
    "error_code": "error_code",
}


class EventBus:
    """Delivers the watch events of a tree of loops.

    Hold the lock of the journal when you call `note` or `since`, so that there is one order. Hold no lock when you call
    `tell`: it runs the caller's code, which may wait for other threads.

    Attributes:
        reader: takes each event for the reader of a streamed turn.

    """

    def __init__(self, loop_id: str, source: Source, observers: ObserversOf) -> None:
        """Start without events.

        Args:
            loop_id: the id of the outermost loop.
            source: gives observers the current state of a loop. The bus does not keep it alive.
            observers: returns the configured observers of the loop at a path.

        """
        self.reader: CalledObserver | None = None
        self._extra = {"loop_id": loop_id}
        self._observers = _Observers(loop_id, ref(source), observers)
        self._since: list[WatchEvent] = []
        self._first = 0  # the position of the first of them, among all events
        self._untold: deque[WatchEvent] = deque()
        self._teller: object = None
        self._lock = threading.RLock()  # held only to look for the delivering thread
        self._busy = threading.RLock()  # held by the delivering thread
        self._put_off: deque[Callable[[], None]] = deque()

    def note(self, events: Iterable[WatchEvent]) -> None:
        """Keep events for the next `tell` and for `since`. The reader of a stream gets them at once."""
        for event in events:
            self._untold.append(event)
            if not isinstance(event, Delta):
                self._since.append(event)
            if self.reader is not None:
                self.reader(event)

    def tell(self) -> None:
        """Deliver the noted events to the log and the observers.

        One thread delivers at a time. It also delivers events that other threads or an observer note meanwhile.
        """
        teller = object()
        try:
            while self._is_telling(teller):
                with self._busy:
                    event = self._untold.popleft()
                    self._log(event)
                    if self._observers.find(event.path):  # most loops have none
                        self._observers.tell(event)
        finally:
            if self._teller is teller:
                self._teller = None
        while self._put_off:
            with suppress(IndexError):
                self._put_off.popleft()()

    def put_off(self, act: Callable[[], None]) -> None:
        """Call a function at the next `tell`, for a signal handler that interrupted the thread with the lock."""
        self._put_off.append(act)

    def settle(self) -> None:
        """Deliver all noted events, and wait until another delivering thread has finished too."""
        self.tell()
        with self._busy:
            pass
        self.tell()

    def _is_telling(self, teller: object) -> bool:
        """Return whether there are events to deliver, and no other thread delivers them."""
        with self._lock:
            if self._teller is None or self._teller is teller:
                self._teller = teller if self._untold else None
                return self._teller is teller
            return False

    def list_since(self, position: int) -> tuple[tuple[WatchEvent, ...], int]:
        """Return the events after a position, and the current position. Earlier events are dropped."""
        self._since, self._first = self._since[max(0, position - self._first) :], max(position, self._first)
        return tuple(self._since), self._first + len(self._since)

    @property
    def position(self) -> int:
        """The number of events so far."""
        return self._first + len(self._since)

    def make_around(self, event: WatchEvent) -> Callable[[], AbstractContextManager[object]]:
        """Return a function that enters the observers' context managers around what an event begins, and returns them.

        Call it, and leave them, in the thread or task that sends the request or runs the tool.
        """
        return partial(self._observers.enter_around, event) if self._observers.find(event.path) else nullcontext

    def close(self) -> None:
        """Notify the observers that the handle was closed."""
        self.settle()
        self._observers.close()

    def _log(self, event: WatchEvent) -> None:
        if LOG.isEnabledFor(logging.DEBUG):
            extra = {**self._extra, "event": type(event).__name__, **list_logged_fields(event)}
            LOG.debug("%s", type(event).__name__, extra=extra)
        if isinstance(event, RepetitionDetected):
            found = {"tool": event.tool_name, "count": event.count}
            text = "the model made the same calls to %s %d times in a row"
            LOG.warning(text, *found.values(), extra=self._extra | found)
        elif isinstance(event, DriftAdopted):
            LOG.info("the loop continues with a changed configuration: %s", "; ".join(event.changes), extra=self._extra)
        elif isinstance(event, ThreadRefused):
            text = "the server refused the message thread (%s); repeating the request with the whole history"
            LOG.info(text, event.error_code, extra=self._extra | {"error_code": event.error_code})
        elif isinstance(event, Compacted) and event.problem is not None:  # not logged: it may quote the conversation
            text = "%s did not change the history; see Compacted.problem for the reason"
            LOG.warning(text, event.strategy, extra=self._extra | {"strategy": event.strategy})


def list_logged_fields(event: WatchEvent) -> dict[str, Any]:
    """Return the fields of an event without any text of people, models or tools."""
    logged: dict[str, Any] = {}
    for each in fields(type(event)):
        value = getattr(event, each.name)
        if each.name == "path":
            if value:
                logged["path"] = "/".join(value)
        elif each.name == "termination":
            logged["termination"] = value.kind
        elif isinstance(value, Usage):
            logged |= {"input_tokens": value.total_input_tokens, "output_tokens": value.output_tokens}
        elif each.name in ("kinds", "changes"):
            logged[each.name] = list(value)
        elif isinstance(value, str) and each.name in _LOGGED:
            logged[_LOGGED[each.name]] = value
        elif isinstance(value, (bool, int, float)):
            logged[each.name] = value
    return logged


def find_no_observers(_path: Path) -> Sequence[CalledObserver]:
    """Return no observers."""
    return ()


class _Observers:
    """The observers of a tree of loops. Their failures are logged, and do not stop a loop.

    Optional methods of an observer are looked up on its class, as special methods are, because a mock has every
    attribute.
    """

    def __init__(self, loop_id: str, source: Callable[[], Source | None], observers: ObserversOf) -> None:
        self._loop_id = loop_id
        self._source = source
        self.find = observers
        self._watchers: dict[int, tuple[CalledObserver, CalledObserver | None]] = {}

    def tell(self, event: WatchEvent) -> None:
        for observer in self._list_to_call(event.path):
            with self._guard():
                observer(event)

    def enter_around(self, event: WatchEvent) -> AbstractContextManager[object]:
        wanting: list[Any] = [each for each in self._list_to_call(event.path) if hasattr(type(each), "around")]
        if not wanting:
            return _NOTHING
        with ExitStack() as stack:
            for observer in wanting:
                with self._guard():
                    manager = observer.around(event)
                    manager.__enter__()
                    stack.push(partial(self._leave, manager))
            return stack.pop_all()

    def _leave(self, manager: Any, *error: object) -> None:
        """Exit an observer's context manager. It cannot swallow or raise an exception."""
        with self._guard():
            try:
                manager.__exit__(*error)
            except BaseException as raised:
                if raised is not error[1]:  # that one propagates anyway
                    raise

    def close(self) -> None:
        watchers: list[Any] = [watcher for _, watcher in tuple(self._watchers.values())]
        for watcher in watchers:
            if watcher is not None and hasattr(type(watcher), "close"):
                with self._guard():
                    watcher.close()

    def _list_to_call(self, path: Path) -> Iterator[CalledObserver]:
        asked: list[CalledObserver] = []
        for observer in self.find(path):
            if not hasattr(type(observer), "for_loop"):
                yield observer
            elif not any(each is observer for each in asked):  # call it once, even if nested loops name it too
                asked.append(observer)
                if (watcher := self._find_watcher(observer, path)) is not None:
                    yield watcher

    def _find_watcher(self, observer: Any, path: Path) -> CalledObserver | None:
        """Return an observer's watcher for this tree of loops. `for_loop` is called once."""
        known = self._watchers.get(id(observer))
        if known is None:
            watcher = None
            with self._guard():
                depths = (depth for depth in range(len(path)) if self._is_observed_by(observer, path[:depth]))
                watcher = observer.for_loop(WatchedLoop(self._loop_id, next(depths, len(path)), self._source))
            known = self._watchers.setdefault(id(observer), (observer, watcher))
        return known[1]

    def _is_observed_by(self, observer: CalledObserver, path: Path) -> bool:
        return any(each is observer for each in self.find(path))

    @contextmanager
    def _guard(self) -> Generator[None, None, None]:
        try:
            yield
        except Exception:
            LOG.exception("an observer failed", extra={"loop_id": self._loop_id})
