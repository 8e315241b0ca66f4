"""Another process that uses a store, one step at a time.

It reads a line of Python, evaluates it, and answers with a line: the `repr` of what it gave, or of what it raised. A
line may use `store`, the words of stores, and the helpers below.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.kit.fork_server import ROOT
from tests.kit.warm_python import Program
from toolloop.stores import Entry, Head, Lease, Revision, SqliteStore

PATIENCE = 240.0  # seconds; it is never reached but where something hangs: a disk may take a second for each write


class Worker:
    """A process that carries out commands."""

    def __init__(self, path: Path, *flags: str, busy_timeout: float = 30.0) -> None:
        (its_in, into), (out, its_out) = os.pipe(), os.pipe()
        self._in: IO[str] = os.fdopen(into, "w", encoding="utf-8")
        self._out: IO[str] = os.fdopen(out, encoding="utf-8")
        try:
            command = ["-m", "tests.stores.worker", str(path), str(busy_timeout), *flags]
            self._program = Program(command, stdin=its_in, stdout=its_out, stderr=2, cwd=ROOT)
        finally:
            os.close(its_in)
            os.close(its_out)
        with contextlib.ExitStack() as stack:
            stack.push(self)
            assert self.answer() == "ready"
            stack.pop_all()

    def tell(self, line: str) -> None:
        print(line, file=self._in, flush=True)

    def answer(self) -> str:
        assert select.select([self._out], [], [], PATIENCE)[0], "the other process hangs"
        return self._out.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.answer()

    def kill(self) -> None:
        self._program.kill()
        self._program.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._in.close()
        self._program.wait(PATIENCE)
        self._out.close()


@contextlib.contextmanager
def workers(path: Path, number: int) -> Iterator[list[Worker]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Worker(path, busy_timeout=PATIENCE)) for _ in range(number)]


def limit(size: int) -> None:
    """From now on no file of this process grows over that many bytes. -1: as before."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size < 0 else size, hard))


def lock(path: str) -> sqlite3.Connection:
    """Write to a database, and do not come to an end."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def main(path: str, wait: str, *flags: str) -> None:
    store = SqliteStore(path, busy_timeout=float(wait))
    known = {
        "store": store,
        "path": path,
        "limit": limit,
        "lock": lock,
        "held": [],
        "Entry": Entry,
        "Head": Head,
        "Lease": Lease,
        "SqliteStore": SqliteStore,
        "sqlite3": sqlite3,
    }
    if "--as-nobody" in flags and os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    print("ready", flush=True)  # noqa: T201 - a program that tells
    for line in sys.stdin:
        outcome = _outcome(line, known)
        outcome = int(outcome) if isinstance(outcome, Revision) else outcome  # a revision without its digest
        print(repr(outcome), flush=True)  # noqa: T201 - likewise


def _outcome(line: str, known: dict[str, Any]) -> object:
    try:
        return eval(line, known)
    except Exception as error:  # noqa: BLE001 - it is the answer
        return error


if __name__ == "__main__":
    main(*sys.argv[1:])
