"""The response adapter: converts a tool's return value to the user message that answers the call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Protocol

from attrs import frozen

from toolloop._messages.blocks import BLOCKS, list_result_kinds, type_of
from toolloop._public import set_module
from toolloop.machine.values.jsontext import JSON, describe_type, encode, make_well_formed
from toolloop.tools.responses.content import Content, as_block, content_of, plain_text_of, takes, to_following_blocks
from toolloop.tools.responses.failure_texts import Unsendable, describe_failure
from toolloop.tools.responses.response_types import RawOutputs

LOG = logging.getLogger("toolloop.tools")
# The loop whose result is made, for the log: an adapter works without a loop, too, so no argument has it.
LOOP_ID: ContextVar[str | None] = ContextVar("LOOP_ID", default=None)

_MAX_CHARS = 200_000  # about 50,000 tokens


@set_module("toolloop.responses")
class ToolResponseAdapter(Protocol):
    """Make results from return values. Pass an object with these two methods to `ToolRegistry`."""

    def to_plain_text(self, response: Any) -> str:
        """Return a tool's return value as text, for hosts and logs."""
        ...

    def create_messages(self, call: Any, response: Any) -> list[dict[str, JSON]]:
        """Return a list with one user message, which holds the `tool_result` for a `tool_use` block.

        A response that cannot be sent becomes an error result.

        Raises:
            ValueError: the call has no id, or is not a `tool_use` block.

        """
        ...


@set_module("toolloop.responses")
class AnthropicMessagesToolResponseAdapter:
    """Make results that the Messages API accepts, from any return value.

    It also works without a loop. Override `to_plain_text` to change the texts that the model reads.

    Args:
        max_chars: the maximum number of characters of a text in a result. Longer texts are cut, with a note of how
            much is missing. None means no limit.

    Raises:
        TypeError: a method of the subclass is async.
        ValueError: `max_chars` is not positive.

    """

    def __init__(self, *, max_chars: int | None = _MAX_CHARS) -> None:
        """Store the limit."""
        if max_chars is not None and max_chars < 1:
            raise ValueError(f"max_chars: expected a positive number or None for no limit, got {max_chars}")
        check_adapter(self)
        self._max_chars = max_chars

    def to_plain_text(self, response: Any) -> str:
        """Return a return value or exception as text: files by name, other blocks by type in brackets.

        This method makes the text blocks of a result. An iterator is read to its end.

        Raises:
            Unsendable: the response is neither JSON nor content.

        """
        return plain_text_of(response)

    def create_messages(self, call: Any, response: Any) -> list[dict[str, JSON]]:
        """Return a list with one user message that answers a call.

        Args:
            call: the `tool_use` block, as a mapping or an SDK object. The result of a call made by code execution
                holds only text. The result of a toolset member holds text and images, and repeats `toolset_name`;
                other blocks of a `RawOutputs` follow it. So does whatever is beside a ready result.
            response: the tool's return value (any value, or a response type), or the exception that it raised.

        Raises:
            ValueError: the call has no id, or is not a `tool_use` block.

        """
        asked = _read_asked(call)
        is_error = isinstance(response, BaseException)
        content: Content
        ready: dict[str, JSON] = {}
        after: list[dict[str, JSON]] = []
        try:
            if isinstance(response, RawOutputs):
                response, ready, after = _split_outputs(response, asked, self.to_plain_text)
                is_error = "is_error" in ready
            content = content_of(response, kinds=asked.kinds, is_error=is_error, to_plain_text=self.to_plain_text)
        except Exception as error:  # noqa: BLE001 - `to_plain_text` of a subclass may raise anything
            content, is_error = self._describe_failure(response if isinstance(response, BaseException) else error), True
            ready, after = {}, []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        sent = [self._cut(block) for block in blocks if block != {"type": "text", "text": ""}]
        result: dict[str, JSON] = {"type": "tool_result", "tool_use_id": asked.id, "content": sent or "", **ready}
        if is_error:
            result["is_error"] = True
        if asked.toolset is not None:
            result["toolset_name"] = asked.toolset
        _log(asked, response, sent, is_error=is_error)
        return [{"role": "user", "content": [result, *after]}]

    def _describe_failure(self, error: BaseException) -> str:
        """Return the text of an error; never blank."""
        with suppress(Exception):
            if (text := make_well_formed(self.to_plain_text(error))).strip():
                return text
        return describe_failure(error)

    def _cut(self, block: dict[str, JSON]) -> dict[str, JSON]:
        limit = self._max_chars
        if limit is None or block["type"] != "text" or len(block["text"]) <= limit:
            return block
        whole = len(block["text"])
        return {**block, "text": f"{block['text'][:limit]}\n[Cut: {whole - limit:,} of {whole:,} characters left out.]"}


