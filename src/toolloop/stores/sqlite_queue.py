"""Whose turn it is to write to a file: the threads of this process stand in line, first come, first served.

SQLite lets a writer who finds the file locked sleep and try again, and whoever happens to try first gets it. Many
threads that do so starve each other. So only the first in line asks SQLite, and this process is one of those who try.

The line is for fairness alone: it is SQLite's lock that keeps writers apart.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from weakref import WeakValueDictionary

from toolloop.stores.sqlite_errors import crowded, locked


class Turn:
    """A place in the line."""

    def __init__(self, wait: float) -> None:
        """`wait`: for how many seconds to wait, here and for SQLite's lock together."""
        self.has_come = threading.Event()
        self.has_lock = False  # SQLite's; whoever gets it says so
        self._until = time.monotonic() + wait

    @property
    def left(self) -> float:
        """The seconds that are left to wait."""
        return max(0.0, self._until - time.monotonic())


class WriteQueue:
    """The line before one file. Whoever is first has the turn; whoever leaves wakes the first.

    Both are single steps of a deque, so there is no lock that a thread could wait for.
    """

    def __init__(self, path: str) -> None:
        """`path`: the file, for errors."""
        self._path = path
        self._line: deque[Turn] = deque()
        self._written = 0  # how many who had SQLite's lock have left

    @contextmanager
    def turn(self, wait: float) -> Iterator[Turn]:
        """Stand in line, and have a turn.

        Args:
            wait: for how many seconds.

        Raises:
            StoreError: it did not come.

        """
        mine, written = Turn(wait), self._written
        try:
            self._line.append(mine)
            # Asked twice, as an interrupt may have kept the one before from waking this one.
            if self._line[0] is not mine and not mine.has_come.wait(wait) and self._line[0] is not mine:
                # If nobody of this process had the lock meanwhile, the first in line asked for it in vain.
                is_ours = self._line[0].has_lock or self._written != written
                raise (crowded if is_ours else locked)(self._path, wait)
            yield mine
        finally:
            if mine.has_lock:  # as only the first has: nobody else counts at this moment
                self._written += 1
            with suppress(ValueError):  # an interrupt came before there was a place
                self._line.remove(mine)
            with suppress(IndexError):  # nobody waits
                self._line[0].has_come.set()


_QUEUES: WeakValueDictionary[str, WriteQueue] = WeakValueDictionary()
_ONE_AT_A_TIME = threading.RLock()  # can be entered again: an object that is collected may open a store


def queue_for(path: str) -> WriteQueue:
    """The line of this process before a file, the same for all. `path`: the real one."""
    with _ONE_AT_A_TIME:
        return _QUEUES.setdefault(path, WriteQueue(path))
