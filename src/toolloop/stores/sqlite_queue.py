"""Whose turn it is to write to a file: the threads of this process stand in line, first come, first served.

SQLite lets a writer who finds the file locked sleep and try again, and whoever happens to try first gets it. Many
threads that do so starve each other. So only the first in line asks SQLite, and this process is one of those who try.

The line is for fairness alone: it is SQLite's lock that keeps writers apart.

A Ctrl-C may strike anywhere in here, and also where somebody is about to leave: it is seen where a function begins. So
nobody's place depends on what is done at leaving. Whoever stands in line holds a lock, by a `with` of its own, which no
Ctrl-C can keep from letting go, for a lock is not written in Python. A place whose lock is free is passed over.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self
from weakref import WeakValueDictionary

from toolloop.stores.sqlite_errors import crowded, locked

_LOOK = 0.1  # so often, in seconds, whoever waits looks whether those before it are still there


class Turn:
    """A place in the line. Whoever enters it waits until its turn has come, and holds `held` from before until after.

    So it is `with turn.held, turn:`.
    """

    def __init__(self, queue: WriteQueue, wait: float) -> None:
        """`wait`: for how many seconds to wait, here and for SQLite's lock together."""
        self.held = threading.Lock()
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

    @contextmanager
    def turn(self, wait: float) -> Iterator[Turn]:
        """Stand in line, and have a turn.

        Args:
            wait: for how many seconds.

        Raises:
            StoreError: it did not come.

        """
        mine = Turn(self, wait)
        with mine.held, mine:
            yield mine

    def stand(self, mine: Turn) -> None:
        """Stand in line until the turn has come.

        Raises:
            StoreError: it did not come.

        """
        written, line = self._written, self._line
        line.append(mine)
        if line[0] is mine:
            return
        wait, until = mine.left, time.monotonic() + mine.left
        mine.has_come = threading.Event()
        while not self._is_first(mine):  # asked at once, too, as whoever left meanwhile could not tell
            left = until - time.monotonic()
            if left <= 0:
                # If nobody of this process had the lock meanwhile, the first in line asked for it in vain.
                is_ours = line[0].has_lock or self._written != written
                raise (crowded if is_ours else locked)(self._path, wait)
            mine.has_come.wait(min(left, _LOOK))
        mine.left = max(0.0, until - time.monotonic())

    def _is_first(self, mine: Turn) -> bool:
        """Whether nobody is before this one. Places that nobody holds any more are taken away."""
        while (first := self._line[0]) is not mine:
            if first.held.locked():
                return False
            with suppress(ValueError):  # somebody else took it away
                self._line.remove(first)
        return True

    def leave(self, mine: Turn) -> None:
        """Leave the line, and wake whoever is first then."""
        if mine.has_lock:  # as only the first has: nobody else counts at this moment
            self._written += 1
        with suppress(ValueError):  # an interrupt came before there was a place
            self._line.remove(mine)
        with suppress(IndexError):  # nobody waits
            if (first := self._line[0].has_come) is not None:
                first.set()


_QUEUES: WeakValueDictionary[str, WriteQueue] = WeakValueDictionary()
_ONE_AT_A_TIME = threading.RLock()  # can be entered again: an object that is collected may open a store


def queue_for(path: str) -> WriteQueue:
    """The line of this process before a file, the same for all. `path`: the real one."""
    with _ONE_AT_A_TIME:
        return _QUEUES.setdefault(path, WriteQueue(path))
