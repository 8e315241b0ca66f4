"""What a person waits for after a decision: a worker in another process starts the tool. And what it costs while idle.

`python -m tests.measured.benchmarks.deciding PATH NOTIFIES` is that worker. It writes the moment of each start, by the
monotonic clock that all processes of a machine share, and its CPU time whenever it reads a line.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from attrs import evolve

from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.measure import ROOT
from tests.measured.benchmarks.report import Figure
from tests.measured.benchmarks.stored import Model, ask_first
from toolloop import Approve, AsyncToolLoopHandle, Inbox, SqliteStore, ToolContext, ToolLoopHandle, Worker, tool
from toolloop.inbox.items import notification_id
from toolloop.testing import AsyncScriptedProvider, call, reply

_PAUSES = (0.05, 0.25)  # seconds between two decisions, at random, so that they keep step with no poll


def fill(store: SqliteStore, beside: int, decisions: int) -> list[str]:
    """Add loops whose call waits for a decision, and return the ids of those that can be decided.

    The others are copies, and a person was notified of their calls.
    """
    loop_ids = [f"decided-{number}" for number in range(decisions)]
    for loop_id in loop_ids:
        with ToolLoopHandle(Model(), params=rounds.params(), tools=[ask_first], store=store, loop_id=loop_id) as handle:
            handle.next_turn()
    entries, row = store.load(loop_ids[0]).entries, store.head(loop_ids[0])
    notified = {notification_id(evolve(row, created=row.head.changed), call): "" for call in row.pending}
    for number in range(beside):
        store.create(f"beside-{number}", entries, head=evolve(row.head, notified=notified))
    return loop_ids


@contextmanager
def worker(path: Path, *, notifies: bool, holds: bool = False) -> Iterator[subprocess.Popen[str]]:
    """Start the worker, and stop it at the end. `holds`: whether its tools run until they are cancelled."""
    options = ["notifies" if notifies else "", "holds" if holds else ""]
    program = [sys.executable, "-m", "tests.measured.benchmarks.deciding", str(path), *options]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        try:
            yield started
        finally:
            started.kill()


def ask(started: subprocess.Popen[str], line: str = "") -> float:
    """Return the next number that the worker writes; with a line, its CPU time.

    Raises:
        EOFError: it has ended.

    """
    assert started.stdin is not None
    assert started.stdout is not None
    if line:
        started.stdin.write(f"{line}\n")
        started.stdin.flush()
    answer = started.stdout.readline()
    if not answer:
        raise EOFError("the worker has ended")
    return float(answer)


def seconds_to_start(store: SqliteStore, started: subprocess.Popen[str], loop_ids: list[str]) -> list[float]:
    """Return the seconds from each decision to the start of its tool, by the wall clock."""
    taken, inbox = list[float](), Inbox(store)
    for loop_id in loop_ids:
        (call,) = store.head(loop_id).pending
        time.sleep(random.uniform(*_PAUSES))
        begun = time.monotonic()
        inbox.decide(loop_id, {call.id: Approve(by="ana")})
        taken.append(ask(started) - begun)
    return taken[1:]  # the first one shows that the worker stands ready


def seconds_to_cancel(store: SqliteStore, started: subprocess.Popen[str], loop_ids: list[str]) -> list[float]:
    """Return the seconds from each stop to `ctx.cancelled` in the tool that runs."""
    taken, inbox = list[float](), Inbox(store)
    for loop_id in loop_ids:
        (call,) = store.head(loop_id).pending
        inbox.decide(loop_id, {call.id: Approve(by="ana")})
        ask(started)
        time.sleep(random.uniform(*_PAUSES))
        begun = time.monotonic()
        inbox.stop(loop_id, by="ana")
        taken.append(ask(started) - begun)
    return taken


def idle_share(started: subprocess.Popen[str], seconds: float) -> float:
    """Return the share of a core that the worker takes while nothing happens."""
    time.sleep(1)
    begun, before = time.monotonic(), ask(started, "cpu")
    time.sleep(seconds)
    return (ask(started, "cpu") - before) / (time.monotonic() - begun)


def measure_stops(folder: Path, stops: int) -> Iterator[Figure]:
    """Measure how soon a stop reaches a tool in another process."""
    path = folder / "stopping.db"
    with SqliteStore(path) as store:
        loop_ids = fill(store, 0, stops)
        with worker(path, notifies=False, holds=True) as started:
            ask(started, "cpu")
            taken = [each * 1e3 for each in seconds_to_cancel(store, started, loop_ids)]
    what = "stop in another process to ctx.cancelled in the tool"
    yield Figure(f"{what}: p50", median(taken), 100, "ms")
    yield Figure(f"{what}: p90", quantiles(taken, n=10)[-1], 100, "ms")


def measure_parallel(count: int) -> Figure:
    """Measure one turn with 20 async tools of 10 ms."""
    calls = [call("wait", {}, id=f"c{number}") for number in range(20)]

    @tool
    async def wait() -> None:
        """Wait."""
        await asyncio.sleep(0.01)

    async def main() -> list[float]:
        taken = []
        for _ in range(count):
            provider = AsyncScriptedProvider([reply(calls=calls)])
            handle = AsyncToolLoopHandle(provider, params=rounds.params(), tools=[wait])
            begun = time.monotonic()
            await handle.next_turn()
            taken.append((time.monotonic() - begun) * 1e3)
        return taken

    return Figure("a turn with 20 async tools of 10 ms", median(asyncio.run(main())), 15, "ms")


def measure(folder: Path, loops: int, decisions: int, seconds: float) -> Iterator[Figure]:
    """Measure in an empty folder, beside no other loop and beside many."""
    for beside, bound in ((0, 100), (loops, 150)):
        for notifies in (False, True):
            path = folder / f"deciding-{beside}-{notifies}.db"
            with SqliteStore(path) as store:
                loop_ids = fill(store, beside, decisions + 1)
                with worker(path, notifies=notifies) as started:
                    ask(started, "cpu")  # it has begun
                    while notifies and store.list_unnotified():
                        time.sleep(0.1)
                    taken = [each * 1e3 for each in seconds_to_start(store, started, loop_ids)]
                    share = idle_share(started, seconds) if beside else None
            where = f"beside {beside:,} loops" if beside else "alone"
            what = f"decision in another process to the start of the tool, {where}{', with notify' * notifies}"
            yield Figure(f"{what}: p50", median(taken), bound, "ms")
            yield Figure(f"{what}: p90", quantiles(taken, n=10)[-1], bound, "ms")
            if share is not None:
                idle = f"idle worker beside {beside:,} waiting loops{', with notify' * notifies}: share of a core"
                yield Figure(idle, share * 100, 1, "%")


def main(path: str, notifies: str, holds: str) -> None:
    """Work, and write the moment of each start and, for each line, the CPU time so far."""

    @tool(name=rounds.TOOL, needs_approval=True)
    def look_up(line: int, words: str, context: ToolContext) -> str:
        """Look up a line of the ledger."""
        sys.stdout.write(f"{time.monotonic()}\n")
        sys.stdout.flush()
        while holds and not context.cancelled:
            time.sleep(0.001)
        if holds:
            sys.stdout.write(f"{time.monotonic()}\n")
            sys.stdout.flush()
        return rounds.look_up(line)

    def tell() -> None:
        for _ in sys.stdin:
            sys.stdout.write(f"{time.process_time()}\n")
            sys.stdout.flush()

    class Ending(Model):
        def send(self, _request: Any) -> dict[str, Any]:
            return {**rounds.reply(1), "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}

    threading.Thread(target=tell, daemon=True).start()
    Worker(SqliteStore(path), Ending(), [look_up], notify=(lambda _: None) if notifies else None).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
