"""The progress of drivers, as other processes see it: a text in the store, beside the lease of each driver.

It is not part of the loop: nothing is recorded, and nothing waits for it. A thread of the process asks the drivers that
hold a lease, and stores what has changed. A short turn is over before that, and stores nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from toolloop._forks import ProcessState
from toolloop._interface.progress import Progress
from toolloop._journal.event_bus import LOG
from toolloop._journal.store_access import call_store
from toolloop.stores.optional import keep_progress, keeps_progress
from toolloop.stores.protocol import Lease, Store

_EVERY = 1.0  # seconds between two texts, unless a driver shows the text of its replies
_LINGER = 2.0  # seconds for which the thread waits for the next lease


class KeptProgress:
    """The progress of one driver, as far as it is stored.

    Attributes:
        live: the seconds between two texts while a reply streams; None shows no text of replies.

    """

    def __init__(self, store: Store, loop_id: str, read: Callable[..., Progress], live: float | None = None) -> None:
        """Show nothing yet. `read`: returns what the driver does now."""
        self.live: float | None = live
        self._read = read
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
        self._lease, self._stored = lease, None
        self.plan()
        _KEEPER.value.add(self)

    def end(self) -> None:
        """Store nothing more, because the lease is about to end."""
        _KEEPER.value.remove(self)

    def plan(self) -> None:
        """Plan the next text."""
        self.due = time.monotonic() + (_EVERY if self.live is None else min(self.live, _EVERY))

    def keep(self) -> None:
        """Store the progress if it has changed. A failure is logged once, and retried."""
        lease = self._lease
        try:
            text = self._read(has_text=self.live is not None).to_json()
            if lease is not None and text != self._stored:
                call_store(self._loop_id, partial(keep_progress, self._store, lease, text))
                if self._lease is lease:
                    self._stored, self._is_failing = text, False
        except Exception as error:  # noqa: BLE001 - whatever a store raises, or an object that a tool reported
            if not self._is_failing:
                what = "could not store the progress of a loop, for other processes; will retry: %s"
                LOG.warning(what, error, extra={"loop_id": self._loop_id})
            self._is_failing = True


class _Keeper:
    """Stores the progress of all drivers of this process that hold a lease, in one thread."""

    def __init__(self) -> None:
        self._kept: list[KeptProgress] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def add(self, progress: KeptProgress) -> None:
        with self._changed:
            if progress not in self._kept:
                self._kept.append(progress)
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep_all, name="progress-of-toolloop", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def remove(self, progress: KeptProgress) -> None:
        with self._changed:
            if progress in self._kept:
                self._kept.remove(progress)

    def _keep_all(self) -> None:
        while self._wait_for_one():
            self._keep_due()

    def _wait_for_one(self) -> bool:
        """Wait until a text may be due. Return whether there is a driver; if there is none, the thread ends."""
        with self._changed:
            if not self._kept:
                self._changed.wait(_LINGER)
            if not self._kept:
                self._thread = None
                return False
            if (wait := min(each.due for each in self._kept) - time.monotonic()) > 0:
                self._changed.wait(wait)
            return True

    def _keep_due(self) -> None:
        """Store what is due. It is a function so that the thread has no driver, and no store, while it waits."""
        with self._changed:
            due = [each for each in self._kept if each.due <= time.monotonic()]
        for each in due:
            each.keep()
            each.plan()


_KEEPER = ProcessState(_Keeper)
