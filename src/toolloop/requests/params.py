"""Request parameters: what is stored with the loop, what stays with the process, and the request made of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from attrs import define, field, frozen

from toolloop.machine.chain import Chain
from toolloop.machine.errors import InvalidHistory
from toolloop.machine.jsontext import JSON, a_type, decode, encode, plain
from toolloop.machine.loop import Thread
from toolloop.messages.blocks import MOST_CACHE_MARKS
from toolloop.messages.reading import is_summary
from toolloop.messages.rules import RULES, Problem
from toolloop.providers import OPTION_NAMES, SECRET_OPTIONS
from toolloop.providers.protocol import Request, given
from toolloop.providers.threads import ThreadedRequest, fingerprint, with_beta
from toolloop.requests.prefixes import Prefixes
from toolloop.requests.thinking import ThinkingFilter, leaves_out, without_thinking

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
# Those of anthropic-sdk 2.12, its beta interface included; the last four only older models or versions of the API take.
# A test compares them with the SDK. The API refuses any other name; what is newer goes into `extra_body`.
_KNOWN = OPTION_NAMES | {
    *("billing_policy", "cache_control", "compaction", "container", "context_management", "diagnostics"),
    *("fallback_credit_token", "fallbacks", "inference_geo", "max_tokens", "mcp_servers", "messages", "metadata"),
    *("model", "output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "thinking", "thread"),
    *("tool_choice", "tools"),
    *("output_format", "temperature", "top_k", "top_p"),
}
# A thread is created with them, and a request that continues it may not repeat them.
_FROZEN = ("system", "tools")
_CACHE_MARK = b'"cache_control":{'
_MOST_BYTES = 32 * 1024 * 1024  # of a request (source: rule 1 of the Messages API)
_AROUND = 1024  # bytes for what else goes along: the key of the messages, a container, `stream`
_REFUSED = {
    "stream": "streaming is a way to drive a turn, not a parameter; leave it out",
    "thread": "the loop keeps the thread; give LoopConfig(threads=True)",
}


@define
class Secrets:
    """What never enters a state or a snapshot: headers, timeouts, authorization tokens of MCP servers."""

    options: dict[str, Any] = field(factory=dict, repr=False)
    mcp_tokens: dict[tuple[str, str], str] = field(factory=dict, repr=False)

    def joined(self, other: Secrets) -> Secrets:
        """Return these and others, which come first."""
        return Secrets(self.options | other.options, self.mcp_tokens | other.mcp_tokens)


def check_params(params: Mapping[str, Any], *, asked: str) -> dict[str, Any]:
    """Return the parameters that were really given.

    Raises:
        TypeError: they are not a mapping.
        ValueError: the loop sets one of them itself, or the API has no parameter of that name.

    """
    if not isinstance(params, Mapping):
        raise TypeError(f"{asked}: params is {a_type(params)}; give the keyword arguments of messages.create")
    for name, why in _REFUSED.items():
        if name in params:
            raise ValueError(f"{asked}: params has {name!r}: {why}")
    if isinstance(extra := params.get("extra_body"), Mapping) and (owned := _OWNED & extra.keys()):
        raise ValueError(f"{asked}: extra_body has {', '.join(sorted(owned))}; give it as a parameter of its own")
    found = given(params)
    for name in found:
        if name not in _KNOWN:
            near = get_close_matches(str(name), _KNOWN, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            raise ValueError(
                f"{asked}: params has {name!r}, which is not a parameter of messages.create. {meant}One that is newer "
                "than this library goes into extra_body"
            )
    return found


def split(params: Mapping[str, Any]) -> tuple[dict[str, JSON], Secrets]:
    """Split parameters into what is stored, as JSON, and what stays with the process.

    Raises:
        TypeError: a stored one is not JSON; the message says where.

    """
    secrets = Secrets({name: value for name, value in params.items() if name in SECRET_OPTIONS})
    stored = {name: plain(value, f"params[{name!r}]") for name, value in params.items() if name not in SECRET_OPTIONS}
    for name in ("tools", "mcp_servers"):
        if not isinstance(stored.get(name), list | None):
            raise TypeError(f"params[{name!r}] is {a_type(stored[name])}; give a list")
    for server in stored.get("mcp_servers") or ():
        if isinstance(server, dict) and server.get(_MCP_TOKEN) is not None:
            token = server.pop(_MCP_TOKEN)
            if not isinstance(token, str):
                raise TypeError(f"the {_MCP_TOKEN} of an MCP server is {a_type(token)}; give a string")
            secrets.mcp_tokens[_server_key(server)] = token
    return stored, secrets


def external_names(stored: Mapping[str, JSON], known: Iterable[str]) -> frozenset[str]:
    """Return the names of tools that only the parameters define: their results come from the caller."""
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
    """Return the parameters of a request whose reply is a summary: without those that only shape an answer.

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


