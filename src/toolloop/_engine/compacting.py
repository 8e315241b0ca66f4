"""Compaction between requests: decide when to compact a history, and make the event that records it.

Everything is derived from the loop and its configuration. So a loop that is resumed in another process compacts at the
same points, and sends the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from toolloop._engine.failures import describe_error
from toolloop._engine.questions import make_async
from toolloop._interface.decisions import refuse_invalid
from toolloop._interface.loop_params import merge_params
from toolloop._requests.left_out_thinking import hangs_on_thinking
from toolloop._requests.params import Secrets
from toolloop._requests.request_maker import RequestMaker, drop_answers
from toolloop._usage import Cost, IterationUsage, ModelUsage
from toolloop.compaction.strategy import Edit, EditStrategy, Strategy, live_tokens
from toolloop.compaction.token_counts import TokenCounter
from toolloop.errors import InvalidHistory, OutsideError
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Loop
from toolloop.machine.record.replies import read_reply
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.splicing import count_common, find_splices
from toolloop.providers import OPTION_NAMES, AsyncProvider, Provider
from toolloop.providers.protocol import Request
from toolloop.tools import ToolRegistry

if TYPE_CHECKING:
    from toolloop.compaction.summarize import Summarize, Summary

# A strategy reads the whole history, and may ask for a summary, so it is due again only when the request has grown by
# this fraction of its size. `to_tokens` leaves room for that below the threshold.
_PART = 4
CostsOf = Callable[[Sequence[ModelUsage]], Sequence[Cost]]
# Parameters that are sent only to the loop's own provider.
_OWN = (OPTION_NAMES | {"mcp_servers", "metadata"}) - {"betas"}


@frozen
class _Attempt:
    """A strategy's attempt to compact a history.

    Attributes:
        label: the name of the strategy in the events.
        before: the estimated tokens of the next request without a compaction.
        history: the history as the strategy sees it.
        path: the path of the loop.

    """

    label: str
    before: int
    history: Chain[str]
    path: tuple[str, ...]

    def make_unchanged(self, problem: str | None = None, spent: IterationUsage | None = None) -> ev.HistoryEdited:
        """Return the event for an attempt that changed nothing."""
        return ev.HistoryEdited((), self.label, self.before, self.before, spent, problem, path=self.path)

    def make_edit(self, edit: Edit, current: Chain[str], spent: IterationUsage | None = None) -> ev.HistoryEdited:
        """Return the event for an edit. `current`: the history now; the messages that it replaces must be unchanged."""
        splices = find_splices(self.history, edit.texts)
        if splices and splices[-1].stop > count_common(self.history, current):
            return self.make_unchanged("the history was edited while the summary was written", spent)
        after = max(0, self.before - edit.before + edit.after)
        return ev.HistoryEdited(splices, self.label, self.before, after, spent, path=self.path)


@frozen(eq=False)
class SummaryRequest:
    """A request for a summary of the history. The loop stays `Ready` meanwhile.

    Attributes:
        request: the request to send.
        provider: the provider that writes the summary; None means the loop's own provider.

    """

    request: Request
    provider: Provider | AsyncProvider | None
    _attempt: _Attempt
    _summary: Summary

    @property
    def label(self) -> str:
        """The name of the strategy."""
        return self._attempt.label

    def finish(self, came: Any, loop: Loop, took: float, costs_of: CostsOf) -> ev.HistoryEdited:
        """Return the event that ends the compaction. If the summary failed, it changes nothing and has the reason.

        Args:
            came: the provider's reply, the function's text, or the exception that one of them raised.
            loop: the loop as it is now. Messages may have been added to its history meanwhile.
            took: the duration in seconds.
            costs_of: returns the costs of the parts of a reply.

        """
        spent = None
        try:
            if isinstance(came, Exception):
                return self._attempt.make_unchanged(describe_error(came))
            if isinstance(came, Mapping):
                text, request_id = getattr(came, "text", None), getattr(came, "request_id", None)
                reply = read_reply(came, text=text, request_id=request_id)
                spent = evolve(reply.entry(loop.iterations + 1, took, costs_of(reply.parts)), kind="summary")
                edit = self._summary.finish(came)
            else:
                edit = self._summary.finish_text(came)
        except OutsideError as error:  # there is no reply, or no summary in it
            return self._attempt.make_unchanged(describe_error(error), spent)
        return self._attempt.make_edit(edit, loop.messages, spent)


class Compactor:
    """Compact the history of one loop, as configured."""

    def __init__(self, strategies: Sequence[Strategy], tools: ToolRegistry, requests: RequestMaker) -> None:
        """Keep the strategies, in the order in which they are tried, and the parts of requests for summaries."""
        self._strategies = tuple(_label(strategies))
        self._tools = tools
        self._requests = requests
        self._counter = TokenCounter()

    def find_compaction(self, loop: Loop, *, is_async: bool) -> ev.HistoryEdited | SummaryRequest | None:
        """Return the next step of compaction before a loop's next request; None if the request can go out.

        Args:
            loop: the loop, which is `Ready`.
            is_async: whether an async driver sends the request for a summary.

        """
        if hangs_on_thinking(loop):
            return None
        before = self._counter.next_request(loop, self._requests.make_parameters(loop.setup.params))
        sizes = dict(loop.compacted)
        for label, strategy in self._strategies:
            if before < (strategy.at_tokens or 0):
                continue
            attempt = _Attempt(label, before, loop.messages, loop.setup.path)
            if _has_grown(sizes.get(label), before):
                step = self._look(strategy, loop, attempt, is_async=is_async)
            else:
                step = self._look_for_room(strategy, loop, attempt)
            if step is not None:
                return step
        return None

    def _look(
        self, strategy: Strategy, loop: Loop, attempt: _Attempt, *, is_async: bool
    ) -> ev.HistoryEdited | SummaryRequest | None:
        """Return the step of a strategy that is due. It is recorded even if it changes nothing, so that it waits."""
        from toolloop.compaction.summarize import Summarize  # noqa: PLC0415 - most loops never summarize

        outlines, is_forced = self._counter.outlines(loop.messages), strategy.at_tokens is not None
        plan = strategy.fold(outlines, attempt.before - live_tokens(outlines))
        if isinstance(strategy, Summarize):
            if plan is None and is_forced:
                return None  # nothing was asked for, so there is nothing to wait for
            if plan is None or not (is_forced or plan.frees >= plan.stays):
                return attempt.make_unchanged()
            try:
                return self._make_summary_request(strategy, plan, loop, attempt, is_async=is_async)
            except InvalidHistory as error:
                return attempt.make_unchanged(str(error))
        if plan is None or plan.after >= plan.before or not (is_forced or _pays(plan, loop.messages)):
            return attempt.make_unchanged()
        return attempt.make_edit(plan, loop.messages)

    def _look_for_room(self, strategy: Strategy, loop: Loop, attempt: _Attempt) -> ev.HistoryEdited | None:
        """Return an edit by a strategy that waits for growth, if it reaches its target now; None if it does not.

        A large round may have been the last one before. A summary waits, because it costs a request.
        """
        if strategy.at_tokens is None or not isinstance(strategy, EditStrategy):
            return None
        outlines = self._counter.outlines(loop.messages)
        beside = attempt.before - live_tokens(outlines)
        if beside + strategy.least(outlines) > strategy.target:
            return None
        plan = strategy.fold(outlines, beside)
        if plan is None or plan.after >= plan.before or beside + plan.after > strategy.target:
            return None
        return attempt.make_edit(plan, loop.messages)

    def _make_summary_request(
        self, strategy: Summarize, summary: Summary, loop: Loop, attempt: _Attempt, *, is_async: bool
    ) -> SummaryRequest:
        """Return the request for a summary.

        Raises:
            InvalidHistory: the API would refuse it.

        """
        writer = _find_writer(strategy, summary, is_async=is_async)
        changes, secrets = strategy.given
        own = decode(loop.setup.params)
        params = _make_summary_params(own, changes, is_own=writer is None)
        whole = merge_params(params, self._tools)
        if whole.get("tools") and "tool_choice" not in changes:
            params["tool_choice"] = whole["tool_choice"] = {"type": "none"}
        refuse_invalid(summary.request, whole, asked=f"the request for a summary by {attempt.label}")
        params.pop("container", None)
        # The prefix is different, so all thinking is stale.
        has_prefix = _have_same(params, own, "system", "tools", "mcp_servers")
        # The cache has the messages only as the loop sends them (source: the documentation on prompt caching).
        is_cached = has_prefix and writer is None and _have_same(params, own, "model", "thinking", "tool_choice")
        stale = loop.stale_thinking if has_prefix else len(summary.request)
        all_secrets = (self._requests.secrets if writer is None else Secrets()).joined(secrets)
        request = self._requests.make_alone(
            drop_answers(params), summary.request, stale, all_secrets, is_cached=is_cached
        )
        return SummaryRequest(request, writer, attempt, summary)


def _label(strategies: Sequence[Strategy]) -> Iterator[tuple[str, Strategy]]:
    """Name each strategy by its class. A second one of the same class gets a number."""
    seen: dict[str, int] = {}
    for strategy in strategies:
        name = type(strategy).__name__
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), strategy


def _has_grown(left: int | None, tokens: int) -> bool:
    """Return whether a request has grown enough for a strategy to look. `left`: its tokens after the last look."""
    return left is None or tokens >= left + max(1, left // _PART)


def _have_same(params: Mapping[str, JSON], own: Mapping[str, JSON], *names: str) -> bool:
    return all(params.get(name) == own.get(name) for name in names)


def _pays(edit: Edit, old: Sequence[str]) -> bool:
    """Return whether an edit frees at least as many tokens as the prompt cache must read again after it."""
    same = count_common(old, edit.texts)
    return edit.before - edit.after >= sum(outline.tokens for outline in edit.outlines[same:])


def _make_summary_params(own: Mapping[str, JSON], changes: Mapping[str, JSON], *, is_own: bool) -> dict[str, JSON]:
    """Return the parameters of a request for a summary.

    Args:
        own: the parameters of the loop.
        changes: the `params` of the strategy; None removes a parameter.
        is_own: whether the request goes to the loop's own provider.

    """
    params = {**own, **changes}
    if not is_own:
        params = {name: value for name, value in params.items() if name in changes or name not in _OWN}
        if own.get("tools") and "tools" not in changes and "mcp_servers" not in changes:
            # Toolsets of MCP servers are useless without the servers.
            params["tools"] = [tool for tool in own["tools"] if tool.get("type") != "mcp_toolset"]
    params = {name: value for name, value in params.items() if value is not None or name not in changes}
    if isinstance(thinking := params.get("thinking"), dict) and thinking.get("type") == "enabled":
        del params["thinking"]  # else the prompt continues a turn, which must begin with thinking (rule 27)
    return params


@frozen
class _FunctionProvider:
    """Adapts a caller's function that writes a summary to the interface of a provider. An async one is awaited."""

    function: Callable[[list[JSON]], Any]
    summary: Summary

    def send(self, request: Request) -> Any:  # noqa: ARG002 - a provider gets it, and a function the messages alone
        return self.function(self.summary.messages())


def _find_writer(strategy: Summarize, summary: Summary, *, is_async: bool) -> Provider | AsyncProvider | None:
    """Return the provider that writes a summary; None means the loop's own."""
    function = strategy.function
    if function is None:
        return strategy.provider_for(is_async=is_async)
    return _FunctionProvider(make_async(function) if is_async else function, summary)
