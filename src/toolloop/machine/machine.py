"""The machine of one loop: the events that each phase accepts, the loop that follows, and the effects to perform.

Law
    `take(loop, event) -> loop` is the only way a loop changes. The table lists the events that a phase accepts, with a
    rule for each that returns the next loop. Any other event is refused, and changes nothing.
    `list_effects(loop) -> effects` returns the effects to perform. They are derived from the loop each time and never
    stored, so another process can continue from the loop alone.

Theory
    It is the caller's turn in `Waiting`, `Finished` and `Failed`. A driver works in the other phases. While it works,
    commands are accepted at once and take effect as soon as possible: injected messages after the reply, a stop at the
    end of the request. A turn starts with a request. It ends with `TurnEnded`, or with a reply after which no call
    runs. A loop that ends while calls run is `Stopping`: nothing starts, and it ends with the end of the last one.
    Requests and starts are recorded before they happen (`Requested`, `Started`), their results afterwards. So a driver
    that takes a loop over finds all that was in progress: it repeats a request, and a running call runs again or is
    uncertain.
    The history holds closed rounds. The open round is beside it and joins as a whole, so each call in the history has
    its result. Replacing the history does not change calls, waits or limits. Only the caller of a runner also replaces
    the open round (`HistoryTaken`).
    Time is an input. Each event may carry it, and `advance_time` applies it before the rule, so deadlines apply even
    without a tick.
    The first end of a call is its result. An end that names its run may arrive at any time, and is ignored if it is
    too late.
    Members of one toolset run one after the other: the next one is judged once the one before it has a result, and is
    not run if that is an error.
    The journal is the list of events. A judgement that lets every call run is left out of it, because the first start
    implies it.
    The rules never see a path: `tree` routes the events of loops inside calls.

Limits of the model
    If a tool is killed while it runs, the machine cannot know whether it had its effects. The call is then uncertain
    (`Why.UNCERTAIN`), and waits for the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import (
    Failed,
    Finished,
    Judging,
    Loop,
    Phase,
    Ready,
    Repetition,
    Requesting,
    Running,
    Stopping,
    TooDeep,
    Waiting,
    find_round_calls,
    replace_calls,
)
from toolloop.machine.refusals import (
    list_commands,
    make_not_allowed_error,
    make_not_possible_error,
    make_undecided_error,
)
from toolloop.machine.rules import history_edits as edits, limits
from toolloop.machine.rules.approving import is_open
from toolloop.machine.rules.calls import (
    ask_again,
    ask_for_again,
    clear,
    end_run,
    find_held,
    halt_members,
    interrupt,
    is_barrier_open,
    list_startable,
    list_to_judge,
    may_end,
)
from toolloop.machine.rules.deciding import decide
from toolloop.machine.rules.given_history import replace_history
from toolloop.machine.rules.grants import ask_where_gone, ask_where_gone_meanwhile, drop_grant, remember
from toolloop.machine.rules.joining import close_round, end, find_last_user_turn, join_rest
from toolloop.machine.rules.replying import (
    detect_repetition,
    fail,
    is_stopped_by,
    look_again,
    lose_request,
    read_action,
    stop_loop,
    take_judgement,
    take_reply,
)
from toolloop.machine.rules.saying import add_tools, keep, list_kept_texts, queue, withdraw
from toolloop.machine.rules.thinking import set_up
from toolloop.machine.rules.turns import ask_all_again, lose_runs, proceed, set_previews, spend
from toolloop.machine.values.calls import Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.splicing import Splice
from toolloop.machine.values.stop_reasons import END, RUN
from toolloop.terminations import LIMITS, StopCondition

_ALL_MAY_RUN = ev.Judged()

# --- requests -------------------------------------------------------------------------------------------------------


def send(loop: Loop, event: ev.Requested) -> Loop:
    """Start a request, unless a limit forbids it."""
    if limits.is_too_deep(loop) or limits.find_request_limit(loop):
        raise make_not_possible_error(loop, event, "a limit forbids the request")
    # Messages may have been dropped when they joined the history. The next position is that of the new reply.
    stale = min(loop.stale_thinking, len(loop.messages) + len(loop.unjoined))
    phase = Requesting(is_priced=event.is_priced)
    return loop._replace(phase=phase, stale_thinking=stale, requests=loop.requests + 1)


# --- judging and running ---------------------------------------------------------------------------------------------


def start(loop: Loop, event: ev.Started) -> Loop:
    """Start a call. It implies a judgement that lets every call run, which the journal leaves out."""
    before = loop
    if isinstance(loop.phase, Judging):
        loop = take_judgement(loop, _ALL_MAY_RUN)
    call = loop.calls.find(event.call_id)
    may_start = call is not None and call.status is Status.CLEARED and is_barrier_open(loop)
    if call is None or not may_start or call.id in find_held(loop.calls) or (call.demands and is_open(call)):
        raise make_not_possible_error(before, event, f"{event.call_id!r} is not a call that may start")
    started = call._replace(status=Status.RUNNING, attempts=call.attempts + 1)
    return replace_calls(loop._replace(started=loop.started.append(call.id)), [started])


def end_call(loop: Loop, event: ev.Ended) -> Loop:
    """End a call. The first end is its result. A late end that names its run is ignored.

    After a limit, running calls end in the round with which the loop resumes.
    """
    loop = spend(loop, event.spent, below=(event.call_id,)) if event.spent else loop
    call = find_round_calls(loop).find(event.call_id)
    if event.iteration == event.attempt == 0:
        if call is None or call.status is not Status.RUNNING:
            raise make_not_possible_error(loop, event, f"{event.call_id!r} is not a running call")
    elif call is None or event.iteration != loop.iterations or not may_end(call, event.attempt, event.result):
        return loop
    loop = replace_calls(loop, [end_run(call, event.result, loop.setup)])
    loop = halt_members(loop) if call.is_member else loop
    return ask_where_gone_meanwhile(loop) if event.result is None else loop


def end_turn(loop: Loop, event: ev.TurnEnded) -> Loop:
    """End the turn: the round closes, calls wait for the caller, or a limit was reached."""
    loop = set_previews(loop, event.previews) if event.previews else loop
    phase = loop.phase
    if isinstance(phase, Running) and phase.round.is_settled():
        return close_round(loop, phase.round)
    if list_effects(loop) != (EndTurn(),):
        raise make_not_possible_error(loop, event, "something can still be done, or is in progress")
    if isinstance(phase, Ready):
        reached = limits.find_request_limit(loop)
        return loop._replace(phase=TooDeep()) if limits.is_too_deep(loop) or reached is None else end(loop, reached)
    unfinished = loop.calls.having(Status.RUNNING) or list_startable(loop)
    if unfinished and (reached := limits.find_time_limit(loop) or limits.find_budget_limit(loop, limits.BEFORE_TOOLS)):
        return end(loop, reached, waits=event.waits)
    return loop._replace(phase=Waiting("decision_required", loop.round))


# --- the caller ------------------------------------------------------------------------------------------------------


def decide_calls(loop: Loop, event: ev.Decided) -> Loop:
    """Apply decisions of the caller: all of them, or none."""
    if loop.round is None:
        raise make_not_allowed_error(loop, event, allowed(loop))
    # A decision is not older than its call, even if the clock was set back.
    decisions = [(call_id, evolve(decision, at=max(decision.at, loop.now))) for call_id, decision in event.decisions]
    before = loop.calls
    decided = replace_calls(loop, decide(loop.setup, loop.round, decisions))
    return remember(halt_members(decided), before)


def continue_loop(loop: Loop, event: ev.Continued) -> Loop:
    """Continue or retry, with the messages that the caller injects. While a driver works, they are queued."""
    if isinstance(loop.phase, Failed) if event.messages else not isinstance(loop.phase, (Waiting, Failed)):
        raise make_not_allowed_error(loop, event, allowed(loop))
    if event.messages:
        loop = queue(loop, event.messages)
    if isinstance(loop.phase, Waiting):
        return proceed(clear_decided(loop))
    if isinstance(loop.phase, Failed):
        return proceed(look_again(loop))
    return proceed(loop) if isinstance(loop.phase, Ready) else loop


def clear_decided(loop: Loop) -> Loop:
    """Let the calls start that the caller allowed.

    Raises:
        UndecidedCalls: calls wait for a decision, and the others may not run before it (`execution="barrier"`).

    """
    undecided = {call.id: call for call in loop.calls.having(Status.WAITING)}
    if undecided and loop.setup.execution == "barrier":
        raise make_undecided_error(undecided)
    return clear(loop)


def stop(loop: Loop, event: ev.Stopped) -> Loop:
    """Stop the loop. A request in progress, and calls that run, end first. The first reason counts."""
    if isinstance(loop.phase, Requesting):
        asked = loop.phase if loop.phase.stopping else evolve(loop.phase, stopping=True, reason=event.reason)
        loop = loop._replace(phase=asked)
        return lose_request(loop) if event.is_abandoned else loop
    if isinstance(loop.phase, Stopping):
        if isinstance(loop.phase.termination, LIMITS):  # no new limit resumes what a person stopped
            loop = loop._replace(phase=Stopping(StopCondition(event.reason), loop.phase.round))
        return loop if event.waits else end_stopped(loop)
    return stop_loop(loop, event.reason, waits=event.waits)


def end_stopped(loop: Loop) -> Loop:
    """End a loop that is to end, once no call runs in it, or because the one who ran them is gone."""
    return end(loop, loop.phase.termination) if isinstance(loop.phase, Stopping) else loop


def follow_up(loop: Loop, event: ev.FollowedUp) -> Loop:
    """Begin another user turn: iterations, pauses, active time and repetitions are counted from zero again.

    After a failure, the failed request is given up.
    """
    loop = stop_loop(look_again(loop), None) if isinstance(loop.phase, Failed) else join_rest(loop)
    kept = Chain(loop.messages[: find_last_user_turn(loop.messages)]) if event.replace_last else loop.messages
    loop = edits.forget_changed_results(loop, [Splice(len(kept), len(loop.messages), ())])
    return loop._replace(
        messages=kept.extend((*list_kept_texts(loop), *event.messages, *loop.queued)),
        stale_thinking=min(loop.stale_thinking, len(kept)),
        compacted=() if event.replace_last else loop.compacted,
        phase=Ready(),
        queued=(),
        kept=(),
        turn_iterations=0,
        pauses=0,
        active=0.0,
        repetition=Repetition(),
        misfit=False,
    )


def say(loop: Loop, event: ev.Said) -> Loop:
    """Keep what a person says until the API allows it. After an end or a failure, it begins a user turn."""
    loop = keep(loop, event)
    if event.tools:
        loop = set_up(loop, add_tools(loop.setup, event.tools))
    if isinstance(loop.phase, (Finished, Failed)):
        return follow_up(loop, ev.FollowedUp(()))
    return proceed(loop) if isinstance(loop.phase, Ready) else loop


def change(loop: Loop, event: ev.Changed) -> Loop:
    """Change parameters or limits, from the next request on. If a limit ends the loop, new limits resume it.

    A `container` parameter that the caller sets or removes replaces the container of the open turn.
    """
    params, set_limits = event.params or loop.setup.params, event.limits or loop.setup.limits
    loop = set_up(loop, evolve(loop.setup, params=params, limits=set_limits))
    if "container" in event.names:
        loop = loop._replace(container=None)
    phase = loop.phase
    if event.limits is None or not isinstance(phase, (Stopping, Finished)):
        return loop
    if isinstance(phase.termination, LIMITS):
        return proceed(loop)  # with its round, whose calls may still run
    if isinstance(phase, Stopping):
        raise make_not_allowed_error(loop, event, allowed(loop))
    return loop


def revoke(loop: Loop, event: ev.GrantRevoked) -> Loop:
    """Revoke a grant. Calls that it cleared, and that have not started, wait for approval again."""
    return ask_where_gone(drop_grant(loop, event.grant_id))


# --- the caller of a runner ------------------------------------------------------------------------------------------


def take_history(loop: Loop, event: ev.HistoryTaken) -> Loop:
    """Replace the history, the open round and the pause with the caller's history.

    Calls of the open round that are still in it keep their state, so none runs twice. The others do not run.
    """
    calls = edits.match_calls(loop.calls, event.reply, members=loop.setup.members) if event.reply else []
    if event.reply and not calls:
        raise make_not_possible_error(loop, event, "the reply is not an assistant message with calls")
    if why := next(filter(None, (edits.explain_no_rerun(call_id, calls) for call_id in event.rerun)), None):
        raise make_not_possible_error(loop, event, why)
    return replace_history(loop, event, calls)


# --- another driver --------------------------------------------------------------------------------------------------


def wake(loop: Loop, event: ev.Woken) -> Loop:
    """Hand the loop to another driver. Running calls are interrupted, and policies judge the other open calls again."""
    setup = event.setup or loop.setup
    if setup.within != loop.setup.within:
        raise make_not_possible_error(loop, event, "the setup is for a loop at another path")
    loop = set_up(loop, setup)
    if isinstance(loop.phase, Requesting):
        return lose_request(loop)
    loop = end_stopped(loop)
    named = {name.partition("/")[0] for name in event.changed_tools}
    changed = [call for call in find_round_calls(loop) if call.name in named]
    changed = [ask_for_again(call, setup, loop.now, rebinds=event.rebinds) for call in changed]
    loop = replace_calls(loop, changed)
    loop = ask_where_gone_meanwhile(replace_calls(loop, [interrupt(call, setup) for call in find_round_calls(loop)]))
    return proceed(loop) if isinstance(loop.phase, Running) else loop


def restore(loop: Loop, event: ev.Restored) -> Loop:
    """Leave the loop to a person, because its store was restored from a backup, and other things may have happened.

    Started calls, and those that the event names, are uncertain. Other open calls wait again, without their approvals,
    and grants end. A loop without an open call waits for a command. Links that were made before are no longer valid.
    """
    if isinstance(loop.phase, Requesting):
        loop = lose_request(loop)
    loop = lose_runs(loop, event.runs)
    if read_action(loop) is RUN:
        proposed = loop.calls.having(Status.PROPOSED)
        loop = replace_calls(loop, [ask_again(call, loop.setup, loop.now) for call in proposed])
    loop = ask_all_again(loop)._replace(epoch=loop.epoch + 1, grants=(), thread=None)
    is_ready = isinstance(loop.phase, Ready) and (loop.messages or loop.queued) and not loop.setup.within
    return loop._replace(phase=Waiting("paused")) if is_ready else loop


def revoke_links(loop: Loop, event: ev.LinksRevoked) -> Loop:
    """Note that links were revoked. A link knows how many revocations there were when it was made."""
    return loop._replace(revoked_links=(*loop.revoked_links, event.call))


def change_metadata(loop: Loop, event: ev.MetadataChanged) -> Loop:
    """Note the metadata that was changed. Policies and persons see it; nothing else depends on it."""
    changed = dict(loop.metadata) | {key: now for key, _, now in event.changes}
    return loop._replace(metadata=tuple(sorted(changed.items())))


def let_time_pass(loop: Loop, _event: ev.Ticked) -> Loop:
    """Change nothing: `advance_time` was applied before, as for any event."""
    return loop


# --- the table -------------------------------------------------------------------------------------------------------


@frozen
class Rule:
    """A transition: the function that applies an event in a phase, and the phases that it may lead to."""

    apply: Callable[[Loop, Any], Loop]
    to: tuple[type[Phase], ...]


def _make_row(
    phase: type[Phase], rules: dict[type[ev.Event], Rule], *, is_open: bool = True
) -> dict[type[ev.Event], Rule]:
    """Return the rules of a phase, including those for events that every phase accepts without a change of phase."""
    anywhere: dict[type[ev.Event], Callable[[Loop, Any], Loop]] = {
        ev.Ended: end_call,
        ev.Changed: change,
        ev.GrantRevoked: revoke,
        ev.LinksRevoked: revoke_links,
        ev.MetadataChanged: change_metadata,
        ev.Said: say,
        ev.Withdrawn: withdraw,
        ev.Woken: wake,
        ev.Restored: restore,
        ev.Ticked: let_time_pass,
    }
    row = {event: Rule(apply, (phase,)) for event, apply in anywhere.items()}
    if is_open:
        row[ev.HistoryEdited] = Rule(edits.edit_history, (phase,))
        row[ev.HistoryTaken] = Rule(take_history, (Ready, Judging, Waiting, Running))
        row[ev.Stopped] = Rule(stop, (Finished,))
    return row | rules


TRANSITIONS: dict[type[Phase], dict[type[ev.Event], Rule]] = {
    Ready: _make_row(
        Ready,
        {
            ev.Requested: Rule(send, (Requesting,)),
            ev.TurnEnded: Rule(end_turn, (Finished, TooDeep)),
            ev.Continued: Rule(continue_loop, (Ready,)),
            ev.HistoryTaken: Rule(take_history, (Ready, Judging)),
            ev.Restored: Rule(restore, (Ready, Waiting)),
        },
    ),
    Requesting: _make_row(
        Requesting,
        {
            ev.Replied: Rule(take_reply, (Judging, Waiting, Ready, Finished, Failed)),
            ev.RequestFailed: Rule(fail, (Failed, Ready, Finished)),
            ev.Continued: Rule(continue_loop, (Requesting,)),
            ev.Stopped: Rule(stop, (Requesting, Finished)),
            ev.Woken: Rule(wake, (Ready, Finished)),
            ev.Restored: Rule(restore, (Waiting, Finished)),
        },
        is_open=False,
    ),
    Judging: _make_row(
        Judging,
        {
            ev.Judged: Rule(take_judgement, (Judging, Running, Waiting, Ready, Finished)),
            ev.Started: Rule(start, (Running,)),
            ev.Decided: Rule(decide_calls, (Judging,)),
            ev.Approved: Rule(decide_calls, (Judging,)),
            ev.Continued: Rule(continue_loop, (Judging,)),
            ev.Restored: Rule(restore, (Judging, Waiting)),
            ev.Stopped: Rule(stop, (Stopping, Finished)),
        },
    ),
    Running: _make_row(
        Running,
        {
            ev.Started: Rule(start, (Running,)),
            ev.Judged: Rule(take_judgement, (Running, Finished)),
            ev.TurnEnded: Rule(end_turn, (Waiting, Stopping, Finished, Failed)),
            ev.Decided: Rule(decide_calls, (Running,)),
            ev.Approved: Rule(decide_calls, (Running,)),
            ev.Continued: Rule(continue_loop, (Running,)),
            ev.Woken: Rule(wake, (Running, Judging)),
            ev.Restored: Rule(restore, (Waiting,)),
            ev.Stopped: Rule(stop, (Stopping, Finished)),
        },
    ),
    Waiting: _make_row(
        Waiting,
        {
            ev.Decided: Rule(decide_calls, (Waiting,)),
            ev.Approved: Rule(decide_calls, (Waiting,)),
            ev.Continued: Rule(continue_loop, (Ready, Judging, Running)),
        },
    ),
    Stopping: _make_row(
        Stopping,
        {
            ev.Ended: Rule(end_call, (Stopping, Finished)),  # the last one ends the loop: see `tree`
            ev.Changed: Rule(change, (Stopping, Running)),
            ev.Stopped: Rule(stop, (Stopping, Finished)),
            ev.Woken: Rule(wake, (Finished,)),
            ev.Restored: Rule(restore, (Finished,)),
        },
        is_open=False,
    ),
    Finished: _make_row(
        Finished,
        {
            ev.FollowedUp: Rule(follow_up, (Ready,)),
            ev.Said: Rule(say, (Ready,)),
            ev.Changed: Rule(change, (Finished, Ready, Judging, Running)),
            ev.HistoryEdited: Rule(edits.edit_history, (Finished,)),
        },
        is_open=False,
    ),
    Failed: _make_row(
        Failed,
        {
            ev.Continued: Rule(continue_loop, (Ready, Judging, Running)),
            ev.FollowedUp: Rule(follow_up, (Ready,)),
            ev.Said: Rule(say, (Ready,)),
        },
    ),
    TooDeep: {},
}


def take(loop: Loop, event: ev.Event) -> Loop:
    """Return the loop after an event at its path.

    Raises:
        CallerError: the loop does not accept the event; nothing has changed.

    """
    rule = TRANSITIONS[type(loop.phase)].get(type(event))
    if rule is None:
        raise make_not_allowed_error(loop, event, allowed(loop))
    return rule.apply(loop, event)


def list_effects(loop: Loop, tools: int | None = None) -> tuple[Effect, ...]:
    """Return the effects to perform now; none while it is the caller's turn, or if all are in progress.

    Args:
        loop: the loop, without the loops inside its calls.
        tools: how many more tools the loops above it allow; None means no limit.

    """
    match loop.phase:
        case Ready():
            return (EndTurn(),) if limits.is_too_deep(loop) or limits.find_request_limit(loop) else (SendRequest(),)
        case Requesting():
            return (CancelRequest(),) if limits.find_time_limit(loop) else ()
        case Judging():
            return (_find_judgement(loop),)
        case Running():
            return _find_runs(loop, tools)
    return ()


def _find_judgement(loop: Loop) -> Judge:
    over = read_action(loop) is not RUN or is_stopped_by(loop, detect_repetition(loop))
    calls = () if over else loop.calls
    stop_when = "stop_when" in loop.setup.callables and all(call.status is Status.PROPOSED for call in calls)
    names = () if over else tuple([call.id for call in list_to_judge(loop.calls)])
    return Judge(names, stop_when, output=loop.setup.output and read_action(loop) is END)


def _find_runs(loop: Loop, tools: int | None) -> tuple[Effect, ...]:
    if limits.find_time_limit(loop):
        return (EndTurn(),)
    running = len(loop.calls.having(Status.RUNNING))
    places = loop.setup.max_parallel_tools
    free = limits.take_lesser(tools, limits.count_tools_left(loop))
    free = limits.take_lesser(free, None if places is None else max(0, places - running))
    effects: tuple[Effect, ...] = tuple([RunCall(call.id) for call in list_startable(loop)[:free]])
    if loop.calls.members and (names := [call.id for call in list_to_judge(loop.calls)]):
        effects = (Judge(tuple(names)), *effects)
    return effects or (() if running else (EndTurn(),))


def allowed(loop: Loop) -> tuple[str, ...]:
    """Return the methods that a caller may call now."""
    return list_commands(loop, TRANSITIONS[type(loop.phase)])
