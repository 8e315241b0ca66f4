"""Compaction by a summary: who writes it, and the call with a plain list of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction, unwrap
from typing import Any, TypeVar, overload

from attrs import Factory, field

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, encode
from toolloop.handle.params import RequestMaker, Secrets, check_params, split
from toolloop.history.compaction import Compactable, Listed, Strategy, listed, plan_for, whole_from
from toolloop.history.outline import Outline
from toolloop.history.summarizing import SUMMARY_PROMPT, Summary, plan_summary
from toolloop.providers import AsyncProvider, Provider, provider_for
from toolloop.providers.protocol import Request
from toolloop.tools.function import is_async

R = TypeVar("R")
_ASKED = "Summarize(params=...)"


def _text(_strategy: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{attribute.name} is {value!r}; give a text that is not blank")


def _params(_strategy: Any, attribute: Any, value: Any) -> None:
    if value is not None and "messages" in check_params(value, asked=_ASKED):
        raise ValueError(f"{attribute.name} has 'messages': the strategy says which; leave it out")


def _split(strategy: Any) -> tuple[dict[str, JSON], Secrets]:
    return split(check_params(strategy.params or {}, asked=_ASKED))


def _writer(_strategy: Any, attribute: Any, value: Any) -> None:
    if value is not None and (isinstance(value, type) or not (_is_provider(value) or callable(value))):
        what = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise TypeError(
            f"{attribute.name} is {what}; give a client of the anthropic SDK, a provider, a function that takes "
            "messages and returns a text, or None for the loop's own provider"
        )


def _is_provider(value: object) -> bool:
    return hasattr(value, "send") or hasattr(value, "messages")


@frozen(eq=False)
class Summarize(Strategy):
    """Puts a summary in the place of old rounds, where a round is what the model said and the results that came of it.

    The model is asked with the history itself and a prompt after it. What stays is what `DropRounds` leaves; an earlier
    summary is told again in the new one, which takes its place. Nothing changes where no summary comes of it, or one
    that saves nothing.

    Args:
        provider: who writes it. None: the provider of the loop. Else a client of the anthropic SDK or a provider, async
            ones for an async handle; or a function, async if need be, that takes the messages to summarize, without the
            prompt, and returns the summary.
        keep_last: how many rounds at the end stay.
        at_tokens: below so many tokens nothing is done; None: no threshold.
        params: parameters of the request that differ from the loop's, such as `model` and `max_tokens`; None takes one
            away. For a plain list of messages all there are.
        prompt: what the model is asked.
        pinned: says of a message whether its round must stay.

    Raises:
        ValueError, TypeError: a value that makes no sense; it names the field.

    """

    provider: Any = field(default=None, validator=_writer)
    keep_last: int = field(default=4, validator=whole_from(1))
    at_tokens: int | None = field(default=None, validator=whole_from(1, or_none=True))
    params: Mapping[str, Any] | None = field(default=None, kw_only=True, validator=_params, repr=False)
    prompt: str = field(default=SUMMARY_PROMPT, kw_only=True, validator=_text, repr=False)
    #: The `params`: what is JSON of them, and what is not for every eye.
    given: tuple[dict[str, JSON], Secrets] = field(init=False, default=Factory(_split, takes_self=True), repr=False)

    @property
    def function(self) -> Callable[..., Any] | None:
        """The caller's function that writes the summary, if it is one."""
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
        """The provider that writes the summary; None: that of the loop, or a function.

        Raises:
            TypeError: it is sync where async is needed, or the other way round.

        """
        if self.provider is None or self.function:
            return None
        return provider_for(self.provider, is_async=True) if is_async else provider_for(self.provider, is_async=False)

    def plan(self, outlines: Sequence[Outline]) -> Summary | None:
        """What is to be summarized; None: nothing, or nothing but an earlier summary."""
        return plan_summary(outlines, keep_last=self.keep_last, prompt=self.prompt, is_pinned=self.is_pinned)

    @overload
    def __call__(self, target: Sequence[Any]) -> Any: ...
    @overload
    def __call__(self, target: Compactable[R]) -> R: ...
    def __call__(self, target: Any) -> Any:
        """Compact a loop's history, or a plain list of messages.

        Args:
            target: a handle; or a list of messages, which stays as it is.

        Returns:
            For a list: a new one, or with an async provider, client or function an awaitable that gives it. Messages
            that did not change are the same objects.

        Raises:
            TypeError: it is neither; or it is a list, and there is no provider.
            ValueError: it is a list, and `params` lack `model` or `max_tokens`, which a provider needs.
            SummaryFailed: no summary came of it, or one that saves nothing.
            ModelError, ProtocolError: the request failed.

        """
        if (compact := getattr(target, "_compact_now", None)) is not None:
            return compact(self)
        of = listed(target, self)
        self._check_alone()
        summary: Summary | None = plan_for(self, of)
        if self.awaits:
            return self._later(of, summary)
        if summary is None:
            return of.after(None)
        if self.function is not None:
            return of.after(summary.finish_text(self.function(summary.messages())))
        return of.after(summary.finish(provider_for(self.provider, is_async=False).send(self._request(summary))))

    async def _later(self, of: Listed, summary: Summary | None) -> list[Any]:
        if summary is None:
            return of.after(None)
        if self.function is not None:
            return of.after(summary.finish_text(await self.function(summary.messages())))
        reply = await provider_for(self.provider, is_async=True).send(self._request(summary))
        return of.after(summary.finish(reply))

    def _check_alone(self) -> None:
        """Refuse what a loop would give, and a plain list does not."""
        if self.provider is None:
            raise TypeError("provider is None, and a plain list of messages has none either; give Summarize one")
        missing = [name for name in ("model", "max_tokens") if name not in (self.params or {})]
        if missing and self.function is None:
            raise ValueError(f"params lack {' and '.join(missing)}; for a plain list of messages give all there are")

    def _request(self, summary: Summary) -> Request:
        stored, secrets = self.given
        return RequestMaker((), secrets).make(encode(stored), summary.request)
