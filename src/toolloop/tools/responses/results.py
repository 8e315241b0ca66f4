"""Make results in the API's format from return values and exceptions of tools."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, TypeGuard

from attrs import evolve, frozen

from toolloop._messages.blocks import BLOCKS, list_result_kinds
from toolloop.machine.values.calls import Call, Outcome, Result, text_of_content
from toolloop.machine.values.jsontext import JSON, decode, encode, make_well_formed
from toolloop.machine.values.setup import Texts
from toolloop.machine.values.texts import fill_text
from toolloop.tools.responses.adapter import LOOP_ID, AnthropicMessagesToolResponseAdapter, ToolResponseAdapter
from toolloop.tools.responses.content import content_of, list_if_iterator, to_following_blocks
from toolloop.tools.responses.failure_texts import describe_failure
from toolloop.tools.responses.response_types import RawOutputs
from toolloop.tools.tool_errors import shorten

LOG = logging.getLogger("toolloop.tools")
_CHECKED = AnthropicMessagesToolResponseAdapter.create_messages  # it has checked what it makes


@frozen(eq=False)
class ResultMaker:
    """Make the results of a call.

    Attributes:
        adapter: makes a message from the tool's return value or exception.
        texts: the loop's texts for the model.
        known: returns the names of all tools, for results that refer to one; None if some are unknown.
        loop_id: the loop of the call, for the log.

    """

    call: Call
    adapter: ToolResponseAdapter
    texts: Texts
    known: Callable[[], Collection[str] | None]
    loop_id: str

    def to_result(self, value: Any) -> Result:
        """Return the result for a return value. A value that cannot be sent becomes an error result."""
        try:
            return self._adapt(list_if_iterator(value))
        except Exception as error:  # noqa: BLE001 - a custom adapter may raise anything
            return self.to_error_result(error)

    def to_error_result(self, error: BaseException) -> Result:
        """Return the error result for an exception."""
        try:
            return self._adapt(error)
        except Exception:
            LOG.exception("the response adapter failed: %s", type(self.adapter).__name__, extra=self.log_fields())
            return self._make_error_result(describe_failure(error))

    def make_timeout(self, seconds: float, *, left_behind: bool) -> Result:
        """Return the error result for a timeout. `left_behind` means that the tool may still run in its thread."""
        LOG.warning("a tool exceeded its timeout", extra=self.log_fields())
        text = fill_text(self.texts, "left_behind" if left_behind else "timed_out", seconds=f"{seconds:g}")
        return Result(encode(text), is_error=True, outcome=Outcome.TIMED_OUT)

    def log_fields(self) -> dict[str, str]:
        """Return the log fields of the call."""
        return {"loop_id": self.loop_id, "tool": self.call.name, "call_id": self.call.id}

    def to_sendable(self, content: Any, *, is_error: bool = False) -> JSON:
        """Return the content of a result in the API's format.

        Raises:
            TypeError, ValueError: the content cannot be sent.

        """
        if not isinstance(content, list):
            return content_of(content, kinds=find_kinds_for(self.call), is_error=is_error)
        has_reference = any(isinstance(block, dict) and block.get("type") == "tool_reference" for block in content)
        blocks = RawOutputs(content) if content else ""
        known = self.known() if has_reference else None
        return content_of(blocks, kinds=find_kinds_for(self.call), is_error=is_error, known_tools=known)

    def _adapt(self, response: Any) -> Result:
        """Return the adapter's result for a return value or exception."""
        token = LOOP_ID.set(self.loop_id)
        try:
            create = self.adapter.create_messages
            messages: Any = create(_make_tool_use(self.call), response)
        finally:
            LOOP_ID.reset(token)
        is_own = getattr(create, "__func__", None) is _CHECKED
        block, *after = messages[0]["content"] if is_own else self._split_message(messages)
        is_error = block.get("is_error") is True or issubclass(type(response), BaseException)
        content: Any = block.get("content", "")
        if _is_one_text(content) and (is_error or not _is_returned_block(response, content[0]["text"])):
            content = content[0]["text"]  # equivalent for the API; the SDK sends a text this way
        if not (is_own and isinstance(content, str)):
            content = self.to_sendable(content, is_error=is_error)
        made = (
            self._make_error_result(content)
            if is_error
            else Result(encode(content), plain=self._make_plain_text(response, content))
        )
        mark = block.get("cache_control")
        if mark is None and not after:
            return made
        return evolve(made, mark=None if mark is None else encode(mark), after=encode(after) if after else None)

    def _make_plain_text(self, response: Any, content: JSON) -> str | None:
        """Return the text for hosts; None if it equals the text of the content."""
        text = None
        with suppress(Exception):  # the result is sent in any case
            text = make_well_formed(self.adapter.to_plain_text(response))
        return None if text is None or text == text_of_content(content) else shorten(text)

    def _split_message(self, messages: Any) -> list[dict[str, JSON]]:
        """Return the `tool_result` in an adapter's message, and the blocks after it."""
        match messages:
            case [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": self.call.id} as block, *after]}]:
                flaws = tuple(BLOCKS["tool_result"].shape("", "", block))
                is_alone = not (self.call.by_code and after)  # the API accepts nothing after such a result
                if not flaws and is_alone and isinstance(block.get("content", ""), (str, list)):
                    return [block, *to_following_blocks(after)]
        raise TypeError(
            f"{type(self.adapter).__name__}.create_messages returned an invalid message. It must return a list with "
            f"one user message, which begins with the tool_result of call {self.call.id} (content: a string or a "
            "list). Only blocks that the API accepts there may follow; none after the result of a call made by code"
        )

    def _make_error_result(self, content: JSON) -> Result:
        if _is_one_text(content):
            content = content[0]["text"]
        if isinstance(content, str):
            content = fill_text(self.texts, "failed", error=content)
        return Result(encode(content), is_error=True, outcome=Outcome.FAILED)


def find_kinds_for(call: Call) -> frozenset[str]:
    """Return the types of blocks that the result of a call may hold."""
    return list_result_kinds(by_code=call.by_code, toolset=call.toolset)


def _make_tool_use(call: Call) -> dict[str, JSON]:
    """Return the `tool_use` block of a call, with the input that ran."""
    block = {"type": "tool_use", "id": call.id, "name": call.own_name, "input": decode(call.effective_input)}
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


def _is_returned_block(response: Any, text: str) -> bool:
    """Return whether a tool returned this text as a block. Types are checked first: a response may be any object."""
    if type(response) is not list or len(response) != 1 or type(response[0]) is not dict:
        return type(response) is RawOutputs
    block = response[0]
    return type(block.get("type")) is str and type(block.get("text")) is str and block["text"] == text
