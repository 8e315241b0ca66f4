"""What the heartbeat test counts with: the steps of an event loop, the calls of a store, and a lock held by another."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import anyio
import trio
from attrs import define, field

T = TypeVar("T")


@define(eq=False)
class Steps:
    """The steps of an event loop: from one moment in which anything else may run to the next.

    How long one is, is counted in calls of functions. That is the same on every machine, however busy it is; a clock
    would count the work of others, too.

    Attributes:
        total: all calls so far.
        stalls: the steps that were longer than `limit`.

    """

    limit: float = math.inf
    total: int = 0
    stalls: list[int] = field(factory=list)
    _began: int = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count, in this thread, until this is over."""
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.total += 1

    def begin(self) -> None:
        self._began = self.total

    def end(self) -> None:
        if self.total - self._began > self.limit:
            self.stalls.append(self.total - self._began)

    def run(self, callback: Callable[..., object], *args: Any) -> None:
        self.begin()
        try:
            callback(*args)
        finally:
            self.end()


class _CountingLoop(asyncio.SelectorEventLoop):
    """Each step of each task is one call of `call_soon`; what threads ask for comes by the other one."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        super().__init__()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._steps.run, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._steps.run, callback, *args, context=context)


class _CountingInstrument(trio.abc.Instrument):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.begin()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps.end()


def run_counted(backend: str, steps: Steps, main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function in an event loop whose steps are counted."""
    if backend == "trio":
        return trio.run(main, instruments=[_CountingInstrument(steps)])
    with asyncio.Runner(loop_factory=lambda: _CountingLoop(steps)) as runner:
        return runner.run(main())  # type: ignore[arg-type]


@define(eq=False)
class Heart:
    """A task that beats as often as the event loop lets it."""

    beats: int = 0
    _next: anyio.Event = field(factory=anyio.Event)

    async def beat(self) -> None:
        while True:
            await anyio.sleep(0.001)
            self.beats += 1
            self._next.set()
            self._next = anyio.Event()

    async def next(self) -> None:
        """Wait for the next beat."""
        await self._next.wait()


class Witness:
    """A store that notes in which thread it is asked, and by how many at this moment."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.threads: set[int] = set()
        self.waiting = 0
        self.done = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def asked(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.threads.add(threading.get_ident())
                self.waiting += 1
            try:
                return method(*args, **kwargs)
            finally:
                with self._lock:
                    self.waiting -= 1
                    self.done += 1

        return asked


_LOCKER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
for line in sys.stdin:
    database.execute(line)
    print("done", flush=True)
"""


class OtherProcess:
    """Somebody else who locks the file. Its methods block."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", _LOCKER, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def lock(self) -> None:
        self._say("BEGIN EXCLUSIVE")

    def unlock(self) -> None:
        self._say("ROLLBACK")

    def _say(self, statement: str) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def other_process(path: Path) -> Iterator[OtherProcess]:
    """One that locks the file, until this is over."""
    process = OtherProcess(path)
    try:
        yield process
    finally:
        process.close()
