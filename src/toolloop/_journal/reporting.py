"""Translate each event of the machine into watch events, for the whole tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from toolloop._interface.drift import find_changes
from toolloop._requests.left_out_thinking import count_newly_left_out
from toolloop.events import (
    BlocksLeftOut,
    CallApproved,
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    CallWaiting,
    CitationDelta,
    Compacted,
    Delta,
    DriftAdopted,
    HistoryReplaced,
    InputDelta,
    LoopFinished,
    MessageHeld,
    ModelRequestFailed,
    RepetitionDetected,
    RequestAnswered,
    RequestStarted,
    TextDelta,
    ThinkingDelta,
    ThinkingDropped,
    ThreadRefused,
    WatchEvent,
)
from toolloop.machine.message_ids import derive_reply_id
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Finished, Judging, Loop, Round, State
from toolloop.machine.record.replies import ParsedReply, keep_acceptable, list_calls
from toolloop.machine.rules.approving import count_missing, list_approvals
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.rules.replying import detect_repetition
from toolloop.machine.values.calls import Status
from toolloop.machine.values.stop_reasons import STOP_REASONS, ReplyAction
from toolloop.providers.accumulate import Piece


def watch(before: State, event: ev.Event, after: State) -> list[WatchEvent]:
    """Return the watch events of an event of the machine, for each loop that it changed.

    The events of a loop come before those of the loops inside its calls, and its end comes after them.
    """
    # An `Opened` inside a call is the start of that call.
    place = event.path[:-1] if isinstance(event, ev.Opened) else event.path
    seen: list[WatchEvent] = []
    ends: list[WatchEvent] = []
    for path, loop in after.loops.items():
        old = before.loops.get(path)
        if old is None or (old is loop and path != place):
            continue
        report = _REPORTS.get(type(event)) if path == place else None
        found = [] if report is None else report(old, event, loop)
        if old.round is not None and loop.round is not None and old.round.calls is not loop.round.calls:
            found += _report_calls(old.round, event if path == place else None, loop.round, loop.iterations)
        seen += [evolve(each, path=path) for each in found] if path else found
        if isinstance(loop.phase, Finished) and not isinstance(old.phase, Finished):
            ends.append(LoopFinished(loop.iterations, loop.phase.termination, path=path))
    return [*seen, *reversed(ends)]


def make_delta(piece: Piece, iteration: int, path: tuple[str, ...]) -> Delta:
    """Return the watch event for a piece of a reply."""
    match piece.kind:
        case "text":
            return TextDelta(iteration, piece.index, piece.value, path=path)
        case "thinking":
            return ThinkingDelta(iteration, piece.index, piece.value, path=path)
        case "citation":
            return CitationDelta(iteration, piece.index, piece.value, path=path)
        case "input":
            return InputDelta(iteration, piece.index, piece.call_id, piece.name, piece.value, path=path)


# --- watch events of the loop in which an event happened --------------------------------------------------------------


def _report_request(before: Loop, _event: ev.Requested, after: Loop) -> list[WatchEvent]:
    return [RequestStarted(after.iterations + 1, message_id=derive_reply_id(before))]


def _report_reply(before: Loop, event: ev.Replied, after: Loop) -> list[WatchEvent]:
    usage = after.usage_log[-1]
    seen: list[WatchEvent] = [RequestAnswered(after.iterations, usage.stop_reason, usage.usage, usage.seconds)]
    calls = list_calls(event.reply.blocks, members=after.setup.members) if after.round is None else after.round.calls
    seen += [CallProposed(after.iterations, call.id, call.name) for call in calls]
    if kinds := _find_left_out(event.reply):
        seen.append(BlocksLeftOut(after.iterations, kinds))
    return seen + _report_compaction(before, event, after)


def _report_failure(_before: Loop, event: ev.RequestFailed, after: Loop) -> list[WatchEvent]:
    failure, thread = event.failure, event.thread
    refused = [] if thread is None or thread.refused is None else [ThreadRefused(after.iterations + 1, thread.refused)]
    failed = [] if failure is None else [ModelRequestFailed(after.iterations + 1, failure.message, failure.retryable)]
    return [*refused, *failed]


def _report_held(before: Loop, event: ev.Continued | ev.Said, after: Loop) -> list[WatchEvent]:
    is_queued = len(after.queued) > len(before.queued) or len(after.kept) > len(before.kept)
    return [MessageHeld(after.iterations, len(event.messages))] if is_queued else []


def _report_judgement(before: Loop, event: ev.Judged, after: Loop) -> list[WatchEvent]:
    repeated = [] if event.stop else _report_repetition(before, event, after)
    return [*repeated, *_report_compaction(before, event, after)]


def _report_repetition(before: Loop, _event: ev.Event, after: Loop) -> list[WatchEvent]:
    """Report a repetition once its round is judged. A journal may omit that event before a start."""
    wanted = before.setup.loop_detection
    found = detect_repetition(before) if wanted is not None and isinstance(before.phase, Judging) else None
    if found is None or wanted is None:
        return []
    repeated = RepetitionDetected(after.iterations, found.tool_name, found.count, wanted.action)
    return [repeated, MessageHeld(after.iterations, 1)] if wanted.action == "inject_warning" else [repeated]


def _report_edit(before: Loop, event: ev.HistoryEdited, after: Loop) -> list[WatchEvent]:
    if event.strategy is None:
        return [_report_replacement(before, after), *_report_stale_thinking(before, event, after)]
    seen: list[WatchEvent] = []
    if (spent := event.spent) is not None:
        answered = RequestAnswered(after.iterations + 1, spent.stop_reason, spent.usage, spent.seconds, summary=True)
        seen.append(answered)
    if event.problem or after.messages is not before.messages:
        seen.append(Compacted(after.iterations, event.strategy, event.before, event.after, event.problem))
    return seen + _report_stale_thinking(before, event, after)


def _report_taken_history(before: Loop, event: ev.HistoryTaken, after: Loop) -> list[WatchEvent]:
    seen: list[WatchEvent] = [_report_replacement(before, after)] if event.splices else []
    new = [call for call in after.calls if before.calls.find(call.id) is None]
    proposed = [CallProposed(after.iterations, call.id, call.name) for call in new]
    return [*seen, *_report_stale_thinking(before, event, after), *proposed]


def _report_replacement(before: Loop, after: Loop) -> HistoryReplaced:
    return HistoryReplaced(after.iterations, len(join_rest(before).messages), len(after.messages))


def _report_stale_thinking(before: Loop, _event: ev.Event, after: Loop) -> list[WatchEvent]:
    """Report thinking that has become stale."""
    count = count_newly_left_out(before, after)
    return [ThinkingDropped(after.iterations, count)] if count else []


def _report_changes(before: Loop, event: ev.Woken, after: Loop) -> list[WatchEvent]:
    """Report the changes for a driver that took the loop over."""
    adopted = () if event.setup is None else tuple(change.text for change in find_changes(before.setup, event.setup))
    return [
        *([DriftAdopted(after.iterations, adopted)] if adopted else ()),
        *_report_stale_thinking(before, event, after),
    ]


def _report_compaction(before: Loop, _event: ev.Event, after: Loop) -> list[WatchEvent]:
    """Report a reply to the parameter `compaction`, which is removed then."""
    if after.setup.params is before.setup.params:
        return []
    used = after.usage_log[-1].usage
    tokens = used.total_input_tokens
    if after.messages is before.messages:
        return [Compacted(after.iterations, "compaction", tokens, tokens, "the API gave no summary")]
    return [Compacted(after.iterations, "compaction", tokens, used.output_tokens)]


_REPORTS: dict[type[ev.Event], Callable[[Loop, Any, Loop], list[WatchEvent]]] = {
    ev.Requested: _report_request,
    ev.Replied: _report_reply,
    ev.RequestFailed: _report_failure,
    ev.Continued: _report_held,
    ev.Said: _report_held,
    ev.Judged: _report_judgement,
    ev.Started: _report_repetition,
    ev.Opened: _report_repetition,
    ev.Stopped: _report_compaction,
    ev.HistoryEdited: _report_edit,
    ev.HistoryTaken: _report_taken_history,
    ev.Changed: _report_stale_thinking,
    ev.Woken: _report_changes,
}


# --- changes of calls -------------------------------------------------------------------------------------------------


def _report_calls(old: Round, event: ev.Event | None, new: Round, iteration: int) -> list[WatchEvent]:
    """Report the changes of the calls of a round. `event`: given if it happened in their own loop."""
    if isinstance(event, ev.HistoryTaken):  # the round comes from the caller
        return []
    seen: list[WatchEvent] = []
    took = event.took if isinstance(event, ev.Ended) else 0.0
    for was, call in new.calls.changes(old.calls):
        if call.decision is not None and call.decision is not was.decision:
            seen.append(CallDecided(iteration, call.id, call.name, call.decision.kind, call.decision.by))
        if call.approvals and not any(call.approvals[-1] is each for each in list_approvals(was)):
            still = sum(count_missing(call.demands, call.approvals))
            seen.append(CallApproved(iteration, call.id, call.name, call.approvals[-1].by, still))
        if call.status is was.status:
            continue
        if call.status is Status.WAITING:
            seen.append(CallWaiting(iteration, call.id, call.name, str(call.why)))
        if call.status is Status.RUNNING:
            seen.append(CallStarted(iteration, call.id, call.name))
        if call.result is not None:
            ended = str(call.result.outcome), call.result.is_error, took, call.result.plain_text
            seen.append(CallFinished(iteration, call.id, call.name, *ended))
    return seen


def _find_left_out(reply: ParsedReply) -> tuple[str, ...]:
    """Return the kinds of the blocks of a joining reply that the API would refuse in a request."""
    action = STOP_REASONS.get(reply.stop_reason or "", ReplyAction.END)
    if action is ReplyAction.REFUSE:
        return ()
    joining = [block for block in reply.blocks if action is not ReplyAction.CUT or block["type"] != "tool_use"]
    accepted = keep_acceptable(joining, ends=action is not ReplyAction.PAUSE)
    if len(accepted) == len(reply.blocks):
        return ()
    kept = {id(block) for block in accepted}
    return tuple(block["type"] for block in reply.blocks if id(block) not in kept)
