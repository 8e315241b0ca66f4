"""What may become of a history that is edited, and what may be set again: part of what a world is made of."""

from __future__ import annotations

from typing import Any

from tests.kit.machine import making as m
from tests.kit.machine.drawing import Drawing
from toolloop._usage import IterationUsage, Usage
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import round_of
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.values.calls import Status
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.splicing import Splice

STRATEGIES = ("mask_results", "drop_rounds", "summarize")
PARAMS: dict[str, tuple[Any, ...]] = {
    "model": ("one", "two"),
    "system": ("be brief", "be kind"),
    "tools": ([{"name": "x"}], [{"name": "y"}]),
    "thinking": ({"type": "adaptive"}, {"type": "disabled"}),
    "max_tokens": (1, 2),
}


def some_edit(world: Drawing) -> ev.HistoryEdited:
    """A shorter history; now and then one that does not fit."""
    return ev.HistoryEdited(some_splices(world) or (Splice(0, 0, (m.user(world.make_new("edited")),)),))


def some_compaction(world: Drawing, *, edits: bool) -> ev.HistoryEdited:
    """One that changed something, or not, with a request for a summary, or without."""
    strategy = world.rng.choice(STRATEGIES)
    spent = None
    if world.chance(2):
        usage = Usage(input_tokens=world.rng.randrange(9), output_tokens=world.rng.randrange(9))
        spent = IterationUsage(world.here.iterations, "m", usage=usage, kind="summary")
    if not edits or world.chance(3):
        return ev.HistoryEdited((), strategy, 9, 9, spent, "it came out longer")
    splices, after = some_splices(world), world.rng.randrange(9)
    return ev.HistoryEdited(splices, strategy, before=9, after=after, spent=spent)


def some_splices(world: Drawing) -> tuple[Splice, ...]:
    """Rounds that go, with a message in their place, and results behind them that are masked."""
    messages = list(join_rest(world.here).messages)
    if world.chance(12):
        return (Splice(len(messages), len(messages) + 1),)
    begins = [at for at, text in enumerate(messages) if begins_turn(text)]
    start, stop = sorted(world.rng.choice([*begins, len(messages)]) for _ in range(2))
    first = () if stop < len(messages) and world.chance(2) else (m.user(world.make_new("summary")),)
    splices = [Splice(start, stop, first)] if start < stop or first else []
    hidden = {at: mask(messages[at]) for at in range(stop, len(messages)) if '"tool_result"' in messages[at]}
    masks = [Splice(at, at + 1, (text,)) for at, text in hidden.items() if text != messages[at] and world.chance(2)]
    return (*splices, *masks)


def some_params(world: Drawing, *, compaction: bool) -> str:
    """Parameters of which one is another; now and then with what has the server compact the history."""
    params = decode(world.here.setup.params)
    name = world.rng.choice([*PARAMS, *(["compaction"] if compaction else [])])
    drawn = world.rng.choice((*PARAMS.get(name, ({"type": "summarize"},)), None))
    return encode({**params, name: drawn})


def begins_turn(text: str) -> bool:
    """Whether all before a message is closed: for the caller says something new in it."""
    message = decode(text)
    return message["role"] == "user" and isinstance(message["content"], str)


def mask(text: str) -> str:
    """A message whose results say nothing any more."""
    message = decode(text)
    blocks = [block | {"content": "-"} if block["type"] == "tool_result" else block for block in message["content"]]
    return encode({**message, "content": blocks})


def some_taking(world: Drawing) -> ev.HistoryTaken:
    """A history of the caller's own: without the open reply, or with it as it is, changed, or with another call."""
    splices = some_splices(world) if world.chance(3) else ()
    keeps = world.chance(2)
    if world.chance(2):
        return ev.HistoryTaken(splices, None, keeps)
    known = round_of(world.state.root)
    if known is None or known.reply is None or world.chance(4):
        blocks = [m.call(world.make_new("own"), "once"), m.call(world.make_new("own"), "pure")]
    else:
        blocks = decode(known.reply)["content"]
    if world.chance(3):
        blocks = [m.thinking(world.make_new("own")), *blocks, m.call(world.make_new("own"), "pure")]
    if world.chance(6):
        blocks = [{**block, "input": {"a": 5}} if block["type"] == "tool_use" else block for block in blocks]
    if world.chance(20):
        blocks = [m.text("no call")]
    ended = [call.id for call in known.calls if call.status is Status.SETTLED and call.started] if known else []
    rerun = tuple(call_id for call_id in ended if world.chance(2)) if world.chance(2) else ()
    content = "a word" if world.chance(40) else blocks
    return ev.HistoryTaken(splices, encode({"role": "assistant", "content": content}), keeps, rerun)
