"""What the processes of the tests do: they drive one loop, or wake it, or decide. The story is the same for all.

A witness outside of the loop records what really happens: a file to which each process only ever appends.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, cast

import anthropic
import anyio
import anyio.lowlevel
import anyio.to_thread
from attrs import define, field

import toolloop
from tests.kit.fork_server import Line, serve
from toolloop import (
    Answer,
    Approve,
    AsyncToolLoopHandle,
    Deny,
    Inbox,
    LoopConfig,
    LoopContext,
    Rerun,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import CallerError, Conflict, DecisionConflict, IllegalCommand
from toolloop.machine.record.journal_events import Started
from toolloop.machine.values.calls import Decision
from toolloop.stores.codec import decode_event
from toolloop.stores.protocol import Entry, Store
from toolloop.stores.sqlite.file import SqliteFile
from toolloop.stores.sqlite.store import SqliteStore
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

if TYPE_CHECKING:
    from toolloop.stores.postgres.store import PostgresStore

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 256, "messages": [{"role": "user", "content": "hello"}]}
ROUNDS = (
    reply(calls=[call("look", {"what": "a"}, id="look1"), call("pay", {"what": "b"}, id="pay1")]),
    reply(calls=[call("send", {"what": "c"}, id="send1"), call("log", {"what": "d"}, id="log1")]),
    reply("done"),
)
CALLS = ("look1", "pay1", "send1", "log1")
ONCE = ("send1", "log1")
UNCERTAIN: dict[str, Decision] = {"rerun": Rerun(by="ben"), "answer": Answer("it happened"), "deny": Deny("who knows")}


@define
class Worker:
    """One process in the story: where it stands still, and what it tells the witness."""

    line: Line | None
    witness: str
    hold: dict[str, Any] = field(factory=dict)
    count: int = 0
    _lock: threading.Lock = field(factory=threading.Lock)

    def note(self, *words: object) -> None:
        """Tell the witness, for good."""
        text = " ".join(map(str, (os.getpid(), *words))) + "\n"
        file = os.open(self.witness, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(file, text.encode())
        os.fsync(file)
        os.close(file)

    def stand(self, **where: Any) -> None:
        """Stand still, if this is the place, until the test says go."""
        if self.hold == where and self.line is not None:
            self.line.say(stands=where)
            self.line.hear()

    def write(self) -> int:
        """A further write begins: which it is."""
        with self._lock:
            self.count += 1
            number = self.count
        self.stand(at="between writes", number=number)
        return number

    def stored(self, entries: Sequence[Entry]) -> None:
        """An append has come back: stand still if it has the start of that call."""
        for entry in entries:
            if isinstance(event := decode_event(entry), Started):
                self.stand(at="start stored", call=event.call_id)


def store_of(place: str) -> SqliteStore | PostgresStore:
    """The store at a path or URL."""
    if place.startswith("postgresql://"):
        from toolloop.stores.postgres.store import PostgresStore  # noqa: PLC0415 - not every test has psycopg

        return PostgresStore(place)
    return SqliteStore(place)


def held_store(place: str, part: Worker) -> SqliteStore | PostgresStore:
    """The same, and it can be stopped at each of its writes."""
    if place.startswith("postgresql://"):
        from tests.promises.processes.held_postgres import HeldPostgres  # noqa: PLC0415 - likewise

        return HeldPostgres(place, part)
    return HeldStore(place, part)


class HeldStore(SqliteStore):
    """A store that can be stopped at each of its writes: before it begins, and before it commits."""

    def __init__(self, path: str, part: Worker) -> None:
        super().__init__(path)
        self._file = HeldFile(Path(path), part)
        self._part = part

    def append(self, loop_id: str, entries: Sequence[Entry], **options: Any) -> int:
        rev = super().append(loop_id, entries, **options)
        self._part.stored(entries)
        return rev


class HeldFile(SqliteFile):
    """Its file."""

    def __init__(self, path: Path, part: Worker) -> None:
        super().__init__(path, busy_timeout=5.0)
        self._part = part

    def write(self, act: Any, **options: Any) -> Any:
        number = self._part.write()

        def held(connection: Connection) -> Any:
            result = act(connection)
            self._part.stand(at="in a write", number=number)
            return result

        return super().write(held, **options)


def _run(context: ToolContext, name: str, what: str) -> str:
    part = cast("Worker", context.state)
    part.stand(at="before", call=context.call_id)
    part.note("ran", context.call_id, context.idempotency_key)
    part.stand(at="after", call=context.call_id)
    return f"{name} {what} by {os.getpid()}"


@tool(effect="pure")
def look(what: str, context: ToolContext) -> str:
    """Look."""
    return _run(context, "look", what)


@tool(effect="keyed")
def pay(what: str, context: ToolContext) -> str:
    """Pay."""
    return _run(context, "pay", what)


@tool(needs_approval=True)
def send(what: str, context: ToolContext) -> str:
    """Send."""
    return _run(context, "send", what)


@tool
def log(what: str, context: ToolContext) -> str:
    """Log."""
    return _run(context, "log", what)


@tool
def slow(what: str, context: ToolContext) -> str:
    """Take as long as the test likes."""
    part = cast("Worker", context.state)
    if part.line is not None:
        part.line.say(slow=int(what))
        part.line.hear()
    return _run(context, "slow", what)


TOOLS = (look, pay, send, log, slow)


def model(part: Worker, kind: str, url: str | None) -> Any:
    """What answers requests: a script, or the fake API of the test, over real HTTP."""
    if url is not None:
        settings: dict[str, Any] = {"api_key": "test-key", "base_url": url, "max_retries": 0}
        if kind == "sync":
            http = anthropic.DefaultHttpxClient(trust_env=False, verify=False)
            return anthropic.Anthropic(**settings, http_client=http)
        http_too = anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False)
        return anthropic.AsyncAnthropic(**settings, http_client=http_too)

    def answer(request: Any) -> Any:
        number = sum(message["role"] == "assistant" for message in request["messages"])
        part.note("asked", number)
        part.stand(at="request", number=number)
        return ROUNDS[number]

    return ScriptedProvider(answer) if kind == "sync" else AsyncScriptedProvider(answer)


def with_handle(kind: str, act: Callable[[Any], Any], store: Store, part: Worker, **given: Any) -> Any:
    """What `act` makes of the loop, opened by a handle of this kind; under an async one it is awaited."""
    loop_id, provider = given.pop("loop_id"), model(part, kind, given.pop("url", None))
    config = LoopConfig(max_parallel_tools=given.pop("parallel", 1))
    parts = {"tools": TOOLS, "context": LoopContext(state=part), "config": config, **given}
    if kind == "sync":
        with ToolLoopHandle.open(store, loop_id, provider, **parts) as handle:
            return act(handle)

    async def main() -> Any:
        async with AsyncToolLoopHandle.open(store, loop_id, provider, **parts) as handle:
            return await act(handle)

    return anyio.run(main, backend=kind)


def asking(handle: Any, part: Worker, uncertain: str, asked: list[tuple[str, str]]) -> Callable[[Yielded], Any]:
    """How a driver decides: approve, or give the set answer to what is uncertain. Noted once it is stored."""

    def decide(turn: Yielded) -> list[str]:
        waiting = {each.id: UNCERTAIN[uncertain] if each.why == "uncertain" else Approve() for each in turn.pending}
        asked.extend((each.id, str(each.why)) for each in turn.pending)
        handle.decide(waiting)
        return list(waiting)

    def at_once(turn: Yielded) -> None:
        part.note("decided", *decide(turn))

    async def awaited(turn: Yielded) -> None:
        decided = decide(turn)
        await handle.flush()
        part.note("decided", *decided)

    return at_once if isinstance(handle, ToolLoopHandle) else awaited


def wait_for_tools() -> None:
    """Wait for the tools that a driver left behind: their threads would end with the process."""
    for thread in threading.enumerate():
        if thread.name.startswith("toolloop-"):
            thread.join()


def drive(
    line: Line,
    *,
    path: str,
    loop_id: str,
    witness: str,
    kind: str = "sync",
    parallel: int = 1,
    hold: dict[str, Any] | None = None,
    uncertain: str = "answer",
    url: str | None = None,
    take_over: bool = False,
    lease: float | None = None,
) -> dict[str, Any]:
    """Drive a loop to its end, creating it if it is not there, and decide what waits."""
    part = Worker(line, witness, hold or {})
    asked: list[tuple[str, str]] = []

    def act(handle: Any) -> Any:
        return handle.run(asking(handle, part, uncertain, asked))

    with held_store(path, part) as store:
        store.lease_seconds = store.lease_seconds if lease is None else lease
        try:
            given = {"loop_id": loop_id, "params": PARAMS, "url": url, "take_over": take_over, "parallel": parallel}
            result = with_handle(kind, act, store, part, **given)
        except Conflict as conflict:
            wait_for_tools()
            return {"conflict": str(conflict), "owner": conflict.owner, "until": conflict.until}
        except CallerError as error:  # what was said is not possible any more: somebody else was first
            return {"refused": str(error)}
    return {"text": result.unwrap().text, "asked": asked, "writes": part.count}


def work(line: Line, *, path: str, loop_id: str, witness: str, kind: str, hold: dict[str, Any], lease: float) -> str:
    """Drive a loop as a worker does, until it needs a person or ends."""
    part = Worker(line, witness, hold)
    with held_store(path, part) as store:
        store.lease_seconds = lease
        parts: tuple[Any, ...] = (store, model(part, kind, None), TOOLS)
        context = LoopContext(state=part)
        try:
            if kind == "sync":
                return toolloop.Worker(*parts, context=context).drive(loop_id).status
            worker = toolloop.AsyncWorker(*parts, context=context)
            return anyio.run(worker.drive, loop_id, None, backend=kind).status
        except Conflict:
            return "conflict"


def race(line: Line, *, path: str, folder: str) -> int:
    """Take the next turn of one loop after the other, each at the same moment as others do."""
    for count in itertools.count():
        asked = line.hear()
        if "over" in asked:
            return count
        part = Worker(line, f"{folder}/{asked['loop_id']}", {"at": "before", "call": "send1"} if asked["held"] else {})

        def say(result: Any) -> None:
            line.say(turn=result.reason if isinstance(result, Yielded) else type(result).__name__)

        def act(handle: Any, say: Any = say) -> Any:
            line.say(ready=True)
            line.hear()
            if isinstance(handle, ToolLoopHandle):
                return say(handle.next_turn())

            async def turn() -> None:
                say(await handle.next_turn())

            return turn()

        with store_of(path) as store:
            try:
                with_handle(asked["kind"], act, store, part, loop_id=asked["loop_id"])
            except Conflict as conflict:
                line.say(conflict=str(conflict))
            except IllegalCommand as late:
                line.say(late=str(late))
    raise AssertionError("the count never ends")


def decide(line: Line, *, path: str, loop_id: str, witness: str) -> None:
    """Decide calls of a loop that another process drives, as they are named."""
    part = Worker(line, witness)
    with store_of(path) as store:
        handle = ToolLoopHandle.open(store, loop_id, model(part, "sync", None), tools=TOOLS)
        while "call" in (asked := line.hear()):
            try:
                handle.decide({asked["call"]: Deny("no") if asked.get("deny") else Approve(by="ben")})
            except DecisionConflict as conflict:
                line.say(conflict=str(conflict))
            else:
                line.say(decided=asked["call"])


def drive_many(line: Line, *, path: str, loop_id: str, witness: str, kind: str, rounds: int) -> str | None:
    """Drive a loop in which each round has a call that runs, and one that another process decides meanwhile."""
    part = Worker(line, witness)

    def answer(request: Any) -> Any:
        number = sum(message["role"] == "assistant" for message in request["messages"])
        if number == rounds:
            return reply("done")
        what = {"what": str(number)}
        return reply(calls=[call("slow", what, id=f"slow{number}"), call("send", what, id=f"send{number}")])

    parts: dict[str, Any] = {
        "tools": TOOLS,
        "params": PARAMS,
        "config": LoopConfig(execution="ready", max_iterations=rounds + 1),
        "context": LoopContext(state=part),
    }

    def wait(turn: Yielded) -> None:
        line.say(waits=[each.id for each in turn.pending])
        line.hear()

    with store_of(path) as store:
        if kind == "sync":
            sync = ToolLoopHandle.open(store, loop_id, ScriptedProvider(answer), **parts)
            while isinstance(turn := sync.run(), Yielded):
                wait(turn)
                if (again := sync.pending_turn) is not None:
                    again.continue_loop()
            return turn.unwrap().text

        async def main() -> str | None:
            handle = await AsyncToolLoopHandle.open(store, loop_id, AsyncScriptedProvider(answer), **parts)
            while isinstance(turn := await handle.run(), Yielded):
                await anyio.to_thread.run_sync(wait, turn)
                if (again := handle.pending_turn) is not None:
                    again.continue_loop()
            return turn.unwrap().text

        return anyio.run(main, backend=kind)


def approved(store: Store, loop_id: str, witness: str) -> None:
    """Bring a loop to where one call was approved, and no process went on yet."""
    part = Worker(None, witness)
    with ToolLoopHandle.open(
        store, loop_id, model(part, "sync", None), tools=TOOLS, params=PARAMS, context=LoopContext(state=part)
    ) as handle:
        turn = handle.run()
        assert isinstance(turn, Yielded)
        turn.approve_all(by="ana")
        turn.continue_loop()


def converse(line: Line, *, path: str, folder: str) -> None:
    """Say, withdraw, or drive to the end, each at the same moment as others do something."""
    with store_of(path) as store:
        while "act" in (asked := line.hear()):
            loop_id, part = asked["loop_id"], Worker(None, f"{folder}/{asked['loop_id']}")

            def answer(request: Any) -> Any:
                return ROUNDS[min(sum(message["role"] == "assistant" for message in request["messages"]), 2)]

            line.say(ready=True)
            line.hear()
            if asked["act"] == "say":
                says = asked["says"]
                line.say(said=[Inbox(store).say(loop_id, text, by=str(os.getpid()), key=key) for text, key in says])
            elif asked["act"] == "withdraw":
                for _ in range(asked["later"]):
                    Inbox(store).show(loop_id)
                try:
                    Inbox(store).withdraw(loop_id, asked["said"], by="ana")
                except IllegalCommand:
                    line.say(withdrawn=False)
                else:
                    line.say(withdrawn=True)
            else:
                parts: dict[str, Any] = {"tools": TOOLS, "context": LoopContext(state=part)}
                with ToolLoopHandle.open(store, loop_id, ScriptedProvider(answer), **parts) as handle:
                    line.say(text=handle.run(lambda turn: turn.approve_all(by="ben")).unwrap().text)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "drive": drive,
    "work": work,
    "race": race,
    "decide": decide,
    "drive_many": drive_many,
    "converse": converse,
}


def warm_up() -> None:
    """Load what is loaded at first use, once for all children. It starts no thread and opens no file."""
    with contextlib.suppress(ImportError):
        importlib.import_module("tests.promises.processes.held_postgres")
    handle = ToolLoopHandle(ScriptedProvider([]), params=PARAMS, tools=TOOLS)
    ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), tools=TOOLS)
    for kind in ("asyncio", "trio"):
        anyio.run(anyio.lowlevel.checkpoint, backend=kind)


if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])), PROGRAMS)
