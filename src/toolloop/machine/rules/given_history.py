"""Replace the history and the open round of a loop by those of a runner's caller."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop.machine.record.journal_events import HistoryTaken
from toolloop.machine.record.loop import Judging, Loop, Round, Running, Waiting
from toolloop.machine.rules.calls import cleared
from toolloop.machine.rules.history_edits import has_joined, run_again, unjoined_before_reply
from toolloop.machine.rules.repetition import count_round, without_warning
from toolloop.machine.rules.thinking import all_messages, mark_stale
from toolloop.machine.rules.turns import proceed
from toolloop.machine.values.calls import Call, DecisionRecord, Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.splicing import common, spliced


def with_history(loop: Loop, event: HistoryTaken, calls: Sequence[Call]) -> Loop:
    """Return the loop with the messages of its caller. `calls`: those of the open reply, if it has one."""
    old = loop.round or Round(0, None)
    unjoined = unjoined_before_reply(loop) if event.keeps_unjoined else ()
    after = loop._replace(
        messages=Chain(spliced(loop.messages, event.splices)),
        unjoined=unjoined,
        queued=without_warning(loop),  # the round of a warning is gone, or is judged again
        container=loop.container if unjoined or any(old.find(call.id) is call for call in calls) else None,
        compacted=(),
        edited_at=loop.iterations,
    )
    if event.reply:
        rerun = DecisionRecord("rerun", at=loop.now, via=event.via)
        after = _shown(after, Round(loop.iterations, event.reply, run_again(calls, event.rerun, rerun, loop.setup)))
    else:
        if has_joined(old, loop.messages, after.messages):  # it still counts for the detection of repetitions
            repetition = count_round(loop.setup.loop_detection, loop.repetition, old.calls)
            after = after._replace(repetition=repetition, queued=loop.queued)
        after = proceed(after._replace(round=None))
    return mark_stale(after, common(all_messages(loop), all_messages(after)))


def _shown(loop: Loop, round_: Round) -> Loop:
    """Return the loop with a round from its caller, in which some calls may not be judged."""
    running = round_.having(Status.RUNNING)
    if not (running and isinstance(loop.phase, (Judging, Running))):
        if round_.having(Status.WAITING):
            return loop._replace(round=round_, phase=Waiting("decision_required"))
        round_ = cleared(round_)  # the loop continues from here without another command
    loop = loop._replace(round=round_)
    return proceed(loop) if running else loop._replace(phase=Judging())
