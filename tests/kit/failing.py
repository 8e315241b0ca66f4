"""The one store of the tests that fails: a test steps in before and after each of its calls."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Literal

from attrs import define, field, frozen

from toolloop.errors import StoreError
from toolloop.stores.protocol import Entry

Moment = Literal["before", "after"]
ERRORS: dict[str, Callable[[], BaseException]] = {
    "StoreError": lambda: StoreError("the disk is gone"),
    "sqlite3": lambda: sqlite3.OperationalError("disk I/O error"),
}
# What each store has. Optional members are left out by default, so that no thread asks at a moment of its own.
_METHODS = ("create", "append", "load", "head", "list", "delete", "acquire", "renew", "release")


@frozen
class Asked:
    """A call of a store: the name of its method, and the events that it stores."""

    name: str
    events: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = field(default=(), eq=False, repr=False)


def event_names(entries: Any) -> tuple[str, ...]:
    """Return the names of stored events."""
    return tuple(entry.body.partition('"event":"')[2].partition('"')[0] for entry in entries)


def is_beside() -> bool:
    """Whether this is a thread of toolloop beside a driver: it asks a store at no fixed place of the driver's work."""
    return threading.current_thread().name in ("leases-of-toolloop", "changes-of-toolloop", "progress-of-toolloop")


def fail_always(_: int) -> Moment:
    """Fail at every call."""
    return "before"


def fail_never(_: object) -> None:
    """Fail at no call; do nothing beside it."""


def moment_of_append(store: FailingStore, number: int, moment: Moment) -> Callable[[int], Moment | None]:
    """Fail at the append of a number, counted from 1."""
    return lambda _: moment if store.asked[-1] == "append" and store.asked.count("append") == number else None


@define(eq=False)
class FailingStore:
    """A store that passes its calls on to another one, and fails at chosen ones: before they take effect, or after.

    Attributes:
        inner: the other store.
        fails: returns how the call of a number fails, counted from 1.
        error: makes the error of a call that fails.
        before: called before each call. If it raises, the store does nothing.
        after: called after each call that did not fail. If it raises, the caller cannot know that the store obeyed.
        calls: the calls so far.
        failed: how many of them failed.
        is_whole: whether the optional members of the other store are passed on, too.

    """

    inner: Any
    fails: Callable[[int], Moment | None] = fail_never
    error: Callable[[], BaseException] = ERRORS["StoreError"]
    before: Callable[[Asked], object] = fail_never
    after: Callable[[Asked], object] = fail_never
    calls: list[Asked] = field(factory=list)
    failed: int = 0
    is_whole: bool = False
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def asked(self) -> list[str]:
        """The names of the calls so far."""
        return [each.name for each in self.calls]

    def secret(self) -> str:
        secret: str = self.inner.secret()
        return secret

    def __getattr__(self, name: str) -> Any:
        if name not in _METHODS and not self.is_whole:
            raise AttributeError(name)
        method = getattr(self.inner, name)
        if not callable(method) or name in ("watch", "close"):
            return method

        def call(*args: Any, **options: Any) -> Any:
            entries = tuple(args[1]) if name in ("create", "append") else ()
            asked = Asked(name, event_names(entries), entries)
            with self._lock:
                self.calls.append(asked)
                number = len(self.calls)
            self.before(asked)
            moment = self.fails(number)
            self.failed += moment is not None
            if moment == "before":
                raise self.error()
            done = method(*args, **options)
            if moment == "after":
                raise self.error()
            self.after(asked)
            return done

        return call
