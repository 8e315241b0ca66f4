"""Replace the history and the open round of a loop by those of a runner's caller."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop.machine.record.journal_events import HistoryTaken
from toolloop.machine.record.loop import Judging, Loop, Ready, Repetition, Round, Running, Waiting, list_messages
from toolloop.machine.rules.calls import clear
from toolloop.machine.rules.history_edits import (
    forget_changed_results,
    has_joined,
    list_unjoined_before_reply,
    run_again,
)
from toolloop.machine.rules.repetition import count_round, drop_warning
from toolloop.machine.rules.thinking import mark_stale
from toolloop.machine.rules.turns import proceed
from toolloop.machine.values.calls import Call, DecisionRecord, Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.splicing import apply_splices, count_common


def replace_history(loop: Loop, event: HistoryTaken, calls: Sequence[Call]) -> Loop:
    """Return the loop with the messages of its caller. `calls`: those of the open reply, if it has one."""
    old = loop.calls
    unjoined = list_unjoined_before_reply(loop) if event.keeps_unjoined else ()
    keeps_container = bool(unjoined or event.beside) or any(old.find(call.id) is call for call in calls)
    after = forget_changed_results(loop, event.splices)._replace(
        messages=Chain(apply_splices(loop.messages, event.splices)),
        unjoined=unjoined,
        queued=drop_warning(loop),  # the round of a warning is gone, or is judged again
        container=loop.container if keeps_container else None,
        compacted=(),
        edited_at=loop.iterations,
    )
    if event.reply:
        rerun = DecisionRecord("rerun", at=loop.now, via=event.via)
        after = _take_round(
            after, Round(loop.iterations, event.reply, run_again(calls, event.rerun, rerun, loop.setup))
        )
    else:
        if has_joined(loop.round, loop.messages, after.messages):  # it still counts for the detection of repetitions
            repetition = count_round(loop.repetition, old) if loop.setup.loop_detection else Repetition()
            after = after._replace(repetition=repetition, queued=loop.queued)
        after = proceed(_unjoin_last(after, event.beside)._replace(phase=Ready()))
    return mark_stale(after, count_common(list_messages(loop), list_messages(after)))


def _unjoin_last(loop: Loop, beside: int) -> Loop:
    """Return the loop with the last messages of its history unjoined. `beside`: how many."""
    if beside <= 0:
        return loop
    at = max(0, len(loop.messages) - beside)
    return loop._replace(messages=Chain(loop.messages[:at]), unjoined=tuple(loop.messages[at:]))


def _take_round(loop: Loop, round_: Round) -> Loop:
    """Return the loop with a round from its caller, in which some calls may not be judged."""
    running = round_.having(Status.RUNNING)
    goes_on = bool(running) and isinstance(loop.phase, (Judging, Running))
    if not goes_on and round_.having(Status.WAITING):
        return loop._replace(phase=Waiting("decision_required", round_))
    loop = loop._replace(phase=Judging(round_))
    loop = loop if goes_on else clear(loop)  # the loop continues from here without another command
    return proceed(loop) if running else loop
