"""What a fork does with the state of this process: the only module that registers fork handlers.

A child has the memory of its parent, but not its threads. So it makes the state of a process again, and objects that
only the parent may use refuse their use. Locks are held during the fork, so that no thread is inside what they protect.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

T = TypeVar("T")


class ProcessState(Generic[T]):
    """A value of this process. A forked child makes its own.

    Attributes:
        value: the value of this process.

    """

    def __init__(self, make: Callable[[], T]) -> None:
        """Make the value now, and again in each child."""
        self._make = make
        self.value: T = make()
        _STATES.append(self)

    def renew(self) -> None:
        """Make the value again."""
        self.value = self._make()


class Inherited(Protocol):
    """An object that only the process that made it may use."""

    def refuse_use(self) -> None:
        """Refuse every use from now on, because this is the copy in a forked child."""


class _Lock(Protocol):
    def acquire(self) -> object: ...
    def release(self) -> object: ...


_STATES: list[ProcessState[Any]] = []
_PARENTS: WeakSet[Inherited] = WeakSet()
_HELD: list[tuple[_Lock, Callable[[], object]]] = []


def keep_to_parent(inherited: Inherited) -> None:
    """Let an object refuse its use in a forked child. It is not kept alive."""
    _PARENTS.add(inherited)


def hold_at_fork(lock: _Lock, prepare: Callable[[], object] = bool) -> None:
    """Hold a lock during each fork. `prepare`: called with the lock, before the fork."""
    _HELD.append((lock, prepare))


def _hold() -> None:
    for lock, prepare in _HELD:
        lock.acquire()
        prepare()


def _release() -> None:
    for lock, _ in _HELD:
        lock.release()


def _begin_child() -> None:
    _release()
    for state in _STATES:
        state.renew()
    for inherited in tuple(_PARENTS):
        inherited.refuse_use()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_begin_child)
