"""Tools of a real MCP server under the async handle, in asyncio and in trio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.kit.concurrency import async_loop, async_wire, on_both_backends, run_async
from tests.kit.support import expect_completed, expect_yielded, results_in
from tests.tools.mcp_support import Server
from toolloop import Texts, ToolError
from toolloop.events import CallProgress
from toolloop.testing import reply
from toolloop.tools.mcp import aopen_mcp, mcp_tools


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "ran.jsonl")


@on_both_backends
def test_a_whole_loop(backend: str, server: Server) -> None:
    """With approved, denied and failed calls, and progress. Unapproved calls do not reach the server."""
    script = [
        reply(calls=[("echo", {"text": "yes"}), ("echo", {"text": "no"}), ("echo", {"text": 1})]),
        reply(calls=[("refuse", {}), ("climb", {}), ("contents", {"kinds": ["text", "image"]})]),
        reply("fine"),
    ]

    known = len(server.ran)

    async def main() -> None:
        # A program under asyncio is what the sync handle has.
        async with (
            aopen_mcp(
                server.program() if backend == "trio" else server.local(),
                needs_approval=lambda call: call.name == "echo",
            ) as tools,
            async_wire(script, tools) as (handle, api),
        ):
            turn = expect_yielded(await handle.next_turn())
            approved, denied = turn.pending
            turn.approve(approved, by="ana")
            turn.deny(denied, "no", by="ana")
            turn.continue_loop()
            expect_yielded(await handle.next_turn()).continue_loop()
            executed = expect_yielded(await handle.next_turn())
            executed.continue_loop()
            assert expect_completed(await handle.next_turn()).text == "fine"
            seen = [event for event in executed.events if isinstance(event, CallProgress)]
            sent: Any = api.requests[-1].json["messages"]
        assert [(event.message, event.progress, event.total) for event in seen] == [("half way", 1, 2), (None, 2, 2)]
        echoed, refused, invalid = results_in(sent[2])
        assert echoed["content"] == 'echo: {"text": "yes"}'
        assert (refused["is_error"], invalid["is_error"]) == (True, True)
        failed, climbed, shown = results_in(sent[4])
        assert (failed["content"], failed["is_error"]) == ("the disk is full", True)
        assert climbed["content"] == "climb: {}"
        assert [block["type"] for block in shown["content"]] == ["text", "image"]

    run_async(backend, main)
    assert [each for each in server.ran[known:] if each[0] == "echo"] == [["echo", {"text": "yes"}]]


@on_both_backends
def test_a_call_that_takes_too_long_is_cancelled(backend: str, server: Server) -> None:
    """The model gets an error result, and the connection stays usable."""

    async def main() -> None:
        async with aopen_mcp(server.local("hang", "echo"), timeout=0.05) as tools:
            handle = async_loop([reply(calls=[("hang", {})])], tools)
            turn = expect_yielded(await handle.next_turn())
            assert [result and result.content for result in turn.results] == [Texts().timed_out.format(seconds="0.05")]
            assert await tools[0]({"text": "x"}) == 'echo: {"text": "x"}'

    run_async(backend, main)


@on_both_backends
def test_the_server_is_notified_when_a_turn_is_cancelled(backend: str, server: Server) -> None:
    """`ended` waits until the server saw the cancellation."""

    async def main() -> None:
        async with aopen_mcp(server.local("hang", "ended")) as (hang, ended):
            async with anyio.create_task_group() as tasks:

                def watch(event: Any) -> None:
                    if isinstance(event, CallProgress):
                        tasks.cancel_scope.cancel()

                handle = async_loop([reply(calls=[("hang", {})])], [hang], observers=[watch])
                tasks.start_soon(handle.next_turn)
            assert await ended({}) == "ended: {}"

    run_async(backend, main)


@on_both_backends
def test_a_tool_of_a_connection_that_was_left_did_not_run(backend: str, server: Server) -> None:
    """The error says so."""

    async def main() -> None:
        async with aopen_mcp(server.local("echo")) as (echo,):
            pass
        with pytest.raises(ToolError, match="did not run"):
            await echo({"text": "too late"})

    run_async(backend, main)


@on_both_backends
def test_a_client_that_is_open_already(backend: str, server: Server) -> None:
    """The caller's own connection; its tools end with it."""

    async def main() -> None:
        async with Client(server.local()) as client:
            tools = await mcp_tools(client)
            assert await tools[0]({"text": "x"}) == 'echo: {"text": "x"}'
        assert len(tools) == 12
        with pytest.raises(ToolError, match="closed"):
            await tools[0]({"text": "too late"})

    run_async(backend, main)
