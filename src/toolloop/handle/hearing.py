"""What an event of the machine means to those who watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core.detection import detected
from toolloop.core.replies import Reply, acceptable
from toolloop.core.states import Finished, Judging, State
from toolloop.core.stops import STOP_REASONS, Fate
from toolloop.core.tree import children, has_inside, open_round
from toolloop.core.values import Round, Status
from toolloop.handle.binding import newly_left_out
from toolloop.handle.watching import (
    BlocksLeftOut,
    CallDecided,
    CallFinished,
    CallProposed,
    CallStarted,
    CallWaiting,
    Compacted,
    HistoryReplaced,
    LoopDetected,
    LoopFinished,
    MessageHeld,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    ThinkingDropped,
    WatchEvent,
)


def watch(before: State, event: ev.Event, after: State) -> list[WatchEvent]:
    """What an event of the machine means to those who watch: in the loop it is of, and in those inside of its calls."""
    iteration = after.ledger.iterations
    seen: list[WatchEvent] = []
    # An `Opened` is the start of the call that its loop is inside of.
    if not event.path or (isinstance(event, ev.Opened) and len(event.path) == 1):
        hear = _HEARD.get(type(event))
        if hear is not None:
            seen = hear(before, event, after, iteration)
    old, new = open_round(before), open_round(after)
    if old is not None and new is not None and old.calls is not new.calls:
        if not isinstance(event, ev.RoundAdopted):
            seen += _calls(old, event, new, iteration)
        if has_inside(old):
            seen += _inside(old, event, new)
    if isinstance(after, Finished) and not isinstance(before, Finished):
        seen.append(LoopFinished(iteration, after.termination))
    return seen


def _requested(_before: State, event: ev.Requested, _after: State, iteration: int) -> list[WatchEvent]:
    return [RequestStarted(iteration + 1, summary=event.summary)]


def _replied(before: State, event: ev.Replied, after: State, iteration: int) -> list[WatchEvent]:
    usage = after.ledger.usage_log[-1]
    seen: list[WatchEvent] = [RequestAnswered(iteration, usage.stop_reason, usage.usage, usage.seconds)]
    opened = open_round(after)
    calls = event.reply.calls() if opened is None else opened.calls
    seen += [CallProposed(iteration, call.id, call.name) for call in calls]
    if dropped := _left_out(event.reply):
        seen.append(BlocksLeftOut(iteration, dropped))
    return seen + _server_compacted(before, event, after, iteration)


def _request_failed(_before: State, event: ev.RequestFailed, _after: State, iteration: int) -> list[WatchEvent]:
    return [RequestFailed(iteration + 1, event.failure.message, event.failure.retryable)]


def _injected(before: State, event: ev.Injected, after: State, iteration: int) -> list[WatchEvent]:
    held = len(after.ledger.held) > len(before.ledger.held)
    return [MessageHeld(iteration, len(event.messages))] if held else []


def _judged(before: State, event: ev.Judged, after: State, iteration: int) -> list[WatchEvent]:
    return [
        *([] if event.stop else _circle(before, event, after, iteration)),
        *_server_compacted(before, event, after, iteration),
    ]


def _circle(before: State, _event: ev.Event, _after: State, iteration: int) -> list[WatchEvent]:
    """What is told of a circle, which counts once the round is judged; a journal may leave that out before a start."""
    wanted = before.ledger.setup.loop_detection
    circle = detected(before) if wanted is not None and isinstance(before, Judging) else None
    if circle is None or wanted is None:
        return []
    told = LoopDetected(iteration, circle.tool_name, circle.count, wanted.action)
    return [told, MessageHeld(iteration, 1)] if wanted.action == "inject_warning" else [told]


def _replaced(before: State, event: ev.Event, after: State, iteration: int) -> list[WatchEvent]:
    """What is told of another history."""
    told = HistoryReplaced(iteration, len(before.ledger.messages), len(after.ledger.messages))
    return [told, *_dropped(before, event, after, iteration)]


def _discarded(before: State, event: ev.ReplyDiscarded, after: State, iteration: int) -> list[WatchEvent]:
    """What is told of a history that a runner's caller took in hand; it may be as it was."""
    return (_replaced if event.splices else _dropped)(before, event, after, iteration)


def _round_adopted(before: State, event: ev.RoundAdopted, after: State, iteration: int) -> list[WatchEvent]:
    told = (_replaced if event.splices else _dropped)(before, event, after, iteration)
    if (adopted := open_round(after)) is not None:
        told += _adopted(open_round(before), adopted, iteration)
    return told


