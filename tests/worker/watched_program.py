"""What a watched process does: it works on loops whose model writes slowly, and whose tool draws images."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.to_thread

from tests.kit.fork_server import Line, serve
from tests.promises.processes.programs import store_of, warm_up
from toolloop import AsyncWorker, ToolContext, Worker, tool
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

WORDS = "I draw three images."
DRAW = call("draw", {}, id="c1")


class Pauses:
    """Where the process stands until the test lets it go on."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._lock = threading.Lock()

    def at(self, place: str) -> None:
        with self._lock:
            self._line.say(at=place)
            self._line.hear()


def answer(request: Any) -> Any:
    """It draws first, and is done then."""
    has_spoken = any(message["role"] == "assistant" for message in request["messages"])
    return reply("Done.") if has_spoken else reply(WORDS, calls=[DRAW])


class Model:
    """It pauses in the first reply, after some of its words."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._scripted = ScriptedProvider(answer)

    def send(self, request: Any) -> Any:
        return self._scripted.send(request)

    def stream(self, request: Any) -> Iterator[Any]:
        for event in self._scripted.stream(request):
            yield event
            if is_pause(event):
                self._pauses.at("words")


class AsyncModel:
    """The same, for an event loop."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._scripted = AsyncScriptedProvider(answer)

    async def send(self, request: Any) -> Any:
        return await self._scripted.send(request)

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        async for event in self._scripted.stream(request):
            yield event
            if is_pause(event):
                await anyio.to_thread.run_sync(self._pauses.at, "words")


def is_pause(event: Any) -> bool:
    return bool(text := event.get("delta", {}).get("text")) and WORDS.startswith(text)


def work(line: Line, *, path: str, kind: str, live: float | None = None) -> None:
    """Work for ever. The tool reports that it has drawn two images of three, and pauses."""
    pauses = Pauses(line)

    @tool
    def draw(context: ToolContext) -> str:
        """Draw."""
        context.report("drawing", progress=2, total=3)
        pauses.at("tool")
        return "drawn"

    if kind == "sync":
        Worker(store_of(path), Model(pauses), [draw], live=live).run()
    else:
        anyio.run(AsyncWorker(store_of(path), AsyncModel(pauses), [draw], live=live).run, backend=kind)


if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])), {"work": work})
