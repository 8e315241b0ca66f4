"""What a driver learns of the decisions and commands of others while a tool runs, before it stores anything itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.kit.concurrency import either_kind
from tests.kit.postgres import in_postgres
from tests.kit.tools import params
from tests.kit.world import store_at, wait
from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    Completed,
    Inbox,
    LoopConfig,
    SqliteStore,
    ToolContext,
    ToolLoopHandle,
    tool,
)
from toolloop._journal import lease
from toolloop.stores import Store
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

SOON = 30.0  # a busy machine takes its time
each_file = pytest.mark.parametrize("where", ["sqlite", in_postgres])


@pytest.fixture(autouse=True)
def no_poll(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the watch of the store can tell of anything."""
    for owner in tuple(lease.KEEPER.value.leases):  # of a handle that another test left
        lease.KEEPER.value.forget(owner)
    monkeypatch.setattr(lease, "_LOOK_EVERY", 600.0)
    yield
    keeper = lease.KEEPER.value
    keeper._never.set()  # the thread that renews leases ends its long wait, and then itself
    if (thread := keeper._thread) is not None:
        thread.join(SOON)
    keeper._never.clear()


def open_another(store: Store) -> Any:
    """The same store, as another process has it."""
    return SqliteStore(store._file.path) if isinstance(store, SqliteStore) else store


def handle_of(kind: str, store: Store, script: list[Any], tools: list[Any], **config: Any) -> Any:
    given: dict[str, Any] = {"params": params(), "tools": tools, "store": store, "loop_id": "loop"}
    given["config"] = LoopConfig(**config)
    if kind == "sync":
        return ToolLoopHandle(ScriptedProvider(script), **given)
    return AsyncToolLoopHandle(AsyncScriptedProvider(script), **given)


@either_kind
@each_file
def test_a_tool_that_runs_alone_notices_a_stop(kind: str, where: str, tmp_path: Path) -> None:
    """A sync driver is inside that tool, so the thread of the watch reads what was stored."""
    store, noticed = store_at(where, tmp_path), threading.Event()

    @tool
    def work(context: ToolContext) -> str:
        """Work until it is cancelled."""
        Inbox(open_another(store)).stop("loop", "enough", by="ana")
        end = time.monotonic() + SOON
        while not context.cancelled and time.monotonic() < end:
            time.sleep(0.005)
        if context.cancelled:
            noticed.set()
        return ""

    handle = handle_of(kind, store, [reply(calls=[call("work", {}, id="c1")])], [work])
    assert isinstance(wait(kind, handle.run()), Completed)
    assert noticed.wait(SOON)


@each_file
def test_an_async_tool_is_cancelled_by_a_stop(where: str, tmp_path: Path) -> None:
    """It would wait for ever."""
    store, ended = store_at(where, tmp_path), list[bool]()

    @tool
    async def work(context: ToolContext) -> str:
        """Work until it is cancelled."""
        await anyio.to_thread.run_sync(lambda: Inbox(open_another(store)).stop("loop", "enough", by="ana"))
        try:
            await anyio.sleep(SOON)
        finally:
            ended.append(context.cancelled)
        return ""

    handle = handle_of("asyncio", store, [reply(calls=[call("work", {}, id="c1")])], [work])
    assert isinstance(wait("asyncio", handle.run()), Completed)
    assert ended == [True]


@either_kind
@each_file
def test_a_decision_is_read_while_a_tool_runs(kind: str, where: str, tmp_path: Path) -> None:
    """So `pending` and `view` of the handle that drives are right."""
    store, read = store_at(where, tmp_path), list[bool]()

    @tool
    def work() -> str:
        """Work until the other call is decided."""
        Inbox(open_another(store)).decide("loop", {"c2": Approve(by="ana")})
        end = time.monotonic() + SOON
        while handle.pending and time.monotonic() < end:
            time.sleep(0.005)
        read.append(not handle.pending)
        return ""

    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return ""

    script = [reply(calls=[call("work", {}, id="c1"), call("pay", {}, id="c2")]), reply("done")]
    handle = handle_of(kind, store, script, [work, pay], execution="ready")
    wait(kind, handle.run()).continue_loop()
    assert (wait(kind, handle.run()).text, read) == ("done", [True])
