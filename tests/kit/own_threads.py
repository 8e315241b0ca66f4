"""The threads of loops that a test started, as opposed to those that earlier tests of the process left behind."""

from __future__ import annotations

import sys
import threading
import time
import traceback

DEADLINE = 60.0
_EARLIER: set[threading.Thread] = set()


def begin_test() -> None:
    """Remember which threads are not the next test's own."""
    _EARLIER.clear()
    _EARLIER.update(threading.enumerate())


def join() -> None:
    """Wait for the other threads of loops that this test started to end. On a timeout, tell where they are."""
    own = [each for each in threading.enumerate() if each.name.startswith("toolloop-") and each not in _EARLIER]
    until = time.monotonic() + DEADLINE
    for thread in own:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
    frames = sys._current_frames()
    stuck = [each for each in own if each.is_alive() and each is not threading.current_thread()]
    told = [f"{each.name}:\n{''.join(traceback.format_stack(frames.get(each.ident or 0)))}" for each in stuck]
    assert not stuck, "threads that did not end:\n" + "\n".join(told)
