"""What the tests of the inbox share: a loop that a worker drives, and a clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import define, field

from tests.loop.stored import store_at
from toolloop import Completed, Error, Inbox, LoopConfig, ToolLoopHandle, Yielded, tool
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider, call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay the bills"}]}
PAY = call("pay", {"to": "ana", "euros": 5}, id="c1")
SEND = call("pay", {"to": "bo", "euros": 7}, id="c2")
TWO: tuple[Any, ...] = (reply(calls=[PAY, SEND]), reply("Both are paid."))


@define
class Desk:
    """A store with loops in it, a worker that drives them, and an inbox."""

    store: Store
    script: tuple[Any, ...] = TWO
    config: dict[str, Any] = field(factory=dict)
    now: float = 1_800_000_000.0
    ran: list[str] = field(factory=list)

    def clock(self) -> float:
        return self.now

    @property
    def inbox(self) -> Inbox:
        """A new one each time: it keeps nothing."""
        return Inbox(self.store, clock=self.clock)

    def answer(self, request: Any) -> Any:
        said = sum(message["role"] == "assistant" for message in request["messages"])
        return self.script[min(said, len(self.script) - 1)]

    def open(self, loop_id: str = "loop", **more: Any) -> ToolLoopHandle:
        @tool(needs_approval=True)
        def pay(to: str, euros: int) -> str:
            """Pay."""
            self.ran.append(f"{to} {euros}")
            return "paid"

        parts: dict[str, Any] = {"params": PARAMS, "config": LoopConfig(**self.config), "tools": [pay], **more}
        return ToolLoopHandle.open(self.store, loop_id, ScriptedProvider(self.answer), clock=self.clock, **parts)

    def drive(self, loop_id: str = "loop", **more: Any) -> Yielded | Completed | Error:
        """As a worker does: open, run, close."""
        with self.open(loop_id, **more) as handle:
            return handle.run()

    def events(self, loop_id: str = "loop") -> list[str]:
        return [entry.body.partition('"event":"')[2].partition('"')[0] for entry in self.store.load(loop_id).entries]

    def status(self, loop_id: str = "loop") -> str:
        return self.store.head(loop_id).status


def desk(where: str, folder: Path, **more: Any) -> Desk:
    return Desk(store_at(where, folder), **more)


def previewed(preview: Any, folder: Path) -> Desk:
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
