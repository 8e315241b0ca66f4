"""Noticing a model that goes in circles: the same round, or the same few rounds, again and again.

A round repeats an earlier one if its calls are the same, in whatever order, and so were the results. So a tool whose
results change is no circle, however often it is called. Of the newest round only the calls are known: it is looked at
before anything of it runs.

For each length of a cycle it is counted how many of the last rounds are repetitions of one; that, and the digests of
the last few rounds, is all that is kept, whatever the threshold is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from tests.oracle.jsontext import JSON, canonical, decode, encode
from tests.oracle.stops import Fate
from tests.oracle.terminations import LoopDetected
from tests.oracle.texts import say
from tests.oracle.values import Call, Status

if TYPE_CHECKING:
    from tests.oracle.states import Judging, Ledger

LONGEST = 4  # how many rounds the longest cycle has that is noticed


@frozen
class Seen:
    """A round as it was. `calls`, `results`: a digest of its calls, and of these with what came of them."""

    tools: tuple[str, ...]
    calls: str
    results: str


@frozen
class Trail:
    """The rounds of a user turn, as far as a repetition of them is to be noticed.

    Attributes:
        rounds: the last closed ones, at most as many as the longest cycle has.
        runs: for each length of a cycle, how many of the last rounds are repetitions of one.
        warning: the message that warned the model last.

    """

    rounds: tuple[Seen, ...] = ()
    runs: tuple[int, ...] = ()
    warning: str | None = None


NOTHING_SEEN = Trail()


def detected(state: Judging) -> LoopDetected | None:
    """Whether the newest round makes a circle that is to be told of. It is asked once, before anything is judged."""
    if state.ledger.setup.loop_detection is None or state.fate is not Fate.RUN:
        return None
    if any(call.status is not Status.PROPOSED for call in state.round.calls):
        return None
    return circle(state.ledger, state.round.calls)


def stops(ledger: Ledger) -> bool:
    """Whether a loop ends that goes in circles."""
    wanted = ledger.setup.loop_detection
    return wanted is not None and wanted.action == "stop"


def circle(ledger: Ledger, calls: Iterable[Call]) -> LoopDetected | None:
    """Whether a round of these calls, as the next one, makes a circle that is to be told of."""
    wanted, trail = ledger.setup.loop_detection, ledger.trail
    if wanted is None:
        return None
    now = _seen(calls)
    rounds = (*trail.rounds, now)
    for length, run in enumerate(_runs(trail, now, is_closed=False), 1):
        cycle = rounds[-length:]
        if run % (length * wanted.threshold) == 0 and not _has_shorter(cycle):
            names = dict.fromkeys(name for seen in cycle for name in seen.tools)
            return LoopDetected("+".join(names), run // length)
    return None


def _has_shorter(cycle: tuple[Seen, ...]) -> bool:
    """Whether a cycle is a repetition of a shorter one: that alone counts then, and its results are to be the same."""
    calls = [seen.calls for seen in cycle]
    return any(calls == calls[at:] + calls[:at] for at in range(1, len(calls)))


def _runs(trail: Trail, seen: Seen, *, is_closed: bool) -> tuple[int, ...]:
    """The runs after one more round. While that is open, there are no results of it to compare."""
    known, runs = len(trail.rounds), []
    for length in range(1, LONGEST + 1):
        before = trail.rounds[-length] if length <= known else None
        same = before is not None and before.calls == seen.calls and (not is_closed or before.results == seen.results)
        runs.append(trail.runs[length - 1] + 1 if same else min(known + 1, length))
    return tuple(runs)


def _seen(calls: Iterable[Call]) -> Seen:
    asked, came = [], []
    for call in calls:
        what = [call.name, decode(call.input)]
        asked.append(what)
        came.append([*what, *(() if call.result is None else (call.result.content, call.result.is_error))])
    return Seen(tuple(dict.fromkeys(what[0] for what in asked)), _digest(asked), _digest(came))


def _digest(parts: Iterable[JSON]) -> str:
    """Of parts in whatever order."""
    return hashlib.sha256("\n".join(sorted(map(canonical, parts))).encode()).hexdigest()[:16]


def follow(ledger: Ledger, calls: Iterable[Call]) -> Ledger:
    """The ledger after a round of these calls was closed."""
    if ledger.setup.loop_detection is None:
        return forget(ledger)
    trail, seen = ledger.trail, _seen(calls)
    rounds, runs = (*trail.rounds, seen)[-LONGEST:], _runs(trail, seen, is_closed=True)
    return evolve(ledger, trail=evolve(trail, rounds=rounds, runs=runs))


def forget(ledger: Ledger) -> Ledger:
    """The ledger of a loop that starts anew to be looked at."""
    nothing = ledger.trail is NOTHING_SEEN or ledger.trail == NOTHING_SEEN  # mostly it is that very one
    return ledger if nothing else evolve(ledger, trail=NOTHING_SEEN)


def heed(ledger: Ledger, found: LoopDetected) -> Ledger:
    """The ledger after a circle was found. If the model is to be warned, that comes first of what waits for a place.

    What the caller said may end in a system message, and nothing but a reply may follow that (rule 21 of the Messages
    API). Of several warnings that wait, the last one says it all.
    """
    wanted = ledger.setup.loop_detection
    if wanted is None or wanted.action != "inject_warning":
        return ledger
    text = say(ledger.setup.texts, "loop_warning", name=found.tool_name, count=found.count)
    warning = f'{{"role":"user","content":{encode(text)}}}'
    held = (warning, *unwarned(ledger).held)
    return evolve(ledger, held=held, trail=evolve(ledger.trail, warning=warning))


def unwarned(ledger: Ledger) -> Ledger:
    """The ledger without a warning that waits. It is of no use to a model that has found its way out."""
    warning = ledger.trail.warning
    if warning is None:
        return ledger
    return evolve(ledger, held=tuple(text for text in ledger.held if text != warning))
