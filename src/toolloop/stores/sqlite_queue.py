"""Whose turn it is to write to a file: the threads of this process stand in line, first come, first served.

SQLite lets a writer who finds the file locked sleep and try again, and whoever happens to try first gets it. Many
threads that do so starve each other. So only the first in line asks SQLite, and this process is one of those who try.

The line is for fairness alone: it is SQLite's lock that keeps writers apart.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import Self
from weakref import WeakValueDictionary

from toolloop.stores.sqlite_errors import crowded, locked


class Turn:
    """A place in the line. Whoever enters it waits until its turn has come."""

    def __init__(self, queue: WriteQueue, wait: float) -> None:
        """`wait`: for how many seconds to wait, here and for SQLite's lock together."""
        self.has_come: threading.Event | None = None  # made by whoever has to wait
        self.has_lock = False  # SQLite's; whoever gets it says so
        self.left = wait  # the seconds that are left to wait
        self._queue = queue

    def __enter__(self) -> Self:
        try:
            self._queue.stand(self)
        except BaseException:  # a Ctrl-C, too
            self._queue.leave(self)
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._queue.leave(self)


class WriteQueue:
    """The line before one file. Whoever is first has the turn; whoever leaves wakes the first.

    Both are single steps of a deque, so there is no lock that a thread could wait for.
    """

    def __init__(self, path: str) -> None:
        """`path`: the file, for errors."""
        self._path = path
        self._line: deque[Turn] = deque()
        self._written = 0  # how many who had SQLite's lock have left

    def turn(self, wait: float) -> Turn:
        """A turn: to stand in line is to enter it, to leave is to exit.

        Args:
            wait: for how many seconds. Who enters gets a `StoreError` if the turn does not come meanwhile.

        """
        return Turn(self, wait)

    def stand(self, mine: Turn) -> None:
        """Stand in line until the turn has come.

        Raises:
            StoreError: it did not come.

        """
        written, line = self._written, self._line
        line.append(mine)
        if line[0] is mine:
            return
        wait, began = mine.left, time.monotonic()
        mine.has_come = threading.Event()
        # Asked again, as whoever left meanwhile could not tell; and afterwards, as an interrupt may have kept the one
        # before from waking this one.
        if line[0] is not mine and not mine.has_come.wait(wait) and line[0] is not mine:
            # If nobody of this process had the lock meanwhile, the first in line asked for it in vain.
            is_ours = line[0].has_lock or self._written != written
            raise (crowded if is_ours else locked)(self._path, wait)
        mine.left = max(0.0, began + wait - time.monotonic())

    def leave(self, mine: Turn) -> None:
        """Leave the line, and wake whoever is first then."""
        if mine.has_lock:  # as only the first has: nobody else counts at this moment
            self._written += 1
        try:  # noqa: SIM105 - a Ctrl-C is seen where a function begins, and here none does before the place is free
            self._line.remove(mine)
        except ValueError:  # an interrupt came before there was a place
            pass
        with suppress(IndexError):  # nobody waits
            if (first := self._line[0].has_come) is not None:
                first.set()


_QUEUES: WeakValueDictionary[str, WriteQueue] = WeakValueDictionary()
_ONE_AT_A_TIME = threading.RLock()  # can be entered again: an object that is collected may open a store


def queue_for(path: str) -> WriteQueue:
    """The line of this process before a file, the same for all. `path`: the real one."""
    with _ONE_AT_A_TIME:
        return _QUEUES.setdefault(path, WriteQueue(path))
