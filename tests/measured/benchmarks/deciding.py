"""What a person waits for after a decision: a worker in another process starts the tool. And what it costs while idle.

`python -m tests.measured.benchmarks.deciding PATH NOTIFIES` is that worker. It writes the moment of each start, by the
monotonic clock that all processes of a machine share, and its CPU time whenever it reads a line.
"""

from __future__ import annotations

import asyncio
import random
import shutil
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
from tests.measured.benchmarks.stored import Model, ask_first, in_memory
from toolloop import Approve, AsyncToolLoopHandle, Inbox, SqliteStore, ToolContext, ToolLoopHandle, Worker, tool
from toolloop.inbox.items import notification_id
from toolloop.stores import StoredLoop
from toolloop.testing import AsyncScriptedProvider, call, reply

_PATIENCE = 120.0  # seconds for everything that one worker is measured for
_POLLS = 3.0  # seconds, in which a worker polls three times at least
_PAUSES = (0.05, 0.25)  # seconds between two decisions, at random, so that they keep step with no poll


class CountingRows(SqliteStore):
    """Counts the rows that the polls of a worker read."""

    rows = 0

    def list_due(self, *given: Any, **more: Any) -> tuple[list[StoredLoop], float | None]:
        found, later = super().list_due(*given, **more)
        self.rows += len(found)
        return found, later

    def list_unnotified(self, *given: Any, **more: Any) -> list[StoredLoop]:
        return self._counted(super().list_unnotified(*given, **more))

    def list_reminders(self, *given: Any, **more: Any) -> list[StoredLoop]:
        return self._counted(super().list_reminders(*given, **more))

    def _counted(self, found: list[StoredLoop]) -> list[StoredLoop]:
        self.rows += len(found)
        return found


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
    # Killed in any case at last, so that a benchmark that goes wrong does not hang.
    program = [sys.executable, "-m", "tests.measured.benchmarks.deciding", str(path), *options]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        late = threading.Timer(_PATIENCE, started.kill)
        late.start()
        try:
            yield started
        finally:
            late.cancel()
            started.kill()


def ask(started: subprocess.Popen[str], line: str = "") -> float:
    """Return the next number that the worker writes; with a line, its CPU time (`cpu`), or how many rows it read.

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


def idle_share(started: subprocess.Popen[str], seconds: float) -> tuple[float, float]:
    """Return the share of a core that the worker takes while nothing happens, and the rows that it reads."""
    time.sleep(1)
    begun, before, rows = time.monotonic(), ask(started, "cpu"), ask(started, "rows")
    time.sleep(seconds)
    share = (ask(started, "cpu") - before) / (time.monotonic() - begun)
    return share, ask(started, "rows") - rows


def rows_of_a_change(store: SqliteStore, started: subprocess.Popen[str], loop_id: str) -> float:
    """Return the rows that the polls of a worker read after one decision, with those of its own changes."""
    (call,) = store.head(loop_id).pending
    before = ask(started, "rows")
    Inbox(store).decide(loop_id, {call.id: Approve(by="ana")})
    ask(started)
    time.sleep(_POLLS)
    return ask(started, "rows") - before


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
            with in_memory() as fast:
                with SqliteStore(fast / path.name) as store:
                    *loop_ids, last = fill(store, beside, decisions + 2)
                shutil.copy(fast / path.name, path)
            with SqliteStore(path) as store, worker(path, notifies=notifies) as started:
                ask(started, "cpu")  # it has begun
                while notifies and store.list_unnotified():
                    time.sleep(0.1)
                taken = [each * 1e3 for each in seconds_to_start(store, started, loop_ids)]
                idle = idle_share(started, seconds) if beside else None
                changed = rows_of_a_change(store, started, last) if beside else None
            where = f"beside {beside:,} loops" if beside else "alone"
            what = f"decision in another process to the start of the tool, {where}{', with notify' * notifies}"
            yield Figure(f"{what}: p50", median(taken), bound, "ms")
            yield Figure(f"{what}: p90", quantiles(taken, n=10)[-1], bound, "ms")
            if idle is not None and changed is not None:
                idle_one = f"idle worker beside {beside:,} waiting loops{', with notify' * notifies}"
                yield Figure(f"{idle_one}: share of a core", idle[0] * 100, 1, "%")
                yield Figure(f"{idle_one}: rows that its polls read in {seconds:g} s", idle[1], 0)
                yield Figure(f"{idle_one}: rows that its polls read for one decision", changed, 3)


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
        for line in sys.stdin:
            sys.stdout.write(f"{store.rows if line.strip() == 'rows' else time.process_time()}\n")
            sys.stdout.flush()

    class Ending(Model):
        def send(self, _request: Any) -> dict[str, Any]:
            return {**rounds.reply(1), "content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}

    store = CountingRows(path)
    threading.Thread(target=tell, daemon=True).start()
    Worker(store, Ending(), [look_up], notify=(lambda _: None) if notifies else None).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
