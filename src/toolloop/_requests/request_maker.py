"""Make the requests of a loop from its stored parameters, its secrets and its messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from toolloop._messages.blocks import MOST_CACHE_MARKS
from toolloop._messages.reading import is_summary
from toolloop._messages.rules import RULES, Problem
from toolloop._requests.automatic_marks import CacheLifetime, GivenMarks, Marked, add_marks
from toolloop._requests.encoded_messages import CacheMarks, EncodedMessages, count_marks, count_marks_of_params
from toolloop._requests.left_out_thinking import ThinkingFilter, drop_thinking, leaves_out
from toolloop._requests.params import Secrets, add_token
from toolloop._requests.prefixes import Prefixes
from toolloop.errors import InvalidHistory
from toolloop.machine.record.loop import Thread
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.providers import OPTION_NAMES
from toolloop.providers.message_threads import ThreadedRequest, betas_of, conversation_fingerprint, with_beta
from toolloop.providers.protocol import Request

# A thread is created with these parameters. A request that continues it must not repeat them.
_FROZEN = ("system", "tools")
_MOST_BYTES = 32 * 1024 * 1024  # per request (source: rule 1 of the Messages API)
_AROUND = 1024  # bytes for the rest of the body: the key of the messages, a container, `stream`


def _is_compacted(texts: Sequence[str]) -> bool:
    """Return whether the last message is a compaction of the API, so that there is nothing to compact."""
    if not texts or '"compaction"' not in texts[-1]:
        return False
    content = decode(texts[-1])["content"]
    return isinstance(content, list) and bool(content) and is_summary(content[-1])


def drop_answers(params: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the parameters for a summary request, without those that only shape an answer.

    Source: the tool runner of anthropic 2.12, which omits the same parameters.
    """
    kept = {name: value for name, value in params.items() if name not in _ONLY_OF_ANSWERS}
    choice, output = kept.get("tool_choice"), kept.get("output_config")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        del kept["tool_choice"]
    if isinstance(output, Mapping):
        kept["output_config"] = {name: value for name, value in output.items() if name != "format"}
    return kept


_ONLY_OF_ANSWERS = frozenset({"context_management", "stop_sequences", "output_format"})


def _set_container(body: str, container: str) -> str:
    params = decode(body)
    given = params.get("container")
    params["container"] = {**given, "id": container} if isinstance(given, dict) else container
    return encode(params)


def _name_last_reply(body: str, response: str) -> str:
    """Return parameters whose `diagnostics` name the last reply, with which the API compares the request."""
    params = decode(body)
    params["diagnostics"] = {**params["diagnostics"], "previous_message_id": decode(response).get("id")}
    return encode(params)


@frozen
class _Prepared:
    """Stored parameters, ready to be sent.

    Attributes:
        body: the JSON text, with all tools and tokens.
        compacting: the body of a request that only compacts; None if the parameters do not enable it.
        continuing: the body of a request that continues a thread, without the parameters that the thread freezes.
        frozen: the fingerprint of these parameters.
        has_diagnostics: whether the API compares each request with the last one.
        top_mark: the caller's top-level cache mark, or None.
        marks: the cache marks in the body.
        size: the number of bytes in the body.

    """

    stored: str
    body: str
    compacting: str | None
    continuing: str
    frozen: str
    options: dict[str, Any]
    leaves_out: bool
    has_diagnostics: bool
    top_mark: JSON
    marks: CacheMarks
    size: int


