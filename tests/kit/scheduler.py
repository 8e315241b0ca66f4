"""Threads of which one runs at a time: who is next is drawn wherever one asks a store, takes a lock, or acts."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from attrs import define, field

DEADLINE = 10.0


@define(eq=False)
class Scheduler:
    """Decides which thread runs next.

    Attributes:
        chance: draws who is next; the same seed is the same schedule.
        restless: how often another thread is next.

    """

    chance: random.Random
    restless: float
    _turn: threading.Condition = field(factory=threading.Condition)
    _names: dict[int, str] = field(factory=dict)  # by thread
    _alive: list[str] = field(factory=list)
    _blocked: dict[str, Lock] = field(factory=dict)
    _current: str | None = None
    _errors: list[BaseException] = field(factory=list)

    def run(self, **peers: Callable[[], object]) -> None:
        """Let these run until all have come to their end. What one of them raises is raised."""
        self._alive = list(peers)
        threads = [threading.Thread(target=self._run, args=(name, peer), daemon=True) for name, peer in peers.items()]
        for thread in threads:
            thread.start()
        with self._turn:
            self._pass_on()
        for thread in threads:
            thread.join(DEADLINE)
        if self._errors:
            raise self._errors[0]
        assert not self._alive, f"it hangs: {self._alive} of {list(peers)}, {list(self._blocked)} for a lock"

    def _run(self, name: str, peer: Callable[[], object]) -> None:
        self._names[threading.get_ident()] = name
        try:
            with self._turn:
                self._wait(name)
            peer()
        except BaseException as error:  # noqa: BLE001 - it is raised in `run`
            self._errors.append(error)
        finally:
            with self._turn:
                del self._names[threading.get_ident()]  # a thread that begins later may have this number again
                self._alive.remove(name)
                self._pass_on()

    def step(self) -> None:
        """Another thread may be next. Threads that are none of these just go on."""
        name = self._names.get(threading.get_ident())
        if name is None:
            return
        with self._turn:
            self._pass_on()
            self._wait(name)

    def block(self, lock: Lock) -> None:
        """Wait for a lock that another thread has."""
        name = self._names[threading.get_ident()]
        with self._turn:
            if not lock.is_taken:
                return  # it was given back just now, by a thread that is none of these
            self._blocked[name] = lock
            self._pass_on()
            self._wait(name)

    def free(self, lock: Lock) -> None:
        """A lock was given back: who waits for it may try again."""
        with self._turn:
            self._blocked = {name: other for name, other in self._blocked.items() if other is not lock}
            if self._current is None:
                self._pass_on()

    def is_passed_to_me(self) -> bool:
        """Whether this is one of the threads."""
        return threading.get_ident() in self._names

    def _pass_on(self) -> None:
        able = [name for name in self._alive if name not in self._blocked]
        if self._current not in able or self.chance.random() < self.restless:
            self._current = self.chance.choice(able) if able else None
        self._turn.notify_all()

    def _wait(self, name: str) -> None:
        assert self._turn.wait_for(lambda: self._current == name, DEADLINE), f"{name} is never next"


@define(eq=False)
class Lock:
    """A lock that can be taken more than once by one thread, and gives way to other threads."""

    scheduler: Scheduler
    _inner: threading.RLock = field(factory=threading.RLock)
    _depth: int = 0

    @property
    def is_taken(self) -> bool:
        return self._depth > 0

    def acquire(self, blocking: bool = True) -> bool:
        if not self.scheduler.is_passed_to_me() or not blocking:
            taken: bool = self._inner.acquire(blocking)
        else:
            self.scheduler.step()
            while not (taken := self._inner.acquire(blocking=False)):
                self.scheduler.block(self)
        self._depth += taken
        return taken

    def release(self) -> None:
        self._depth -= 1
        self._inner.release()
        self.scheduler.free(self)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()
