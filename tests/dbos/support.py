"""What the tests of DBOS share: two databases, loops that DBOS dispatches, and a model that goes by its request."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, cast

from attrs import define, field
from dbos import DBOSClient, DBOSConfig, DBOSPortableJSONSerializer

from tests.kit.postgres import database
from toolloop import LoopConfig, LoopContext, SqliteStore, ToolContext, tool
from toolloop.dbos import DurableLoops
from toolloop.errors import ModelError
from toolloop.stores import PostgresStore
from toolloop.testing import ScriptedProvider, call, reply

POLL = 0.05  # seconds between two looks of DBOS at its queue
SWEEP = 0.3
DEADLINE = 60.0
ASKS = reply(calls=[call("pay", {"to": "ana"}, id="c1")])
SCRIPTS: dict[str, tuple[Any, ...]] = {
    "Pay": (ASKS, reply("Paid."), reply("Paid before.")),
    "Hello": (reply("Hello."),),
    "Look": (reply(calls=[call("look", {}, id="c2")]), reply("Seen.")),
    "Fail": (ModelError("busy", retryable=True, retry_after=3600.0),),
}


@tool(needs_approval=True)
def pay(to: str, context: ToolContext) -> str:
    """Pay, once."""
    return cast("Site", context.state).run(context, f"paid {to}")


@tool
def look(context: ToolContext) -> str:
    """Look, once."""
    return cast("Site", context.state).run(context, "looked")


@define
class Site:
    """Two databases, and a process that drives: this one.

    Attributes:
        url: of the database of DBOS.
        ran: the runs of tools, by loop.
        on: what else happens in the tools of a loop.

    """

    store: PostgresStore | SqliteStore
    url: str
    ran: Counter[str] = field(factory=Counter)
    asked: Counter[str] = field(factory=Counter)
    on: dict[str, Callable[[], object]] = field(factory=dict)
    _opened: list[DurableLoops] = field(factory=list)
    _asks: DBOSClient | None = None

    def settings(self, **more: Any) -> DBOSConfig:
        return cast(
            "DBOSConfig",
            {"name": "toolloop-tests", "system_database_url": self.url, "executor_id": "here", **more},
        )

    def run(self, context: ToolContext, what: str) -> str:
        self.ran[context.loop_id] += 1
        self.on.get(context.loop_id, str)()
        return what

    def answer(self, request: Any) -> Any:
        first = request["messages"][0]["content"]
        self.asked[first] += 1
        said = SCRIPTS[first][sum(message["role"] == "assistant" for message in request["messages"])]
        if isinstance(said, Exception):
            raise said
        return said

    def drivers(self, **more: Any) -> DurableLoops:
        parts: dict[str, Any] = {
            "dbos": self.settings(),
            "queue": {"polling_interval_sec": POLL, "worker_concurrency": 4},
            "context": LoopContext(state=self),
            "sweep_every": SWEEP,
            **more,
        }
        self._opened.append(loops := DurableLoops(self.store, ScriptedProvider(self.answer), [pay, look], **parts))
        return loops

    def client(
        self, *, config: LoopConfig | None = None, queue: dict[str, Any] | None = None, **settings: Any
    ) -> DurableLoops:
        """Loops that are started and decided here, and driven elsewhere."""
        dbos = self.settings(**settings)
        self._opened.append(loops := DurableLoops(self.store, dbos=dbos, config=config, queue=queue))
        return loops

    def dbos(self) -> DBOSClient:
        """The client of DBOS that the test itself asks: one, as each keeps connections until the end."""
        if self._asks is None:
            self._asks = DBOSClient(system_database_url=self.url, serializer=DBOSPortableJSONSerializer())
        return self._asks

    def stretches(self, loop_id: str) -> dict[str, str]:
        """The stretches of a loop by the numbers of their revisions, and how they stand."""
        found = self.dbos().list_workflows(workflow_id_prefix=f"{loop_id}/")
        return {each.workflow_id.rpartition("/")[2].partition("-")[0]: each.status for each in found}

    def first_stretch(self, loop_id: str) -> str:
        """The id of the first stretch of a loop: its revision is written with its digest."""
        (found,) = self.dbos().list_workflows(workflow_id_prefix=f"{loop_id}/1-")
        assert found.workflow_id.rpartition("-")[2].isalnum()
        return str(found.workflow_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        while self._opened:
            self._opened.pop().close()
        if self._asks is not None:
            self._asks.destroy()
        self.store.close()


def params(text: str) -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}


def opened(address: str) -> PostgresStore | SqliteStore:
    """A store, by its path or URL."""
    return PostgresStore(address) if "://" in address else SqliteStore(address)


def addresses(where: str, folder: Path) -> tuple[str, str]:
    """The address of a store, and the URL of a system database."""
    if where == "sqlite":
        return str(folder / "loops.db"), f"sqlite:///{folder / 'dbos.db'}"
    url = database()
    return url, url


def site_at(where: str, folder: Path) -> Site:
    address, url = addresses(where, folder)
    return Site(opened(address), url)


class Gate:
    """A place where a tool stands until the test lets it go on."""

    def __init__(self) -> None:
        self.arrived, self._open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.arrived.set()
        assert self._open.wait(DEADLINE)

    def wait(self) -> None:
        assert self.arrived.wait(DEADLINE)

    def open(self) -> None:
        self._open.set()


def until(happened: Callable[[], object], *, every: float = 0.02) -> None:
    """Wait for what another thread or process does."""
    pause = threading.Event()
    for _ in range(int(DEADLINE / every)):
        if happened():
            return
        pause.wait(every)
    raise AssertionError("it did not happen")


__all__ = ["ASKS", "DEADLINE", "Gate", "Site", "look", "opened", "params", "pay", "site_at", "until"]
