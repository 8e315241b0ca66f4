"""Request parameters: what is stored with the loop, what stays with the process, and the request made of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import is_
from typing import Any

from attrs import define, field

from toolloop.core.jsontext import JSON, decode, encode, plain
from toolloop.providers import OPTION_NAMES, SECRET_OPTIONS
from toolloop.providers.options import given
from toolloop.providers.protocol import Request

_MCP_TOKEN = "authorization_token"  # noqa: S105 - the name of the API's field, not a token
_REFUSED = {
    "stream": "streaming is a way to drive a turn, not a parameter; leave it out",
    "thread": "the history lives in the handle and goes out whole; leave it out",
}


@define
class Secrets:
    """What never enters a state or a snapshot: headers, timeouts, authorization tokens of MCP servers."""

    options: dict[str, Any] = field(factory=dict, repr=False)
    mcp_tokens: dict[str, str] = field(factory=dict, repr=False)


def check_params(params: Mapping[str, Any], *, asked: str) -> dict[str, Any]:
    """The parameters that were really given.

    Raises:
        TypeError: they are no mapping.
        ValueError: one of them is not the caller's to give.

    """
    if not isinstance(params, Mapping):
        raise TypeError(f"{asked}: params is a {type(params).__name__}; give the keyword arguments of messages.create")
    for name, why in _REFUSED.items():
        if name in params:
            raise ValueError(f"{asked}: params has {name!r}: {why}")
    return given(params)


def split(params: Mapping[str, Any]) -> tuple[dict[str, JSON], Secrets]:
    """Split parameters into what is stored, as JSON, and what stays with the process.

    Raises:
        TypeError: a stored one is not JSON; the message says where.

    """
    secrets = Secrets({name: value for name, value in params.items() if name in SECRET_OPTIONS})
    stored = {name: plain(value, f"params[{name!r}]") for name, value in params.items() if name not in SECRET_OPTIONS}
    for name in ("tools", "mcp_servers"):
        if not isinstance(stored.get(name), list | None):
            raise TypeError(f"params[{name!r}] is a {type(stored[name]).__name__}; give a list")
    for server in stored.get("mcp_servers") or ():
        if isinstance(server, dict) and server.get(_MCP_TOKEN) is not None:
            secrets.mcp_tokens[str(server.get("name"))] = server.pop(_MCP_TOKEN)
    return stored, secrets


def external_names(stored: Mapping[str, JSON], known: Iterable[str]) -> frozenset[str]:
    """The names of tools that only the parameters define: their results come from the caller."""
    named = {tool.get("name") for tool in stored.get("tools") or () if isinstance(tool, dict)}
    return frozenset(name for name in named if isinstance(name, str)) - frozenset(known)


class RequestMaker:
    """Makes requests of ready pieces: the text of the parameters is made once for each change of them."""

    def __init__(self, definitions: Sequence[JSON], secrets: Secrets) -> None:
        """`definitions`: of the loop's own tools; they go before those that the parameters define."""
        self.secrets = secrets
        self._definitions = list(definitions)
        self._stored = ""
        self._body = ""
        self._options: dict[str, Any] = {}
        self._texts: list[str] = []
        self._pieces: list[bytes] = []

    def make(self, stored: str, messages: Sequence[str]) -> Request:
        """The request for these stored parameters and messages, all JSON texts."""
        if stored is not self._stored:
            self._prepare(stored)
        texts = list(messages)
        return Request(self._body, texts, self._options, self._encode(texts))

    def _encode(self, texts: list[str]) -> list[bytes]:
        """The messages as bytes; those that went out before are not encoded again."""
        known = len(self._texts)
        if known > len(texts) or not all(map(is_, self._texts, texts)):
            known = next(
                (at for at, (old, new) in enumerate(zip(self._texts, texts, strict=False)) if old is not new),
                len(texts),
            )
        self._pieces = [*self._pieces[:known], *(text.encode() for text in texts[known:])]
        self._texts = texts
        return self._pieces

    def update(self, secrets: Secrets, removed: Iterable[str] = ()) -> None:
        """Take other secrets from the next request on, and forget some."""
        for name in removed:
            self.secrets.options.pop(name, None)
        self.secrets.options.update(secrets.options)
        self.secrets.mcp_tokens.update(secrets.mcp_tokens)
        self._stored = ""

    def _prepare(self, stored: str) -> None:
        params = decode(stored)
        self._options = {name: params.pop(name) for name in tuple(params) if name in OPTION_NAMES}
        self._options.update(self.secrets.options)
        if tools := [*self._definitions, *(params.pop("tools", None) or ())]:
            params["tools"] = tools
        for server in params.get("mcp_servers") or ():
            if (token := self.secrets.mcp_tokens.get(str(server.get("name")))) is not None:
                server[_MCP_TOKEN] = token
        self._body = encode(params)
        self._stored = stored
