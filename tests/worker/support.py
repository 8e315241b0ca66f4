"""What the tests of workers share: the story of a payment, in which a person approves one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.tools import add, transfer
from tests.kit.world import Clock, World, store_at
from toolloop.stores import MemoryStore
from toolloop.testing import call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay"}]}
PAY = call("pay", {"to": "ana", "euros": 5}, id="c1")
PAY_BO = call("pay", {"to": "bo", "euros": 5}, id="c3")
ADD = call("add", {"a": 1, "b": 2}, id="c2")
STORY = (reply(calls=[PAY]), reply("Paid."))
TOOLS = (transfer, add)


def place_of(kind: str = "sync", store: Any = None, script: Any = STORY, tools: Any = TOOLS, **more: Any) -> World:
    """A store, in memory by default, and a clock that stands still."""
    store = MemoryStore() if store is None else store
    return World(kind, store, script, tools, **{"clock": Clock(), "params": PARAMS, **more})


def workplace(kind: str, where: str, folder: Path, **more: Any) -> World:
    return place_of(kind, store_at(where, folder), **more)
