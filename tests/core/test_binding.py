"""Thinking that was born after other words than those before it now is known, and no other is.

The model here knows nothing of places: it remembers of each thinking block, by its own words, what the request carried
after which it was born, and what stood before it in every state since.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import TRANSITIONS
from toolloop.core.setup import Limits, Setup
from toolloop.core.states import Deciding, Failed, Finished, Judging, Ledger, Requesting, Running, State
from toolloop.core.tree import everywhere

Block = tuple[str, str]  # the role and the text of a block
Prefix = tuple[Any, ...]


def beginning(setup: Setup) -> tuple[Any, ...]:
    """What stands before the messages of a request."""
    params = decode(setup.params)
    tools = tuple((facts.name, facts.digest) for facts in setup.tools)
    return encode(params.get("system")), encode(params.get("tools")), tools


def blocks_of(text: str) -> list[Any]:
    content = decode(text)["content"]
    return [m.text(content)] if isinstance(content, str) else list(content)


def is_thinking(block: Any) -> bool:
    return block["type"] in ("thinking", "redacted_thinking")


def name_of(block: Any) -> str:
    return str(block.get("thinking") or block.get("data"))


def found(messages: Sequence[str]) -> Iterator[tuple[int, str, list[Block]]]:
    """Every thinking block: the place of its message, its name, and all blocks before it."""
    before: list[Block] = []
    for place, text in enumerate(messages):
        role = decode(text)["role"]
        for block in blocks_of(text):
            if is_thinking(block):
                yield place, name_of(block), list(before)
            before.append((role, encode(block)))


def is_unbound(ledger: Ledger, place: int) -> bool:
    return any(start <= place < stop for start, stop in ledger.unbound)


def as_sent(ledger: Ledger, messages: Sequence[str]) -> list[str]:
    """The messages of a request, without the thinking that is unbound."""
    sent = []
    for place, text in enumerate(messages):
        blocks = [block for block in blocks_of(text) if not (is_thinking(block) and is_unbound(ledger, place))]
        sent.append(encode({"role": decode(text)["role"], "content": blocks}))
    return sent


def goes_on_with(state: State) -> list[list[str]]:
    """The messages of a loop; after a limit ended it, those with which it may go on too."""
    history = list(state.ledger.messages)
    match state:
        case Judging() | Deciding() | Running():
            return [[*history, *state.round.tail, *filter(None, [state.round.reply])]]
        case Failed() if state.round is not None:
            return [[*history, *state.round.tail, *filter(None, [state.round.reply])]]
        case Finished() if state.back is not None:
            back = state.back
            round_ = () if back.round is None else filter(None, [back.round.reply])
            return [history, [*back.messages, *back.tail, *round_]]
    return [[*history, *getattr(state, "tail", ())]]


@define
class Memory:
    """What is known of the thinking of one loop.

    Attributes:
        asked: what the request carried that is under way.
        asked_otherwise: meanwhile, something else was set, though it may be as it was by now.
        born: by the name of a block, after what it was born.
        stood: by the name of a block, what stood before it in the last state in which it was.
        moved: blocks before which something else stood once.

    """

    asked: tuple[tuple[Any, ...], list[Block]] = ((), [])
    asked_otherwise: bool = False
    born: dict[str, tuple[tuple[Any, ...], list[Block]]] = field(factory=dict)
    stood: dict[str, Any] = field(factory=dict)
    moved: set[str] = field(factory=set)
    seen: Counter[str] = field(factory=Counter)

    def look(self, before: State | None, event: ev.Event, after: State) -> None:
        """Let an event happen: what is sent is looked at, and what is born remembered."""
        if isinstance(event, ev.Requested) and isinstance(after, Requesting) and not after.summary:
            self._sends(after)
        if isinstance(event, ev.Replied) and isinstance(before, Requesting):
            self._born(event)
        self._compare(before, after)

    def _sends(self, state: Requesting) -> None:
        start = beginning(state.ledger.setup)
        messages = as_sent(state.ledger, [*state.ledger.messages, *state.tail])
        for _, name, prefix in found(messages):
            self.seen["sent"] += 1
            assert self.born[name] == (start, prefix), f"{name} goes out after other words"
        everything = [(decode(text)["role"], encode(block)) for text in messages for block in blocks_of(text)]
        self.asked, self.asked_otherwise = (start, everything), False

    def _born(self, event: ev.Replied) -> None:
        start, prefix = self.asked
        said: list[Block] = []
        for block in event.reply.blocks:
            if is_thinking(block):
                self.born[name_of(block)] = (start, [*prefix, *said])
                self.moved |= {name_of(block)} if self.asked_otherwise else set()
            if block["type"] != "text" or block["text"].strip():  # blank text is not sent back
                said.append(("assistant", encode(block)))

    def _compare(self, before: State | None, after: State) -> None:
        """What was the same in every state since its birth is not unbound."""
        ledger = after.ledger
        setup = (*beginning(ledger.setup),)
        params = decode(ledger.setup.params)
        if before is not None:
            was = decode(before.ledger.setup.params)
            altered = any(was.get(name) != params.get(name) for name in ("model", "thinking"))
            if before.ledger.unbound and altered:  # what is sent of it follows from these, too
                self.moved |= self.stood.keys()
                self.asked_otherwise = True
            if beginning(before.ledger.setup) != setup:
                self.asked_otherwise = True
        for messages in goes_on_with(after):
            for place, name, prefix in found(messages):
                now = (setup, prefix)
                if self.stood.setdefault(name, now) != now:
                    self.moved.add(name)
                    self.stood[name] = now
                self.seen["unbound" if is_unbound(ledger, place) else "bound"] += 1
                if name not in self.moved and self.born[name][0] == setup:
                    assert not is_unbound(ledger, place), f"{name} is where it was born"


def remember(world: World) -> Counter[str]:
    """Look at a whole life, at every loop of the tree for itself."""
    memories: dict[Any, Memory] = {}
    past: dict[Any, State] = {}
    for event, state in zip(world.journal, world.states, strict=True):
        now = {loop.ledger.setup.within: (path, loop) for path, loop in everywhere(state)}
        for within, (path, loop) in now.items():
            own = event if event.path == path else ev.Ticked()
            memories.setdefault(within, Memory()).look(past.get(within), own, loop)
        past = {within: loop for within, (_, loop) in now.items()}
    return sum((memory.seen for memory in memories.values()), Counter())


class Thoughtful(World):
    """A world in which the model thinks much, and in which somebody often changes what was before."""

    def some_blocks(self) -> Iterator[Any]:
        if not self.chance(4):
            yield m.thinking(self.new("hm"))
        yield from super().some_blocks()

    def choose(self) -> ev.Event:
        self.path = ()
        known = [kind for kind in CHANGES if kind in TRANSITIONS[type(self.state)] and kind not in self.without]
        return self.make(self.rng.choice(known)) if known and self.chance(9) else super().choose()


CHANGES = (ev.ParamsChanged, ev.HistoryEdited, ev.Compacted, ev.Woken)
CALM = {"limits": Limits(), "depth": 0}
WITHOUT = ((), (ev.Stopped,), (ev.ParamsChanged,), (ev.ParamsChanged, ev.Woken, ev.Stopped))


def thoughtful(seed: int, steps: int, *, nested: bool) -> Thoughtful:
    calm: dict[str, Any] = CALM if seed % 3 else {}
    world = Thoughtful(random.Random(seed), nested=nested, without=WITHOUT[seed % len(WITHOUT)], **calm)
    world.live(steps)
    return world


@given(st.integers(0, 2**32), st.integers(0, 120), st.booleans())
def test_what_goes_out_stands_where_it_was_born(seed: int, steps: int, nested: bool) -> None:
    """Whatever happens: thinking that is not unbound has before it what it was born after; what is so, is bound."""
    remember(thoughtful(seed, steps, nested=nested))


def test_it_does_so_in_lives_that_are_full_of_it() -> None:
    """So the law above is no law of nothing."""
    seen = sum((remember(thoughtful(seed, 150, nested=False)) for seed in range(240)), Counter[str]())
    assert min(seen[what] for what in ("sent", "bound", "unbound")) > 1000, seen
