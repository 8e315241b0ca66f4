"""Thinking and what stood before it: newer models bind the one to the other.

A thinking block may go out only after the very system prompt, tools and messages after which it was born (source: rule
29 of the Messages API). Whatever changes these in a loop is known here, so the places are remembered whose thinking was
born after other words. They stay so where the words come back: a setting that is changed and changed back costs the
same. What is done about it depends on the model, and is the driver's affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from attrs import evolve

from tests.oracle.chain import Chain
from tests.oracle.jsontext import decode
from tests.oracle.setup import Setup
from tests.oracle.splicing import Splice, spliced
from tests.oracle.states import (
    Back,
    Deciding,
    Failed,
    Finished,
    Judging,
    Ledger,
    Proposed,
    Requesting,
    Running,
    State,
    TooDeep,
)
from tests.oracle.values import Round

S = TypeVar("S", bound=State)
Places = tuple[tuple[int, int], ...]

_MARK = 'thinking"'  # in the type of both kinds of blocks


def rewritten(state: S, splices: Sequence[Splice]) -> S:
    """The state with another closed history. A limit's end goes on from it, not from what it replaced."""
    old = state.ledger
    messages = Chain(spliced(old.messages, splices))
    state = evolve(state, ledger=evolve(old, messages=messages, edited_at=old.iterations))
    if isinstance(state, Finished) and state.back is not None:
        state = evolve(state, back=Back(messages, old.held, (), None))
    return unbind(state, splices[0].start if splices else len(messages))


def unbind(state: S, start: int = 0) -> S:
    """The state after something changed before the message of this place: all thinking from there on is unbound."""
    ledger = state.ledger
    places = [at for row in _rows(state) for at, text in enumerate(row[start:], start) if _MARK in text]
    if isinstance(state, Requesting) and not state.summary:
        places.append(len(ledger.messages) + len(state.tail))  # of the reply: what is asked was asked in other words
    kept = cut_off(ledger.unbound, start)
    unbound = (*kept, (min(places), max(places) + 1)) if places else kept
    return state if unbound == ledger.unbound else evolve(state, ledger=evolve(ledger, unbound=unbound))


def cut_off(unbound: Places, end: int) -> Places:
    """The places before an end."""
    return tuple((start, min(stop, end)) for start, stop in unbound if start < end)


def within_reach(ledger: Ledger, beside: int) -> Ledger:
    """The ledger without places at which no message stands yet, with so many beside the history.

    What joined it lost a message on the way, then. Only in a new message is thinking that is none of these.
    """
    unbound = ledger.unbound and cut_off(ledger.unbound, len(ledger.messages) + beside)
    return ledger if unbound == ledger.unbound else evolve(ledger, unbound=unbound)


def all_messages(state: State) -> Sequence[str]:
    """The messages of the history, those beside it, and the open reply: what the places are counted in."""
    return _rows(state)[0]


def _rows(state: State) -> list[Sequence[str]]:
    """All messages; and if a limit may have ended the loop, those with which it goes on: joined, they are others."""
    messages = state.ledger.messages
    match state:
        case Proposed() | Judging() | Deciding() | Running() | Failed(round=Round()):
            return [[*messages, *_open(state.round)]]
        case Finished(back=Back() as back):
            return [messages, [*back.messages, *(_open(back.round) or back.tail)]]
        case Finished() | TooDeep():
            return [messages]
    return [[*messages, *state.tail]]


def _open(round_: Round | None) -> tuple[str, ...]:
    if round_ is None:
        return ()
    return round_.tail if round_.reply is None else (*round_.tail, round_.reply)


def same_beginning(one: Setup, other: Setup, unbound: Places) -> bool:
    """Whether requests set up so begin alike: with the same system prompt and the same tools.

    Where thinking is unbound already, what else says whether it is sent is to be the same, too: the model, and what is
    wanted of thinking. For what came after it was born after that, or after its absence.
    """
    if _tools(one) != _tools(other):
        return False
    if one.params == other.params:
        return True
    names = ("system", "tools", "mcp_servers", *(("model", "thinking") if unbound else ()))
    old, new = decode(one.params), decode(other.params)
    return all(old.get(name) == new.get(name) for name in names)


def _tools(setup: Setup) -> list[tuple[str, str]]:
    return [(facts.name, facts.digest) for facts in setup.tools]
