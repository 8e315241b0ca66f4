"""A program that gets a Ctrl-C in the middle of a turn and then goes on.

A fork server serves it; for `hung` it runs alone, so that the end of an interpreter is seen, too.

Given are `sync`, `asyncio` or `trio`; and where it is struck: `request`, `here` (a tool in the caller's own thread, or
a task), `threads`, or `hung` (a tool that never ends: the program still ends).
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from tests.kit.concurrency import DEADLINE, async_loop, sync_loop
from tests.kit.fork_server import Line, serve
from tests.kit.tools import params
from toolloop import AsyncToolLoopHandle, Completed, ToolLoopHandle, tool
from toolloop.testing import FakeMessagesAPI, delayed, reply

ran: list[str] = []
gate = threading.Event()
arrived = threading.Barrier(3)
lines: list[Line] = []  # to the test, one in each child


def say_ready() -> None:
    """The test may strike now."""
    lines[0].say(ready=True)


def say_ready_after(wait: Callable[[], object]) -> None:
    """The same, once something has happened; another thread waits for it."""

    def tell() -> None:
        wait()
        say_ready()

    threading.Thread(target=tell, daemon=True).start()


@tool(effect="pure")
def here() -> str:
    """Wait to be struck, in the caller's own thread."""
    ran.append("here")
    say_ready()
    threading.Event().wait(DEADLINE)
    return "never struck"


@tool(effect="pure", name="here")
async def task() -> str:
    """Wait to be struck, in a task."""
    ran.append("here")
    say_ready()
    await anyio.sleep_forever()
    return "never struck"


@tool
def side(name: str) -> str:
    """Stand at the gate, beside another."""
    ran.append(name)
    arrived.wait(DEADLINE)
    gate.wait()
    return name


def drive(kind: str, step: Callable[[], Any]) -> Any:
    """One step of a loop, awaited if need be."""
    if kind == "sync":
        return step()

    async def main() -> Any:
        awaitable: Awaitable[Any] = step()
        return await awaitable

    return anyio.run(main, backend=kind)


def strike(kind: str, handle: ToolLoopHandle | AsyncToolLoopHandle) -> dict[str, Any]:
    """Drive until Ctrl-C comes; what is known then."""
    try:
        drive(kind, handle.next_turn)
    except KeyboardInterrupt:
        lines[0].say(struck=True)
        calls = handle.state.root.round
        known = [str(call.status) for call in calls.calls] if calls else []
        return {"interrupted": True, "iterations": handle.iterations, "statuses": known}
    return {"interrupted": False}


def go_on(kind: str, handle: ToolLoopHandle | AsyncToolLoopHandle) -> dict[str, Any]:
    """Let the loop go on to its end."""
    ended = drive(kind, handle.run)
    contents = [block["content"] for block in handle.messages[-2]["content"] if isinstance(block, dict)]
    return {"text": ended.text if isinstance(ended, Completed) else repr(ended), "results": contents, "ran": ran}


def strike_in_a_request(kind: str) -> dict[str, Any]:
    held = delayed(DEADLINE, reply("never seen"))
    with FakeMessagesAPI([held, reply("done")]) as api:
        say_ready_after(lambda: held.arrived.wait(DEADLINE))
        if kind == "sync":
            handle: Any = ToolLoopHandle(api.client(), params=params())
            told = strike(kind, handle)
        else:
            handle = AsyncToolLoopHandle(api.async_client(), params=params())
            told = strike(kind, handle)
            handle = AsyncToolLoopHandle.restore(handle.snapshot(), api.async_client())  # a client has one event loop
        ended = drive(kind, handle.run)
        same = api.requests[0].body == api.requests[1].body
        return told | {"text": ended.text, "same": same, "requests": len(api.requests)}


def strike_in_tools(kind: str, where: str) -> dict[str, Any]:
    calls = [("here", {})] if where == "here" else [("side", {"name": "one"}), ("side", {"name": "two"})]
    script = [reply(calls=calls), reply("done")]
    # Without a grace, for the gate opens only after the interrupt.
    handle = sync_loop(script, [here, side], stop_grace=0) if kind == "sync" else async_loop(script, [task, side])
    if where != "here":
        say_ready_after(lambda: arrived.wait(DEADLINE))
    told = strike(kind, handle)
    if where == "hung":
        return told
    gate.set()
    return told | go_on(kind, handle)


def interrupt(line: Line, kind: str, where: str) -> dict[str, Any]:
    """Be struck, and tell what is known."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lines.append(line)
    return strike_in_a_request(kind) if where == "request" else strike_in_tools(kind, where)


if __name__ == "__main__":
    to_the_test = socket.socket(fileno=int(sys.argv[1]))
    if sys.argv[2:]:
        alone = Line(to_the_test)
        alone.say(end=interrupt(alone, sys.argv[2], "hung"))
    else:
        import anthropic  # noqa: F401 - once for all children

        serve(to_the_test, {"interrupted": interrupt})
