"""Request parameters: what is stored with the loop, what stays with the process, and the request made of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Any

from attrs import define, field

from toolloop.core.binding import Places
from toolloop.core.blocks import MANY_IMAGES
from toolloop.core.chain import Chain
from toolloop.core.errors import InvalidHistory
from toolloop.core.jsontext import JSON, decode, encode, plain
from toolloop.handle.binding import Unbound, leaves_out
from toolloop.handle.pieces import NONE, Pieces, count
from toolloop.history import RULES, Problem
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
        self._pieces = Pieces()
        self._body_counts, self._body_size = NONE, 0
        self._counts = NONE  # what adds up in the request that was made last
        self._passed: tuple[int, ...] | None = None
        self._compacting: str | None = None  # the body of a request that only compacts
        self._leaves_out = False
        self._unbound = Unbound()

    def make(
        self,
        stored: str,
        messages: Sequence[str],
        container: str | None = None,
        *,
        tail: Sequence[str] = (),
        unbound: Places = (),
    ) -> Request:
        """The request for these stored parameters and messages, all JSON texts.

        Args:
            stored: the parameters but `messages`.
            messages: what goes out; of a `Chain` that has grown since the last request, only what is new is looked at.
            tail: what goes out behind them, and is not of the history yet. With it a paused turn goes on,
                so the server is not asked to compact instead. Nor is it where nothing follows its last compaction.
            unbound: where thinking stands that was born after other words; see `leaves_out`.
            container: the id of the container in which the code of the open turn runs; it takes the place of another
                that the parameters name, and their skills stay (source: rule 25 of the Messages API).

        Raises:
            InvalidHistory: it is larger than the API takes.

        """
        if stored is not self._stored:
            self._prepare(stored)
        resumes = bool(tail)
        history = messages if isinstance(messages, Chain) else Chain(messages)
        if unbound and self._leaves_out:
            history, tail = self._unbound.parted(history, tail, unbound)
        pieces = self._pieces.take(history, tail)
        texts = Chain([*history, *tail]) if tail else history
        body = self._body
        if self._compacting is not None and not resumes and not _is_compacted(texts):
            body = self._compacting
        if container is not None:
            body = _in_container(body, container)
        if (size := self._pieces.size + self._body_size + _AROUND) > _MOST_BYTES:
            raise _too_large(size, texts, pieces)
        own, rest = self._body_counts, self._pieces.counts
        self._counts = rest if own is NONE else tuple(map(add, own, rest))
        return Request(body, texts, self._options, pieces)

    def may_add_up(self) -> bool:
        """Whether the request that was made last may have too much of something; a look at all of it tells.

        What a look found to be right is asked about again only when more of it is there.
        """
        if self._counts is NONE or self._counts == self._passed:
            return False
        marks, hours, images, cited, sources, large = self._counts
        many_marks = marks > _MOST_CACHE_MARKS or (marks > 1 and hours > 0)
        many_images = images > MANY_IMAGES and (large > 0 or images > FEWEST_IMAGES)
        return many_marks or many_images or 0 < cited != sources

    def passed(self) -> None:
        """The request that was made last was looked at, and has not too much of anything."""
        self._passed = self._counts

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
        body = self._body.encode()
        self._body_counts, self._body_size = count(body), len(body) + 1
        self._passed = None
        self._stored = stored


def _too_large(size: int, texts: Sequence[str], pieces: Sequence[bytes]) -> InvalidHistory:
    largest = max(range(len(pieces)), key=lambda index: len(pieces[index]))
    rule = RULES["request-size"]
    own = len(pieces[largest])
    what = f"the request has {size:,} bytes, {own:,} of them in this message; the API takes {_MOST_BYTES:,}"
    problem = Problem(f"messages[{largest}]", "request-size", rule.level, what, rule.remedy)
    return InvalidHistory(
        f"next_turn(): the API would refuse these messages: {problem.path}: {what} [{problem.rule}]. {rule.remedy}",
        problems=(problem,),
        messages=[decode(text) for text in texts],
    )
