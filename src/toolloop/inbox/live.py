"""Hand the watch events of loops to the clients that read them now. A client that is slow keeps a bounded amount."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
from attrs import define, evolve, field

import toolloop.events as ev
from toolloop._drivers.event_loops import call_soon
from toolloop._public import set_module

MOST: Final = 1_000_000  # characters of the events that a client has not read
_TEXTS: Final[dict[type[ev.WatchEvent], str]] = {
    ev.TextDelta: "text",
    ev.ThinkingDelta: "thinking",
    ev.InputDelta: "partial_json",
    ev.CallFinished: "plain_text",
}


@set_module("toolloop.inbox")
class EventReader:
    """The events that one client has not read: see `LiveEvents.reading`. It belongs to one event loop.

    Attributes:
        is_over: whether no more events are wanted.

    """

    def __init__(self, give_up: Callable[[], None]) -> None:
        """Start without events. `give_up`: called once, when the client is too slow."""
        self.is_over: bool = False
        self._events: deque[ev.WatchEvent] = deque()
        self._size = 0
        self._give_up = give_up
        self._soon = call_soon()
        self._news = anyio.Event()

    def put(self, event: ev.WatchEvent) -> None:
        """Add an event, from any thread."""
        self._soon(partial(self._put, event))

    def _put(self, event: ev.WatchEvent) -> None:
        if self._size > MOST:
            return  # the client was given up
        self._size += _size(event)
        if self._size > MOST:
            self._events.clear()
            self._give_up()
        else:
            self._events.append(event)
            self._news.set()

    def end(self) -> None:
        """Want no more events. Those that came before are read."""
        self.is_over = True
        self._news.set()

    async def read(self, seconds: float) -> ev.WatchEvent | None:
        """Return the next event; None if there is none in this time, or none any more. One task reads at a time.

        `seconds`: how long to wait for it.
        """
        with anyio.move_on_after(seconds):
            while not self._events and not self.is_over:
                self._news = anyio.Event()
                await self._news.wait()
        if not self._events:
            return None
        event = self._events.popleft()
        self._size -= _size(event)
        return event


def _size(event: ev.WatchEvent) -> int:
    return 100 + len(getattr(event, _TEXTS.get(type(event), ""), ""))


@define(eq=False)
class _Request:
    """What came so far of the reply that a driver waits for."""

    is_under_way: bool = False
    events: list[ev.WatchEvent] = field(factory=list)

    def begin(self) -> None:
        """Begin without events."""
        self.is_under_way = True
        self.events.clear()

    def end(self) -> None:
        """Keep no events: what they say is stored."""
        self.is_under_way = False
        self.events.clear()


@set_module("toolloop.inbox")
class LiveEvents:
    """An observer that hands the events of loops to the clients of this process, for front ends.

    Give it to the loops that this process drives: `AsyncWorker(..., config=LoopConfig(observers=[live]))`. It keeps the
    events of a request of the outermost loop that is under way, because nothing of its reply is stored yet: a client
    that comes now gets them, too, with adjacent parts of one text as one. All else it can read from the store.
    """

    def __init__(self) -> None:
        """Start without readers."""
        self._lock = threading.Lock()
        self._readers: dict[str, list[EventReader]] = {}
        # Kept by the observers, so that those of a driver that was left in the middle of a reply go with it.
        self._requests: WeakValueDictionary[str, _Request] = WeakValueDictionary()

    def for_loop(self, loop: ev.WatchedLoop) -> Callable[[ev.WatchEvent], None]:
        """Return the observer of one loop."""
        return partial(self._tell, loop.loop_id, _Request())

    def _tell(self, loop_id: str, request: _Request, event: ev.WatchEvent) -> None:
        with self._lock:
            if isinstance(event, ev.RequestStarted) and not event.path:
                self._requests[loop_id] = request
                request.begin()
            elif isinstance(event, (ev.RequestAnswered, ev.ModelRequestFailed, ev.LoopFinished)) and not event.path:
                request.end()
            if request.is_under_way:
                request.events.append(event)
            for reader in self._readers.get(loop_id, ()):
                reader.put(event)

    @contextmanager
    def reading(self, loop_id: str, give_up: Callable[[], None]) -> Generator[EventReader]:
        """Hand the events of a loop to a new reader, those of the request under way first, until the block is left.

        Args:
            loop_id: the loop. It need not exist yet.
            give_up: called once, in the event loop, when the client has not read events of a million characters. The
                reader drops them, and takes no more. It should end the connection: the loop goes on, and the client can
                read the store.

        """
        reader = EventReader(give_up)
        with self._lock:
            request = self._requests.get(loop_id)
            for event in _join(() if request is None else request.events):
                reader.put(event)
            self._readers.setdefault(loop_id, []).append(reader)
        try:
            yield reader
        finally:
            with self._lock:
                self._readers[loop_id].remove(reader)
                if not self._readers[loop_id]:
                    del self._readers[loop_id]


def _join(events: Iterable[ev.WatchEvent]) -> Iterator[ev.WatchEvent]:
    """Yield events with adjacent parts of one text as one: a long reply has thousands, each with a size of its own."""
    names = ("path", "index", "call_id")  # an index is that of a block of the reply: of a text, or of a call

    def name_text(event: ev.WatchEvent) -> tuple[type[ev.WatchEvent], list[Any]]:
        return type(event), [getattr(event, name, None) for name in names]

    for (kind, _), same in groupby(events, name_text):
        parts = [*same]
        if issubclass(kind, ev.Delta) and (name := _TEXTS.get(kind)) is not None:
            joined: Any = {name: "".join(getattr(each, name) for each in parts)}
            parts = [evolve(parts[0], **joined)]
        yield from parts
