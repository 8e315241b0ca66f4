"""Compaction that replaces old rounds with a summary: the strategy, the request, and the history after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction, unwrap
from typing import Any, ClassVar, Final

from attrs import Factory, field, frozen

from toolloop._messages.reading import kind_of, read_text
from toolloop._requests.params import Secrets, check_params, split
from toolloop._requests.request_maker import RequestMaker
from toolloop.compaction.segments import (
    SUMMARY_START,
    breaks_nothing,
    first_turn,
    kept,
    last_compaction,
    left_of,
    put_together,
    segments_of,
    tail_of,
)
from toolloop.compaction.strategy import Edit, Strategy, SummaryFailed, applied, at_least, edit_of, live_tokens
from toolloop.compaction.tokens import Outline, outline_of
from toolloop.machine.values.jsontext import JSON, describe_type, encode, make_well_formed
from toolloop.providers import AsyncProvider, Provider, provider_for
from toolloop.providers.protocol import Request
from toolloop.tools.signature import is_async

#: The request for a summary ends with this prompt.
SUMMARY_PROMPT: Final = """\
Summarize the conversation so far. Your summary replaces its messages: the next reader continues the work and sees \
nothing else of the conversation. Keep the user's requests, and every preference and limit that still applies; results \
and findings, with names, paths, numbers and other details that will be needed again; failures and their causes; \
decisions; the remaining work and the next step. Leave out anything that no longer matters. Answer with the summary \
alone. Do not call tools, and do not continue the work itself."""

_ASKED: Final = "Summarize(params=...)"
_COMPLETE: Final = frozenset({"end_turn", "stop_sequence"})


@frozen(eq=False)
class Summary:
    """A planned summary, which the model or a function of the caller writes.

    Attributes:
        request: the messages of the request, as JSON texts: the start of the history, and the prompt.
        prefix: the number of messages from the history in the request.

    """

    request: list[str]
    prefix: int
    _old: tuple[Outline, ...] = field(repr=False)
    _new: tuple[Outline, ...] = field(repr=False)
    _placeholder: Outline = field(repr=False)

    @property
    def after(self) -> int:
        """The estimated tokens that are left, without those of the summary."""
        return live_tokens(self._new)

    @property
    def frees(self) -> int:
        """The estimated tokens that the summary replaces, without those of the summary itself."""
        return live_tokens(self._old) - live_tokens(self._new) + self._placeholder.tokens

    @property
    def stays(self) -> int:
        """The estimated tokens of the messages after the summary."""
        return sum(outline.tokens for outline in self._new[self._new.index(self._placeholder) + 1 :])

    def messages(self) -> list[JSON]:
        """Return the messages to summarize, decoded, without the prompt."""
        return [outline.message() for outline in self._old[: self.prefix]]

    def finish(self, reply: Mapping[str, Any]) -> Edit:
        """Return the compacted history for the model's reply.

        Raises:
            SummaryFailed: the reply is not a summary, or the summary saves nothing.

        """
        stop, content = reply.get("stop_reason"), reply.get("content")
        blocks = content if isinstance(content, list) else []
        if any(kind_of(block) == "tool_use" for block in blocks):
            raise SummaryFailed("the model made calls instead of a summary")
        if stop not in _COMPLETE:
            raise SummaryFailed(f"the summary is incomplete: the stop reason of the reply is {stop}")
        return self.finish_text("".join(read_text(block, "text") or "" for block in blocks if kind_of(block) == "text"))

    def finish_text(self, text: object) -> Edit:
        """Return the compacted history for the text of a summary.

        Raises:
            SummaryFailed: the summary is not a str, is blank, or saves nothing.

        """
        if not isinstance(text, str):
            raise SummaryFailed(f"expected a str as the summary, got {describe_type(text)}")
        if not text.strip():
            raise SummaryFailed("the summary is blank")
        summary = _message("user", f"{SUMMARY_START}\n\n{make_well_formed(text.strip())}")
        edit = edit_of(self._old, (summary if each is self._placeholder else each for each in self._new))
        if edit.after >= edit.before:
            raise SummaryFailed(
                f"the summary saves nothing: the messages have about {edit.after} tokens with it, and {edit.before} "
                "without it"
            )
        return edit


def _message(role: str, text: str) -> Outline:
    return outline_of({"role": role, "content": [{"type": "text", "text": text}]})


