"""Validate the options of a tool when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from sys import float_info
from typing import Any, get_args

from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, plain
from toolloop.machine.values.setup import ToolEffect


def api_fields(given: Mapping[str, Any], name: str) -> dict[str, JSON]:
    """Return the given fields of the API's tool definition, as JSON.

    Raises:
        BadTool: a field is not JSON, or two fields exclude each other (source: messages-api, rule 35).

    """
    try:
        fields: dict[str, JSON] = plain({key: value for key, value in given.items() if value is not None}, name)
    except TypeError as error:
        raise BadTool(f"{name} cannot be a tool: {error}", tool=name) from error
    if fields.get("defer_loading") and "cache_control" in fields:
        raise BadTool(
            f"{name} has cache_control and defer_loading=True, but the API refuses them together. Remove one",
            tool=name,
        )
    return fields


def check_effect(effect: object, name: str) -> None:
    """Raise `BadTool` if it is not an effect."""
    if effect not in get_args(ToolEffect):
        raise BadTool(f'effect of {name}: expected "pure", "keyed" or "once", got {effect!r}', tool=name)


def check_timeout(timeout: Any, name: str) -> None:
    """Raise `BadTool` if it is not a number of seconds."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= float_info.max:
        raise BadTool(
            f"timeout of {name}: expected a positive number of seconds, or None for no limit, got {timeout!r}",
            tool=name,
        )


def check_preview(preview: object, name: str) -> None:
    """Raise `BadTool` if it cannot be called."""
    if preview is not None and not callable(preview):
        raise BadTool(f"preview of {name}: expected a function of the input, or None, got {preview!r}", tool=name)