class RequestMaker:
    """Make the requests of a loop. Each message is encoded once; the parameters are encoded again after a change."""

    def __init__(self, definitions: Sequence[JSON], secrets: Secrets, cache: CacheLifetime | None = None) -> None:
        """Store the definitions of the loop's own tools, which precede those in the parameters, and the secrets.

        Args:
            definitions: the definitions of the loop's own tools.
            secrets: the parameters that are not stored.
            cache: the lifetime of the cache marks to add; None adds none.

        """
        self.secrets = secrets
        self._cache: CacheLifetime | None = cache
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
        response: str | None = None,
    ) -> Request:
        """Return the request for these stored parameters and messages, all JSON texts.

        Args:
            stored: the parameters without `messages`.
            messages: the history. If a `Chain` has grown since the last request, only its new messages are processed.
            unjoined: messages to send after the history. They resume a paused turn, so the server is not asked to
                compact instead. Neither is it if no message follows its last compaction.
            stale_thinking: the loop's count; see `leaves_out`.
            container: the id of the container that runs the code of the open turn. It replaces a container in the
                parameters; the skills there are kept (source: rule 25 of the Messages API).
            threads: whether the server should hold the conversation. The request then has only the messages that the
                server does not hold. A request that only compacts does not use a thread, because it starts a new
                conversation.
            thread: the loop's thread.
            response: the last reply. If the parameters have `diagnostics`, the request is compared with that reply's.

        Raises:
            InvalidHistory: the request is larger than the API accepts.

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
            body = _set_container(body, container)
        if response is not None and prepared.has_diagnostics:
            body = _name_last_reply(body, response)
        if (size := self._encoded.size + prepared.size + _AROUND) > _MOST_BYTES:
            raise _make_size_error(size, texts, encoded)
        if part is None:
            made = Marked(body, texts, encoded)
            if self._cache is not None:
                given = GivenMarks(prepared.top_mark, prepared.marks, self._encoded.marks)
                made = add_marks(made, given, self._cache)
            return Request(made.body, made.texts, prepared.options, made.encoded)
        body = f'{body[:-1]},"thread":{encode(part.field())}}}'
        new = slice(part.starts_at, None)
        return Request(body, texts[new], with_beta(prepared.options), encoded[new], part)

    def may_be_refused_for_marks(self) -> bool:
        """Return whether the API may refuse the cache marks of the last request. Then all of it must be checked."""
        marks = CacheMarks() if self._prepared is None else self._prepared.marks
        marks = marks.join(self._encoded.marks)
        return marks.count > MOST_CACHE_MARKS or marks.is_mixed

    def update(self, secrets: Secrets, changed: Iterable[str]) -> None:
        """Replace the secrets of the changed parameters, from the next request on."""
        for name in changed:
            self.secrets.options.pop(name, None)
        if "mcp_servers" in changed:
            self.secrets.mcp_tokens.clear()
        self.secrets.options.update(secrets.options)
        self.secrets.mcp_tokens.update(secrets.mcp_tokens)
        self._prepared = None

    def make_parameters(self, stored: str) -> str:
        """Return the text of the parameters with all tools. It is the same object until they change."""
        return self._prepare(stored).body

    def restore_params(self, stored: str) -> dict[str, Any]:
        """Return the parameters as the caller gave them, with the secrets, but without `messages`."""
        params = decode(stored)
        if servers := params.get("mcp_servers"):
            params["mcp_servers"] = [add_token(server, self.secrets) for server in servers]
        return {**params, **self.secrets.options}

    def make_alone(
        self,
        params: Mapping[str, JSON],
        messages: Sequence[str],
        stale_thinking: int,
        secrets: Secrets | None = None,
        *,
        is_cached: bool = False,
    ) -> Request:
        """Return a request that is independent of the loop's own requests.

        Args:
            params: the stored parameters, or others instead.
            messages: the messages to send.
            stale_thinking: as for `make`.
            secrets: the secret parameters; None means those of the loop.
            is_cached: whether the prompt cache may have its messages. It then gets the loop's cache marks, too.

        """
        secrets = self.secrets if secrets is None else secrets
        body = {name: value for name, value in params.items() if name not in OPTION_NAMES and name != "compaction"}
        options = {name: value for name, value in params.items() if name in OPTION_NAMES}
        texts = drop_thinking(messages, stale_thinking if leaves_out(params) else 0)
        whole, options = self._complete(body, secrets), options | secrets.options
        if not is_cached or self._cache is None:
            return Request(encode(whole), texts, options)
        encoded = [text.encode() for text in texts]
        given = GivenMarks(whole.get("cache_control"), count_marks_of_params(whole), count_marks(encoded))
        marked = add_marks(Marked(encode(whole), texts, encoded), given, self._cache)
        return Request(marked.body, marked.texts, options, marked.encoded)

    def _complete(self, params: Mapping[str, JSON], secrets: Secrets) -> dict[str, JSON]:
        """Return the parameters with all tools, and with the tokens that are not stored."""
        whole = dict(params)
        if tools := [*self._definitions, *(whole.pop("tools", None) or ())]:
            whole["tools"] = tools
        if servers := whole.get("mcp_servers"):
            whole["mcp_servers"] = [add_token(server, secrets) for server in servers]
        return whole

    def _prepare(self, stored: str) -> _Prepared:
        if self._prepared is not None and self._prepared.stored is stored:
            return self._prepared
        params = decode(stored)
        options = {name: params.pop(name) for name in tuple(params) if name in OPTION_NAMES} | self.secrets.options
        params, compacting = self._complete(params, self.secrets), None
        if params.get("compaction") is not None:
            compacting = encode(drop_answers(params))
            del params["compaction"]
        body = encode(params)
        beside = {name: value for name, value in params.items() if name not in _FROZEN}
        first = [params.get(name) for name in ("model", *_FROZEN)]
        self._prepared = _Prepared(
            stored=stored,
            body=body,
            compacting=compacting,
            continuing=encode(beside),
            frozen=conversation_fingerprint("", encode([*first, betas_of(options)])),
            options=options,
            leaves_out=leaves_out(params),
            has_diagnostics=isinstance(params.get("diagnostics"), dict),
            top_mark=params.get("cache_control"),
            marks=count_marks_of_params(params),
            size=len(body.encode()) + 1,
        )
        return self._prepared


def _make_size_error(size: int, texts: Sequence[str], encoded: Sequence[bytes]) -> InvalidHistory:
    largest = max(range(len(encoded)), key=lambda index: len(encoded[index]))
    rule = RULES["request-size"]
    own = len(encoded[largest])
    what = f"the request has {size:,} bytes, {own:,} of them in this message; the API accepts {_MOST_BYTES:,}"
    problem = Problem(f"messages[{largest}]", "request-size", rule.level, what, rule.remedy)
    return InvalidHistory(
        f"the next request: the API would refuse it: {problem.path}: {what} [{problem.rule}]. {rule.remedy}",
        problems=(problem,),
        messages=[decode(text) for text in texts],
    )
