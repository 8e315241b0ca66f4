"""The agents of these tests: in a thread of this process, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anthropic import AsyncAnthropic
from attrs import define, field

from tests.kit.fork_server import Line, serve as serve_programs
from tests.kit.warm_up import async_client, warm_up
from toolloop import SqliteStore, ToolContext, sub_loop, tool
from toolloop.acp import AcpLoops, AcpSession, Factory, serve
from toolloop.acp.__main__ import main
from toolloop.testing import call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 1024}


@define
class Ran:
    """What ran, as lines of a file: it outlives a process that is killed."""

    file: Path

    def note(self, text: str) -> None:
        with self.file.open("a") as lines:
            lines.write(f"{text}\n")

    @property
    def lines(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


def tools_of(ran: Ran) -> list[Any]:
    """The tools of an assistant."""

    @tool(needs_approval=True, diff=("old", "new"), path="path")
    def edit(path: str, old: str, new: str) -> str:
        """Edit a file."""
        print("a tool that prints")  # noqa: T201 - it does
        ran.note(f"edit {path} {new.strip()}")
        return f"edited {path}"

    @tool(needs_approval=True, secret="token")
    def send(to: str, token: str = "none") -> str:
        """Send a mail."""
        ran.note(f"send {to}")
        return f"sent to {to}"

    @tool(effect="pure")
    def look(path: str) -> str:
        """Look at a file."""
        ran.note(f"look {path}")
        return f"{path} is empty"

    @tool
    async def hang(context: ToolContext) -> str:
        """Run until the end of the world."""
        ran.note("hang")
        context.report("it hangs")
        await asyncio.Event().wait()
        return "never"

    @tool
    async def stall(context: ToolContext) -> str:
        """Run until the agent is killed; when it is started again, it returns at once."""
        is_first = f"stall {context.call_id}" not in ran.lines
        ran.note(f"stall {context.call_id}")
        if is_first:
            context.report("it stalls")
            await asyncio.Event().wait()
        return "stalled"

    research = sub_loop("research", "Research something.", params=PARAMS, tools=[send])
    return [edit, send, look, hang, stall, research]


def model(body: dict[str, Any]) -> Any:
    """Call the tools that the last words of the user name: `edit a.txt, send bo`. Then sum up."""
    content = body["messages"][-1]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    words = " ".join(block["text"] for block in blocks if block["type"] == "text" and "ran with" not in block["text"])
    number = len(body["messages"])
    inputs: dict[str, Callable[[str], dict[str, str]]] = {
        "edit": lambda what: {"path": what, "old": "old\n", "new": "new\n"},
        "send": lambda what: {"to": what, "token": "s3cret"},
        "look": lambda what: {"path": what},
        "hang": lambda _: {},
        "stall": lambda _: {},
        "research": lambda what: {"prompt": what},
    }
    asked = [part.strip().partition(" ") for part in words.split(",")]
    calls = [
        call(name, inputs[name](what), id=f"c{number}_{place}")
        for place, (name, _, what) in enumerate(asked)
        if name in inputs
    ]
    if calls:
        return reply("I do it.", thinking="Let me see.", calls=calls)
    return reply(f"Done: {words}" if words else "All done.")


def loops_at(folder: Path, url: str, **more: Any) -> AcpLoops:
    """The loops of an agent whose model answers at an address."""
    given = {
        "provider": async_client(url),
        "person": "ana",
        "params": PARAMS,
        "tools": tools_of(Ran(folder / "ran")),
        **more,
    }
    return AcpLoops(**{"store": SqliteStore(folder / "loops.db"), **given})


@define
class Agents:
    """Agents of one store. `factory`: makes the loops of each."""

    path: Path
    factory: Factory
    _threads: list[threading.Thread] = field(factory=list)

    @contextmanager
    def listening(self) -> Iterator[Path]:
        """Serve each editor that connects to a socket, until the block is left."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.path))
            listener.listen()
            accepting = threading.Thread(target=self._accept, args=(listener,))
            accepting.start()
            try:
                yield self.path
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                for thread in (accepting, *self._threads):
                    thread.join(30)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                end, _ = listener.accept()
                self._threads.append(threading.Thread(target=serve_socket, args=(self.factory, end)))
                self._threads[-1].start()


def serve_socket(factory: Factory, end: socket.socket) -> None:
    """Serve one editor."""
    clients = list[Any]()

    def make(session: AcpSession) -> AcpLoops:
        loops = factory(session)
        clients.append(loops.provider)
        return loops

    async def run() -> None:
        with end, end.makefile("rb") as source, end.makefile("wb") as sink:
            try:
                await serve(make, source, sink)
            finally:
                for client in clients:
                    if isinstance(client, AsyncAnthropic):
                        await client.close()

    with suppress(OSError):  # the editor left while it was sent something
        asyncio.run(run())


def accept(line: Line, path: str) -> socket.socket:
    """Wait for the editor."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        line.say(listens=True)
        return listener.accept()[0]


def agent(line: Line, *, path: str, folder: str, url: str) -> None:
    """An agent in a process of its own, which serves one editor."""
    serve_socket(lambda _: loops_at(Path(folder), url), accept(line, path))


def command(line: Line, *, path: str, folder: str, arguments: Sequence[str]) -> int:
    """The command, with the editor at its standard input and output. Standard error is a file."""
    end = accept(line, path)
    for descriptor in (0, 1):
        os.dup2(end.fileno(), descriptor)
    end.close()
    with Path(folder, "stderr").open("wb") as errors:
        os.dup2(errors.fileno(), 2)
    sys.path.insert(0, folder)
    return main(arguments)


if __name__ == "__main__":
    warm_up()
    asyncio.run(asyncio.sleep(0))  # imports what an event loop needs
    serve_programs(socket.socket(fileno=int(sys.argv[1])), {"agent": agent, "command": command})
