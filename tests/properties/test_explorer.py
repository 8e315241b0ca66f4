"""Two drivers of one stored loop, in every order: no call runs twice, and no result is lost.

Each scene is explored whole. Then one part of the protocol at a time is taken out, and the explorer must find out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.properties.explorer import Explorer
from tests.properties.explorer_drivers import Drivers
from tests.properties.explorer_scene import Broken, Protocol, Scene
from tests.properties.explorer_world import HEAD, LOOP, Journals, Shop
from toolloop.core.jsontext import encode
from toolloop.machine import (
    Event,
    Executed,
    Finished,
    Opened,
    Replied,
    Reply,
    Requested,
    Ruling,
    Setup,
    ToolFacts,
    read_reply,
)
from toolloop.stores import Entry, Lease, MemoryStore, SqliteStore, Store


def asked_for(*names: str) -> Reply:
    """A reply that calls tools; each call has the name of its tool."""
    blocks = [{"type": "tool_use", "id": name, "name": name, "input": {}} for name in names]
    return read_reply({"content": blocks, "stop_reason": "tool_use"})


def calls(*effects: Any) -> tuple[Event, ...]:
    """A journal in which the model just called tools of these effects."""
    tools = tuple(ToolFacts(effect, effect, "never", "d") for effect in effects)
    setup = Setup(LOOP, encode({"model": "m", "max_tokens": 1}), tools=tools)
    messages = ('{"role":"user","content":"hello"}',)
    return Opened(setup, messages), Requested(), Replied(asked_for(*effects))


# What the people at the two drivers say: they disagree about an approval.
KNOWN, NOBODY_KNOWS, AGAIN = Ruling("answer", '"it was"'), Ruling("deny", reason="who knows"), Ruling("rerun")
YES, NO = Ruling("approve", by="ana"), Ruling("deny", reason="no", by="bo")
UNCERTAIN = ({"?once": KNOWN}, {"?once": NOBODY_KNOWS})
RERUN = ({"?once": AGAIN}, {"?once": AGAIN})
DISAGREE = ({"once": YES, **UNCERTAIN[0]}, {"once": NO, **UNCERTAIN[1]})
DONE = read_reply({"content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"})

# name: the scene, and how many worlds it has at least.
SCENES: dict[str, tuple[Scene, int]] = {
    "a call that may run once, a slow driver, a crash": (
        Scene(calls("once"), Executed, words=UNCERTAIN, crashes=1, slow=1),
        20_000,
    ),
    "a call that a person wants run again": (
        Scene(calls("once"), Executed, words=RERUN, crashes=1, slow=1, patient=False),
        5_000,
    ),
    "a repeatable call, a slow driver, two crashes": (
        Scene(calls("keyed"), Executed, crashes=2, slow=1, patient=False),
        20_000,
    ),
    "three calls, a slow driver": (
        Scene(calls("pure", "keyed", "once"), Executed, words=UNCERTAIN, crashes=0, slow=1, patient=False),
        15_000,
    ),
    "three calls, a crash": (
        Scene(calls("pure", "keyed", "once"), Executed, words=UNCERTAIN, crashes=1, slow=0, patient=False),
        20_000,
    ),
    "a call that one person approves and one denies": (
        Scene(calls("once"), Executed, frozenset({"once"}), DISAGREE, crashes=1, slow=0, patient=False),
        15_000,
    ),
    "the requests before and after a call": (
        Scene(
            calls("keyed")[:1],
            Finished,
            replies={1: asked_for("keyed"), 2: DONE},
            crashes=1,
            slow=0,
            patient=False,
        ),
        5_000,
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_every_order_of_two_drivers_keeps_the_promises(name: str) -> None:
    """No call runs twice unasked, none that is denied, no result is lost, and every world has a way to the end."""
    scene, least = SCENES[name]
    explorer = Explorer(Drivers(scene, Shop(Journals())))
    worlds = explorer.explore()
    ends = len({world.node for world in explorer.finals})
    print(f"{name}: {worlds} worlds, {ends} whole journals")  # noqa: T201 - how much was looked at is the claim
    assert worlds >= least
    assert ends >= 10


# --- one part less ---------------------------------------------------------------------------------------------------


class Without:
    """A store in which something is missing."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class WithoutFence(Without):
    """It takes every event, whoever says it and whatever it follows."""

    def append(self, loop_id: str, entries: list[Entry], **_: Any) -> int:
        return self._store.append(loop_id, entries, expected_rev=None)


