"""Loops inside calls: a loop is the root of a tree, and what is asked of the whole tree is asked here.

A loop inside a call is a value of that call. It is at work while it is Ready, Requesting, Judging or Running; it rests
where it waits for the caller, in Deciding, or with a failure that may pass, in Failed; and it is over when it has
ended. It never rests in Executed or Paused, where a root waits for a command: it goes on by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from attrs import asdict, evolve

from tests.oracle.jsontext import decode, encode, well_formed
from tests.oracle.replies import ends_in_reply
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
from tests.oracle.terminations import NaturalEnd, Refused, StopCondition
from tests.oracle.texts import Texts, say
from tests.oracle.values import RUNNING, WAITING, Call, Outcome, Result, Round

S = TypeVar("S", bound=State)

_WITH_ROUND: frozenset[type[Any]] = frozenset({Proposed, Judging, Deciding, Running, Failed})
_OPEN: frozenset[type[Any]] = frozenset({Proposed, Judging, Deciding, Running})
_AT_WORK: frozenset[type[Any]] = frozenset({Ready, Requesting, Judging, Running})


def round_of(state: State) -> Round | None:
    """The round in which a loop is: the open one, or the one with which a loop that stands still goes on."""
    if state.__class__ in _WITH_ROUND:
        round_: Round | None = state.round  # type: ignore[union-attr]  # those have one
        return round_
    return state.back.round if isinstance(state, Finished) and state.back is not None else None


def open_round(state: State) -> Round | None:
    """The round in which a loop is, if it is open."""
    if state.__class__ in _OPEN:
        round_: Round = state.round  # type: ignore[union-attr,assignment]  # those have one
        return round_
    return None


def tail_of(state: State) -> tuple[str, ...]:
    """The messages beside the history, before the reply that is open."""
    round_ = round_of(state)
    if round_ is not None:
        return round_.tail
    tail: tuple[str, ...] = getattr(state, "tail", ())
    return tail[:-1] if isinstance(state, Paused) and ends_in_reply(tail) else tail


def with_round(state: State, round_: Round) -> State:
    """The state with another version of the round of `round_of`."""
    if isinstance(state, Proposed | Judging | Deciding | Running | Failed):
        return evolve(state, round=round_)
    if isinstance(state, Finished) and state.back is not None:
        return evolve(state, back=evolve(state.back, round=round_))
    return state


def children(round_: Round | None) -> list[tuple[Call, State]]:
    """The loops inside the running calls of a round, in the model's order."""
    if round_ is None:
        return []
    return [(call, call.child) for call in round_.calls if call.child is not None and call.status is RUNNING]


def has_inside(round_: Round) -> bool:
    """Whether a loop is inside of a call: hardly any round has one."""
    for call in round_.calls:  # noqa: SIM110 - every event asks, and `any` costs three times as much
        if call.child is not None:
            return True
    return False


def each_child(round_: Round, change: Callable[[State], State]) -> Round:
    """The round with every loop inside its calls changed; the very same one where nothing is."""
    if not has_inside(round_):
        return round_
    return with_children(round_, {call.id: change(child) for call, child in children(round_)})


def with_children(round_: Round, inside: Mapping[str, State]) -> Round:
    """The round with these loops inside its calls; the very same one where they are those that are there."""
    if all(child is inside[call.id] for call, child in children(round_)):
        return round_
    calls = (evolve(call, child=inside[call.id]) if call.id in inside else call for call in round_.calls)
    return evolve(round_, calls=tuple(calls))


def loops(state: State, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], State]]:
    """The loop itself, and those inside the calls of its open round, with their paths: the outermost first."""
    yield path, state
    for call, child in children(open_round(state)):
        yield from loops(child, (*path, call.id))


def everywhere(state: State, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], State]]:
    """The same, also where the loop stands still, and may go on with what is inside of its calls."""
    yield path, state
    for call, child in children(round_of(state)):
        yield from everywhere(child, (*path, call.id))


def loop_at(state: State, path: tuple[str, ...]) -> State | None:
    """The loop at a path; None where there is none (any more)."""
    for call_id in path:
        inside = [child for call, child in children(round_of(state)) if call.id == call_id]
        if not inside:
            return None
        state = inside[0]
    return state


