"""The results of a call: what its tool returned or raised, in the form that the API takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any, TypeGuard

from attrs import frozen

from toolloop.machine.jsontext import JSON, decode, encode
from toolloop.machine.setup import Texts
from toolloop.machine.texts import say
from toolloop.machine.values import Call, Outcome, Result
from toolloop.messages.blocks import kinds_taken
from toolloop.tools.responses.adapter import ToolResponseAdapter
from toolloop.tools.responses.content import content_of
from toolloop.tools.responses.errors import describe_failure
from toolloop.tools.responses.types import RawOutputs

LOG = logging.getLogger("toolloop.tools")

# The fields of a `tool_result` that an adapter may set. The toolset is always that of the call.
_FIELDS = frozenset({"content", "is_error", "toolset_name"})


@frozen(eq=False)
class ResultMaker:
    """Makes the results of a call.

    Attributes:
        adapter: makes a message of what the tool returned or raised.
        texts: of the loop.
        known: gives the names of all tools, for results that refer to one; None where they are not all known.

    """

    call: Call
    adapter: ToolResponseAdapter
    texts: Texts
    known: Callable[[], Collection[str] | None]

    def returned(self, value: Any) -> Result:
        """Return the result of a tool that returned a value. A value that cannot be sent makes an error result."""
        try:
            return self._adapted(value)
        except Exception as error:  # noqa: BLE001 - an adapter of the caller's may raise anything
            return self.failed(error)

    def failed(self, error: BaseException) -> Result:
        """Return the error result of a tool that raised."""
        try:
            return self._adapted(error)
        except Exception:
            extra = {"tool": self.call.name, "call_id": self.call.id}
            LOG.exception("the response adapter failed: %s", type(self.adapter).__name__, extra=extra)
            return self._error(describe_failure(error))

    def timed_out(self, seconds: float, *, left_behind: bool) -> Result:
        """Return the error result of a tool that took too long. `left_behind`: it may still run in its thread."""
        LOG.warning("a tool took too long", extra={"tool": self.call.name, "call_id": self.call.id})
        text = say(self.texts, "left_behind" if left_behind else "timed_out", seconds=f"{seconds:g}")
        return Result(encode(text), is_error=True, outcome=Outcome.TIMED_OUT)

    def sendable(self, content: Any, *, is_error: bool = False) -> JSON:
        """Return the content of a result in the form that the API takes.

        Raises:
            TypeError, ValueError: it cannot be sent.

        """
        if not isinstance(content, list):
            return content_of(content, kinds=kinds_for(self.call), is_error=is_error)
        has_reference = any(isinstance(block, dict) and block.get("type") == "tool_reference" for block in content)
        blocks = RawOutputs(content) if content else ""
        known = self.known() if has_reference else None
        return content_of(blocks, kinds=kinds_for(self.call), is_error=is_error, known_tools=known)

    def _adapted(self, response: Any) -> Result:
        """Return the result that the adapter makes of a tool's value, or of its exception."""
        block = self._only_block(self.adapter.create_messages(_tool_use(self.call), response))
        is_error = block.get("is_error") is True or issubclass(type(response), BaseException)
        content: Any = block.get("content", "")
        if _is_one_text(content) and (is_error or not _returned_a_block(response, content[0]["text"])):
            content = content[0]["text"]  # the same to the API, and what the SDK sends for a text
        content = self.sendable(content, is_error=is_error)
        return self._error(content) if is_error else Result(encode(content))

    def _only_block(self, messages: Any) -> dict[str, JSON]:
        """Return the one `tool_result` of the message that an adapter made, without its type and id."""
        match messages:
            case [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": self.call.id, **rest}]}]:
                block = {str(key): value for key, value in rest.items()}
                content, is_error = block.get("content", ""), block.get("is_error")
                if block.keys() <= _FIELDS and isinstance(content, str | list) and isinstance(is_error, bool | None):
                    return block
        raise TypeError(
            f"{type(self.adapter).__name__}.create_messages gave something else than one user message with the one "
            f"tool_result block of the call {self.call.id}, with a content (a string or a list) and perhaps is_error"
        )

    def _error(self, content: JSON) -> Result:
        if _is_one_text(content):
            content = content[0]["text"]
        if isinstance(content, str):
            content = say(self.texts, "failed", error=content)
        return Result(encode(content), is_error=True, outcome=Outcome.FAILED)


def kinds_for(call: Call) -> frozenset[str]:
    """Return the types of blocks that the result of a call may hold."""
    return kinds_taken(by_code=call.by_code, toolset=call.toolset)


def _tool_use(call: Call) -> dict[str, JSON]:
    """Return the `tool_use` block of a call, with the input that ran."""
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": decode(call.effective_input)}
    if call.by_code:
        block["caller"] = {"type": "code_execution"}
    if call.toolset is not None:
        block["toolset_name"] = call.toolset
    return block


def _is_one_text(content: Any) -> TypeGuard[list[dict[str, JSON]]]:
    match content:
        case [{"type": "text", "text": str(), **rest}]:
            return isinstance(content, list) and not rest
    return False


def _returned_a_block(response: Any, text: str) -> bool:
    """Return whether a tool returned this text as a block. It compares types: a response may be any object."""
    if type(response) is not list or len(response) != 1 or type(response[0]) is not dict:
        return type(response) is RawOutputs
    block = response[0]
    return type(block.get("type")) is str and type(block.get("text")) is str and block["text"] == text
