"""The tools of the tests, the parameters of small requests, and messages. Each tool notes in the world that it ran."""

from __future__ import annotations

from typing import Any, Literal

from toolloop import ToolContext, tool
from toolloop.testing import call, reply

MODEL = "claude-opus-5-5"
HUNDRED = {"input_tokens": 100, "output_tokens": 50}


def note(context: ToolContext, *what: Any) -> None:
    """Note which tool ran, and with what: in the `World` of the loop, or in a plain list."""
    if isinstance(context.state, list):
        context.state.append(what)
    elif context.state is not None:
        context.state.note(context, what)


@tool
def pay(amount: int, context: ToolContext) -> str:
    """Pay, once."""
    note(context, "pay", amount)
    return f"pay {amount}"


@tool(name="pay", needs_approval=True)
def transfer(to: str, euros: int, context: ToolContext) -> str:
    """Pay."""
    note(context, "pay", to, euros)
    return "paid"


@tool(needs_approval=True)
def send(to: str, context: ToolContext) -> str:
    """Send a letter, once, if it is approved."""
    note(context, "send", to)
    return f"send {to}"


@tool(effect="pure")
def look(path: str, context: ToolContext) -> str:
    """Read a text file."""
    note(context, "look", path)
    return f"text of {path}"


@tool
def add(a: int, b: int, context: ToolContext) -> str:
    """Add two numbers."""
    note(context, "add", a, b)
    return str(a + b)


@tool(needs_approval=True)
def write(path: str, text: str, context: ToolContext) -> str:
    """Replace a text file."""
    note(context, "write", path, text)
    return f"wrote {path}"


@tool
def broken(context: ToolContext) -> str:
    """Fail."""
    note(context, "broken")
    raise OSError("the disk is gone")


@tool
def picture(kind: Literal["png", "jpeg"], context: ToolContext) -> list[dict[str, Any]]:
    """Take a picture."""
    note(context, "picture", kind)
    data = {"png": "iVBORw0KGgo=", "jpeg": "/9j/4A=="}[kind]  # the first bytes of such a file
    source = {"type": "base64", "media_type": f"image/{kind}", "data": data}
    return [{"type": "image", "source": source}]


TOOLS = (add, write, look, broken, picture)
STORED_TOOLS = (pay, send, look)

PAY = call("pay", {"amount": 1}, id="t1")
SEND = call("send", {"to": "ana"}, id="t2")
LOOK = call("look", {"path": "a"}, id="t3")
# A round that needs no person, one that needs a decision, and the end.
STORY = (reply(calls=[PAY]), reply(calls=[SEND, LOOK]), reply("done"))


def user(content: Any = "hello") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def params(**more: Any) -> dict[str, Any]:
    """Parameters of a small request."""
    return {"model": MODEL, "max_tokens": 256, "messages": [user()], **more}
