"""Crafted snapshots and journals: JSON of real ones, changed at random places, with a digest that is right again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.promises.attack.ledger import TWICE, Ledger
from tests.promises.attack.row import Row
from tests.promises.attack.story import LOOP_ID, Story
from toolloop import MemoryStore, ToolLoopHandle
from toolloop.stores import Entry, Head, Store
from toolloop.stores.codec import digest_snapshot

_BASES = 20  # rounds for one life
_VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1,
    2.5,
    1e308,
    2**70,
    "",
    "x",
    "r1_0",
    "\ud800",
    "\0",
    [],
    {},
    [[]],
    {"a": None},
    "[]",
    "{",
]


def attack(rounds: int, seed: int, folder: Path, _server: object) -> Row:
    """Craft so many, half of them snapshots and half journals."""
    row = Row("crafted", "a snapshot or journal changed in one to three places, its digest made right; driven on")
    chance = Random(f"crafted {seed}")
    for number in range(rounds):
        if number % _BASES == 0:
            story, snapshot, entries = _life(chance, folder / f"{number}")
        row.rounds += 1
        ledger = Ledger(folder / f"{number}-crafted")
        again = Story(story.seed, ledger, is_small=story.is_small, deciding=Random(number))
        with row.watched(number, may_refuse=True):
            if number % 2:
                given = _crafted_snapshot(snapshot, chance)
                handle = ToolLoopHandle.restore(given, again.provider("sync"), **again.parts("sync"))
                row.ended(again.run(handle), number, may_refuse=True)
            elif (store := _stored(_crafted_journal(entries, chance))) is not None:
                row.ended(again.drive("sync", store), number, may_refuse=True)
        row.judge(ledger.lines(), number, (TWICE,))
    return row


def _life(chance: Random, place: Path) -> tuple[Story, dict[str, Any], tuple[Entry, ...]]:
    """Drive a loop for some turns; return its snapshot and its journal."""
    store, turns = MemoryStore(), chance.randrange(1, 4)
    story = Story(chance.randrange(1 << 30), Ledger(place), deciding=Random(0), is_small=chance.random() < 0.5)
    with story.open("sync", store) as handle:
        for _ in range(turns):
            handle.next_turn()
            if (turn := handle.pending_turn) is None:
                break
            handle.decide(story.decisions(turn.pending))
            if chance.random() < 0.3:
                break
            turn.continue_loop()
        return story, handle.snapshot(), store.load(LOOP_ID).entries


def _stored(entries: list[Entry]) -> Store | None:
    store = MemoryStore()
    if len({entry.id for entry in entries}) < len(entries):
        return None  # no store takes two events of one id
    store.create(LOOP_ID, entries, head=Head("runnable"))
    return store


def _crafted_snapshot(snapshot: dict[str, Any], chance: Random) -> dict[str, Any]:
    fields = json.loads(json.dumps(snapshot))
    known = {"format": fields.pop("format"), "digest": fields.pop("digest")}
    for _ in range(chance.randint(1, 3)):
        _change(fields, chance)
    return {**known, "digest": digest_snapshot(fields), **fields}


def _crafted_journal(entries: tuple[Entry, ...], chance: Random) -> list[Entry]:
    new = list(entries)
    at = chance.randrange(len(new))
    match chance.choice(["event", "event", "event", "text", "gone", "twice", "swapped"]):
        case "event":
            new[at] = Entry(new[at].id, _changed_text(new[at].body, chance), new[at].text)
        case "text":
            new[at] = Entry(new[at].id, new[at].body, _changed_text(new[at].text or "{}", chance))
        case "gone":
            del new[at]
        case "twice":
            new.insert(at, Entry(f"{new[at].id}-again", new[at].body, new[at].text))
        case "swapped":
            new[at - 1], new[at] = new[at], new[at - 1]
    return new


def _changed_text(text: str, chance: Random) -> str:
    whole = [json.loads(text)]
    _change(whole, chance)
    return json.dumps(whole[0] if whole else None)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container with each of its keys."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from _places(inner)


def _change(value: Any, chance: Random) -> None:
    """Change a value in place, at one place, also inside texts that are JSON."""
    if not (places := list(_places(value))):
        return
    container, key = chance.choice(places)
    inner = container[key]
    if isinstance(inner, str) and inner[:2] in ('{"', "[{") and chance.random() < 0.9:
        container[key] = _changed_text(inner, chance)
        return
    other, there = chance.choice(places)
    match chance.choice(["value", "value", "gone", "swapped", "twice"]):
        case "value":
            container[key] = chance.choice(_VALUES)
        case "gone":
            del container[key]
        case "swapped":
            container[key] = json.loads(json.dumps(other[there]))
        case "twice" if isinstance(container, list):
            container.insert(key, json.loads(json.dumps(inner)))
