"""What the processes of these tests do: they serve AG-UI, until they are killed."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import uvicorn

from tests.kit.fork_server import Line, serve
from tests.kit.warm_up import async_client, warm_up
from toolloop import Ask, LoopConfig, Person, SqliteStore, ToolContext, sub_loop, tool
from toolloop.agui import agui_app
from toolloop.stores import StoredLoop

PARAMS: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 1024}
GROUPS = {"fay": ("finance",), "guest": ("guests",)}


def tools_of(line: Line, witness: Path) -> list[Any]:
    """Return the tools. Each notes in a file that it runs."""

    def note(*words: str) -> None:
        with witness.open("a") as file:
            file.write(" ".join(words) + "\n")

    @tool
    def read_file(path: str, ctx: ToolContext) -> str:
        """Read a text file."""
        note(ctx.call_id, "read_file", path)
        return f"contents of {path}"

    @tool(needs_approval=True)
    def write_file(path: str, text: str, ctx: ToolContext) -> str:
        """Replace a text file."""
        note(ctx.call_id, "write_file", path, text)
        return f"wrote {len(text)} characters to {path}"

    @tool(needs_approval=lambda _: Ask("a lot of money", of=("finance",)))
    def pay(to: str, ctx: ToolContext) -> str:
        """Send money."""
        note(ctx.call_id, "pay", to)
        return f"paid {to}"

    @tool(needs_approval=True, secret=("token",))
    def sign_in(token: str, ctx: ToolContext) -> str:
        """Sign in."""
        note(ctx.call_id, "sign_in", token)
        return "signed in"

    @tool
    async def hold(ctx: ToolContext) -> str:
        """Wait for the test."""
        note(ctx.call_id, "hold")
        line.say(held=ctx.call_id)
        await anyio.to_thread.run_sync(line.hear, abandon_on_cancel=True)
        return "held"

    @tool
    async def stall(ctx: ToolContext) -> str:
        """Run until the server is killed, if the test will do that; otherwise return at once."""
        note(ctx.call_id, "stall")
        if witness.with_name("stalls").exists():
            line.say(held=ctx.call_id)
            await anyio.sleep_forever()
        return "stalled"

    helper = sub_loop("helper", "Does a part.", params={**PARAMS, "system": "child"}, tools=[write_file])
    return [read_file, write_file, pay, sign_in, hold, stall, helper]


def who(request: Any) -> Person | None:
    """Return the person of a request."""
    name = request.headers.get("x-user")
    return None if name is None else Person(name, GROUPS.get(name, ()))


def may(person: Person, action: str, _loop: StoredLoop, _call: Any) -> bool:
    """Return whether a person may do something: a guest may only speak."""
    return person.name != "guest" or action == "say"


def serve_agui(line: Line, *, store: str, model: str, witness: str, is_shared: bool = False, **more: Any) -> None:
    """Serve AG-UI at a free port. `is_shared`: all persons see all threads, which exist already."""
    app = agui_app(
        SqliteStore(store),
        async_client(model),
        tools_of(line, Path(witness)),
        params=PARAMS,
        who=who,
        may=may,
        sees=(lambda _: None) if is_shared else None,
        config=LoopConfig(max_iterations=20),
        **{"front_end_tools": ("get_*",), "show": ("text", "reasoning", "calls", "results"), **more},
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        line.say(port=listening.getsockname()[1])
        uvicorn.Server(_configured(app)).run(sockets=[listening])


def _configured(app: Any) -> uvicorn.Config:
    return uvicorn.Config(app, log_level="critical", loop="asyncio", http="h11", ws="none")


if __name__ == "__main__":
    warm_up()
    _configured(who).load()  # imports what each server needs
    serve(socket.socket(fileno=int(sys.argv[1])), {"serve_agui": serve_agui})
