"""What a tool returned or raised, as the content of a `tool_result`."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeGuard

import attrs

from toolloop.core.jsontext import JSON, canonical, encode, plain
from toolloop.tools.failures import ToolError, shortened, well_formed

Content = str | list[dict[str, JSON]]

# What makes each block that a result may hold: its required fields (source: messages-api, tool_result content).
_BLOCKS = {
    "text": ("text",),
    "image": ("source",),
    "document": ("source",),
    "search_result": ("source", "title", "content"),
    "tool_reference": ("tool_name",),
}


def render(value: object) -> Content:
    """The content of a result: text, or content blocks. It can always be sent.

    A `str` stays as it is, `None` is "ok", a list of content blocks stays (without blank text blocks, which the API
    refuses), anything else is its JSON. Half a surrogate pair becomes U+FFFD: no request can carry it.

    Raises:
        TypeError: something in it is not JSON; the message says what and where.
        ValueError: NaN, an infinity, or a value that contains itself.

    """
    if value is None:
        return "ok"
    if isinstance(value, str):
        return well_formed(value)
    try:
        plain_value = _json(value, "result")
        return _content(plain_value) if _is_content(plain_value) else encode(plain_value)
    except RecursionError as error:
        raise ValueError(
            f"a {type(value).__name__} that contains itself, or is nested too deeply, is not JSON"
        ) from error


def describe_failure(exc: BaseException) -> Content:
    """The error content for an exception that a tool raised: never empty, no traceback, at most 4096 characters.

    What a `ToolError` (toolloop's or the SDK's) says is passed on whole. Its blocks that are not text are only named:
    the API takes nothing but text in an error result (source: anthropic-sdk 2.11).
    """
    name = type(exc).__name__
    if _says_itself(exc):
        return _error_content(exc.content) or name
    try:
        message = str(exc)
    except Exception:  # noqa: BLE001 - an exception that cannot say what it is still gets its result
        message = ""
    return shortened(well_formed(f"{name}: {message}" if message.strip() else name))


def _says_itself(exc: BaseException) -> TypeGuard[ToolError]:
    # Whoever raised the SDK's error, which has the same face, has imported the SDK.
    sdk = getattr(sys.modules.get("anthropic.lib.tools"), "ToolError", ToolError)
    return isinstance(exc, (ToolError, sdk))


def _error_content(content: Any) -> Content:
    if isinstance(content, str):
        return well_formed(content) if content.strip() else ""
    blocks: list[dict[str, JSON]] = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else type(block).__name__
        said = well_formed(str(block.get("text"))) if kind == "text" else f"[{well_formed(str(kind))}]"
        if said.strip():
            blocks.append({"type": "text", "text": said})
    return blocks


def _is_content(value: JSON) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_block, value))


def _is_block(item: JSON) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind in _BLOCKS and all(key in item for key in _BLOCKS[kind])


def _content(blocks: list[dict[str, JSON]]) -> Content:
    kept = [block for block in blocks if block["type"] != "text" or str(block["text"]).strip()]
    return kept or ""


def _json(value: Any, where: str) -> JSON:  # noqa: PLR0911 - one row per kind of value
    """A value as JSON, text made sendable: what `plain` does for messages, for the values that a program has."""
    match value:
        case Enum():
            return _json(value.value, where)
        case None | bool() | int():
            return value
        case float():
            if math.isfinite(value):
                return value
            raise ValueError(f"{where} is {value}, which is not JSON")
        case str():
            return well_formed(value)
        case Mapping():
            return {_key(key, where): _json(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
        case set() | frozenset():
            # The order of a set differs from run to run.
            return sorted((_json(item, f"{where}[...]") for item in value), key=canonical)
    return _json(_fields(value, where), where)


def _fields(value: Any, where: str) -> JSON:
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(kind)}
    if attrs.has(kind):
        return {each.name: getattr(value, each.name) for each in attrs.fields(kind)}
    if kind.__module__.partition(".")[0] == "anthropic":  # blocks and messages: unset fields stay out
        return plain(value, where)
    if hasattr(kind, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(
        f"{where} is a {kind.__name__}, which is not JSON: return text, JSON values, a dataclass, an attrs class, "
        "a pydantic model or a list of content blocks"
    )


def _key(key: Any, where: str) -> str:
    match key:
        case Enum():
            return _key(key.value, where)
        case str():
            return well_formed(key)
        case int() if not isinstance(key, bool):
            return str(key)
    raise TypeError(f"{where} has a key that is a {type(key).__name__}; the keys of a JSON object are strings")
