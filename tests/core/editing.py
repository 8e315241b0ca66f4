"""What may become of a history that is edited, and what may be set anew: part of what a world is made of."""

from __future__ import annotations

from typing import Any

from tests.core import making as m
from tests.core.drawing import Drawing
from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.splicing import Splice
from toolloop.core.usage import IterationUsage, Usage

STRATEGIES = ("mask_results", "drop_rounds", "summarize")
PARAMS: dict[str, tuple[Any, ...]] = {
    "model": ("one", "two"),
    "system": ("be brief", "be kind"),
    "tools": ([{"name": "x"}], [{"name": "y"}]),
    "thinking": ({"type": "adaptive"}, {"type": "disabled"}),
    "max_tokens": (1, 2),
}


def some_edit(world: Drawing) -> ev.HistoryEdited:
    """A shorter history, as what changed in it or as a whole; now and then one that does not fit."""
    if world.chance(3):
        return ev.HistoryEdited((m.user(world.new("edited")),))
    return ev.HistoryEdited(splices=some_splices(world))


def some_compaction(world: Drawing, *, edits: bool) -> ev.Compacted:
    """One that changed something, or not, with a request for a summary, or without."""
    strategy = world.rng.choice(STRATEGIES)
    summary = None
    if world.chance(2):
        usage = Usage(input_tokens=world.rng.randrange(9), output_tokens=world.rng.randrange(9))
        summary = IterationUsage(world.here.ledger.iterations, "m", usage=usage, kind="summary")
    by_hand = world.chance(3)
    if not edits or world.chance(3):
        why = "it came out longer"
        return ev.Compacted(strategy, before=9, after=9, summary=summary, problem=why, by_hand=by_hand)
    splices, after = some_splices(world), world.rng.randrange(9)
    return ev.Compacted(strategy, splices, before=9, after=after, summary=summary, by_hand=by_hand)


def some_splices(world: Drawing) -> tuple[Splice, ...]:
    """Rounds that go, with a message in their place, and results behind them that are masked."""
    messages = list(world.here.ledger.messages)
    if world.chance(12):
        return (Splice(len(messages), len(messages) + 1),)
    begins = [at for at, text in enumerate(messages) if begins_turn(text)]
    start, stop = sorted(world.rng.choice([*begins, len(messages)]) for _ in range(2))
    first = () if stop < len(messages) and world.chance(2) else (m.user(world.new("summary")),)
    splices = [Splice(start, stop, first)] if start < stop or first else []
    hidden = {at: masked(messages[at]) for at in range(stop, len(messages)) if '"tool_result"' in messages[at]}
    masks = [Splice(at, at + 1, (text,)) for at, text in hidden.items() if text != messages[at] and world.chance(2)]
    return (*splices, *masks)


def some_params(world: Drawing, *, compaction: bool) -> str:
    """Parameters of which one is another; now and then with what has the server compact the history."""
    params = decode(world.here.ledger.setup.params)
    name = world.rng.choice([*PARAMS, *(["compaction"] if compaction else [])])
    drawn = world.rng.choice((*PARAMS.get(name, ({"type": "summarize"},)), None))
    return encode({**params, name: drawn})


def begins_turn(text: str) -> bool:
    """Whether all before a message is closed, whatever it is: for the caller says something new in it."""
    message = decode(text)
    return message["role"] == "user" and isinstance(message["content"], str)


def masked(text: str) -> str:
    """A message whose results say nothing any more."""
    message = decode(text)
    blocks = [block | {"content": "-"} if block["type"] == "tool_result" else block for block in message["content"]]
    return encode({**message, "content": blocks})
