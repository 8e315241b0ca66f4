"""Detect a model that repeats the same round.

A round repeats the one before it if it has the same calls, in any order, with the same results. So a tool whose results
change is never a repetition. The newest round is compared by its calls alone, before any of them runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from attrs import evolve

from toolloop.machine.record.loop import Loop, Repetition
from toolloop.machine.rules.saying import queue_own
from toolloop.machine.values.calls import Call, Status
from toolloop.machine.values.jsontext import JSON, decode, encode, to_canonical
from toolloop.machine.values.setup import LoopDetection
from toolloop.machine.values.texts import fill_text
from toolloop.terminations import LoopDetected


def find_repetition(wanted: LoopDetection, last: Repetition, calls: Sequence[Call]) -> LoopDetected | None:
    """Return the repetition by these calls as the newest round, if it must be reported.

    A round is compared once, before any of its calls is judged.
    """
    if any(call.status is not Status.PROPOSED for call in calls):
        return None
    count = last.count + 1 if _digest_calls(calls) == last.calls else 1
    if count % wanted.threshold:
        return None
    return LoopDetected("+".join(dict.fromkeys(call.name for call in calls)), count)


def count_round(last: Repetition, calls: Sequence[Call]) -> Repetition:
    """Return the repetition state after a round of these calls has closed."""
    asked, ended = _digest_calls(calls), _digest_results(calls)
    count = last.count + 1 if (asked, ended) == (last.calls, last.results) else 1
    return Repetition(asked, ended, count, last.warning)


def warn(loop: Loop, found: LoopDetected) -> Loop:
    """Return the loop after a repetition was found. If it is configured, a warning to the model is queued first.

    The caller's queued messages may end in a system message, and only a reply may follow that (rule 21 of the Messages
    API). A new warning replaces a queued one.
    """
    wanted = loop.setup.loop_detection
    if wanted is None or wanted.action != "inject_warning":
        return loop
    text = fill_text(loop.setup.texts, "loop_warning", name=found.tool_name, count=found.count)
    warning = f'{{"role":"user","content":{encode(text)}}}'
    loop = queue_own(loop._replace(queued=drop_warning(loop)), warning)
    return loop._replace(repetition=evolve(loop.repetition, warning=warning))


def drop_warning(loop: Loop) -> tuple[str, ...]:
    """Return the queued messages without the warning, for a model that no longer repeats itself."""
    warning = loop.repetition.warning
    return loop.queued if warning is None else tuple(text for text in loop.queued if text != warning)


def _digest_calls(calls: Iterable[Call]) -> str:
    return _digest([call.name, decode(call.input)] for call in calls)


def _digest_results(calls: Iterable[Call]) -> str:
    return _digest(
        [call.name, decode(call.input), *(() if call.result is None else (call.result.content, call.result.is_error))]
        for call in calls
    )


def _digest(parts: Iterable[JSON]) -> str:
    """Return a digest that does not depend on the order of the parts."""
    return hashlib.sha256("\n".join(sorted(map(to_canonical, parts))).encode()).hexdigest()[:16]
