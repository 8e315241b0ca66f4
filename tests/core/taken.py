"""What a caller may do who takes the history into their own hands: part of what a world is made of."""

from __future__ import annotations

from typing import Any

from tests.core import making as m
from tests.core.drawing import Drawing
from tests.core.editing import some_splices
from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.tree import round_of
from toolloop.core.values import Call, Outcome, Result, Round, Status

TAKEN = (ev.ReplyDiscarded, ev.RoundAdopted, ev.CallsReopened)


def some_discarding(world: Drawing) -> ev.ReplyDiscarded:
    """The open reply goes, and what waited before it stays or goes too; the rest may be edited."""
    return ev.ReplyDiscarded(some_splices(world) if world.chance(3) else (), keeps_tail=world.chance(2))


def some_adoption(world: Drawing) -> ev.RoundAdopted:
    """The open reply as it is, with another call, or changed; some of its calls answered."""
    known = round_of(world.state) or Round(0, None)
    if known.reply is None or world.chance(4):
        blocks = [m.call(world.new("own"), "once"), m.call(world.new("own"), "pure")]
    else:
        blocks = decode(known.reply)["content"]
    if world.chance(3):
        blocks = [m.thinking(world.new("own")), *blocks, m.call(world.new("own"), "pure")]
    if world.chance(6):
        blocks = [{**block, "input": {"a": 5}} if block["type"] == "tool_use" else block for block in blocks]
    if world.chance(20):
        blocks = [m.text("no call")]
    return ev.RoundAdopted(
        some_splices(world) if world.chance(3) else (),
        encode({"role": "assistant", "content": "a word" if world.chance(40) else blocks}),
        some_results(world, blocks),
        (m.user(world.new("injected")),) if world.chance(3) else (),
        keeps_tail=world.chance(2),
    )


def some_results(world: Drawing, blocks: list[Any]) -> tuple[tuple[str, Result], ...]:
    """What the caller answered; now and then of a call that is not there."""
    asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
    answered = [call_id for call_id in asked if world.chance(3)] + (["toolu_foreign"] if world.chance(20) else [])
    return tuple((call_id, Result(encode("mine"), outcome=Outcome.ANSWERED)) for call_id in answered)


def some_reopening(world: Drawing) -> ev.CallsReopened:
    """Calls that ran, as a rule."""
    ran = [call.id for call in open_calls(world) if call.status is Status.SETTLED and call.started]
    named = [call_id for call_id in ran if world.chance(2)] or ran[:1]
    return ev.CallsReopened(tuple(named) if named and not world.chance(8) else (world.a_call(),))


def open_calls(world: Drawing) -> tuple[Call, ...]:
    """The calls of the open round of the outermost loop."""
    round_ = round_of(world.state)
    return () if round_ is None else round_.calls
