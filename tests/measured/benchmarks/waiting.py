"""What a person waits for: the calls of a large store, and the page that shows them: first byte and changes."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any

from attrs import evolve

from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.report import Figure
from tests.measured.benchmarks.stored import Model, ask_first, in_memory
from toolloop import Deny, Inbox, SqliteStore, ToolLoopHandle
from toolloop.inbox import inbox_app

_RUNS = 15
_TABS, _SECONDS = 8, 5
_SCOPE = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [], "root_path": ""}


def fill(store: SqliteStore, loops: int, waiting: int) -> None:
    """Add so many loops, some of which wait for a decision."""
    step = loops // waiting
    for number in range(waiting):
        loop_id = f"loop-{number * step}"
        with ToolLoopHandle(Model(), params=rounds.params(), tools=[ask_first], store=store, loop_id=loop_id) as handle:
            handle.next_turn()
    entries, asks = store.load("loop-0").entries, store.head("loop-0").head
    ended = evolve(asks, status="ended", pending=())
    for number in range(loops):
        if number % step:  # only its row is read
            store.create(f"loop-{number}", entries, head=ended)


def seconds_to_first_byte(store: SqliteStore) -> float:
    """Return the seconds by the wall clock until the first page begins to be sent.

    Raises:
        ValueError: it was not sent.

    """
    app = inbox_app(store, who=lambda _: "ana")
    sent: list[float] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            sent.append(time.perf_counter())

    async def ask() -> float:
        start = time.perf_counter()
        await app({**_SCOPE}, receive, send)
        return sent[-1] - start

    async def main() -> float:
        return median([await ask() for _ in range(_RUNS)])

    return asyncio.run(main())


def share_of_a_core(store: SqliteStore, *, writes: bool) -> float:
    """Return the percent of a core that a page takes that is open in eight tabs, each with the first 100 calls.

    It is the CPU time of all answers in some seconds, without that of the HTTP server and of the writes.
    """
    app = inbox_app(store, who=lambda _: "ana")
    calls = [f"{loop.loop_id}..{call.id}" for loop in store.list("needs_decision", limit=100) for call in loop.pending]
    bodies: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        bodies.append(message.get("body", b""))

    async def ask(version: str) -> str:
        bodies.clear()
        query = f"since={version}&calls={'+'.join(calls)}".encode()
        await app({**_SCOPE, "path": "/changes", "query_string": query}, receive, send)
        body = b"".join(bodies)
        return str(json.loads(body)["v"]) if body else version

    async def main() -> float:
        versions, taken = [await ask("")] * _TABS, 0.0
        for second in range(_SECONDS):
            await asyncio.sleep(1.05)  # a page reads the store once a second
            if writes:
                Inbox(store).decide(calls[second].partition("..")[0], {calls[second].rpartition("..")[2]: Deny("no")})
            start = time.process_time()
            versions = [await ask(version) for version in versions]
            taken += time.process_time() - start
        return 100 * taken / _SECONDS

    return asyncio.run(main())


def measure(folder: Path, loops: int, waiting: int) -> list[Figure]:
    """Measure in an empty folder."""
    with in_memory() as fast:
        with SqliteStore(fast / "waiting.db") as store:
            fill(store, loops, waiting)
        shutil.copy(fast / "waiting.db", folder)
    with SqliteStore(folder / "waiting.db") as store:
        of = f"of {loops:,} loops, {waiting:,} of which wait"
        return [
            Figure(f"the first byte of the approval page {of}", seconds_to_first_byte(store) * 1e3, 50, "ms"),
            Figure(f"the page in {_TABS} tabs {of}, of a core, at rest", share_of_a_core(store, writes=False), 2, "%"),
            Figure(f"the same with a write a second {of}", share_of_a_core(store, writes=True), 8, "%"),
        ]
