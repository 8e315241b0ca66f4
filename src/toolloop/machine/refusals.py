"""Errors for events that a loop does not accept. They name the caller's own method, not the event."""

from __future__ import annotations

from collections.abc import Container, Mapping

from toolloop.errors import IllegalCommand, UndecidedCalls
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failed, Loop, Stopping, Waiting
from toolloop.machine.rules.approving import describe
from toolloop.machine.values.calls import Call, Status, Why
from toolloop.terminations import LIMITS

# The methods by which a caller asks for each event. Only drivers record the other events.
_ASKED: dict[type[ev.Event], tuple[str, ...]] = {
    ev.Continued: ("continue_loop()", "inject_and_continue()"),
    ev.Stopped: ("stop()",),
    ev.Decided: ("a decision",),
    ev.HistoryEdited: ("an edit of the history",),
    ev.Changed: ("update_params()", "extend()"),
    ev.FollowedUp: ("follow_up()",),
    ev.Said: ("say()",),
    ev.GrantRevoked: ("revoking a grant",),
}


def list_commands(loop: Loop, known: Container[type[ev.Event]]) -> tuple[str, ...]:
    """Return the methods that a caller may call, for a loop whose phase accepts these events."""
    words = [word for event, words in _ASKED.items() if event in known for word in words]
    if isinstance(loop.phase, Failed):
        words[:2] = ["retry()"]
    elif not isinstance(loop.phase, Waiting) and ev.Continued in known:
        words[:2] = [name_injection(loop)]  # there is no wait to continue; messages are queued
    if loop.round is None and ev.Decided in known:
        words.remove("a decision")
    if isinstance(loop.phase, Stopping) and not isinstance(loop.phase.termination, LIMITS):
        words.remove("extend()")
    return (*words, "fork()") if words else ()


def name_injection(loop: Loop) -> str:
    """Return the method with which a caller adds messages: that of the waiting `Yielded`, or of the handle."""
    return "inject_and_continue()" if isinstance(loop.phase, Waiting) else "resume(InjectMessages(...))"


def make_not_allowed_error(loop: Loop, event: ev.Event | str, allowed: tuple[str, ...]) -> IllegalCommand:
    """Return the error for an event, or a method of the caller, that the phase of a loop does not accept."""
    phase, asked = type(loop.phase).__name__, event if isinstance(event, str) else _name_command(loop, event)
    return IllegalCommand(
        f"{asked} is not allowed while the loop is {phase}{_explain_wait(loop)}; "
        f"allowed now: {', '.join(allowed) or 'nothing'}",
        state=phase,
        asked=asked,
        allowed=allowed,
    )


def _explain_wait(loop: Loop) -> str:
    """Name the calls that a loop waits for before it ends."""
    running = loop.calls.having(Status.RUNNING)
    if not isinstance(loop.phase, Stopping):
        return ""
    named = ", ".join(f"{call.name} ({call.id})" for call in running)
    return f", because {named} still {'runs' if len(running) == 1 else 'run'}. Wait until this has ended"


def _name_command(loop: Loop, event: ev.Event) -> str:
    match event:
        case ev.Decided():
            return "a decision"
        case ev.Continued(messages=()):
            return "continue_loop()"
        case ev.Continued():
            return name_injection(loop)
        case ev.Changed(limits=None):
            return "update_params()"
    return _ASKED.get(type(event), (type(event).__name__,))[-1]


def make_not_possible_error(loop: Loop, event: ev.Event, why: str) -> IllegalCommand:
    """Return the error for an event that the phase of a loop accepts, but whose content does not fit the loop."""
    phase, asked = type(loop.phase).__name__, type(event).__name__
    return IllegalCommand(
        f"{asked} is not allowed while the loop is {phase}: {why}", state=phase, asked=asked, allowed=()
    )


def make_undecided_error(calls: Mapping[str, Call]) -> UndecidedCalls:
    """Return the error for a loop that cannot continue before these calls, by name, are decided."""
    demanding = [call for call in calls.values() if call.demands and call.why is not Why.EXTERNAL]
    needs = [f"{call.name} needs {describe(call.demands, call.approvals)}" for call in demanding]
    return UndecidedCalls(
        f"the loop cannot continue while calls wait for a decision: {', '.join(calls)}. Approve, deny or answer each, "
        'or set execution="ready" to run the other calls meanwhile' + "".join(f". {need}" for need in needs),
        calls=tuple(calls),
    )
