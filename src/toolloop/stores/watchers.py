"""The functions that watch a store for changes, and the thread that calls them: one for each store."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

LOG = logging.getLogger("toolloop")

QUIET: Final = 0.05  # seconds between two calls of the functions, so that many changes at once cause one
_AFTER_FAILURE = 1.0  # seconds


class Watchers:
    """The functions to call after a change of a store. A thread looks for changes while there are any.

    It holds no lock while it calls them. A forked child has neither the functions nor the thread of its parent. The
    thread first waits a moment, so that a short turn of a loop does not connect to a server for nothing.
    """

    def __init__(self) -> None:
        """Start without functions."""
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._functions = list[Callable[[], object]]()
        self._thread: threading.Thread | None = None

    @property
    def is_needed(self) -> bool:
        """Whether there are functions to call."""
        return bool(self._functions)

    @contextmanager
    def watch(self, on_change: Callable[[], object], look: Callable[[Watchers], object]) -> Generator[None]:
        """While the block runs, call a function soon after each change. See `stores/optional.py`.

        Args:
            on_change: the function.
            look: that of the store, called in the thread. It calls `tell` after each change, and returns some time
                after `is_needed` became False. After an exception it is called again; callers poll the store meanwhile.

        """
        if self._pid != os.getpid():
            self._begin()
        with self._lock:
            self._functions.append(on_change)
            if self._thread is None:
                thread = threading.Thread(target=self._run, args=(look,), name="changes-of-toolloop", daemon=True)
                thread.start()
                self._thread = thread
        try:
            yield
        finally:
            # Without the lock, because the garbage collector may end the block, in any thread.
            with suppress(ValueError):  # this is a forked child
                self._functions.remove(on_change)

    def tell(self) -> None:
        """Call the functions. An exception in one of them is logged."""
        for on_change in tuple(self._functions):
            try:
                on_change()
            except Exception:  # the other functions are still called
                LOG.exception("a function that watches for changes failed")

    def _run(self, look: Callable[[Watchers], object]) -> None:
        while True:
            time.sleep(QUIET)
            try:
                if self._functions:
                    look(self)
            except Exception:  # noqa: BLE001 - whatever failed, the next try may succeed
                time.sleep(_AFTER_FAILURE)
            with self._lock:
                if not self._functions:
                    self._thread = None
                    return
