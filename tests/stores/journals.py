"""A good journal, and short words to write, read and search one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from attrs import evolve
from hypothesis import strategies as st

from tests.kit.machine import making as m
from tests.kit.machine.worlds import World
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import fold
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, Result, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import ToolFacts
from toolloop.stores import Entry
from toolloop.stores.codec import decode_event, encode_event

START = 1_800_000_000.0
TOOLS = (ToolFacts("look", "pure", "never", "d1"), ToolFacts("write", "once", "always", "d2"))


def lives(longest: int, *, nested: bool | None = None) -> st.SearchStrategy[World]:
    """Random lives of a loop."""
    return st.builds(
        lambda seed, steps: World(Random(seed), nested=nested).live(steps),
        st.integers(0, 2**32),
        st.integers(0, longest),
    )


def entries(journal: Iterable[ev.Event]) -> list[Entry]:
    """These events as a store keeps them."""
    return [encode_event(f"entry-{number}", event) for number, event in enumerate(journal)]


def events(journal: Iterable[Entry]) -> list[ev.Event]:
    return [decode_event(entry) for entry in journal]


def find(journal: Sequence[ev.Event], kind: type[ev.Event], call_id: str | None = None) -> int:
    """Where the first event of a kind is, of a call if it is named."""
    return next(
        at
        for at, event in enumerate(journal)
        if isinstance(event, kind) and (call_id is None or getattr(event, "call_id", None) == call_id)
    )


class _Writer:
    """Writes a journal, a second after another, with true digests."""

    def __init__(self) -> None:
        self.journal: list[ev.Event] = [ev.Opened(m.setup(tools=TOOLS), (m.user("Fix the typo"),), at=START)]

    @property
    def state(self) -> State:
        return fold(self.journal)

    def write(self, *more: ev.Event) -> None:
        self.journal += [evolve(event, at=START + len(self.journal) + number) for number, event in enumerate(more)]

    def run(self, call_id: str) -> None:
        loop, call = self.state.root, m.the_call(self.state, call_id)
        ended = ev.Ended(call_id, Result(encode(f"ran {call_id}")), took=0.25, iteration=loop.iterations, attempt=1)
        self.write(ev.Started(call_id, digest_of(loop.setup, loop.iterations, call)), ended)


def make_good_journal() -> list[ev.Event]:
    """Calls that run unasked, as edited, and by a grant, and one that is denied; then the end."""
    writer = _Writer()
    write = {"path": "a", "text": "x"}
    calls = [
        m.call("looked", "look", input={"path": "a"}),
        m.call("edited", "write", input=write),
        m.call("denied", "write", input=write),
    ]
    grant = GrantSpec(match='{"path":"?"}', uses=1)
    approved = DecisionRecord("approve", '{"path":"a","text":"z"}', by="ana", reason="typo", remember=grant)
    denied = DecisionRecord("deny", by="bo", reason="not that one")
    writer.write(ev.Requested(), m.make_replied("tool_use", *calls))
    writer.write(m.asks("edited", "denied"))
    writer.write(ev.Decided((("edited", approved), ("denied", denied))), ev.Continued())
    writer.write(ev.Judged())
    writer.run("looked")
    writer.run("edited")
    writer.write(ev.TurnEnded(), ev.Continued(), ev.Requested())
    writer.write(m.make_replied("tool_use", m.call("granted", "write", input={"path": "c", "text": "y"})))
    writer.write(ev.Judged((("granted", Wait(Why.APPROVAL)),)))
    writer.run("granted")
    writer.write(ev.TurnEnded(), ev.Continued(), ev.Requested(), m.make_replied("end_turn", m.text("done")))
    return writer.journal
