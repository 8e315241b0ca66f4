"""SIGTERM and Ctrl-C while a worker runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Self


class Signals:
    """Tells a worker that runs in the main thread of the first SIGTERM or Ctrl-C.

    After that, each does again what it did before: a second Ctrl-C interrupts whatever is slow.
    """

    def __init__(self, on_signal: Callable[[], object], *, installed: bool = True) -> None:
        """`on_signal`: is called between two bytecodes of the main thread. Not `installed`: it never is."""
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
        """Put the handlers back that were there before."""
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _receive(self, number: int, _frame: object) -> None:
        self._received = number
        self.__exit__()
        self._on_signal()

    def pass_on(self) -> None:
        """Raise the KeyboardInterrupt of a Ctrl-C, once the worker has ended its work."""
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
