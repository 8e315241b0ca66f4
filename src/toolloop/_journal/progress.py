"""The progress of drivers, as other processes see it: a text in the store, beside the lease of each driver.

It is not part of the loop: nothing is recorded, and nothing waits for it. A thread of the process asks the drivers that
hold a lease, and stores what has changed. A short turn is over before that, and stores nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import partial

from toolloop._interface.progress import Progress
from toolloop._journal.journal import LOG
from toolloop._journal.store_access import safely
from toolloop.stores.optional import keep_progress, keeps_progress
from toolloop.stores.protocol import Lease, Store

_EVERY = 1.0  # seconds between two texts, unless a driver shows the text of its replies
_LINGER = 2.0  # seconds for which the thread waits for the next lease

_KEPT: list[KeptProgress] = []  # of the drivers that hold a lease
_THREADS: list[threading.Thread] = []
_changed = threading.Condition()


class KeptProgress:
    """The progress of one driver, as far as it is stored.

    Attributes:
        read: returns what the driver does now.
        live: the seconds between two texts while a reply streams; None shows no text of replies.

    """

    def __init__(self, store: Store, loop_id: str) -> None:
        """Show nothing yet."""
        self.read: Callable[..., Progress] = lambda **_: Progress()
        self.live: float | None = None
        self.due: float = 0.0  # by `time.monotonic`
        self._store = store
        self._loop_id = loop_id
        self._lease: Lease | None = None
        self._stored: str | None = None
        self._is_failing = False

    def begin(self, lease: Lease) -> None:
        """Store the progress beside this lease from now on."""
        if not keeps_progress(self._store):
            return
        with _changed:
            self._lease, self._stored = lease, None
            self.plan()
            if self not in _KEPT:
                _KEPT.append(self)
            if not _THREADS:
                _THREADS.append(threading.Thread(target=_keep_all, name="progress-of-toolloop", daemon=True))
                _THREADS[0].start()
            _changed.notify_all()

    def end(self) -> None:
        """Store nothing more, because the lease is about to end."""
        with _changed:
            if self in _KEPT:
                _KEPT.remove(self)

    def plan(self) -> None:
        """Plan the next text."""
        self.due = time.monotonic() + (_EVERY if self.live is None else min(self.live, _EVERY))

    def keep(self) -> None:
        """Store the progress if it has changed. A failure is logged once, and retried."""
        lease = self._lease
        try:
            text = self.read(has_text=self.live is not None).to_json()
            if lease is not None and text != self._stored:
                safely(self._loop_id, partial(keep_progress, self._store, lease, text))
                if self._lease is lease:
                    self._stored, self._is_failing = text, False
        except Exception as error:  # noqa: BLE001 - whatever a store raises, or an object that a tool reported
            if not self._is_failing:
                what = "could not store the progress of a loop, for other processes; will retry: %s"
                LOG.warning(what, error, extra={"loop_id": self._loop_id})
            self._is_failing = True


def _keep_all() -> None:
    while True:
        with _changed:
            if not _KEPT:
                _changed.wait(_LINGER)
            if not _KEPT:
                _THREADS.clear()
                return
            first = min(each.due for each in _KEPT)
            if (wait := first - time.monotonic()) > 0:
                _changed.wait(wait)
            due = [each for each in _KEPT if each.due <= time.monotonic()]
        for each in due:
            each.keep()
            each.plan()


def _after_fork() -> None:
    """Reset in a forked child, which holds no lease and does not have the parent's threads."""
    global _changed  # noqa: PLW0603 - a lock that another thread held at the fork would stay held for ever
    _changed = threading.Condition()
    _KEPT.clear()
    _THREADS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
