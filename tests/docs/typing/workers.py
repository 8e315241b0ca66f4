"""What type checkers see of a worker: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
import threading
from typing import Any, assert_type

import anyio
from anthropic import Anthropic, AsyncAnthropic

from toolloop import AsyncWorker, LoopContext, Worker
from toolloop.inbox import InboxCall
from toolloop.stores import Store


def tell(call: InboxCall) -> None: ...


async def tell_later(call: InboxCall) -> None: ...


def params(loop_id: str) -> dict[str, Any]:
    return {"extra_headers": {"x-loop": loop_id}}


async def token(loop_id: str) -> dict[str, Any]:
    return {"extra_headers": {"x-loop": loop_id}}


def parts_are_values_or_functions(store: Store, client: Anthropic) -> None:
    Worker(store, client, [])
    Worker(store, client, [], params={"timeout": 9}, context=LoopContext(state=1), notify=tell)
    Worker(store, client, [], params=params, context=lambda loop_id: LoopContext(state=loop_id))
    Worker(store, client, [], notify=params)  # type: ignore[arg-type]
    Worker(store, client, [], params=3)  # type: ignore[arg-type]
    worker = Worker(store, client, [])
    assert_type(worker.run_once(), int)
    worker.run(threading.Event())


async def async_parts_are_taken(store: Store, client: AsyncAnthropic) -> None:
    worker = AsyncWorker(store, client, [], params=token, notify=tell_later)
    assert_type(await worker.run_once(), int)
    await worker.run(asyncio.Event())
    await worker.run(anyio.Event())
    await worker.run(threading.Event())  # type: ignore[arg-type]
