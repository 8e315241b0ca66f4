"""Context-manager tools: opened and closed with the loop, inside `with handle:`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self

import anthropic
import anyio
import pytest

from tests.handle.concurrency import async_loop, on_both_backends, run_async, sync_loop
from tests.handle.support import completed, refused, yielded
from toolloop import AsyncToolLoopHandle, ToolLoopHandle, tool
from toolloop.errors import BadTool, IllegalCommand
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, reply

GO = [reply(calls=[("browse", {"page": "a"})]), reply("fine")]


class Resource:
    """Opened, used, closed: it writes down which."""

    def __init__(self, log: list[str], name: str = "it") -> None:
        self.log = log
        self.name = name

    def __enter__(self) -> Self:
        self.log.append(f"{self.name} opens")
        return self

    def __exit__(self, *error: object) -> bool:
        self.log.append(f"{self.name} closes")
        return True

    def browse(self, page: str) -> str:
        """Look at a page."""
        self.log.append(f"page {page}")
        return f"page {page}"

    def close_tab(self) -> str:
        """Close the tab."""
        return "closed"


class AsyncResource:
    """The same for tasks; its scope must be left in the task that entered it."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.scope: Any = None

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()
        self.scope = anyio.CancelScope()
        self.scope.__enter__()
        self.log.append("it opens")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.log.append("it closes")
        self.scope.__exit__(None, None, None)

    async def browse(self, page: str) -> str:
        """Look at a page."""
        await anyio.lowlevel.checkpoint()
        self.log.append(f"page {page}")
        return f"page {page}"


class Browser(Resource):
    """A callable object that is a context manager itself."""

    def __call__(self, page: str) -> str:
        """Look at a page."""
        return self.browse(page)


@pytest.mark.parametrize("itself", [True, False])
def test_it_is_opened_before_the_first_turn_and_closed_after_the_loop(itself: bool) -> None:
    """Once, for all tools that share it."""
    log: list[str] = []
    browser = Browser(log)
    shared = [tool(browser.browse, opens=browser), tool(browser.close_tab, opens=browser)]
    with sync_loop(GO, [tool(browser, name="browse")] if itself else shared) as handle:
        assert log == ["it opens"]
        assert completed(handle.run()).text == "fine"
        assert log == ["it opens", "page a"]
    assert log == ["it opens", "page a", "it closes"]
    assert completed(handle.next_turn()).text == "fine"


@on_both_backends
def test_under_the_async_handle_it_may_be_async(backend: str) -> None:
    """It is entered and left in the caller's own task; a sync one is taken as well."""
    log: list[str] = []

    async def main() -> None:
        browser, other = AsyncResource(log), Resource(log, "other")
        tools = [tool(browser.browse, opens=browser), tool(other.close_tab, opens=other)]
        async with async_loop(GO, tools) as handle:
            assert completed(await handle.run()).text == "fine"
        assert log == ["it opens", "other opens", "page a", "other closes", "it closes"]

    run_async(backend, main)


def test_an_unopened_tool_is_said_before_anything_is_sent() -> None:
    """The error names the tool and what to write; the loop is as it was, and goes on inside `with`."""
    log: list[str] = []
    browser = Resource(log)
    handle = sync_loop(GO, [tool(browser.browse, opens=browser)])
    with refused(handle, IllegalCommand, "browse", "with handle"):
        handle.next_turn()
    with handle:
        yielded(handle.next_turn()).continue_loop()
    with refused(handle, IllegalCommand, "browse", "with handle"):
        handle.next_turn()
    with handle:
        assert completed(handle.next_turn()).text == "fine"
    assert log == ["it opens", "page a", "it closes", "it opens", "it closes"]


def test_what_goes_wrong_inside_comes_out_and_all_is_closed() -> None:
    """A context manager of a tool swallows no exception of the caller; the last one opened is closed first."""
    log: list[str] = []
    resources = [Resource(log, name) for name in "abc"]
    tools = [tool(each.browse, name=f"browse_{each.name}", opens=each) for each in resources]
    with pytest.raises(LookupError, match="mine"), sync_loop([], tools):
        raise LookupError("mine")
    assert log == ["a opens", "b opens", "c opens", "c closes", "b closes", "a closes"]


class Broken(Resource):
    def __enter__(self) -> Self:
        raise OSError("it will not open")


def test_what_cannot_be_opened_closes_what_was() -> None:
    """And the handle is not open, so it can be tried again."""
    log: list[str] = []
    fine, broken = Resource(log), Broken(log)
    handle = sync_loop(GO, [tool(fine.browse, opens=fine), tool(broken.close_tab, opens=broken)])
    for _ in range(2):
        with pytest.raises(OSError, match="will not open"), handle:
            pass
    assert log == ["it opens", "it closes"] * 2
    with pytest.raises(IllegalCommand):
        handle.next_turn()