def _text(_strategy: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{attribute.name}: expected a text that is not blank, got {value!r}")


def _split(strategy: Any) -> tuple[dict[str, JSON], Secrets]:
    params = check_params(strategy.params or {}, asked=_ASKED)
    if "messages" in params:
        raise ValueError("params has 'messages', but the strategy chooses them. Leave it out")
    return split(params)


def _writer(_strategy: Any, attribute: Any, value: Any) -> None:
    if value is not None and (isinstance(value, type) or not (_is_provider(value) or callable(value))):
        raise TypeError(
            f"{attribute.name}: expected a client of the anthropic SDK, a provider, a function that takes messages and "
            f"returns a text, or None for the loop's provider, got {describe_type(value)}"
        )


def _is_provider(value: object) -> bool:
    return hasattr(value, "send") or hasattr(value, "messages")


@frozen(eq=False)
class Summarize(Strategy):
    """Replace old rounds with a summary. A round is an assistant message and the results of its calls.

    The request for the summary is the history itself with a prompt at the end. The messages that `DropRounds` keeps
    are also kept. An earlier summary is part of the request, and the new one replaces it. If the summary fails or
    saves nothing, the history is not changed.

    Args:
        provider: a client of the anthropic SDK or a provider, async for an async handle. Or a function, sync or async,
            that takes the messages to summarize, without the prompt, and returns the summary. None means the loop's
            provider.
        keep_last: the number of rounds at the end to keep.
        at_tokens: histories with fewer tokens are not changed; None means no threshold.
        to_tokens: with `at_tokens`, the tokens to which a history is folded: fewer rounds are kept until it has at most
            so many, down to one. At most four fifths of `at_tokens`; None means half of it.
        params: parameters of the request that differ from the loop's, such as `model` and `max_tokens`. The value None
            removes a parameter. If the loop has tools and these have no `tool_choice`, it is `none`. For a plain list
            of messages, these are all parameters.
        prompt: the last message of the request.

    Raises:
        ValueError, TypeError: a value is out of range or of the wrong type. The message names the field.

    """

    _rounds: ClassVar[str] = "keep_last"

    provider: Any = field(default=None, validator=_writer)
    keep_last: int = field(default=4, validator=at_least(1))
    params: Mapping[str, Any] | None = field(default=None, kw_only=True, repr=False)
    prompt: str = field(default=SUMMARY_PROMPT, kw_only=True, validator=_text, repr=False)
    #: The `params`: those stored as JSON, and those kept only in the process.
    given: tuple[dict[str, JSON], Secrets] = field(init=False, default=Factory(_split, takes_self=True), repr=False)

    @property
    def function(self) -> Callable[..., Any] | None:
        """Your function that writes the summary, if there is one."""
        return None if self.provider is None or _is_provider(self.provider) else self.provider

    @property
    def awaits(self) -> bool:
        """Whether an async provider, client or function writes the summary."""
        given = self.provider
        if self.function is not None:
            return is_async(given)
        if hasattr(given, "send"):
            return iscoroutinefunction(unwrap(given.send))
        return given is not None and iscoroutinefunction(unwrap(given.messages.create))

    def provider_for(self, *, is_async: bool) -> Provider | AsyncProvider | None:
        """Return the provider that writes the summary; None means the loop's provider, or a function.

        Raises:
            TypeError: it is sync but must be async, or the reverse.

        """
        if self.provider is None or self.function:
            return None
        return provider_for(self.provider, is_async=True) if is_async else provider_for(self.provider, is_async=False)

    def plan(self, outlines: Sequence[Outline]) -> Summary | None:
        """Plan a summary of the old rounds of a history.

        The request begins with the messages of the history, so the prompt cache applies and thinking keeps its prefix.

        Returns:
            The plan. None if there is nothing to summarize except an earlier summary, or if every cut makes the
            history invalid.

        """
        segments = segments_of(outlines)
        tail = tail_of(segments, self.keep_last)
        first = first_turn(segments)
        # The summary follows the first user turn and the API's own compaction, which hides all messages before it.
        start = place = max(first if first < tail else -1, last_compaction(segments)) + 1
        while 0 < place < tail and segments[place - 1].by_code:
            place += 1  # only the model may continue after results of calls made by code
        keep = kept(segments, tail, place) | set(range(start, place))
        gone = [number for number in range(place, tail) if number not in keep]
        while gone and segments[gone[-1]].by_code:
            keep.add(gone.pop())  # the prompt cannot follow results of calls made by code
        if not gone:
            return None
        prefix = sum(len(segment.outlines) for segment in segments[: gone[-1] + 1])
        # The API does not accept a user message after a system message (rule 21).
        asked = _message("system" if outlines[prefix - 1].role == "system" else "user", make_well_formed(self.prompt))
        request = [*outlines[:prefix], asked]
        placeholder = _message("user", SUMMARY_START)
        keep -= {number for number in range(tail) if segments[number].is_summary}
        new = [*left_of(segments[:place], keep), placeholder, *left_of(segments, keep, place)]
        cut = put_together(outlines, new)
        if cut is None or not breaks_nothing(request, outlines):
            return None
        return Summary([each.text for each in request], prefix, tuple(outlines), tuple(cut), placeholder)

    def __call__(self, messages: Sequence[Any]) -> Any:
        """Compact a list of messages.

        Args:
            messages: the history, for example `handle.messages`. It is not modified.

        Returns:
            A new list. With an async provider, client or function, an awaitable of the list. Unchanged messages are
            the same objects.

        Raises:
            TypeError: the value is not a list of messages, or the provider is missing.
            ValueError: `params` has no `model` or no `max_tokens`, which a provider needs.
            SummaryFailed: the summary failed, or saves nothing.
            ModelError, ProtocolError: the request failed.

        """
        outlines, summary = self._read(messages)
        self._check_alone()
        if self.awaits:
            return self._later(messages, outlines, summary)
        if summary is None:
            return list(messages)
        if self.function is not None:
            edit = summary.finish_text(self.function(summary.messages()))
        else:
            edit = summary.finish(provider_for(self.provider, is_async=False).send(self._request(summary)))
        return applied(edit, messages, outlines)

    async def _later(self, messages: Sequence[Any], outlines: list[Outline], summary: Summary | None) -> list[Any]:
        if summary is None:
            return list(messages)
        if self.function is not None:
            edit = summary.finish_text(await self.function(summary.messages()))
        else:
            edit = summary.finish(await provider_for(self.provider, is_async=True).send(self._request(summary)))
        return applied(edit, messages, outlines)

    def _check_alone(self) -> None:
        """Refuse settings that need a loop."""
        if self.provider is None:
            raise TypeError("provider: None means the loop's provider. For a list of messages, pass one to Summarize")
        missing = [name for name in ("model", "max_tokens") if name not in (self.params or {})]
        if missing and self.function is None:
            raise ValueError(f"params has no {' and no '.join(missing)}. For a list of messages, pass all parameters")

    def _request(self, summary: Summary) -> Request:
        stored, secrets = self.given
        return RequestMaker((), secrets).make(encode(stored), summary.request)
