"""What an MCP server answers, as it is on the wire, kept from the judgement of the `mcp` package.

`mcp` drops a whole result for one content block that it does not know, a whole list for one broken tool, and runs the
patterns of an output schema (mcp 2.3). So in a connection of ours it sees an empty result, and the server's own one
travels in `_meta`, which it passes on as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anyio.abc import ObjectReceiveStream
from attrs import define

from toolloop.core.jsontext import JSON

if TYPE_CHECKING:
    from pydantic import BaseModel

_OWN = "toolloop/result"


@define(eq=False)
class Unjudged(ObjectReceiveStream[Any]):
    """The messages of a server, each result under cover.

    Args:
        stream: the messages as a transport of `mcp` gives them.

    """

    _stream: Any

    async def receive(self) -> Any:
        """The next message."""
        received = await self._stream.receive()
        message: Any = getattr(received, "message", None)
        message = getattr(message, "root", message)  # mcp 1 has one model around all kinds of messages
        result = getattr(message, "result", None)
        # What the server says of itself, while connecting, `mcp` has to know.
        if isinstance(result, dict) and "protocolVersion" not in result:
            # An error: so no output schema is applied. The list is empty, and so is the content.
            message.result = {"tools": [], "content": [], "isError": True, "_meta": {_OWN: result}}
        return received

    async def aclose(self) -> None:
        """Close the transport's stream."""
        await self._stream.aclose()


def answer(model: BaseModel) -> dict[str, JSON]:
    """The result of the server itself, or else what `mcp` made of it, as that would be on the wire."""
    # Fields have other names in mcp 1 and mcp 2; the wire does not.
    seen = model.model_dump(mode="json", by_alias=True)
    own: dict[str, JSON] = (seen.get("_meta") or {}).get(_OWN, seen)
    return own
