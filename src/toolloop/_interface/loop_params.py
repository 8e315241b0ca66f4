"""Validate the tools, request parameters and messages of a new loop before anything is recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from toolloop._interface.config import LoopConfig
from toolloop._interface.decisions import refuse_invalid, to_texts
from toolloop._requests.automatic_marks import CacheLifetime
from toolloop._requests.encoded_messages import count_marks_of_params
from toolloop._requests.output import add_format
from toolloop._requests.params import Secrets, check_params, split
from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, decode, describe_type, encode, to_plain
from toolloop.machine.values.long_results import READ_RESULT
from toolloop.machine.values.setup import KeepResults, Setup
from toolloop.tools import Tool, ToolRegistry
from toolloop.tools.registry import Tools
from toolloop.tools.result_reader import ResultReader, make_reader


@frozen
class Beginning:
    """The parameters of a new loop.

    Attributes:
        stored: the stored parameters, as JSON.
        secrets: the parameters that are kept only in the process.
        messages: the texts of the messages; None without messages.

    """

    stored: dict[str, JSON]
    secrets: Secrets
    messages: tuple[str, ...] | None

    def make_setup(self, registry: ToolRegistry, config: LoopConfig, **more: Any) -> Setup:
        """Return the setup of a loop with these parameters. `more` sets further fields of `Setup`."""
        tools = tuple(tool.facts() for tool in registry)
        parts: dict[str, Any] = {
            **config.parts(),
            "params": encode(self.stored),
            "tools": tools,
            "members": True,
            **more,
        }
        return Setup(**parts)

    def refuse_invalid(self, messages: tuple[str, ...], registry: ToolRegistry, *, asked: str) -> None:
        """Refuse messages that the API would refuse with these parameters.

        Raises:
            InvalidHistory: the message has the position, the rule and the remedy.

        """
        refuse_invalid(messages, merge_params(self.stored, registry), asked=asked)


def begin_with(
    params: Mapping[str, Any], registry: ToolRegistry, *, asked: str, output: str | None = None
) -> Beginning:
    """Validate the parameters of a loop, except its messages.

    Args:
        params: the keyword arguments of `messages.create`; `messages` may be left out.
        registry: the loop's tools.
        asked: the name of the caller's operation, for errors.
        output: the format of a typed result, as JSON text.

    Raises:
        BadTool: two tools have the same name, in the registry or in the parameters.
        TypeError: the parameters are not a mapping, or a parameter is not JSON.
        ValueError: a parameter is missing, set by the loop itself, or refused by the API.

    """
    given = check_params(params, asked=asked)
    for name in ("model", "max_tokens"):
        if name not in given:
            raise find_missing_parameter(name)
    messages = to_texts(given.pop("messages")) if "messages" in given else None
    stored, secrets = split(given)
    stored = add_format(stored, output, asked)
    check_request(stored, registry.definitions(), asked=asked)
    return Beginning(stored, secrets, messages)


def find_missing_parameter(name: str) -> ValueError:
    """Return the error for a parameter that every loop needs."""
    return ValueError(f"params has no {name!r}. Pass the keyword arguments of messages.create")


def as_registry(tools: Tools) -> ToolRegistry:
    """Return the tools as a registry.

    Raises:
        BadTool: an object is not a tool, or two tools have the same name.
        TypeError: the value is not a list.

    """
    if isinstance(tools, Tool) or not isinstance(tools, Iterable):
        raise TypeError(f"tools: expected a list of tools or a ToolRegistry, got {describe_type(tools)}")
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)


def read_brought_tools(tools: Sequence[JSON]) -> tuple[str, ...]:
    """Return the definitions of tools that `say` brings, as JSON texts.

    Raises:
        BadTool: one has other fields than a name, a description and a schema of an object, or the API refuses it. Tools
            that the API runs itself are parameters, not something that a front end has.
        TypeError: it is not a list.

    """
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise TypeError(f"say(): tools: expected a list of definitions of tools, got {describe_type(tools)}")
    found = [to_plain(tool, "say(): tools") for tool in tools]
    for tool in found:
        if not may_be_brought(tool):
            raise BadTool(
                "say(): tools: expected objects with name, input_schema and perhaps description: a name of at most 64 "
                "letters, digits, _ and -, a schema with the type 'object', and a description that is a text; "
                f"got {_shorten(tool)}",
                tool=str(tool.get("name", "")) if isinstance(tool, dict) else "",
            )
    return tuple(map(encode, found))


def refuse_crowd(setup: Setup, new: Sequence[str]) -> None:
    """Refuse tools of front ends that are too many, or too large, together with those that the loop has.

    Args:
        setup: that of the loop.
        new: the definitions that are brought now, as JSON texts.

    Raises:
        BadTool: they are. It names the first new one.

    """
    known = [encode(tool) for name, tool in setup.find_definitions().items() if name in setup.brought]
    texts = [*known, *new]
    if new and (len(texts) > _MOST_BROUGHT or sum(map(len, texts)) > _LONGEST_BROUGHT):
        raise BadTool(
            f"say(): tools: a loop takes at most {_MOST_BROUGHT} tools of front ends, with {_LONGEST_BROUGHT:,} "
            f"characters in all; it has {len(known)}, and got {len(new)} more. Bring fewer tools",
            tool=decode(new[0])["name"],
        )


def may_be_brought(tool: JSON) -> bool:
    """Return whether this is a definition that `say` takes. One that the API refuses would end each later request."""
    if not (_is_tool(tool) and tool.keys() <= _BROUGHT and _TOOL_NAME.fullmatch(tool["name"])):
        return False
    schema = tool["input_schema"]
    is_of_object = schema.get("type") == "object" and isinstance(schema.get("properties", {}), dict)
    return is_of_object and isinstance(tool.get("description", ""), str)


def add_reader(tools: ToolRegistry, keep: KeepResults | None) -> ToolRegistry:
    """Return the tools of a loop, with the tool that reads long results if it keeps them.

    Raises:
        BadTool: a tool has the name of that tool.

    """
    if keep is None:
        return tools
    rest = [part for part in tools.parts if not isinstance(part, ResultReader)]
    if any(each.name == READ_RESULT and not isinstance(each, ResultReader) for each in tools):
        raise BadTool(
            f"a tool is named {READ_RESULT!r}, but config.keep_results adds a tool of that name. Rename yours",
            tool=READ_RESULT,
        )
    return ToolRegistry([*rest, make_reader(keep)], tools.adapter)


def merge_params(stored: Mapping[str, JSON], registry: ToolRegistry) -> dict[str, JSON]:
    """Return the parameters, including the loop's own tools."""
    return _add_tools(stored, registry.definitions())