def test_a_handle_is_opened_once_at_a_time() -> None:
    """A second `with` inside the first is refused, and leaves it open."""
    log: list[str] = []
    browser = Resource(log)
    with sync_loop(GO, [tool(browser.browse, opens=browser)]) as handle:
        with refused(handle, IllegalCommand, "open already"), handle:
            pass
        assert completed(handle.run()).text == "fine"
    assert log == ["it opens", "page a", "it closes"]


def test_any_handle_may_be_used_with_with() -> None:
    """Without a tool to open, nothing happens."""

    @tool
    def browse(page: str) -> str:
        """Look."""
        return page

    with sync_loop(GO, [browse]) as handle:
        assert completed(handle.run()).text == "fine"


def test_the_sync_handle_refuses_an_async_context_manager_at_once() -> None:
    """As it refuses an async tool."""
    with pytest.raises(BadTool, match="AsyncToolLoopHandle"):
        sync_loop([], [tool(Resource([]).browse, opens=AsyncResource([]))])


def test_what_is_no_context_manager_is_refused_where_it_is_said() -> None:
    """At the tool."""
    with pytest.raises(BadTool, match="opens"):
        tool(Resource([]).browse, opens=object())


def test_a_tool_of_the_sdk_made_of_a_context_manager_is_closed_with_the_loop() -> None:
    """It is open from its decoration on, so driving it needs no `with`."""
    log: list[str] = []

    @contextmanager
    def browsing() -> Any:
        log.append("opens")

        def browse(page: str) -> str:
            """Look at a page."""
            return page

        yield browse
        log.append("closes")

    make: Callable[..., Any] = anthropic.beta_tool
    handle = ToolLoopHandle(ScriptedProvider(GO), params=ASKED, tools=[make(browsing)])
    yielded(handle.next_turn()).continue_loop()
    with handle:
        assert completed(handle.run()).text == "fine"
        assert log == ["opens"]
    assert log == ["opens", "closes"]


@on_both_backends
def test_an_async_tool_of_the_sdk_is_closed_too(backend: str) -> None:
    """It opens itself at its first run."""
    log: list[str] = []

    @asynccontextmanager
    async def browsing() -> Any:
        log.append("opens")

        async def browse(page: str) -> str:
            return page

        yield browse
        log.append("closes")

    schema = {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]}
    make: Callable[..., Any] = anthropic.beta_async_tool
    browse = make(browsing, name="browse", description="Look at a page.", input_schema=schema)

    async def main() -> None:
        async with AsyncToolLoopHandle(AsyncScriptedProvider(GO), params=ASKED, tools=[browse]) as handle:
            assert completed(await handle.run()).text == "fine"
            assert log == ["opens"]
        assert log == ["opens", "closes"]

    run_async(backend, main)


class Closable:
    """A tool by the SDK's protocol, with a way to close it."""

    name = "browse"

    def __init__(self, close: Callable[[], Awaitable[None] | None]) -> None:
        self.close = close

    def to_dict(self) -> dict[str, Any]:
        return {"name": "browse", "input_schema": {"type": "object"}}

    def call(self, input: object) -> str:  # noqa: A002 - the SDK's own word for it
        return f"{input}"


@on_both_backends
def test_a_tool_of_the_sdk_that_can_be_closed_is_closed(backend: str) -> None:
    """Whether its way to close is async or not."""
    log: list[str] = []

    async def later() -> None:
        log.append("later")

    async def main() -> None:
        for close in (lambda: log.append("now"), later):
            async with AsyncToolLoopHandle(AsyncScriptedProvider(GO), params=ASKED, tools=[Closable(close)]) as handle:
                assert completed(await handle.run()).text == "fine"

    run_async(backend, main)
    with ToolLoopHandle(ScriptedProvider(GO), params=ASKED, tools=[Closable(lambda: log.append("sync"))]) as handle:
        assert completed(handle.run()).text == "fine"
    assert log == ["now", "later", "sync"]


def test_closing_a_tool_of_the_sdk_does_all_it_can(caplog: pytest.LogCaptureFixture) -> None:
    """Its context manager is left also where its `close` fails; an async `close` under the sync handle is said."""
    log: list[str] = []

    @contextmanager
    def resource() -> Any:
        yield
        log.append("left")

    def fail() -> None:
        raise OSError("it will not close")

    for close in (fail, None):
        one = Closable(close or _never)
        one._context_manager = resource()  # type: ignore[attr-defined] # as the SDK keeps it
        one._context_manager.__enter__()  # type: ignore[attr-defined] # likewise
        handle = ToolLoopHandle(ScriptedProvider(GO), params=ASKED, tools=[one])
        if close is not None:
            with pytest.raises(OSError, match="will not close"), handle:
                pass
        else:
            with handle:
                pass
    assert log == ["left", "left"]
    assert "needs AsyncToolLoopHandle" in caplog.text


async def _never() -> None:
    raise AssertionError("nobody awaits it")


ASKED = {"model": "claude-opus-5-5", "max_tokens": 99, "messages": [{"role": "user", "content": "hello"}]}
