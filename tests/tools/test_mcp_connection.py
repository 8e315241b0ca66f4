"""The connection to an MCP server under the sync handle: opening, closing, cancellation and errors."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define, field
from mcp import Client, StdioServerParameters, stdio_client

from tests.kit.concurrency import Background, wait_for
from tests.kit.support import results_in
from tests.kit.world import open_over_http
from tests.tools.mcp_support import Server
from toolloop import Texts, ToolContext, ToolError
from toolloop.errors import BadTool
from toolloop.events import CallProgress
from toolloop.testing import reply
from toolloop.tools.mcp import open_mcp

NOT_THERE = StdioServerParameters(command=str(Path(__file__).with_name("no such program")))


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "ran.jsonl")


@define
class Watched:
    """A call that a test looks at from another thread."""

    begun: threading.Event = field(factory=threading.Event)
    unwanted: threading.Event = field(factory=threading.Event)

    def context(self) -> ToolContext:
        return ToolContext(
            call_id="toolu_1",
            loop_id="loop",
            iteration=1,
            depth=1,
            idempotency_key="key",
            cancelled=self.unwanted.is_set,
            report=lambda *_: self.begun.set(),
        )


def test_a_server_that_dies_is_an_error_result_and_so_is_each_later_call(server: Server) -> None:
    """Nothing hangs, and the loop continues. Here a transport is given: anything that `mcp.Client` takes."""
    script = [reply(calls=[("die", {})]), reply(calls=[("die", {})]), reply("what a pity")]
    with open_mcp(stdio_client(server.program("die"))) as tools, open_over_http(script, tools=tools) as story:
        for _ in range(2):
            story.turn().continue_loop()
        assert story.expect_done().text == "what a pity"
        first, second = (results_in(message)[0] for message in story.list_sent()[2::2])
    assert first["content"].startswith("The connection to the MCP server closed during the call")
    assert "It may have had effects." in first["content"]
    assert second["content"] == first["content"]
    assert first["is_error"]
    assert second["is_error"]
    assert server.ran == [["die", {}]]


def test_a_call_that_takes_too_long_is_left_behind(server: Server) -> None:
    """The model gets an error result, and the connection stays usable."""
    script = [reply(calls=[("hang", {})]), reply(calls=[("echo", {"text": "x"})]), reply("fine")]
    with (
        server.open("hang", timeout=0.05) as slow,
        server.open("echo") as quick,
        open_over_http(script, tools=[*slow, *quick]) as story,
    ):
        for _ in range(2):
            story.turn().continue_loop()
        story.expect_done()
        late, fine = (results_in(message)[0] for message in story.list_sent()[2::2])
    assert (late["content"], late["is_error"]) == (Texts().left_behind.format(seconds="0.05"), True)
    assert fine["content"] == 'echo: {"text": "x"}'


def test_a_cancelled_call_is_cancelled_at_the_server(server: Server) -> None:
    """`ended` waits until the server saw the cancellation."""
    with server.open("hang", "ended") as (hang, ended):
        watched = Watched()
        call = Background(lambda: hang({}, watched.context()))
        wait_for(watched.begun)
        watched.unwanted.set()
        with pytest.raises(ToolError, match="It may have had effects"):
            call.result()
        assert ended({}) == "ended: {}"


def test_ctrl_c_cancels_the_call_at_the_server(server: Server) -> None:
    """The turn ends at once, and the connection stays usable."""

    def interrupt(event: Any) -> None:
        if isinstance(event, CallProgress):
            interrupt_main()

    with (
        server.open("hang", "ended") as (hang, ended),
        open_over_http([reply(calls=[("hang", {})])], tools=[hang], observers=[interrupt]) as story,
    ):
        with pytest.raises(KeyboardInterrupt):
            story.handle.next_turn()
        assert ended({}) == "ended: {}"


def test_closing_ends_the_calls_that_still_run(server: Server) -> None:
    """The waiting thread gets an error, and so does each later call."""
    with server.open("hang") as (hang,):
        watched = Watched()
        call = Background(lambda: hang({}, watched.context()))
        wait_for(watched.begun)
    with pytest.raises(ToolError, match="It may have had effects"):
        call.result()
    with pytest.raises(ToolError, match="did not run"):
        hang({})
    assert server.ran == [["hang", {}]]


def test_an_exception_of_the_block_comes_out_as_it_is(server: Server) -> None:
    """The task groups inside wrap neither it nor Ctrl-C."""
    for error in (KeyError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, server.open("echo"):
            raise error
        assert caught.value is error


@pytest.mark.parametrize(
    ("program", "kind"),
    [(NOT_THERE, OSError), (StdioServerParameters(command=sys.executable, args=["-c", ""]), ExceptionGroup)],
)
def test_a_server_that_does_not_start_raises_at_once(program: Any, kind: type[Exception]) -> None:
    """With the error of `mcp`, which comes in a group if the server ends while it connects."""
    with pytest.raises(kind), open_mcp(program):
        pass


def test_a_choice_that_the_server_does_not_have_closes_the_connection(server: Server) -> None:
    """The error is not wrapped."""
    with pytest.raises(BadTool, match="it has: echo"), server.open("echo", only=["echoes"]):
        pass
    assert [thread.name for thread in threading.enumerate() if "portal" in thread.name] == []


def interrupt_main() -> None:
    """Press Ctrl-C once the main thread waits: a moment earlier it may not know its call yet."""
    main = threading.main_thread().ident or 0
    while sys._current_frames()[main].f_code.co_name != "wait":
        threading.Event().wait(0.001)
    signal.pthread_kill(main, signal.SIGINT)


def test_ctrl_c_while_connecting_gives_up_the_connection() -> None:
    """Also if the server never answers. The transport is closed."""
    heard, closed = threading.Event(), threading.Event()

    def once(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    @asynccontextmanager
    async def silent() -> AsyncIterator[Any]:
        try:
            # A signal that comes just before the main thread waits is seen by Python only after the next one.
            while not heard.is_set():
                interrupt_main()
                await anyio.to_thread.run_sync(heard.wait, 0.1)
            await anyio.sleep_forever()
            raise AssertionError
            yield  # what makes it a generator
        finally:
            closed.set()

    before = signal.signal(signal.SIGINT, once)
    try:
        with pytest.raises(KeyboardInterrupt), open_mcp(silent()):
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert closed.is_set()


def test_a_client_may_be_given(server: Server) -> None:
    """All pages of the list are read."""
    with open_mcp(Client(server.local())) as tools:
        assert len(tools) == 12
        assert tools[0]({"text": "x"}) == 'echo: {"text": "x"}'


def test_connecting_has_a_time_limit() -> None:
    """The error gives the remedy, and no thread is left behind.

    Not with a program: asyncio leaves its pipes open if it is cancelled while it starts one.
    """

    @asynccontextmanager
    async def silent() -> AsyncIterator[Any]:
        await anyio.sleep_forever()
        raise AssertionError
        yield  # what makes it a generator

    with (
        pytest.raises(TimeoutError, match=r"within 0\.2 seconds.*connect_timeout"),
        open_mcp(silent(), connect_timeout=0.2),
    ):
        pass
    assert [thread.name for thread in threading.enumerate() if "portal" in thread.name] == []
