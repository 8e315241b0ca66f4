"""A stop at any moment, from another holder of the store: nothing starts after it, and no end lies.

`make test` takes some lives; `make deep` takes 300, and more over PostgreSQL.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field

from tests.kit.concurrency import DEADLINE, run_async
from tests.kit.effort import some
from tests.kit.loop_trees import join
from tests.kit.postgres import needs_postgres
from tests.kit.tools import params
from tests.kit.world import store_at
from toolloop import AsyncToolLoopHandle, Inbox, LoopConfig, ToolContext, ToolLoopHandle, sub_loop, tool
from toolloop.inbox import audit
from toolloop.machine.record import journal_events as ev
from toolloop.machine.values.calls import Outcome
from toolloop.stores import SqliteStore, Store
from toolloop.stores.codec import decode_event
from toolloop.terminations import NaturalEnd, StopCondition
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

KINDS = ("sync", "asyncio", "trio")
POINTS = 26  # at most, of one life


@define
class Life:
    """A loop of two rounds with sync, async and nested tools. The stop comes at the point with this number.

    Attributes:
        returned: what each tool returned, by the id of its call.
        ended_early: the calls of tools that saw the loop as ended while they ran.

    """

    seed: int
    store: Store
    returned: dict[str, str] = field(factory=dict)
    ended_early: list[str] = field(factory=list)
    count: int = 0
    stopped: threading.Event = field(factory=threading.Event)
    _lock: threading.Lock = field(factory=threading.Lock)
    at: int = field(init=False)
    grace: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        rng = random.Random(self.seed)
        self.at, self.grace = rng.randrange(POINTS), rng.choice((DEADLINE, 0.0))

    @property
    def kind(self) -> str:
        return KINDS[self.seed % 3]

    def point(self, call_id: str | None = None) -> None:
        """Come to a point: stop the loop there, or look what others say of it."""
        with self._lock:
            self.count += 1
            is_here = self.count == self.at + 1
        other = SqliteStore(self.store._file.path) if isinstance(self.store, SqliteStore) else self.store
        if is_here:
            Inbox(other).stop("loop", "enough", by="ana")
            self.stopped.set()
        elif call_id is not None and other.head("loop").status == "ended":
            self.ended_early.append(call_id)

    def ends(self, context: ToolContext) -> str:
        """Note what a tool returns."""
        self.point(context.call_id)
        self.returned[context.call_id] = f"did {context.call_id}"
        return self.returned[context.call_id]

    def tools(self) -> list[Any]:
        @tool
        def work(context: ToolContext) -> str:
            """Work in a thread; a stop is noticed."""
            self.point(context.call_id)
            while self.stopped.is_set() and not context.cancelled:
                threading.Event().wait(0.002)
            return self.ends(context)

        @tool
        async def care(context: ToolContext) -> str:
            """Work in a task, and finish when it is cancelled."""
            self.point(context.call_id)
            with anyio.CancelScope(shield=self.seed % 2 == 0):
                await anyio.lowlevel.checkpoint()
            if self.stopped.is_set():
                with anyio.CancelScope() as scope:
                    try:
                        await anyio.sleep_forever()
                    except BaseException:  # noqa: BLE001 - a cancellation of either event loop
                        scope.cancel()
            return self.ends(context)

        inner = {"model": "claude-opus-5-5", "max_tokens": 99}
        agent = sub_loop("agent", "Ask an agent.", params=inner, tools=[work] if self.kind == "sync" else [work, care])
        return [work, agent] if self.kind == "sync" else [work, care, agent]

    def answer(self, request: Any) -> Any:
        """The model: two rounds of three calls; an agent has one round of two."""
        self.point()
        messages = request["messages"]
        nested, number = messages[0]["content"] == "inner", len(messages)
        other = "work" if self.kind == "sync" else "care"
        if number > (1 if nested else 3):
            return reply("done")
        if nested:
            return reply(calls=[call("work", {}, id=f"in{self.count}"), call(other, {}, id=f"in{self.count}b")])
        names = ("work", other, "agent")
        return reply(
            calls=[
                call(name, {"prompt": "inner"} if name == "agent" else {}, id=f"{name}{number}{at}")
                for at, name in enumerate(names)
            ]
        )

    def run(self) -> Any:
        config = LoopConfig(stop_grace=self.grace)
        given: dict[str, Any] = {"tools": self.tools(), "params": params(), "config": config}
        if self.kind == "sync":
            with ToolLoopHandle.open(self.store, "loop", ScriptedProvider(self.answer), **given) as handle:
                return handle.run()

        async def main() -> Any:
            async with AsyncToolLoopHandle.open(
                self.store, "loop", AsyncScriptedProvider(self.answer), **given
            ) as handle:
                return await handle.run()

        return run_async(self.kind, main)

    def check(self, result: Any) -> None:
        """What was stopped has ended, and says what happened."""
        join()
        events = [decode_event(entry) for entry in self.store.load("loop").entries]
        if not self.stopped.is_set():
            assert result.unwrap().termination == NaturalEnd()
            return
        stop = next(at for at, event in enumerate(events) if isinstance(event, ev.Stopped))
        assert not [event for event in events[stop:] if isinstance(event, (ev.Started, ev.Opened, ev.Requested))]
        assert self.ended_early == []
        view = Inbox(self.store).show("loop")
        assert view["status"] == "ended"
        assert audit(self.store, "loop") == ()
        assert view["termination"] in (StopCondition.kind, NaturalEnd.kind)
        told = str(view["messages"])
        started = {event.call_id for event in events if isinstance(event, ev.Started) and not event.path}
        for call_id in started:
            assert (f"did {call_id}" in told) == (call_id in self.returned)
        # A recorded start whose thread had not begun at the stop ends as "not run".
        inside = [event for event in events if isinstance(event, ev.Ended) and event.path]
        ran = [event for event in inside if event.result is not None and event.result.outcome != Outcome.NOT_RUN]
        assert set(self.returned) - started == {event.call_id for event in ran}


@pytest.mark.parametrize("seed", some(range(300), 25))
def test_nothing_starts_after_a_stop_and_no_end_lies(seed: int, tmp_path: Path) -> None:
    life = Life(seed, store_at("sqlite", tmp_path))
    life.check(life.run())


@needs_postgres
@pytest.mark.parametrize("seed", some(range(1000, 1060), 15))
def test_so_it_is_over_postgres(seed: int, tmp_path: Path) -> None:
    life = Life(seed, store_at("postgres", tmp_path))
    life.check(life.run())
