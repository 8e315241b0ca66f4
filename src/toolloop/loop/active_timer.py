"""Active seconds: those in which a driver worked, and nobody waited for the caller."""

from __future__ import annotations

import time

_DIGITS = 4  # of a second: every event of a journal has them


class ActiveTimer:
    """Counts seconds from one event to the next."""

    def __init__(self) -> None:
        """Start paused: nobody drives yet."""
        self._last = time.monotonic()
        self._paused: float | None = self._last

    def pause(self) -> None:
        """Stop counting: the caller reads, or nobody drives."""
        if self._paused is None:
            self._paused = time.monotonic()

    def resume(self) -> None:
        """Count again."""
        paused, self._paused = self._paused, None
        if paused is not None:
            self._last += time.monotonic() - paused

    def so_far(self) -> float:
        """Return the seconds since the last split."""
        return (time.monotonic() if self._paused is None else self._paused) - self._last

    def split(self) -> float:
        """Return the seconds since the last split, and start again. What is rounded off counts in the next."""
        seconds = max(0.0, round(self.so_far(), _DIGITS))
        self._last += seconds
        return seconds
