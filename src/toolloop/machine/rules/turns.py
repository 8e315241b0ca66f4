"""Continue a loop with its open round or a request, and count what it used."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from toolloop._usage import IterationUsage
from toolloop.machine.record.loop import Finished, Judging, Loop, Ready, Round, Running
from toolloop.machine.rules.calls import replace_calls, to_judge
from toolloop.machine.rules.joining import join
from toolloop.machine.rules.saying import release
from toolloop.machine.values.calls import Status


def proceed(loop: Loop) -> Loop:
    """Continue with the open round, or with a request. Queued messages join now if possible."""
    if loop.round is not None:
        return loop._replace(phase=Judging() if any(map(to_judge, loop.round.calls)) else Running())
    loop = loop if loop.unjoined else release(loop)
    if loop.queued and not loop.unjoined:
        return join(loop, (), phase=Ready())
    return loop._replace(phase=Ready())


def with_round(loop: Loop, round_: Round) -> Loop:
    """Return the loop with a new version of the round that `round_of` returns."""
    if isinstance(loop.phase, Finished) and (point := loop.phase.resume_point):
        return loop._replace(phase=evolve(loop.phase, resume_point=evolve(point, round=round_)))
    return loop._replace(round=round_)


def with_previews(loop: Loop, previews: Iterable[tuple[str, str]]) -> Loop:
    """Return the loop with descriptions of the effects of its waiting calls."""
    round_ = loop.round
    if round_ is None:
        return loop
    calls = [(round_.find(call_id), preview) for call_id, preview in previews]
    seen = [call._replace(preview=text) for call, text in calls if call is not None and call.status is Status.WAITING]
    return loop._replace(round=replace_calls(round_, seen)) if seen else loop


def spend(loop: Loop, used: Iterable[IterationUsage], *, below: tuple[str, ...] = ()) -> Loop:
    """Return the loop with more entries in its usage log: of its own requests, or of those inside the call `below`."""
    for entry in used:
        entry_here = evolve(entry, path=(*below, *entry.path))
        loop = loop._replace(usage_log=loop.usage_log.append(entry_here), total_usage=loop.total_usage + entry.usage)
    return loop
