"""Observers: what is said of an event without what people, models and tools said, and whom a loop asks to watch it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import ref

from attrs import fields

from toolloop.core.states import State
from toolloop.core.tree import loop_at
from toolloop.core.usage import Usage
from toolloop.handle.watching import WatchEvent

if TYPE_CHECKING:
    from toolloop.handle.recording import Observer, Path, Recorder

LOG = logging.getLogger("toolloop")
NOTHING = nullcontext()

# Of the texts in events only these are said: names and ids. A new field is silent until somebody thinks about it.
_SAID = {
    "call_id": "call_id",
    "name": "tool",  # a log record has a `name` of its own
    "tool_name": "tool",
    "kind": "kind",
    "by": "by",
    "why": "why",
    "outcome": "outcome",
    "filter": "filter",
    "action": "action",
    "strategy": "strategy",
    "stop_reason": "stop_reason",
}


def said_of(event: WatchEvent) -> dict[str, Any]:
    """The fields of an event that hold no contents, by the names that logs and traces give them."""
    said: dict[str, Any] = {}
    for each in fields(type(event)):
        value = getattr(event, each.name)
        if each.name == "path":
            if value:
                said["path"] = "/".join(value)
        elif each.name == "termination":
            said["termination"] = value.kind
        elif isinstance(value, Usage):
            said |= {"input_tokens": value.total_input_tokens, "output_tokens": value.output_tokens}
        elif each.name == "kinds":
            said["kinds"] = list(value)
        elif isinstance(value, str) and each.name in _SAID:
            said[_SAID[each.name]] = value
        elif isinstance(value, bool | int | float):
            said[each.name] = value
    return said


def title_of(event: WatchEvent) -> str:
    """The name of an event in a trace: `call_waiting` of a `CallWaiting`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()


class WatchedLoop:
    """The loop that an observer is asked to watch. It keeps nothing alive."""

    def __init__(self, recorder: Recorder, depth: int) -> None:
        """`depth`: how many calls the outermost loop is inside of that the observer is told of."""
        self.loop_id = recorder.state.ledger.setup.loop_id
        self.depth = depth
        self._recorder = ref(recorder)

    def at(self, path: Path) -> State | None:
        """The state of the loop at a path, as it is now; None where there is none any more."""
        recorder = self._recorder()
        return None if recorder is None else loop_at(recorder.state, path)


class Observers:
    """Who is told of what happens in a tree of loops. Whatever they do, the loops go on.

    What more they can do than be called is looked up in their classes, as special methods are: a mock can do anything.
    """

    def __init__(self, recorder: Recorder, audience: Callable[[Path], Sequence[Observer]]) -> None:
        """`audience`: whom the configurations name for the loop at a path."""
        self._recorder = ref(recorder)
        self._audience = audience
        self._extra = {"loop_id": recorder.state.ledger.setup.loop_id}
        self._watchers: dict[int, tuple[Observer, Observer | None]] = {}

    def tell(self, event: WatchEvent) -> None:
        """Tell all of an event."""
        if not self._audience(event.path):  # quickly, for most loops have none
            return
        for observer in self._for(event.path):
            try:
                observer(event)
            except Exception:
                LOG.exception("an observer failed", extra=self._extra)

    def around(self, event: WatchEvent) -> AbstractContextManager[object]:
        """What observers want around what an event begins, entered already; it lets all exceptions through."""
        wanting: list[Any] = [each for each in self._for(event.path) if hasattr(type(each), "around")]
        if not wanting:
            return NOTHING
        with ExitStack() as stack:
            for observer in wanting:
                with self._guarded():
                    manager = observer.around(event)
                    manager.__enter__()
                    stack.push(_Leaving(manager, self._guarded))
            return stack.pop_all()

    def close(self) -> None:
        """Say that the handle was closed, to those who want to know."""
        watchers: list[Any] = [watcher for _, watcher in tuple(self._watchers.values())]
        for watcher in watchers:
            if watcher is not None and hasattr(type(watcher), "close"):
                with self._guarded():
                    watcher.close()

    def _for(self, path: Path) -> Iterator[Observer]:
        told: list[Observer] = []
        for observer in self._audience(path):
            if not hasattr(type(observer), "for_loop"):
                yield observer
            elif not any(each is observer for each in told):  # set for a loop and for one inside of it, it hears once
                told.append(observer)
                if (watcher := self._watcher(observer, path)) is not None:
                    yield watcher

    def _watcher(self, observer: Any, path: Path) -> Observer | None:
        """What an observer gives for this very loop, asked for once."""
        known = self._watchers.get(id(observer))
        if known is None:
            watcher = None
            recorder = self._recorder()
            with self._guarded():
                depths = (depth for depth in range(len(path)) if self._hears(observer, path[:depth]))
                if recorder is not None:
                    watcher = observer.for_loop(WatchedLoop(recorder, next(depths, len(path))))
            known = self._watchers.setdefault(id(observer), (observer, watcher))
        return known[1]

    def _hears(self, observer: Observer, path: Path) -> bool:
        return any(each is observer for each in self._audience(path))

    @contextmanager
    def _guarded(self) -> Generator[None, None, None]:
        try:
            yield
        except Exception:
            LOG.exception("an observer failed", extra=self._extra)


class _Leaving:
    """Leaves what an observer put around something, and does not let it swallow or raise an exception."""

    def __init__(self, manager: Any, guarded: Callable[[], Any]) -> None:
        self._manager = manager
        self._guarded = guarded

    def __enter__(self) -> None:
        """It was entered before."""

    def __exit__(self, *error: object) -> None:
        with self._guarded():
            try:
                self._manager.__exit__(*error)
            except BaseException as raised:
                if raised is not error[1]:  # that one goes on by itself
                    raise


def record_of(event: WatchEvent, extra: Mapping[str, str]) -> dict[str, Any]:
    """The `extra` of the log record of an event."""
    return {**extra, "event": type(event).__name__, **said_of(event)}