@frozen
class _Prepared:
    """Stored parameters, ready to be sent.

    Attributes:
        body: with all tools and tokens.
        compacting: the body of a request that only compacts; None if the parameters do not ask for that.
        continuing: the body of a request that continues a thread: without what the thread freezes.
        frozen: the fingerprint of what a thread freezes.
        marks, size: of the body, in cache marks and bytes.

    """

    stored: str
    body: str
    compacting: str | None
    continuing: str
    frozen: str
    options: dict[str, Any]
    leaves_out: bool
    marks: int
    size: int


class EncodedMessages:
    """The encoded messages of the last request.

    Attributes:
        marks: the number of cache marks in its messages.
        size: the number of bytes of its messages, with a comma for each.

    """

    def __init__(self) -> None:
        """Start without a request."""
        # The history, its bytes, and their marks and size: replaced together, so that an interrupt leaves them equal.
        self._known: tuple[Chain[str], Chain[bytes], int, int] = (Chain(), Chain(), 0, 0)
        self.marks, self.size = 0, 0

    def take(self, history: Chain[str], unjoined: Sequence[str] = ()) -> Sequence[bytes]:
        """Return the bytes of these messages; do not change the list."""
        known, ready, marks, size = self._known
        new = history.since(known)
        if new is None:  # it was replaced
            new, ready, marks, size = list(history), Chain[bytes](), 0, 0
        joined, unjoined_bytes = _encode(new), _encode(unjoined)
        ready = ready.extend(joined)
        marks, size = marks + _count(joined), size + _length(joined)
        self._known = history, ready, marks, size
        self.marks, self.size = marks + _count(unjoined_bytes), size + _length(unjoined_bytes)
        return [*ready, *unjoined_bytes] if unjoined_bytes else ready


def cache_marks(message: bytes) -> int:
    """Count the cache marks that a message, or the parameters, may have."""
    return message.count(_CACHE_MARK)