def waiting(state: State) -> list[tuple[tuple[str, ...], Call]]:
    """The calls that wait for the caller's word in the whole tree, with the paths of their loops."""
    round_ = open_round(state)
    if round_ is None:
        return []
    if not has_inside(round_):
        return [((), call) for call in round_.calls if call.status is WAITING]
    return [
        (path, call)
        for path, loop in loops(state)
        if (round_ := open_round(loop)) is not None
        for call in round_.having(WAITING)
    ]


def is_at_work(state: State) -> bool:
    """Whether time counts for a loop inside a call."""
    return state.__class__ in _AT_WORK


def under_way(state: State) -> bool:
    """Whether something was begun whose end is not known yet: a request, or a call, anywhere in the tree."""
    round_ = open_round(state)
    if round_ is None:
        return isinstance(state, Requesting)
    if isinstance(state, Running):
        for call in round_.calls:
            if call.status is RUNNING and call.child is None:
                return True
    return has_inside(round_) and any(under_way(child) for _, child in children(round_))


def hear(state: State, at: float, seconds: float) -> State:
    """The tree after an event at that time, which took so many seconds: they count for every loop that is at work."""
    before, round_ = state.ledger, open_round(state)
    now = at if at > before.now else before.now  # noqa: FURB136 - every event passes here, and `max` costs four times
    lasted = seconds if seconds > 0.0 else 0.0  # noqa: FURB136 - likewise
    if round_ is not None and has_inside(round_):
        return _aged(state, now, lasted)
    if now == before.now and not lasted:
        return state
    return with_ledger(state, evolve(before, now=now, active=before.active + lasted))


def _aged(state: State, now: float, seconds: float) -> State:
    def aged(child: State) -> State:
        return _aged(child, now, seconds if is_at_work(child) else 0.0)

    state = with_ledger(state, evolve(state.ledger, now=now, active=state.ledger.active + seconds))
    round_ = open_round(state)
    return state if round_ is None else with_round(state, each_child(round_, aged))


def with_ledger(state: S, ledger: Ledger) -> S:
    """The state with another version of its ledger."""
    return evolve(state, ledger=ledger)


def resting(round_: Round) -> Round:
    """The round as it is when nobody drives any more: a request that is under way inside of it is given up."""
    return each_child(round_, _rested)


def _rested(child: State) -> State:
    if isinstance(child, Requesting):
        return Ready(child.ledger, child.tail)
    round_ = open_round(child)
    return child if round_ is None else with_round(child, resting(round_))


def settled_down(child: State) -> State:
    """A loop inside a call waits for no command: where a root would, it goes on."""
    return Ready(child.ledger, child.tail) if isinstance(child, Executed | Paused) else child


# --- what comes of a loop inside a call ------------------------------------------------------------------------------


def is_over(child: State) -> bool:
    """Whether a loop inside a call has come to its end. A failure that may pass is none."""
    match child:
        case Failed(failure=failure):
            return not failure.retryable
        case Finished() | TooDeep():
            return True
    return False


def answer_of(child: State, texts: Texts) -> Result:
    """The result of a call whose loop is over: its last text, or why there is none.

    What a loop said on its way to an end that it did not choose is no answer: the result says so, and is an error.
    """
    said = _last_text(child)
    chosen = isinstance(child, Finished) and isinstance(child.termination, NaturalEnd | StopCondition)
    if chosen and said:
        return Result(encode(said))
    if said:
        return _error(say(texts, "cut_short", reason=_why(child), text=said))
    silent = say(texts, "no_answer", reason=_why(child))
    return Result(encode(silent)) if chosen else _error(silent)


def _why(child: State) -> str:
    match child:
        case Finished(termination=NaturalEnd()):
            return "it said nothing"
        case Finished(termination=ended):
            told = asdict(ended, filter=lambda _, value: value is not None)
            more = ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in told.items())
            return ended.kind.replace("_", " ") + (f" ({more})" if more else "")
        case Failed(failure=failure):
            return f"its model request failed: {failure.message}"
    setup = child.ledger.setup
    return f"it is nested too deep: {setup.depth}, and {setup.limits.max_depth} is the limit"


def _error(text: str) -> Result:
    return Result(encode(text), is_error=True, outcome=Outcome.FAILED)


def _last_text(child: State) -> str:
    """The text of the last reply, if that joined the history of its loop."""
    if not isinstance(child, Finished) or isinstance(child.termination, Refused) or child.ledger.response is None:
        return ""
    blocks = decode(child.ledger.response)["content"]
    texts = (block["text"] for block in blocks if block["type"] == "text" and block["text"].strip())
    return well_formed("\n".join(texts))  # what a model says may be no text that the API takes back
