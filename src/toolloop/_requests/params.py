"""Request parameters: check them, and split them into stored and secret ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from attrs import define, field

from toolloop._messages.tool_changes import toolset_of
from toolloop._public import set_module
from toolloop.machine.values.jsontext import JSON, describe_type, to_plain
from toolloop.providers import OPTION_NAMES, SECRET_OPTIONS
from toolloop.providers.protocol import given

_MCP_TOKEN = "authorization_token"  # noqa: S105 - the name of the API's field, not a token
# The loop reads these parameters, so they must be at the top level.
_OWNED = frozenset(
    {
        "cache_control",
        "container",
        "max_tokens",
        "mcp_servers",
        "messages",
        "model",
        "stream",
        "system",
        "thinking",
        "thread",
        "tool_choice",
        "tools",
    }
)
# The parameters of anthropic-sdk 2.12, including its beta interface. Only older models or API versions accept the last
# four. A test compares them with the SDK. The API refuses any other name; newer parameters go into `extra_body`.
_KNOWN = OPTION_NAMES | {
    *("billing_policy", "cache_control", "compaction", "container", "context_management", "diagnostics"),
    *("fallback_credit_token", "fallbacks", "inference_geo", "max_tokens", "mcp_servers", "messages", "metadata"),
    *("model", "output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "thinking", "thread"),
    *("tool_choice", "tools"),
    *("output_format", "temperature", "top_k", "top_p"),
}
_REFUSED = {
    "stream": "streaming is a way to drive a turn, not a parameter. Remove it, and use handle.stream_turn()",
    "thread": "the loop keeps the thread. Remove it, and use LoopConfig(threads=True)",
}


@set_module("toolloop.types")
@define
class Secrets:
    """Parameters that are never part of a state or a snapshot: headers, timeouts, tokens of MCP servers."""

    options: dict[str, Any] = field(factory=dict, repr=False)
    mcp_tokens: dict[tuple[str, str], str] = field(factory=dict, repr=False)

    def joined(self, other: Secrets) -> Secrets:
        """Return these merged with others, which take precedence."""
        return Secrets(self.options | other.options, self.mcp_tokens | other.mcp_tokens)


def check_params(params: Mapping[str, Any], *, asked: str) -> dict[str, Any]:
    """Return the parameters that have a value.

    Raises:
        TypeError: the parameters are not a mapping.
        ValueError: the loop sets a parameter itself, or the API has no parameter with that name.

    """
    if not isinstance(params, Mapping):
        raise TypeError(
            f"{asked}: params: expected the keyword arguments of messages.create, got {describe_type(params)}"
        )
    for name, why in _REFUSED.items():
        if name in params:
            raise ValueError(f"{asked}: params has {name!r}: {why}")
    if isinstance(extra := params.get("extra_body"), Mapping) and (owned := _OWNED & extra.keys()):
        raise ValueError(f"{asked}: extra_body has {', '.join(sorted(owned))}. Pass it as a separate parameter instead")
    found = given(params)
    for name in found:
        if name not in _KNOWN:
            near = get_close_matches(str(name), _KNOWN, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"{asked}: params has {name!r}, which is not a parameter of messages.create. {meant}Pass a parameter "
                "that is newer than this library in extra_body"
            )
    return found


def split(params: Mapping[str, Any]) -> tuple[dict[str, JSON], Secrets]:
    """Split parameters into those that are stored, as JSON, and those that are kept only in the process.

    Raises:
        TypeError: a stored parameter is not JSON; the message has its path.

    """
    secrets = Secrets({name: value for name, value in params.items() if name in SECRET_OPTIONS})
    stored = {
        name: to_plain(value, f"params[{name!r}]") for name, value in params.items() if name not in SECRET_OPTIONS
    }
    for name in ("tools", "mcp_servers"):
        if not isinstance(stored.get(name), list | None):
            raise TypeError(f"params[{name!r}]: expected a list, got {describe_type(stored[name])}")
    for server in stored.get("mcp_servers") or ():
        if isinstance(server, dict) and server.get(_MCP_TOKEN) is not None:
            token = server.pop(_MCP_TOKEN)
            if not isinstance(token, str):
                raise TypeError(f"the {_MCP_TOKEN} of an MCP server: expected a str, got {describe_type(token)}")
            secrets.mcp_tokens[_make_server_key(server)] = token
    return stored, secrets


def list_external_names(stored: Mapping[str, JSON], known: Iterable[str]) -> frozenset[str]:
    """Return the names of tools that only the parameters define. The caller supplies their results.

    The members of a toolset are named together: `computer.*`.
    """
    tools, own = [tool for tool in stored.get("tools") or () if isinstance(tool, dict)], {*known}
    named = {tool["name"] for tool in tools if isinstance(tool.get("name"), str)}
    toolsets = {name for tool in tools if (name := toolset_of(tool)) is not None}
    own_toolsets = {name.partition(".")[0] for name in own if "." in name}
    return frozenset(named - own) | {f"{name}.*" for name in toolsets - own_toolsets}


def add_token(server: JSON, secrets: Secrets) -> JSON:
    """Return an MCP server of the parameters with its token, if there is one."""
    token = secrets.mcp_tokens.get(_make_server_key(server))
    return server if token is None else {**server, _MCP_TOKEN: token}


def _make_server_key(server: Mapping[str, JSON]) -> tuple[str, str]:
    """Return the key of a server's token: its name and URL."""
    return str(server.get("name")), str(server.get("url"))
