"""SIGTERM and Ctrl-C while a worker runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Self


class Signals:
    """Calls a function at the first SIGTERM or Ctrl-C, for a worker in the main thread.

    After that, the previous handlers are back: a second Ctrl-C interrupts the worker.
    """

    def __init__(self, on_signal: Callable[[], object], *, installed: bool = True) -> None:
        """Keep the function, which runs between two bytecodes of the main thread. `installed`: False disables it."""
        self._on_signal = on_signal
        self._is_installed = installed
        self._before: dict[int, Any] = {}
        self._received: int | None = None

    def __enter__(self) -> Self:
        """Install the handlers, if this is the main thread."""
        if self._is_installed and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous handlers."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _receive(self, number: int, _frame: object) -> None:
        self._received = number
        self.__exit__()
        self._on_signal()

    def pass_on(self) -> None:
        """Raise the KeyboardInterrupt of a Ctrl-C, after the worker has stopped."""
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
