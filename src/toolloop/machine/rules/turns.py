"""Continue a loop with its open round or a request, and count what it used."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from toolloop._usage import IterationUsage
from toolloop.machine.record.loop import (
    Judging,
    Loop,
    Ready,
    Running,
    Stopping,
    Waiting,
    find_round_calls,
    replace_calls,
    round_of,
)
from toolloop.machine.rules.calls import ask_again, list_to_judge, lose
from toolloop.machine.rules.joining import end, join
from toolloop.machine.rules.saying import release
from toolloop.machine.values.calls import Status


def proceed(loop: Loop) -> Loop:
    """Continue with the open round, or with a request. Queued messages join now if possible."""
    if (round_ := round_of(loop)) is not None:
        return loop._replace(phase=Judging(round_) if list_to_judge(round_.calls) else Running(round_))
    loop = loop if loop.unjoined else release(loop)
    if loop.queued and not loop.unjoined:
        return join(loop, (), phase=Ready())
    return loop._replace(phase=Ready())


def ask_all_again(loop: Loop) -> Loop:
    """Return a loop that no driver works on: started calls are uncertain, and other open calls wait again."""
    if isinstance(loop.phase, Stopping):
        lost = [ask_again(call, loop.setup, loop.now) for call in loop.calls.having(Status.RUNNING)]
        return end(replace_calls(loop, lost), loop.phase.termination)
    if isinstance(loop.phase, Judging) and all(call.status is Status.PROPOSED for call in loop.calls):
        return loop  # its calls are not judged yet
    loop = replace_calls(loop, [ask_again(call, loop.setup, loop.now) for call in find_round_calls(loop)])
    if isinstance(loop.phase, (Judging, Running)):
        return loop._replace(phase=Waiting("decision_required", loop.round))
    return loop


def lose_runs(loop: Loop, runs: Iterable[tuple[str, int, int]]) -> Loop:
    """Return the loop with the runs that its journal has lost. `runs`: the call, iteration and attempt of each."""
    found = [(find_round_calls(loop).find(call_id), attempt) for call_id, at, attempt in runs if at == loop.iterations]
    return replace_calls(loop, [lose(call, attempt) for call, attempt in found if call is not None])


def set_previews(loop: Loop, previews: Iterable[tuple[str, str]]) -> Loop:
    """Return the loop with descriptions of the effects of its waiting calls."""
    calls = [(loop.calls.find(call_id), preview) for call_id, preview in previews]
    seen = [call._replace(preview=text) for call, text in calls if call is not None and call.status is Status.WAITING]
    return replace_calls(loop, seen)


def spend(loop: Loop, used: Iterable[IterationUsage], *, below: tuple[str, ...] = ()) -> Loop:
    """Return the loop with more entries in its usage log: of its own requests, or of those inside the call `below`."""
    for entry in used:
        entry_here = evolve(entry, path=(*below, *entry.path))
        loop = loop._replace(usage_log=loop.usage_log.append(entry_here), total_usage=loop.total_usage + entry.usage)
    return loop