def _add_tools(stored: Mapping[str, JSON], definitions: Sequence[JSON]) -> dict[str, JSON]:
    tools = [*definitions, *(stored.get("tools") or ())]
    return {**stored, "tools": tools or None}


def check_request(stored: Mapping[str, JSON], definitions: Sequence[JSON], *, asked: str) -> None:
    """Refuse parameters and tools that the API certainly refuses. `definitions` are those of the loop's tools.

    Raises:
        BadTool: two tools have the same name, in the loop or in the parameters.
        ValueError: the API refuses a parameter.

    """
    _refuse_bad(_add_tools(stored, definitions), asked=asked)
    seen = {definition["name"] for definition in definitions if "name" in definition}  # a toolset has none
    for tool in stored.get("tools") or ():
        name = tool.get("name") if isinstance(tool, dict) else None
        if name in seen:
            raise BadTool(f"two tools are named {name!r}, at least one in params['tools']. Rename one", tool=name)
        seen |= {name} if isinstance(name, str) else set()


def refuse_short_marks(
    stored: Mapping[str, JSON], registry: ToolRegistry, cache: CacheLifetime | None, *, asked: str
) -> None:
    """Refuse cache marks of five minutes in tools or the system prompt if the loop adds marks of an hour.

    Raises:
        ValueError: there is one. The API refuses a mark of an hour after it (source: rule 34 of the Messages API).

    """
    if cache == "1h" and count_marks_of_params(merge_params(stored, registry)).has_short:
        raise ValueError(
            f"{asked}: config.cache is '1h', but tools or the system prompt have a cache mark of five minutes, and the "
            "API refuses a mark of an hour after it. Set 'ttl': '1h' in that mark, remove it, or use cache='5m'"
        )


# --- parameters that the API certainly refuses ------------------------------------------------------------------------


def _refuse_bad(params: Mapping[str, JSON], *, asked: str) -> None:
    """Refuse parameters that the API certainly refuses (source: rules 5 and 35 of the Messages API).

    Args:
        params: stored parameters, with the loop's own tools in `tools`.
        asked: the name of the caller's operation, for errors.

    Raises:
        ValueError: the message names the parameter and the expected value.

    """
    for name, fits, may_be in _SHAPES:
        if params.get(name) is not None and not fits(params[name]):
            raise ValueError(f"{asked}: params[{name!r}]: expected {may_be}, got {_shorten(params[name])}")
    if _compacts_twice(params):  # source: the tool runner of anthropic 2.12, which also refuses this
        raise ValueError(
            f"{asked}: params has 'compaction' and a compacting edit in 'context_management', but the API does not "
            "accept both. Remove one"
        )
    tools = params.get("tools") or []
    choice = params.get("tool_choice")
    if choice is not None and not tools:
        raise ValueError(f"{asked}: params has 'tool_choice', but the loop has no tools. Remove it, or pass tools")
    if choice is not None and choice["type"] == "tool":
        names = [tool.get("name") for tool in tools]
        if choice.get("name") not in names:
            raise ValueError(f"{asked}: params['tool_choice']: unknown tool {choice.get('name')!r}; available: {names}")


def _compacts_twice(params: Mapping[str, JSON]) -> bool:
    management = params.get("context_management")
    edits = management.get("edits") if isinstance(management, Mapping) else None
    kinds = [str(edit.get("type")) for edit in edits if isinstance(edit, Mapping)] if isinstance(edits, list) else []
    return params.get("compaction") is not None and any(kind.startswith("compact_") for kind in kinds)


def _is_tool(tool: JSON) -> bool:
    if not isinstance(tool, dict):
        return False
    if tool.get("type") not in (None, "custom"):
        return True  # one of the API's own tools: only the API knows its fields
    return isinstance(tool.get("name"), str) and isinstance(tool.get("input_schema"), dict)


def _is_system(system: JSON) -> bool:
    if isinstance(system, str):
        return bool(system.strip())
    return isinstance(system, list) and all(
        isinstance(block, dict) and block.get("type") == "text" and str(block.get("text", "")).strip()
        for block in system
    )


def _shorten(value: JSON) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_LONGEST = 80
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_BROUGHT = {"name", "description", "input_schema"}
_MOST_BROUGHT = 64  # of a loop: each request has all of them
_LONGEST_BROUGHT = 64_000  # characters of their definitions
_CHOICES = frozenset({"auto", "any", "tool", "none"})
_SHAPES: tuple[tuple[str, Callable[[JSON], bool], str], ...] = (
    ("model", lambda value: isinstance(value, str) and bool(value), "the name of a model"),
    (
        "max_tokens",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "an int, the number of tokens",
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
