"""The machine: where a loop is, what may happen there, and what is to be done.

Law
    `step(state, event) -> state` is the only way a loop changes. An event says what happened; the table below says
    which events a state knows, and a rule says which state follows. What the table does not list is refused, and
    leaves the very same state.
    `outstanding(state) -> effects` says what is to be done. It is derived from the state, each time anew: a loop that
    wakes up in another process knows what to do without being told.

Theory
    The caller has the word in `Ready`, `Proposed`, `Deciding`, `Executed`, `Paused`, `Finished` and `Failed`; a driver
    has it in `Requesting`, `Judging` and `Running`. What the caller says to a driver at work is taken at once, and
    waits for its place: an injection for the reply, a stop for the end of the request. A turn starts with a request
    and ends with `TurnEnded`, or with a reply after which nothing is to be run.
    What goes out into the world is said before it happens (`Requested`, `Started`), what comes of it when it does. So
    the state tells a driver that takes over what may have happened without it: a request is lost and made again, a
    call that ran may be repeated or is uncertain.
    Closed rounds are the history. The open round lives beside it, in the state, and joins as a whole; so nothing can
    leave a call without its result.
    Another closed history, by an edit or a compaction, changes nothing else: no call, no wait, no limit. A request for
    a summary is a request like any other, but that it comes to nothing else either. What thinking was born after other
    words than those that stand before it now is remembered.
    A loop that shows its replies (the runner's) stops in `Proposed`, before anything of a reply is judged, and again
    when all its calls have their results. There the caller may put their own history in the place of the loop's: the
    open round is gone with it, or goes on as what is left of it there.
    A loop inside a call is a value of that call. An event of it carries its path; it is taken there, and what it used
    is counted in every loop above. Such a loop waits for no command: it goes on by itself, until calls of it wait for
    the caller or its request failed. Then the loop above stands still, too, once nothing else of it runs.
    Time is an input. Every event may bring it, and what has expired by then has expired before the event's own rule is
    applied: a deadline binds whether anybody ticked or not.
    The first end of a call is its result. An end that says of which run it is may be told at any time, and changes
    nothing where it comes too late.
    The journal is the list of events. One kind is left out of it where the next event implies it: a judgement that
    lets everything run, before the first start. The rule for (Judging, Started) puts it back.

What does not fit
    A tool that is killed half-way: the machine cannot know whether it had its effects. It says so (`Why.UNCERTAIN`)
    and waits for the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from attrs import frozen

from tests.oracle import events as ev
from tests.oracle import (
    grants,
    nesting,
    rules,
    waking,
)
from tests.oracle import (
    history_edits as compacting,
)
from tests.oracle import (
    request_rules as requests,
)
from tests.oracle import (
    taken_history as taking,
)
from tests.oracle.chain import Chain
from tests.oracle.errors import IllegalCommand
from tests.oracle.expiry import expire, is_timed
from tests.oracle.nesting import within
from tests.oracle.pending_effects import outstanding
from tests.oracle.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Ledger,
    Paused,
    Proposed,
    Ready,
    Requesting,
    Running,
    State,
    TooDeep,
)
from tests.oracle.tree import hear, under_way, waiting


@frozen
class Rule:
    """What follows an event in a state: a function, and the states it may lead to."""

    apply: Callable[[Any, Any], State]
    to: tuple[type[State], ...]


_ANYWHERE: dict[type[ev.Event], Callable[[Any, Any], State]] = {
    ev.ParamsChanged: rules.change_params,
    ev.Extended: rules.extend_limits,
    ev.GrantRevoked: grants.revoke,
    ev.Ended: rules.end_call,
    ev.Spent: nesting.spend,
    ev.Ticked: rules.let_time_pass,
    ev.Forked: waking.fork,
    ev.Woken: waking.wake,
}


# The caller takes the history into their own hands: see `Setup.shows_replies`.
_TAKEN: dict[type[ev.Event], Rule] = {
    ev.ReplyDiscarded: Rule(taking.discard_reply, to=(Ready,)),
    ev.RoundAdopted: Rule(taking.adopt_round, to=(Proposed,)),
}
_TAKEN_ROUND = {**_TAKEN, ev.RoundAdopted: Rule(taking.adopt_round, to=(Proposed, Deciding))}  # a call of it may wait
_TAKEN_JUDGED = {**_TAKEN, ev.RoundAdopted: Rule(taking.adopt_round, to=(Proposed, Deciding, Judging))}  # or still runs
_TAKEN_AT_WORK = {**_TAKEN, ev.RoundAdopted: Rule(taking.adopt_round, to=(Proposed, Deciding, Judging, Running))}


def _here(state: type[State]) -> dict[type[ev.Event], Rule]:
    """What changes a loop without moving it."""
    return {event: Rule(apply, to=(state,)) for event, apply in _ANYWHERE.items()}


TRANSITIONS: dict[type[State], dict[type[ev.Event], Rule]] = {
    Ready: {
        **_here(Ready),
        **_TAKEN,
        ev.Requested: Rule(requests.send, to=(Requesting,)),
        ev.TurnEnded: Rule(requests.end_before_request, to=(Finished, TooDeep)),
        ev.Injected: Rule(rules.inject, to=(Ready,)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Ready,)),
        ev.Compacted: Rule(compacting.compact, to=(Ready,)),
    },
    Requesting: {
        **_here(Requesting),
        ev.Forked: Rule(waking.fork, to=(Ready,)),
        ev.Replied: Rule(requests.take_reply, to=(Proposed, Judging, Paused, Ready, Finished, Failed)),
        ev.RequestFailed: Rule(requests.fail, to=(Failed, Finished)),
        ev.RequestCancelled: Rule(requests.give_up, to=(Ready, Finished)),
        ev.Compacted: Rule(compacting.compact, to=(Requesting, Ready, Finished)),
        ev.Injected: Rule(requests.hold_back, to=(Requesting,)),
        ev.Stopped: Rule(requests.stop_after, to=(Requesting,)),
        ev.Woken: Rule(waking.wake, to=(Ready, Finished)),
    },
    Proposed: {
        **_here(Proposed),
        **_TAKEN,
        ev.Forked: Rule(waking.fork, to=(Proposed, Deciding)),
        ev.Continued: Rule(taking.go_on, to=(Judging, Running, Ready)),
        ev.CallsReopened: Rule(taking.reopen_calls, to=(Proposed,)),
        ev.Injected: Rule(rules.inject, to=(Proposed,)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Proposed,)),
        ev.Compacted: Rule(compacting.compact, to=(Proposed,)),
    },
    Judging: {
        **_here(Judging),
        **_TAKEN_JUDGED,
        ev.Forked: Rule(waking.fork, to=(Judging, Deciding)),
        ev.Judged: Rule(rules.take_judgement, to=(Running, Deciding, Paused, Ready, Finished)),
        ev.Started: Rule(rules.start_unjudged, to=(Running,)),
        ev.Decided: Rule(rules.decide_calls, to=(Judging,)),
        ev.Injected: Rule(rules.inject, to=(Judging,)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Judging,)),
        ev.Compacted: Rule(compacting.compact, to=(Judging,)),
    },
    Deciding: {
        **_here(Deciding),
        **_TAKEN_ROUND,
        ev.Decided: Rule(rules.decide_calls, to=(Deciding,)),
        ev.Continued: Rule(rules.run_decided, to=(Judging, Running)),
        ev.Injected: Rule(rules.inject, to=(Judging, Running)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Deciding,)),
        ev.Compacted: Rule(compacting.compact, to=(Deciding,)),
    },
    Running: {
        **_here(Running),
        **_TAKEN_AT_WORK,
        ev.Forked: Rule(waking.fork, to=(Deciding,)),
        ev.Started: Rule(rules.start_call, to=(Running,)),
        ev.Cancelled: Rule(rules.cancel_call, to=(Running,)),
        ev.TurnEnded: Rule(rules.end_round, to=(Executed, Proposed, Deciding, Failed, Finished)),
        ev.Decided: Rule(rules.decide_calls, to=(Running,)),
        ev.Injected: Rule(rules.inject, to=(Running,)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Running,)),
        ev.Compacted: Rule(compacting.compact, to=(Running,)),
        ev.Woken: Rule(waking.wake, to=(Running, Judging)),
    },
    Executed: {
        **_here(Executed),
        ev.Continued: Rule(rules.next_request, to=(Ready,)),
        ev.Injected: Rule(rules.inject, to=(Ready,)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Executed,)),
        ev.Compacted: Rule(compacting.compact, to=(Executed,)),
    },
    Paused: {
        **_here(Paused),
        **_TAKEN,
        ev.Continued: Rule(rules.next_request, to=(Ready,)),
        ev.Injected: Rule(rules.inject, to=(Ready,)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Paused,)),
        ev.Compacted: Rule(compacting.compact, to=(Paused,)),
    },
    Finished: {
        **_here(Finished),
        ev.FollowedUp: Rule(rules.follow_up, to=(Ready,)),
        ev.Extended: Rule(rules.extend, to=(Finished, Ready, Judging, Running)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Finished,)),
        ev.Compacted: Rule(compacting.compact, to=(Finished,)),
    },
    Failed: {
        **_here(Failed),
        **_TAKEN,
        ev.Retried: Rule(rules.retry, to=(Ready, Judging, Running)),
        ev.Stopped: Rule(rules.stop, to=(Finished,)),
        ev.HistoryEdited: Rule(compacting.edit_history, to=(Failed,)),
        ev.Compacted: Rule(compacting.compact, to=(Failed,)),
    },
    TooDeep: {},
}


def begin(first: ev.Opened | ev.Adopted) -> State:
    """The first state of a loop: a new one, or the one that was taken over."""
    if isinstance(first, ev.Adopted):
        return first.state
    return Ready(Ledger(first.setup, Chain(first.messages), now=first.at))


def step(state: State, event: ev.Event) -> State:
    """The state after an event.

    Raises:
        CallerError: the event is not possible here; the state is as before.

    """
    state = hear(state, event.at, event.seconds)
    return _take(expire(state) if is_timed(state) else state, event)


def _take(state: State, event: ev.Event) -> State:
    """What a loop does with an event, whose time it has heard of."""
    if event.path:
        return within(state, event, _take)
    rule = TRANSITIONS[type(state)].get(type(event))
    if rule is None:
        raise refusal(state, event)
    return rule.apply(state, event)


def fold(events: Iterable[ev.Event]) -> State:
    """The state after a whole journal."""
    journal = iter(events)
    first = next(journal, None)
    if not isinstance(first, ev.Opened | ev.Adopted) or first.path:
        where = "" if first is None or not first.path else " inside a call"
        raise IllegalCommand(
            f"a journal starts with Opened or Adopted, and this one with {type(first).__name__}{where}",
            state="none",
            asked=type(first).__name__,
            allowed=("Opened", "Adopted"),
        )
    state = begin(first)
    for event in journal:
        state = step(state, event)
    return state


def implied(event: ev.Event, following: ev.Event) -> bool:
    """Whether a journal may leave an event out, because the one that follows it says it too."""
    match event, following:
        case ev.Judged(verdicts=(), stop=False, seconds=0), ev.Started() | ev.Opened():
            where = following.path[:-1] if isinstance(following, ev.Opened) else following.path  # inside of its call
            return following.at >= event.at and where == event.path
    return False


def next_deadline(state: State) -> float | None:
    """When the first of the waiting calls expires, in seconds since the epoch; None where none ever does."""
    deadlines = [call.expires_at for _, call in waiting(state) if call.expires_at is not None]
    return min(deadlines) if deadlines else None


def is_due(state: State, now: float) -> bool:
    """Whether time alone changes something by then: a waiting call expires, or a grant by which one was to start."""
    if not is_timed(state):
        return False
    later = hear(state, now, 0.0)
    return is_timed(later) and expire(later) is not later


Standing = Literal["needs_decision", "needs_command", "runnable", "running", "ended"]


def status_of(state: State) -> Standing:
    """Whose turn it is, in one word: what a store lists loops by."""
    kind = type(state)
    if kind is not Proposed and waiting(state):
        return "needs_decision"
    return _STANDING.get(kind) or ("running" if under_way(state) else "runnable")


_STANDING: dict[type[State], Standing] = {
    **dict.fromkeys((Executed, Paused, Deciding, Proposed), "needs_command"),
    **dict.fromkeys((Finished, Failed, TooDeep), "ended"),
}


# How a caller says what an event records; the others are a driver's affair.
_ASKED = {
    ev.Continued: "continue_loop()",
    ev.Injected: "inject_and_continue()",
    ev.Stopped: "stop()",
    ev.Decided: "a decision",
    ev.HistoryEdited: "an edit of the history",
    ev.ParamsChanged: "update_params()",
    ev.FollowedUp: "follow_up()",
    ev.Extended: "extend()",
    ev.Retried: "retry()",
    ev.Forked: "fork()",
    ev.GrantRevoked: "revoking a grant",
}


def allowed(state: State) -> tuple[str, ...]:
    """What a caller may ask for in a state, in the caller's words."""
    known = TRANSITIONS[type(state)]
    return tuple(words for event, words in _ASKED.items() if event in known)


def refusal(state: State, event: ev.Event) -> IllegalCommand:
    """The error for an event that a state does not know."""
    asked = _ASKED.get(type(event), type(event).__name__)
    name = type(state).__name__
    may = allowed(state)
    return IllegalCommand(
        f"{asked} is not possible while the loop is {name}; possible now: {', '.join(may) or 'nothing'}",
        state=name,
        asked=asked,
        allowed=may,
    )


__all__ = [
    "TRANSITIONS",
    "Rule",
    "Standing",
    "allowed",
    "begin",
    "fold",
    "implied",
    "is_due",
    "is_timed",
    "next_deadline",
    "outstanding",
    "refusal",
    "status_of",
    "step",
    "under_way",
]
