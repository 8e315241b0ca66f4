"""Folding a journal quickly: a plain round is taken in one stride.

Nearly every journal is a long row of rounds of one kind: a request, a reply with client calls, the start and the end of
each, and the word to go on. What becomes of a loop in such a round is known without the states in between, and they are
what `step` takes its time for. Whatever is not plain to the last field goes through `step`, so the law stays in one
place; a test holds both ways against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolloop.core import events as ev
from toolloop.core import limits
from toolloop.core.binding import within_reach
from toolloop.core.closing import result_text, user_message
from toolloop.core.detection import circle, follow
from toolloop.core.evolving import evolve, evolver
from toolloop.core.replies import assistant_message
from toolloop.core.states import Ledger, Ready, State
from toolloop.core.values import Result

if TYPE_CHECKING:
    from attrs import evolve as _answered
else:
    _said = ("messages", "response", "container", "usage_log", "total_usage", "ran")
    _counts = ("iterations", "turn_iterations", "pauses", "active", "now")
    _answered = evolver(Ledger, *_said, *_counts)

_PLAIN = frozenset({"text", "thinking", "redacted_thinking"})
_SHORTEST = 6  # Requested, Replied, Started, Ended, TurnEnded, Continued


def stride(state: State, turn: Sequence[ev.Event]) -> Ready | None:
    """The state after all events of a plain round; None where the round is none, or it is not sure."""
    if len(turn) < _SHORTEST:
        return None
    requested, replied, *runs, ended, continued = turn
    if type(requested) is not ev.Requested or requested.summary or type(replied) is not ev.Replied:
        return None
    if type(ended) is not ev.TurnEnded or type(continued) is not ev.Continued:
        return None
    if type(state) is not Ready or state.tail or state.ledger.held or requested.seconds > 0 or _blocked(state):
        return None
    ledger, reply = within_reach(state.ledger, 0), replied.reply
    iteration = ledger.iterations + 1
    asked = _calls(replied)
    ran, results = _runs(runs, iteration)
    looked_at = () if ledger.setup.loop_detection is None else reply.calls()
    if not asked or results.keys() != set(asked) or len(ran) != len(asked) or circle(ledger, looked_at):
        return None
    entry = reply.entry(iteration, replied.took or replied.seconds)
    ledger = follow(ledger, [evolve(call, result=results[call.id]) for call in looked_at])
    answer = user_message([result_text(call_id, results[call_id]) for call_id in asked])
    now = max(ledger.now, *[event.at for event in turn])
    active = ledger.active
    for event in turn:
        if event.seconds > 0:
            active += event.seconds
    return Ready(
        _answered(
            ledger,
            messages=ledger.messages.extend((str(assistant_message(reply.blocks)), answer)),
            response=reply.text,
            container=None,
            usage_log=ledger.usage_log.append(entry),
            total_usage=ledger.total_usage + reply.usage,
            ran=ledger.ran.extend(ran),
            iterations=iteration,
            turn_iterations=ledger.turn_iterations + 1,
            pauses=0,
            active=active,
            now=now,
        )
    )


def _blocked(state: Ready) -> bool:
    """Whether a request is not next, or its reply is shown before its calls run."""
    if state.ledger.setup.shows_replies:
        return True
    return limits.too_deep(state.ledger) or limits.before_request(state) is not None


def _calls(replied: ev.Replied) -> list[str]:
    """The ids of the calls in a reply, if that is plain."""
    asked: list[str] = []
    if replied.reply.stop_reason != "tool_use":
        return asked
    for block in replied.reply.blocks:
        if block["type"] == "tool_use" and "caller" not in block and "toolset_name" not in block:
            asked.append(block["id"])
        elif block["type"] not in _PLAIN:  # so are calls that are answered in another way
            return []
    return asked


def _runs(events: Sequence[ev.Event], iteration: int) -> tuple[list[str], dict[str, Result]]:
    """Which calls were started, in that order, and what each gave; nothing of runs that are not plain."""
    ran: list[str] = []
    results: dict[str, Result] = {}
    for event in events:
        if event.path:  # of a loop inside a call
            return [], {}
        if type(event) is ev.Started and event.call_id not in ran:
            ran.append(event.call_id)
        elif type(event) is ev.Ended and _is_plain(event, iteration) and event.call_id in ran:
            if event.call_id in results:
                return [], {}
            results[event.call_id] = event.result
        else:
            return [], {}
    return ran, results


def _is_plain(ended: ev.Ended, iteration: int) -> bool:
    return ended.iteration == ended.attempt == 0 or (ended.iteration == iteration and ended.attempt == 1)
