"""What a loop begins with: its tools, request parameters and messages, checked before anything is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from toolloop.face.config import LoopConfig
from toolloop.face.decisions import refuse_invalid, to_texts
from toolloop.face.tool_facts import facts_of
from toolloop.machine.errors import BadTool
from toolloop.machine.jsontext import JSON, encode
from toolloop.machine.setup import Setup
from toolloop.requests.params import Secrets, check_params, split
from toolloop.requests.refusals import refuse_bad
from toolloop.tools import Tool, ToolRegistry, as_tool


@frozen
class Beginning:
    """The parameters of a loop that begins.

    Attributes:
        stored: what is stored of them, as JSON.
        secrets: what stays with the process.
        messages: the texts of their messages; None if they have none.

    """

    stored: dict[str, JSON]
    secrets: Secrets
    messages: tuple[str, ...] | None

    def setup(self, registry: ToolRegistry, config: LoopConfig, **more: Any) -> Setup:
        """Return what a loop with these parameters is set up with; `more` by the fields of `Setup`."""
        tools = tuple(map(facts_of, registry))
        return Setup(**{**config.parts(), "params": encode(self.stored), "tools": tools, **more})

    def refuse_invalid(self, messages: tuple[str, ...], registry: ToolRegistry, *, asked: str) -> None:
        """Refuse messages that the API would refuse with these parameters.

        Raises:
            InvalidHistory: says where, which rule, and how to mend it.

        """
        refuse_invalid(messages, all_params(self.stored, registry), asked=asked)


def begin_with(params: Mapping[str, Any], registry: ToolRegistry, *, asked: str) -> Beginning:
    """Return the parameters of a loop, checked; its messages are not.

    Args:
        params: the keyword arguments of `messages.create`; `messages` may be left out.
        registry: the loop's tools.
        asked: what the caller asked for.

    Raises:
        BadTool: two tools of one name, whether the loop defines them or the parameters do.
        TypeError: they are not a mapping, or one of them is not JSON.
        ValueError: one is missing, is set by the loop itself, or is one that the API refuses.

    """
    given = check_params(params, asked=asked)
    for name in ("model", "max_tokens"):
        if name not in given:
            raise missing(name)
    messages = to_texts(given.pop("messages")) if "messages" in given else None
    stored, secrets = split(given)
    check_request(stored, registry, asked=asked)
    return Beginning(stored, secrets, messages)


def missing(name: str) -> ValueError:
    """Return the error for a parameter that every loop needs."""
    return ValueError(f"params has no {name!r}; give the keyword arguments of messages.create")


def as_registry(tools: Any) -> ToolRegistry:
    """Return the tools as a registry.

    Raises:
        BadTool: two of one name, or something that is not a tool.
        TypeError: they are not a list.

    """
    if isinstance(tools, Tool) or not isinstance(tools, Iterable):
        raise TypeError(f"tools is a {type(tools).__name__}; give a list of tools, or a ToolRegistry")
    return tools if isinstance(tools, ToolRegistry) else ToolRegistry([as_tool(tool) for tool in tools])


def all_params(stored: Mapping[str, JSON], registry: ToolRegistry) -> dict[str, JSON]:
    """Return the parameters with the loop's own tools among them."""
    tools = [*registry.definitions(), *(stored.get("tools") or ())]
    return {**stored, "tools": tools or None}


def check_request(stored: Mapping[str, JSON], registry: ToolRegistry, *, asked: str) -> None:
    """Refuse what the API is certain to refuse of a request, its messages aside.

    Raises:
        BadTool: two tools of one name, whether the loop defines them or the parameters do.
        ValueError: a parameter that the API refuses.

    """
    refuse_bad(all_params(stored, registry), asked=asked)
    seen = set(registry.names)
    for tool in stored.get("tools") or ():
        name = tool.get("name") if isinstance(tool, dict) else None
        if name in seen:
            raise BadTool(f"two tools have the name {name!r}; at least one of them is in params['tools']", tool=name)
        seen |= {name} if isinstance(name, str) else set()