def _compacted(before: State, event: ev.Compacted, after: State, iteration: int) -> list[WatchEvent]:
    seen: list[WatchEvent] = []
    if (used := event.summary) is not None:
        seen.append(RequestAnswered(iteration + 1, used.stop_reason, used.usage, used.seconds, summary=True))
    if event.splices or event.problem:
        seen.append(Compacted(iteration, event.strategy, event.before, event.after, event.problem))
    return seen + _dropped(before, event, after, iteration)


def _dropped(before: State, _event: ev.Event, after: State, iteration: int) -> list[WatchEvent]:
    """What is told where other words may stand before some thinking now."""
    count = newly_left_out(before, after)
    return [ThinkingDropped(iteration, count)] if count else []


def _server_compacted(before: State, _event: ev.Event, after: State, iteration: int) -> list[WatchEvent]:
    """What is told of a reply that the parameter `compaction` asked for: that is spent then."""
    if after.ledger.setup.params is before.ledger.setup.params:
        return []
    used = after.ledger.usage_log[-1].usage
    if after.ledger.messages is before.ledger.messages:
        tokens = used.total_input_tokens
        return [Compacted(iteration, "compaction", tokens, tokens, "the API gave no summary")]
    return [Compacted(iteration, "compaction", used.total_input_tokens, used.output_tokens)]


_Hearing = Callable[[State, Any, State, int], list[WatchEvent]]
# What each event of the machine means where it happened; of the others nothing is told.
_HEARD: dict[type[ev.Event], _Hearing] = {
    ev.Requested: _requested,
    ev.Replied: _replied,
    ev.RequestFailed: _request_failed,
    ev.Injected: _injected,
    ev.Judged: _judged,
    ev.Started: _circle,
    ev.Opened: _circle,
    ev.Stopped: _server_compacted,
    ev.HistoryEdited: _replaced,
    ev.ReplyDiscarded: _discarded,
    ev.RoundAdopted: _round_adopted,
    ev.Compacted: _compacted,
    ev.ParamsChanged: _dropped,
    ev.Woken: _dropped,
}


def _inside(old: Round, event: ev.Event, new: Round) -> list[WatchEvent]:
    """What happened in the loops inside the calls: the event, in one of them, and to all of them that time passed."""
    seen: list[WatchEvent] = []
    then = {call.id: child for call, child in children(new)}
    for call, child in children(old):
        if call.id in then:
            is_there = event.path[:1] == (call.id,)
            heard = evolve(event, path=event.path[1:]) if is_there else ev.Ticked()
            seen += [evolve(each, path=(call.id, *each.path)) for each in watch(child, heard, then[call.id])]
    return seen


def _calls(old: Round, event: ev.Event, new: Round, iteration: int) -> list[WatchEvent]:
    seen: list[WatchEvent] = []
    took = event.took if isinstance(event, ev.Ended) and not event.path else 0.0
    for was, call in zip(old.calls, new.calls, strict=True):
        if call is was:
            continue
        if call.ruling is not None and call.ruling is not was.ruling:
            seen.append(CallDecided(iteration, call.id, call.name, call.ruling.kind, call.ruling.by))
        if call.status is was.status:
            continue
        if call.status is Status.WAITING:
            seen.append(CallWaiting(iteration, call.id, call.name, str(call.why)))
        if call.status is Status.RUNNING:
            seen.append(CallStarted(iteration, call.id, call.name))
        if call.result is not None:
            outcome = str(call.result.outcome)
            seen.append(CallFinished(iteration, call.id, call.name, outcome, call.result.is_error, took))
    return seen


def _adopted(old: Round | None, new: Round, iteration: int) -> list[WatchEvent]:
    """What is told of the calls of a round that the caller's history ends with: what was not known before."""
    seen: list[WatchEvent] = []
    for call in new.calls:
        was = None if old is None else old.find(call.id)
        if was is None:
            seen.append(CallProposed(iteration, call.id, call.name))
        if call.result is not None and (was is None or was.result is None):
            seen.append(
                CallFinished(iteration, call.id, call.name, str(call.result.outcome), call.result.is_error, 0.0)
            )
    return seen


def _left_out(reply: Reply) -> tuple[str, ...]:
    """The kinds of the blocks of a joining reply that the API would refuse to take back."""
    fate = STOP_REASONS.get(reply.stop_reason or "", Fate.END)
    if fate is Fate.REFUSE:
        return ()
    joining = [block for block in reply.blocks if fate is not Fate.CUT or block["type"] != "tool_use"]
    accepted = acceptable(joining, ends=fate is not Fate.PAUSE)
    if len(accepted) == len(reply.blocks):
        return ()
    kept = {id(block) for block in accepted}
    return tuple(block["type"] for block in reply.blocks if id(block) not in kept)
