"""Parameters of which it is certain that the API refuses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toolloop.machine.jsontext import JSON


def refuse_bad(params: Mapping[str, JSON], *, asked: str) -> None:
    """Refuse parameters of which it is certain that the API refuses them (source: rules 5 and 35 of the Messages API).

    Args:
        params: stored parameters, with the loop's own tools among `tools`.
        asked: what the caller asked for.

    Raises:
        ValueError: names the parameter, and what it may be.

    """
    for name, fits, may_be in _SHAPES:
        if params.get(name) is not None and not fits(params[name]):
            raise ValueError(f"{asked}: params[{name!r}] is {_short(params[name])}; it is to be {may_be}")
    if _compacts_twice(params):  # source: the tool runner of anthropic 2.12, which refuses this too
        raise ValueError(
            f"{asked}: params has 'compaction', and an edit in 'context_management' that compacts; the API takes no "
            "compaction block together with such an edit. Take one of the two away"
        )
    tools = params.get("tools") or []
    choice = params.get("tool_choice")
    if choice is not None and not tools:
        raise ValueError(f"{asked}: params['tool_choice'] is given, and there are no tools to choose from")
    if choice is not None and choice["type"] == "tool":
        names = [tool.get("name") for tool in tools]
        if choice.get("name") not in names:
            raise ValueError(f"{asked}: params['tool_choice'] names {choice.get('name')!r}; the tools are: {names}")


def _compacts_twice(params: Mapping[str, JSON]) -> bool:
    management = params.get("context_management")
    edits = management.get("edits") if isinstance(management, Mapping) else None
    kinds = [str(edit.get("type")) for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else []
    return params.get("compaction") is not None and any(kind.startswith("compact_") for kind in kinds)


def _is_tool(tool: JSON) -> bool:
    if not isinstance(tool, dict):
        return False
    if tool.get("type") not in (None, "custom"):
        return True  # a tool of the API's own, whose fields are the API's affair
    return isinstance(tool.get("name"), str) and isinstance(tool.get("input_schema"), dict)


def _is_system(system: JSON) -> bool:
    if isinstance(system, str):
        return bool(system.strip())
    return isinstance(system, list) and all(
        isinstance(block, dict) and block.get("type") == "text" and str(block.get("text", "")).strip()
        for block in system
    )


def _short(value: JSON) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST = 80
_CHOICES = frozenset({"auto", "any", "tool", "none"})
_SHAPES: tuple[tuple[str, Callable[[JSON], bool], str], ...] = (
    ("model", lambda value: isinstance(value, str) and bool(value), "the name of a model"),
    (
        "max_tokens",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "a whole number of tokens",
    ),
    ("system", _is_system, "a text that is not blank, or a list of text blocks"),
    (
        "tools",
        lambda value: all(_is_tool(tool) for tool in value),
        "a list of tool definitions, each with a name and an input_schema",
    ),
    (
        "tool_choice",
        lambda value: isinstance(value, dict) and value.get("type") in _CHOICES,
        "an object whose type is auto, any, tool or none",
    ),
    (
        "betas",
        lambda value: isinstance(value, list) and all(isinstance(beta, str) for beta in value),
        "a list of names",
    ),
)
