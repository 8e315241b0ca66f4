"""The options of `@tool` that the API or the loop would refuse later, refused where they are given."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from sys import float_info
from typing import Any, get_args

from toolloop.core.errors import BadTool
from toolloop.core.jsontext import JSON, plain
from toolloop.core.values import ToolEffect

# Source: anthropic-sdk 2.12, `ToolParam.allowed_callers`; a later version of code execution is taken too.
_CALLER = re.compile(r"direct|code_execution_\d{8}")
_FLAGS = ("strict", "defer_loading", "eager_input_streaming")


def api_fields(given: Mapping[str, Any], name: str) -> dict[str, JSON]:
    """The fields of the API's tool definition that were given, as JSON.

    Raises:
        BadTool: one is not of the shape that the API takes (source: messages-api, rule 35; anthropic-sdk, `ToolParam`).

    """
    set_ = {key: _listed(value, key, name) for key, value in given.items() if value is not None}
    try:
        fields: dict[str, JSON] = plain(set_, name)
    except TypeError as error:
        raise BadTool(f"{name} cannot be a tool: {error}", tool=name) from error
    for key in _FLAGS:
        if not isinstance(fields.get(key, False), bool):
            raise BadTool(f"{key} of {name} is {fields[key]!r}; it is True or False", tool=name)
    for key, is_right, wanted in _SHAPES:
        if key in fields and not is_right(fields[key]):
            raise BadTool(f"{key} of {name} is {fields[key]!r}; it is {wanted}", tool=name)
    if fields.get("defer_loading") and "cache_control" in fields:
        raise BadTool(
            f"{name} has cache_control and defer_loading=True, and the API refuses both together: leave one out",
            tool=name,
        )
    return fields


def check_effect(effect: object, name: str) -> None:
    """Refuse what is no effect.

    Raises:
        BadTool: it is none.

    """
    if effect not in get_args(ToolEffect):
        raise BadTool(f'effect of {name} is {effect!r}; it is "pure", "keyed" or "once"', tool=name)


def check_timeout(timeout: Any, name: str) -> None:
    """Refuse what is no number of seconds.

    Raises:
        BadTool: it is none.

    """
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= float_info.max:
        raise BadTool(f"timeout of {name} is {timeout!r}; give seconds, more than 0, or None for no limit", tool=name)


def opened_by(function: object, opens: object | None, name: str) -> object | None:
    """What a tool opens: what it was told to, or itself if it is a context manager.

    Raises:
        BadTool: it is no context manager.

    """
    if opens is None:
        return function if _is_context_manager(function) else None
    if _is_context_manager(opens):
        return opens
    raise BadTool(f"opens of {name} is a {type(opens).__name__}, which is no context manager", tool=name)


def _is_context_manager(value: object) -> bool:
    kind = type(value)
    pairs = (("__enter__", "__exit__"), ("__aenter__", "__aexit__"))
    return any(all(hasattr(kind, method) for method in pair) for pair in pairs)


def _listed(value: Any, key: str, name: str) -> Any:
    """What may be given as any iterable, as the list that the API takes."""
    if key not in {"allowed_callers", "input_examples"}:
        return value
    if isinstance(value, str | bytes | Mapping):
        raise BadTool(f"{key} of {name} is {value!r}; it is a list", tool=name)
    try:
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    except TypeError as error:
        raise BadTool(f"{key} of {name} is {value!r}; it is a list", tool=name) from error


def _is_cache_control(value: JSON) -> bool:
    return (
        isinstance(value, dict)
        and value.get("type") == "ephemeral"
        and value.keys() <= {"type", "ttl"}
        and value.get("ttl", "5m") in ("5m", "1h")
    )


def _are_callers(value: JSON) -> bool:
    return bool(value) and all(isinstance(each, str) and _CALLER.fullmatch(each) for each in value)


def _are_objects(value: JSON) -> bool:
    return all(isinstance(each, dict) for each in value)


_SHAPES: tuple[tuple[str, Callable[[JSON], bool], str], ...] = (
    ("cache_control", _is_cache_control, '{"type": "ephemeral"}, with "ttl": "5m" or "1h" if you like'),
    ("allowed_callers", _are_callers, 'a list of "direct" and "code_execution_…"'),
    ("input_examples", _are_objects, "a list of inputs: objects"),
)