def check_adapter(adapter: Any) -> ToolResponseAdapter:
    """Return the object if it is a response adapter.

    Raises:
        TypeError: a method is missing or async, or the object is a class.

    """
    for name in ("create_messages", "to_plain_text"):
        method = getattr(adapter, name, None)
        if isinstance(adapter, type) or not callable(method):
            raise TypeError(
                f"adapter: expected an object with create_messages and to_plain_text, such as "
                f"AnthropicMessagesToolResponseAdapter(), got {describe_type(adapter)}"
            )
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise TypeError(f"adapter: {type(adapter).__name__}.{name} is async; declare it with def")
    found: ToolResponseAdapter = adapter
    return found


@frozen
class _Asked:
    """The fields of a `tool_use` block that affect its result."""

    id: str
    name: str
    kinds: frozenset[str]
    by_code: bool
    toolset: str | None


def _read_asked(call: Any) -> _Asked:
    def of(owner: Any, name: str) -> Any:
        return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)

    call_id, kind, toolset = of(call, "id"), of(call, "type"), of(call, "toolset_name")
    if kind is not None and kind != "tool_use":
        raise ValueError(f"cannot make a tool_result for a block of type {kind!r}: expected a tool_use block")
    if not isinstance(call_id, str) or not call_id.strip():
        raise ValueError(f"cannot make a tool_result: expected a tool_use block with an id, got id {call_id!r}")
    by_code = str(of(of(call, "caller"), "type")).startswith("code_execution")
    kinds = list_result_kinds(by_code=by_code, toolset=toolset)
    return _Asked(call_id, str(of(call, "name")), kinds, by_code, toolset if isinstance(toolset, str) else None)


def _split_outputs(
    outputs: RawOutputs, asked: _Asked, to_plain_text: Callable[[Any], str]
) -> tuple[RawOutputs, dict[str, JSON], list[dict[str, JSON]]]:
    """Return the blocks inside the result, the other fields of a ready result, and the blocks after the result.

    A ready result of the call is replaced by its content, and what else may follow a result follows it. Blocks may not
    follow the result of a call made by code.
    """
    inside: list[Any] = []
    ready: dict[str, JSON] = {}
    after: list[dict[str, JSON]] = []
    blocks = [(item, as_block(item)) for item in outputs.blocks]
    has_ready = any(block is not None and block.get("type") == "tool_result" for _, block in blocks)
    is_ready = has_ready and not asked.by_code
    for index, (item, block) in enumerate(blocks):
        kind = None if block is None else block.get("type")
        if block is None and is_ready:
            content = content_of(RawOutputs([item]), to_plain_text=to_plain_text)
            after += [{"type": "text", "text": content}] if isinstance(content, str) else content
        elif block is None or not isinstance(kind, str):
            inside.append(item)
        elif kind == "tool_result":
            held = _content_of_ready(block, asked.id, f"result[{index}]")
            inside += [held] if isinstance(held, str) else held
            ready |= {"is_error": True} if block.get("is_error") is True else {}
            ready |= {"cache_control": mark} if (mark := block.get("cache_control")) else {}
        elif asked.by_code or "user" not in type_of(kind).places or (takes(asked.kinds, kind) and not is_ready):
            inside.append(item)
        else:
            after.append(block)
    return RawOutputs(inside), ready, to_following_blocks(after)


def _content_of_ready(block: dict[str, JSON], call_id: str, where: str) -> JSON:
    if block.get("tool_use_id") != call_id:
        raise Unsendable(f"{where} is a tool_result of a call other than {call_id}")
    content = block.get("content") or []
    if not isinstance(content, (str, list)):
        raise Unsendable(f"{where}.content is neither a text nor a list of content blocks")
    for flaw in BLOCKS["tool_result"].shape("", "", {**block, "is_error": block.get("is_error") is True}):
        raise Unsendable(f"{where}{'.' if flaw.path else ''}{flaw.path}: {flaw.text}")
    return content


def _log(asked: _Asked, response: object, content: JSON, *, is_error: bool) -> None:
    """Log one line for the call, without contents."""
    if not LOG.isEnabledFor(logging.INFO):
        return
    about = {
        "tool": asked.name,
        "call_id": asked.id,
        "response_type": type(response).__name__,
        "is_error": is_error,
        "size": len(encode(content)),
    }
    if (loop_id := LOOP_ID.get()) is not None:
        about["loop_id"] = loop_id
    with suppress(Exception):  # a handler that raises must not change the result
        LOG.info("tool call answered: %(tool)s, %(response_type)s, %(size)d characters", about, extra=about)