class WithoutLease(Without):
    """It gives its lease to everybody."""

    def acquire(self, loop_id: str, owner: str, *, until: float, instead_of: int | None = None) -> Lease:
        held = self._store.lease(loop_id)
        return self._store.acquire(loop_id, owner, until=until, instead_of=None if held is None else held.token)


ONCE = Scene(calls("once"), Executed, words=RERUN, crashes=1, slow=1)
KEYED = Scene(calls("keyed"), Executed, crashes=0, slow=0)


@pytest.mark.parametrize(
    ("scene", "spoil", "protocol", "found"),
    [
        pytest.param(ONCE, WithoutFence, Protocol(), "the journal is spoiled", id="the fence"),
        pytest.param(ONCE, None, Protocol(writes_ahead=False), "the call once runs twice,", id="the write-ahead"),
        pytest.param(ONCE, None, Protocol(merges=False), "a finished result is lost", id="the result key"),
        pytest.param(ONCE, None, Protocol(minds=False), "the call once runs twice,", id="minding who woke the loop"),
        pytest.param(KEYED, WithoutLease, Protocol(), "the call keyed runs twice at once", id="the lease"),
    ],
)
def test_without_it_a_promise_is_broken(
    scene: Scene, spoil: Callable[[MemoryStore], Store] | None, protocol: Protocol, found: str
) -> None:
    """Each part of the protocol is needed: the explorer shows how a promise is broken without it."""
    shop = Shop(Journals()) if spoil is None else Shop(Journals(), spoil)
    with pytest.raises(Broken) as broken:
        Explorer(Drivers(scene, shop, protocol)).explore()
    told = str(broken.value)
    print(told)  # noqa: T201 - the trace
    assert told.startswith(found)
    assert "driver 0" in told
    assert "driver 1" in told


# --- another store ---------------------------------------------------------------------------------------------------


def test_sqlite_says_what_memory_says_on_the_way_to_many_worlds(tmp_path: Path) -> None:
    """The same questions, with the tokens that each store gave; and the same journals in the end."""
    shop = Shop(Journals())
    explorer = Explorer(Drivers(SCENES["the requests before and after a call"][0], shop))
    explorer.explore()
    ends = sorted(explorer.finals, key=lambda world: (world.node, str(world)))
    asked_in_all = 0
    for number, world in enumerate(random.Random(0).sample(ends, 12)):
        sqlite = SqliteStore(tmp_path / f"{number}.db")
        stores: tuple[Store, ...] = (MemoryStore(), sqlite)
        tokens: list[dict[str, int]] = [{}, {}]  # of the lease that each owner has, or saw, last
        for store in stores:
            store.create(LOOP, shop.journals.whole(explorer.first.node), head=HEAD)
        for asked in explorer.questions(world):
            said = []
            for store, known in zip(stores, tokens, strict=True):
                token = known.get(asked.owner)
                real = asked._replace(
                    holds=token if asked.holds is not None else None,
                    instead=token if asked.instead is not None else None,
                )
                told = shop.perform(store, real)
                if told.lease is not None and asked.what == "take":
                    known[asked.owner] = told.lease[1]
                said.append(told._replace(lease=None if told.lease is None else (told.lease[0], 0)))
            assert said[0] == said[1]
            asked_in_all += 1
        assert stores[0].load(LOOP) == stores[1].load(LOOP)
        assert {entry.id for entry in sqlite.load(LOOP).entries} == shop.journals.places[world.node].ids
        sqlite.close()
    assert asked_in_all >= 200
