"""What the tests of the inbox share: a loop that a worker drives, and a clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.kit.tools import transfer
from tests.kit.world import START, Clock, World, store_at
from toolloop import ToolLoopHandle, tool
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider, call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay the bills"}]}
PAY = call("pay", {"to": "ana", "euros": 5}, id="c1")
SEND = call("pay", {"to": "bo", "euros": 7}, id="c2")
TWO: tuple[Any, ...] = (reply(calls=[PAY, SEND]), reply("Both are paid."))


def desk_of(store: Store, script: Any = TWO, *, now: float = START, **more: Any) -> World:
    """A store with loops in it, a worker that drives them, an inbox, and a clock that stands still."""
    return World("sync", store, script, (transfer,), clock=Clock(now), params=PARAMS, **more)


def desk(where: str, folder: Path, **more: Any) -> World:
    found = desk_of(store_at(where, folder), **more)
    if hasattr(found.store, "now"):
        found.store.now = found.clock  # the test sets the time, also there
    return found


def previewed(preview: Any, folder: Path) -> World:
    """A loop with a call that waits, whose tool says what it would do."""
    found = desk("memory", folder)

    @tool(needs_approval=True, preview=preview)
    def write(text: str) -> str:
        """Write."""
        return text

    provider = ScriptedProvider([reply(calls=[call("write", {"text": "new"}, id="c1")])])
    with ToolLoopHandle.open(found.store, "loop", provider, tools=[write], params=PARAMS) as handle:
        handle.run()
    return found
