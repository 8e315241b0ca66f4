"""The words of the page for a call that runs."""

from __future__ import annotations

from toolloop._interface.calls import RunningCall
from toolloop.inbox.shown.words import duration

_MINUTE, _HOUR = 60, 3600


def running_words(call: RunningCall | None, now: float) -> str:
    """Return how long a call has run, and its progress: "running 1 min 42 s, 2 of 3 images"."""
    if call is None:
        return "running"
    lasts = "" if call.since is None else f" {_lasting(now - call.since.timestamp())}"
    progress = _progress(call)
    return f"running{lasts}{', ' if progress else ''}{progress}"


def _lasting(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // _MINUTE} min {whole % _MINUTE} s" if _MINUTE <= whole < _HOUR else duration(whole)


def _progress(call: RunningCall) -> str:
    of = "" if call.total is None else f" of {call.total:,.10g}"
    number = "" if call.progress is None else f"{call.progress:,.10g}{of}"
    message = call.message or ""
    joint = " " if len(message.split()) == 1 else ", "  # one word is the unit
    return joint.join(part for part in (number, message) if part)