def _encode(texts: Sequence[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def _count(messages: Sequence[bytes]) -> int:
    return sum(map(cache_marks, messages))


def _length(messages: Sequence[bytes]) -> int:
    return sum(map(len, messages)) + len(messages)


class RequestMaker:
    """Makes the requests of a loop. The parameters are encoded once for each change of them, each message once."""

    def __init__(self, definitions: Sequence[JSON], secrets: Secrets) -> None:
        """`definitions`: of the loop's own tools; they go before those that the parameters define."""
        self.secrets = secrets
        self._definitions = list(definitions)
        self._prepared: _Prepared | None = None
        self._encoded = EncodedMessages()
        self._filter = ThinkingFilter()
        self._prefixes = Prefixes()

    def make(  # noqa: PLR0913 - the parts of a loop that a request is made of
        self,
        stored: str,
        messages: Sequence[str],
        container: str | None = None,
        *,
        unjoined: Sequence[str] = (),
        stale_thinking: int = 0,
        threads: bool = False,
        thread: Thread | None = None,
    ) -> Request:
        """Return the request for these stored parameters and messages, all JSON texts.

        Args:
            stored: the parameters but `messages`.
            messages: what goes out; of a `Chain` that has grown since the last request, only what is new is looked at.
            unjoined: what goes out behind them, and is not of the history yet. With it a paused turn goes on,
                so the server is not asked to compact instead. Nor is it where nothing follows its last compaction.
            stale_thinking: of the loop; see `leaves_out`.
            container: the id of the container in which the code of the open turn runs; it takes the place of another
                that the parameters name, and their skills stay (source: rule 25 of the Messages API).
            threads: the server is asked to hold the conversation, and is sent only what it does not hold yet. A request
                that only compacts is of no thread: what it leads to is another conversation.
            thread: of the loop.

        Raises:
            InvalidHistory: it is larger than the API takes.

        """
        prepared, resumes = self._prepare(stored), bool(unjoined)
        history = messages if isinstance(messages, Chain) else Chain(messages)
        if stale_thinking and prepared.leaves_out:
            history, unjoined = self._filter.take(history, unjoined, stale_thinking)
        encoded = self._encoded.take(history, unjoined)
        texts = Chain([*history, *unjoined]) if unjoined else history
        body, part = prepared.body, None
        if prepared.compacting is not None and not resumes and not _is_compacted(texts):
            body = prepared.compacting
        elif threads:
            part = ThreadedRequest.of(thread, self._prefixes.take(prepared.frozen, history, unjoined))
            body = prepared.continuing if part is not None and part.continues else body
        if container is not None:
            body = _in_container(body, container)
        if (size := self._encoded.size + prepared.size + _AROUND) > _MOST_BYTES:
            raise _too_large(size, texts, encoded)
        if part is None:
            return Request(body, texts, prepared.options, encoded)
        body = f'{body[:-1]},"thread":{encode(part.field())}}}'
        new = slice(part.starts_at, None)
        return Request(body, texts[new], with_beta(prepared.options), encoded[new], part)

    def may_have_too_many_marks(self) -> bool:
        """Return whether the last request may have too many cache marks; a check of the whole request tells."""
        marks = 0 if self._prepared is None else self._prepared.marks
        return marks + self._encoded.marks > MOST_CACHE_MARKS

    def update(self, secrets: Secrets, changed: Iterable[str]) -> None:
        """Take other secrets from the next request on, instead of those of the changed parameters."""
        for name in changed:
            self.secrets.options.pop(name, None)
        if "mcp_servers" in changed:
            self.secrets.mcp_tokens.clear()
        self.secrets.options.update(secrets.options)
        self.secrets.mcp_tokens.update(secrets.mcp_tokens)
        self._prepared = None

    def parameters(self, stored: str) -> str:
        """Return the text of the parameters, with all tools; the same object until they change."""
        return self._prepare(stored).body

    def given(self, stored: str) -> dict[str, Any]:
        """Return the parameters as the caller gave them, but for `messages`: with what no store holds."""
        params = decode(stored)
        if servers := params.get("mcp_servers"):
            params["mcp_servers"] = [_with_token(server, self.secrets) for server in servers]
        return {**params, **self.secrets.options}

    def alone(
        self, params: Mapping[str, JSON], messages: Sequence[str], stale_thinking: int, secrets: Secrets | None = None
    ) -> Request:
        """Return a request beside the loop's own.

        Args:
            params: the stored parameters, or others in their place.
            messages: what goes out.
            stale_thinking: as for `make`.
            secrets: what no store holds; None: those of the loop.

        """
        secrets = self.secrets if secrets is None else secrets
        body = {name: value for name, value in params.items() if name not in OPTION_NAMES and name != "compaction"}
        options = {name: value for name, value in params.items() if name in OPTION_NAMES}
        texts = without_thinking(messages, stale_thinking if leaves_out(params) else 0)
        return Request(encode(self._whole(body, secrets)), texts, options | secrets.options)

    def _whole(self, params: Mapping[str, JSON], secrets: Secrets) -> dict[str, JSON]:
        """Return the parameters with all tools, and with the tokens that are not stored."""
        whole = dict(params)
        if tools := [*self._definitions, *(whole.pop("tools", None) or ())]:
            whole["tools"] = tools
        if servers := whole.get("mcp_servers"):
            whole["mcp_servers"] = [_with_token(server, secrets) for server in servers]
        return whole

    def _prepare(self, stored: str) -> _Prepared:
        if self._prepared is not None and self._prepared.stored is stored:
            return self._prepared
        params = decode(stored)
        options = {name: params.pop(name) for name in tuple(params) if name in OPTION_NAMES}
        params, compacting = self._whole(params, self.secrets), None
        if params.get("compaction") is not None:
            compacting = encode(without_answers(params))
            del params["compaction"]
        body = encode(params)
        raw = body.encode()
        beside = {name: value for name, value in params.items() if name not in _FROZEN}
        first = [params.get(name) for name in ("model", *_FROZEN)]
        self._prepared = _Prepared(
            stored=stored,
            body=body,
            compacting=compacting,
            continuing=encode(beside),
            frozen=fingerprint("", encode([*first, options.get("betas")])),
            options=options | self.secrets.options,
            leaves_out=leaves_out(params),
            marks=cache_marks(raw),
            size=len(raw) + 1,
        )
        return self._prepared


def _too_large(size: int, texts: Sequence[str], encoded: Sequence[bytes]) -> InvalidHistory:
    largest = max(range(len(encoded)), key=lambda index: len(encoded[index]))
    rule = RULES["request-size"]
    own = len(encoded[largest])
    what = f"the request has {size:,} bytes, {own:,} of them in this message; the API takes {_MOST_BYTES:,}"
    problem = Problem(f"messages[{largest}]", "request-size", rule.level, what, rule.remedy)
    return InvalidHistory(
        f"the next request: the API would refuse it: {problem.path}: {what} [{problem.rule}]. {rule.remedy}",
        problems=(problem,),
        messages=[decode(text) for text in texts],
    )
