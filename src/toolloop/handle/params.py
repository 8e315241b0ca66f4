"""Request parameters: what is stored with the loop, what stays with the process, and the request made of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, is_
from typing import Any

from attrs import define, field

from toolloop.core.binding import Places
from toolloop.core.blocks import MANY_IMAGES
from toolloop.core.errors import InvalidHistory
from toolloop.core.jsontext import JSON, decode, encode, plain
from toolloop.handle.binding import Unbound, leaves_out
from toolloop.history import RULES, Problem
from toolloop.history.images import large_images
from toolloop.history.models import FEWEST_IMAGES
from toolloop.history.reading import is_summary
from toolloop.providers import OPTION_NAMES, SECRET_OPTIONS
from toolloop.providers.options import given
from toolloop.providers.protocol import Request

_MCP_TOKEN = "authorization_token"  # noqa: S105 - the name of the API's field, not a token
# The loop reads these, so they are to be where it looks for them.
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
# What adds up over messages that were each judged by themselves: cache marks, those of an hour, images, sources that
# are cited, sources that can be. Large images and bytes are counted beside these.
_COUNTED = (
    (b'"cache_control":{',),
    (b'"ttl":"1h"',),
    (b'"type":"image"',),
    (b'"citations":{"enabled":true',),
    (b'"type":"document"', b'"type":"search_result"'),
)
_IMAGES = 2  # their place among the counts
_NOTHING = (0,) * (len(_COUNTED) + 2)
_MOST_BYTES = 32 * 1024 * 1024  # of a request (source: rule 1 of the Messages API)
_AROUND = 1024  # bytes for what else goes along: the key of the messages, a container, `stream`
_MOST_CACHE_MARKS = 4  # source: rule 34 of the Messages API
_REFUSED = {
    "stream": "streaming is a way to drive a turn, not a parameter; leave it out",
    "thread": "the history lives in the handle and goes out whole; leave it out",
}


@define
class Secrets:
    """What never enters a state or a snapshot: headers, timeouts, authorization tokens of MCP servers."""

    options: dict[str, Any] = field(factory=dict, repr=False)
    mcp_tokens: dict[tuple[str, str], str] = field(factory=dict, repr=False)

    def joined(self, other: Secrets) -> Secrets:
        """These and others, which come first."""
        return Secrets(self.options | other.options, self.mcp_tokens | other.mcp_tokens)


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
    if isinstance(extra := params.get("extra_body"), Mapping) and (owned := _OWNED & extra.keys()):
        raise ValueError(f"{asked}: extra_body has {', '.join(sorted(owned))}; give it as a parameter of its own")
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
            token = server.pop(_MCP_TOKEN)
            if not isinstance(token, str):
                raise TypeError(f"the {_MCP_TOKEN} of an MCP server is a {type(token).__name__}; give a string")
            secrets.mcp_tokens[_server_key(server)] = token
    return stored, secrets


def external_names(stored: Mapping[str, JSON], known: Iterable[str]) -> frozenset[str]:
    """The names of tools that only the parameters define: their results come from the caller."""
    named = {tool.get("name") for tool in stored.get("tools") or () if isinstance(tool, dict)}
    return frozenset(name for name in named if isinstance(name, str)) - frozenset(known)


def _with_token(server: JSON, secrets: Secrets) -> JSON:
    token = secrets.mcp_tokens.get(_server_key(server))
    return server if token is None else {**server, _MCP_TOKEN: token}


def _server_key(server: Mapping[str, JSON]) -> tuple[str, str]:
    """A token is for this name at this address, and for no other."""
    return str(server.get("name")), str(server.get("url"))


def _is_compacted(texts: Sequence[str]) -> bool:
    """Whether the last message is a compaction of the API, so that there is nothing to compact."""
    if not texts or '"compaction"' not in texts[-1]:
        return False
    content = decode(texts[-1])["content"]
    return isinstance(content, list) and bool(content) and is_summary(content[-1])


def without_answers(params: Mapping[str, JSON]) -> dict[str, JSON]:
    """The parameters of a request whose reply is a summary: without those that only shape an answer.

    Source: the tool runner of anthropic 2.12, which leaves out the same.
    """
    kept = {name: value for name, value in params.items() if name not in _ONLY_OF_ANSWERS}
    choice, output = kept.get("tool_choice"), kept.get("output_config")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        del kept["tool_choice"]
    if isinstance(output, Mapping):
        kept["output_config"] = {name: value for name, value in output.items() if name != "format"}
    return kept


_ONLY_OF_ANSWERS = frozenset({"context_management", "stop_sequences", "output_format"})


def _in_container(body: str, container: str) -> str:
    params = decode(body)
    given = params.get("container")
    params["container"] = {**given, "id": container} if isinstance(given, dict) else container
    return encode(params)


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
        self._counts: list[tuple[int, ...]] = []  # of all messages up to each
        self._body_count = _NOTHING
        self._passed: list[int] | None = None
        self._compacting: str | None = None  # the body of a request that only compacts
        self._leaves_out = False
        self._unbound = Unbound()

    def make(
        self,
        stored: str,
        messages: Sequence[str],
        container: str | None = None,
        *,
        unbound: Places = (),
        resumes: bool = False,
    ) -> Request:
        """The request for these stored parameters and messages, all JSON texts.

        Args:
            stored: the parameters but `messages`.
            messages: what goes out.
            unbound: where thinking stands that was born after other words; see `leaves_out`.
            resumes: it goes on with a paused turn, so the server is not asked to compact instead. Nor is it where
                nothing follows its last compaction.
            container: the id of the container in which the code of the open turn runs; it takes the place of another
                that the parameters name, and their skills stay (source: rule 25 of the Messages API).

        Raises:
            InvalidHistory: it is larger than the API takes.

        """
        if stored is not self._stored:
            self._prepare(stored)
        texts = self._unbound.without(messages, unbound) if unbound and self._leaves_out else list(messages)
        body = self._body
        if self._compacting is not None and not resumes and not _is_compacted(texts):
            body = self._compacting
        if container is not None:
            body = _in_container(body, container)
        request = Request(body, texts, self._options, self._encode(texts))
        if (size := self._total()[-1] + _AROUND) > _MOST_BYTES:
            raise self._too_large(size)
        return request

    def _encode(self, texts: list[str]) -> list[bytes]:
        """The messages as bytes; those that went out before are not encoded again."""
        known = len(self._texts)
        if known > len(texts) or not all(map(is_, self._texts, texts)):
            known = next(
                (at for at, (old, new) in enumerate(zip(self._texts, texts, strict=False)) if old is not new),
                len(texts),
            )
        fresh = [text.encode() for text in texts[known:]]
        self._pieces = [*self._pieces[:known], *fresh]
        self._counts = self._counts[:known]
        for piece in fresh:
            self._counts.append(_sum(self._counts[-1] if self._counts else _NOTHING, _count(piece)))
        self._texts = texts
        return self._pieces

    def _total(self) -> tuple[int, ...]:
        """How much of each there is in the request that was made last; its bytes come last."""
        return _sum(self._body_count, self._counts[-1] if self._counts else _NOTHING)

    def _too_large(self, size: int) -> InvalidHistory:
        largest = max(range(len(self._pieces)), key=lambda index: len(self._pieces[index]))
        rule = RULES["request-size"]
        own = len(self._pieces[largest])
        what = f"the request has {size:,} bytes, {own:,} of them in this message; the API takes {_MOST_BYTES:,}"
        problem = Problem(f"messages[{largest}]", "request-size", rule.level, what, rule.remedy)
        return InvalidHistory(
            f"next_turn(): the API would refuse these messages: {problem.path}: {what} [{problem.rule}]. {rule.remedy}",
            problems=(problem,),
            messages=[decode(text) for text in self._texts],
        )

    def may_add_up(self) -> bool:
        """Whether the request that was made last may have too much of something; a look at all of it tells.

        What a look found to be right is asked about again only when more of it is there.
        """
        *total, _ = self._total()
        if total == self._passed:
            return False
        marks, hours, images, cited, sources, large = total
        many_marks = marks > _MOST_CACHE_MARKS or (marks > 1 and hours > 0)
        many_images = images > MANY_IMAGES and (large > 0 or images > FEWEST_IMAGES)
        return many_marks or many_images or 0 < cited != sources

    def passed(self) -> None:
        """The request that was made last was looked at, and has not too much of anything."""
        *self._passed, _ = self._total()

    def update(self, secrets: Secrets, changed: Iterable[str]) -> None:
        """Take other secrets from the next request on, in the place of those of the changed parameters."""
        for name in changed:
            self.secrets.options.pop(name, None)
        if "mcp_servers" in changed:
            self.secrets.mcp_tokens.clear()
        self.secrets.options.update(secrets.options)
        self.secrets.mcp_tokens.update(secrets.mcp_tokens)
        self._stored = ""

    def parameters(self, stored: str) -> str:
        """The text of the parameters, with all tools; the same object until they change."""
        if stored is not self._stored:
            self._prepare(stored)
        return self._body

    def given(self, stored: str) -> dict[str, Any]:
        """The parameters as the caller gave them, but for `messages`: with what no store holds."""
        params = decode(stored)
        if servers := params.get("mcp_servers"):
            params["mcp_servers"] = [_with_token(server, self.secrets) for server in servers]
        return {**params, **self.secrets.options}

    def alone(
        self, params: Mapping[str, JSON], messages: Sequence[str], unbound: Places, secrets: Secrets | None = None
    ) -> Request:
        """A request beside the loop's own.

        Args:
            params: the stored parameters, or others in their place.
            messages: what goes out.
            unbound: as for `make`.
            secrets: what no store holds; None: those of the loop.

        """
        secrets = self.secrets if secrets is None else secrets
        body = {name: value for name, value in params.items() if name not in OPTION_NAMES and name != "compaction"}
        options = {name: value for name, value in params.items() if name in OPTION_NAMES}
        texts = Unbound().without(messages, unbound) if unbound and leaves_out(params) else list(messages)
        return Request(encode(self._whole(body, secrets)), texts, options | secrets.options)

    def _whole(self, params: Mapping[str, JSON], secrets: Secrets) -> dict[str, JSON]:
        """The parameters with all tools, and with the tokens that nobody stores."""
        whole = dict(params)
        if tools := [*self._definitions, *(whole.pop("tools", None) or ())]:
            whole["tools"] = tools
        if servers := whole.get("mcp_servers"):
            whole["mcp_servers"] = [_with_token(server, secrets) for server in servers]
        return whole

    def _prepare(self, stored: str) -> None:
        params = decode(stored)
        self._options = {name: params.pop(name) for name in tuple(params) if name in OPTION_NAMES}
        self._options.update(self.secrets.options)
        params = self._whole(params, self.secrets)
        self._compacting = None
        if params.get("compaction") is not None:
            self._compacting = encode(without_answers(params))
            del params["compaction"]
        self._leaves_out = leaves_out(params)
        self._body = encode(params)
        self._body_count = _count(self._body.encode())
        self._passed = None
        self._stored = stored


def _count(piece: bytes) -> tuple[int, ...]:
    """How often a message may hold each of what adds up, then how many large images, then its bytes."""
    found = [sum(map(piece.count, words)) for words in _COUNTED]
    large = large_images(decode(piece)) if found[_IMAGES] else 0  # each message is looked into once
    return *found, large, len(piece) + 1


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(add, one, other))
