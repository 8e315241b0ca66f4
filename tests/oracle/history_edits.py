"""The rules of another closed history: an edit of the caller's, or a compaction. See `rules`."""

from __future__ import annotations

from typing import TypeGuard

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle.joining import end
from tests.oracle.jsontext import decode, encode
from tests.oracle.nesting import used
from tests.oracle.shared_steps import not_now, ready, set_up
from tests.oracle.splicing import Splice, splices_between
from tests.oracle.states import Judging, Paused, Requesting, State
from tests.oracle.stops import Fate
from tests.oracle.terminations import StopCondition
from tests.oracle.thinking import rewritten
from tests.oracle.values import Round


def edit_history(state: State, event: ev.HistoryEdited) -> State:
    """Another closed history: as what changed in it, or, as it was written once, the whole of it."""
    splices = event.splices or splices_between(list(state.ledger.messages), event.messages)
    state = evolve(state, ledger=evolve(state.ledger, compacted=()))  # what is left of another history says nothing
    edited = rewritten(state, splices)
    if event.splices:
        return edited
    # Snapshots of the time when edits were written so do not know when it was, and are to mean the same.
    return evolve(edited, ledger=evolve(edited.ledger, edited_at=state.ledger.edited_at))


def compact(state: State, event: ev.Compacted) -> State:
    """A compaction: what it changed, what a summary used, and how much it left. Nothing moves, but a wait for it.

    What a summary by hand used counts also where the loop has gone on meanwhile, so that nothing else comes of it.
    """
    ends = isinstance(state, Requesting) and state.summary and not event.by_hand
    if isinstance(state, Requesting) and not ends and (event.splices or not event.by_hand):
        raise not_now(state, event, "the request that is under way carries the history as it is")
    ledger = state.ledger if event.summary is None else used(state.ledger, event.summary)
    noted = dict(ledger.compacted) | {event.strategy: event.after}
    ledger = evolve(ledger, compacted=tuple((name, min(tokens, event.after)) for name, tokens in noted.items()))
    state = evolve(state, ledger=ledger)
    if event.splices:
        state = rewritten(state, event.splices)
    if not isinstance(state, Requesting) or not ends:
        return state
    if state.stopped:
        return end(state, StopCondition(state.reason))
    return ready(state.ledger, state.tail)


def asked_to_compact(state: State) -> TypeGuard[Judging]:
    """Whether the reply is what the parameter `compaction` asked for: a block for the whole history, and no answer."""
    if not isinstance(state, Judging) or state.fate is not Fate.PAUSE:
        return False
    ledger = state.ledger
    if state.round.tail or '"compaction"' not in ledger.setup.params:
        return False
    reply = decode(ledger.response or "{}")
    return reply.get("stop_reason") == "compaction" and decode(ledger.setup.params).get("compaction") is not None


def replace_all(state: Judging) -> Paused:
    """The server's block stands for the whole history from here on, and the parameter has done its work.

    A block without content says that the compaction failed: the history stays (source: `BetaCompactionBlockParam` of
    anthropic 2.12).
    """
    params = decode(state.ledger.setup.params)
    del params["compaction"]
    state = set_up(state, params=encode(params))
    reply = state.round.reply
    if reply is not None and _has_summary(reply):
        state = evolve(state, round=Round(state.round.iteration, None))
        state = rewritten(state, (Splice(0, len(state.ledger.messages), (reply,)),))
    # The caller wanted it, so it is none of the pauses that are counted.
    return Paused(evolve(state.ledger, container=None, pauses=state.ledger.pauses - 1, compacted=()), ())


def _has_summary(reply: str) -> bool:
    return any(block["type"] == "compaction" and block.get("content") for block in decode(reply)["content"])
