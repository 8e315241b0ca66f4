"""A real browser at the approval page: a server in a thread, loops that a driver goes on with, and Chromium."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from attrs import define, field
from playwright.sync_api import Browser, sync_playwright

from toolloop import Ask, Inbox, MemoryStore, ToolLoopHandle, tool
from toolloop.inbox import TrailEntry, inbox_app
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider, call, reply
from toolloop.types import Tools

# The one without windows, where it is installed, takes a quarter of the work for a context and half of it for a page.
_NAMES = ("chromium-headless-shell", "chrome-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, _NAMES)), None)
# Without a graphics card, Chromium draws with the processor: the plain way takes a third less of it than the one that
# plays a card. A process for each site costs a fifth, and isolates sites that trust each other here.
_ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-gpu-compositing", "--disable-software-rasterizer"),
    *("--disable-site-isolation-trials", "--renderer-process-limit=1"),
)
_FOUND, _WANTED = (
    "# Lamplight\n\nA lamp that knows wehn it is dark.\n",
    "# Lamplight\n\nA lamp that knows when it is dark.\n",
)
DIFF = f"""\
--- README.md
+++ README.md
@@ -1,3 +1,3 @@
 # Lamplight

-{_FOUND.splitlines()[2]}
+{_WANTED.splitlines()[2]}
"""
TYPO = (
    reply("I read the file first.", calls=[call("read_file", {"path": "README.md"}, id="r1")]),
    reply(
        "README.md has a typo: “wehn”. I would like to write it again.",
        calls=[call("write_file", {"path": "README.md", "text": _WANTED}, id="w1")],
    ),
    reply("README.md is corrected."),
)
BILLS = (
    reply(
        "Two transfers are due.",
        calls=[
            call("transfer", {"to": "Bo Lindqvist", "euros": 940.0, "note": "Rent\nMarch"}, id="t1"),
            call("transfer", {"to": "City power", "euros": 61.2}, id="t2"),
        ],
    ),
    reply("Both are settled."),
)


@tool(effect="pure")
def read_file(path: str) -> str:
    """Read a text file."""
    assert path
    return _FOUND


@tool(
    needs_approval=lambda _: Ask("it changes a file", expires_in=7200.0),
    preview=lambda given: DIFF if given["path"] == "README.md" else "",
)
def write_file(path: str, text: str) -> str:
    """Replace a text file."""
    return f"wrote {len(text)} characters to {path}"


@define
class Office:
    """A store, the page over it, and what ran in it."""

    address: str
    store: Store
    ran: list[Any] = field(factory=list)
    link: str = ""  # to a call
    dead: dict[str, str] = field(factory=dict)  # links that decide nothing any more, by what became of them
    now: float | None = None  # what the clock of page and loops says; None: the time that it is
    ahead: float = 0.0  # seconds by which it was put forward

    def clock(self) -> float:
        """Return the time of the page and of the loops."""
        return time.time() + self.ahead if self.now is None else self.now

    def trail(self, loop_id: str) -> tuple[TrailEntry, ...]:
        """Return who decided what."""
        return Inbox(self.store).trail(loop_id)

    def decide(self, loop_id: str, decisions: dict[str, Any]) -> None:
        """Decide somewhere else than on the page."""
        inbox = Inbox(self.store, clock=self.clock)
        shown = {call.id: call for call in inbox.pending(limit=1000) if call.loop_id == loop_id}
        inbox.decide(loop_id, {shown.get(name, name): decision for name, decision in decisions.items()})

    def drive(self, loop_id: str, script: tuple[Any, ...] = (), text: str = "", **more: Any) -> None:
        """Begin a loop, or go on with it. `tools`, `metadata`, `params` and `config` may be others."""

        @tool(needs_approval=True)
        def transfer(to: str, euros: float, urgent: bool = False, note: str | None = None) -> str:
            """Send money.

            Args:
                to: who gets it
                euros: how much
                urgent: today
                note: for the receiver

            """
            self.ran.append((to, euros, urgent, note))
            if to == "nobody":
                raise KeyboardInterrupt
            return f"sent {euros} euros to {to}"

        def answer(request: Any) -> Any:
            return script[sum(message["role"] == "assistant" for message in request["messages"])]

        params = {
            "model": "claude-opus-5-5",
            "max_tokens": 500,
            "messages": [{"role": "user", "content": text or "Go"}],
        }
        params |= more.get("params", {})
        tools: Tools = more.get("tools", [read_file, write_file, transfer])
        metadata = more.get("metadata", {"owner": "ana"})
        parts: dict[str, Any] = {"tools": tools, "params": params, "metadata": metadata, "config": more.get("config")}
        with ToolLoopHandle.open(self.store, loop_id, ScriptedProvider(answer), clock=self.clock, **parts) as handle:
            handle.run()


@contextmanager
def office() -> Iterator[Office]:
    """Serve the page of an empty store. The header `x-user` says who a browser is; without it, it is ana."""
    here = Office("", MemoryStore())
    who = lambda request: request.headers.get("x-user", "ana")  # noqa: E731
    app = inbox_app(here.store, who=who, refresh=0.05, clock=here.clock)
    with serving(app) as here.address:
        yield here


@contextmanager
def serving(app: Any, *, send_buffer: int | None = None) -> Iterator[str]:
    """Serve an application in a thread; its address. `send_buffer`: how many bytes the system keeps for a client."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if send_buffer is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the Chromium of this machine."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGUMENTS)
        yield browser
        browser.close()
