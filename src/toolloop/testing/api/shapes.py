"""The shape of a request, read from the parameter types of the SDK.

This module walks the types itself. A validation library would validate an `Iterable` lazily, accept a string twice for
`Union[str, Iterable]`, and permit unknown keys. A key that is not required may be null, because the API accepts that.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Required, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from toolloop.testing.api.api_refusals import RequestContext

JSONPath = tuple[str | int, ...]
Found = Iterator[tuple[JSONPath, str]]

EXTRA = "Extra inputs are not permitted"
_OBJECT = "Input should be an object"
_SCALARS: dict[Any, tuple[type | tuple[type, ...], str]] = {
    str: (str, "a valid string"),
    bool: (bool, "a valid boolean"),
    int: (int, "a valid integer"),
    float: ((int, float), "a valid number"),
}
#: Keys and block types that need a beta; the value is the start of the beta's name. An empty string means any beta.
_BETAS: dict[str, tuple[str, ...]] = {
    "billing_policy": ("",),
    "compaction": ("compact-2026-09-04",),
    "context_management": ("context-management-", "compact-2026-01-12"),
    "fallback_credit_token": ("fallback-credit-",),
    "fallbacks": ("server-side-fallback-",),
    "mcp_servers": ("mcp-client-",),
    "messages.clear_at": ("mid-conversation-system-clear-at-",),
    "messages.content.tool_addition": ("mid-conversation-tool-changes-", "inline-tools-"),
    "messages.content.tool_addition.tool.tool_definition": ("inline-tools-",),
    "messages.content.tool_removal": ("mid-conversation-tool-changes-", "inline-tools-"),
    "messages.output_config": ("mid-conversation-output-config-",),
    "thinking.adaptive.block_binding": ("thinking-binding-controls-",),
    "thinking.enabled.block_binding": ("thinking-binding-controls-",),
    "thread": ("message-threads-",),
}


def mismatches(body: Any, context: RequestContext) -> list[tuple[JSONPath, str]]:
    """Compare a request with the SDK's types.

    Args:
        body: the decoded body.
        context: the betas of the request.

    Returns:
        The path and the API's message for each mismatch: wrong types first, then unknown keys, as the API orders them.

    """
    from anthropic.types.beta import message_create_params as types  # noqa: PLC0415 - it takes a second to import

    streams = isinstance(body, dict) and body.get("stream")
    record = types.MessageCreateParamsStreaming if streams else types.MessageCreateParamsNonStreaming
    return sorted(_Walk(context).record(body, record, ()), key=lambda mismatch: mismatch[1] == EXTRA)


@functools.cache
def _keys(record: Any) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(record, include_extras=True).items() if name != "betas"}


def _is_record(hint: Any) -> bool:
    return hasattr(hint, "__required_keys__")  # `typing.is_typeddict` does not accept those of typing_extensions


def _tags(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [tag for arm in get_args(hint) for tag in _tags(arm)]


class _Walk:
    def __init__(self, context: RequestContext) -> None:
        self._context = context

    def value(self, value: Any, hint: Any, path: JSONPath) -> Found:
        """Compare a value with any type that occurs in the SDK's parameter types."""
        origin, arms = get_origin(hint), get_args(hint)
        if _is_record(hint):
            yield from self.record(value, hint, path)
        elif origin is Required:
            yield from self.value(value, arms[0], path)
        elif origin is Union:
            yield from self._union(value, arms, path)
        elif origin in {list, Iterable, Sequence} and isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.value(item, arms[0], (*path, index))
        elif not _fits(value, hint):
            yield path, f"Input should be {_name(hint)}"

    def record(self, value: Any, record: Any, path: JSONPath) -> Found:
        """Compare an object with a `TypedDict`."""
        if not isinstance(value, dict):
            yield path, _OBJECT
            return
        for name, hint in _keys(record).items():
            if get_origin(hint) is Required and name not in value:
                yield (*path, name), "Field required"
        for name, item in value.items():
            hint = _keys(record).get(name)
            if hint is None or not self._is_on((*path, name)):
                yield (*path, name), EXTRA
            elif item is not None or get_origin(hint) is Required:
                yield from self.value(item, hint, (*path, name))

    def _union(self, value: Any, arms: tuple[Any, ...], path: JSONPath) -> Found:
        records = [arm for arm in arms if _is_record(arm)]
        if isinstance(value, dict) and len(records) > 1:
            yield from self._tagged(value, records, path)
            return
        if value is None and type(None) in arms:
            return
        found = [list(self.value(value, arm, path)) for arm in arms if arm is not type(None)]
        if all(found):
            # The arm with the deepest mismatch is the most likely one.
            yield from max(reversed(found), key=lambda mismatches: max(len(where) for where, _ in mismatches))

    def _tagged(self, value: dict[str, Any], records: list[Any], path: JSONPath) -> Found:
        key = "role" if "role" in _keys(records[0]) else "type"
        hints = [(_keys(record)[key], record) for record in records]
        by_tag = {tag: record for hint, record in hints for tag in _tags(hint)}
        # A tool without a type is a custom tool: only there the type is not required.
        default = next((_tags(hint)[0] for hint, _ in hints if get_origin(hint) is not Required), None)
        tag = value.get(key) or default
        if tag is None:
            yield (*path, key), "Field required"
        elif not isinstance(tag, str) or tag not in by_tag:
            yield (
                path,
                (
                    f"Input tag '{tag}' found using '{key}' does not match any of the expected tags: "
                    + ", ".join(f"'{each}'" for each in by_tag)
                ),
            )
        else:
            inside = path if key == "role" else (*path, tag)
            if not self._is_on(inside):
                yield inside, EXTRA
            yield from self.record(value, by_tag[tag], inside)

    def _is_on(self, path: JSONPath) -> bool:
        betas = _BETAS.get(".".join(part for part in path if isinstance(part, str)))
        return betas is None or self._context.has_beta(betas)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint in _SCALARS:
        return isinstance(value, _SCALARS[hint][0]) and (hint is bool or not isinstance(value, bool))
    return hint is object or (get_origin(hint) is dict and isinstance(value, dict))


def _name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        *first, last = (f"'{value}'" for value in get_args(hint))
        return f"{', '.join(first)} or {last}" if first else last
    if hint in _SCALARS:
        return _SCALARS[hint][1]
    return "a valid array" if get_origin(hint) in {list, Iterable, Sequence} else "an object"
