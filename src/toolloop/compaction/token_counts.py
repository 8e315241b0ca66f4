"""Estimate the tokens of a loop's next request. Each message is measured only once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from toolloop._messages.reading import SERVER_CALLS, THINKING, is_server_result, kind_of
from toolloop._requests.left_out_thinking import leaves_out
from toolloop._usage import Usage, iterations_in
from toolloop.compaction.tokens import Outline, estimate_tokens, message_tokens, outline
from toolloop.machine.record.loop import Loop
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import decode
from toolloop.machine.values.splicing import count_common


@frozen
class _Measured:
    """The token sums up to and including a message.

    Attributes:
        tokens, thinking: tokens of all messages so far, and of the thinking in them.
        start: the index of the last message with a compaction block; the API ignores the messages before it.

    """

    outline: Outline
    tokens: int = 0
    thinking: int = 0
    start: int = 0


_NONE = _Measured(Outline("", None, 0))


class TokenCounter:
    """Count the tokens of one loop. Only new messages of a history are measured."""

    def __init__(self) -> None:
        """Start without measures."""
        # A history and its measures. They are replaced together, so an interrupt cannot leave them inconsistent.
        self._seen: tuple[Chain[str], Chain[_Measured]] = Chain(), Chain()
        # The parameters of the last request, their tokens, and whether requests omit stale thinking.
        self._params: tuple[str, int, bool] = "", 0, False

    def outlines(self, history: Chain[str]) -> list[Outline]:
        """Return the outlines of the messages."""
        return [each.outline for each in self._measure(history)]

    def next_request(self, loop: Loop, params: str) -> int:
        """Estimate the tokens of a loop's next request.

        The result is the larger of the API's count of the last request and our own estimate. The API's count is exact,
        but useless after an edit of the history. A server that counts too little must not prevent compaction.

        Args:
            loop: the loop.
            params: the JSON text of its parameters, with all tools.

        """
        measured: Sequence[_Measured] = self._measure(loop.messages)
        if loop.unjoined:
            measured = [*measured, *_measures(map(outline, loop.unjoined), measured)]
        fixed, leaves_out_stale = self._fixed(params)
        estimate = fixed + _tokens_from(measured, 0)
        if leaves_out_stale:
            first = measured[-1].start if measured else 0
            estimate -= max(0, _upto(measured, loop.stale_thinking).thinking - _upto(measured, first).thinking)
        counted = _counted_by_api(loop)
        return estimate if counted is None else max(estimate, counted + _tokens_from(measured, _answered(measured)))

    def _measure(self, history: Chain[str]) -> Chain[_Measured]:
        seen, measured = self._seen
        new, known = history.since(seen), dict[str, Outline]()
        if new is None:
            same = count_common(seen, history)
            known = {each.outline.text: each.outline for each in measured[same:]}
            new, measured = history[same:], Chain(measured[:same])
        outlines = (known.get(text) or outline(text) for text in new)
        self._seen = history, measured.extend(list(_measures(outlines, measured)))
        return self._seen[1]

    def _fixed(self, params: str) -> tuple[int, bool]:
        """Return the tokens of a request without its messages, and whether it omits stale thinking."""
        if params is not self._params[0]:
            body = decode(params)
            beside = {name: body.get(name) for name in ("system", "tools", "output_config")}
            tokens = estimate_tokens((), **beside)
            self._params = params, tokens, leaves_out(body)
        return self._params[1:]


def _measures(outlines: Iterable[Outline], before: Sequence[_Measured]) -> Iterator[_Measured]:
    """Measure messages that follow others."""
    last = before[-1] if before else _NONE
    for place, each in enumerate(outlines, len(before)):
        start = place if each.compacts else last.start
        last = _Measured(each, last.tokens + each.tokens, last.thinking + _thinking_tokens(each), start)
        yield last


def _upto(measured: Sequence[_Measured], place: int) -> _Measured:
    """Return the sums of the messages before an index."""
    return measured[min(place, len(measured)) - 1] if place and measured else _NONE


def _tokens_from(measured: Sequence[_Measured], place: int) -> int:
    """Estimate the tokens of the messages from an index on, without messages that the API ignores."""
    if not measured:
        return 0
    return measured[-1].tokens - _upto(measured, max(place, measured[-1].start)).tokens


def _answered(measured: Sequence[_Measured]) -> int:
    """Return the index after the last assistant message."""
    places = range(len(measured), 0, -1)
    return next((place for place in places if measured[place - 1].outline.role == "assistant"), 0)


def _thinking_tokens(each: Outline) -> int:
    """Estimate the tokens of the thinking in a message."""
    if each.role != "assistant" or 'thinking"' not in each.text:
        return 0
    message = each.message()
    content = message["content"] if isinstance(message["content"], list) else []
    rest = [block for block in content if kind_of(block) not in THINKING]
    return 0 if len(rest) == len(content) else each.tokens - message_tokens({**message, "content": rest})


def _counted_by_api(loop: Loop) -> int | None:
    """Return the API's count of the tokens of the history with the last reply; None if unknown.

    Server tools read the history several times in one request, and the usage is the sum of all reads.
    """
    if loop.response is None or loop.iterations <= loop.edited_at:
        return None
    reply = decode(loop.response)
    usage = reply.get("usage")
    if not isinstance(usage, Mapping):
        return None
    if parts := iterations_in(usage):
        last = next((part for part in reversed(parts) if part.get("type") in _SAMPLING), None)
        return Usage.read(last).total_tokens or None
    by_server = (block["type"] in SERVER_CALLS or is_server_result(block["type"]) for block in reply["content"])
    if usage.get("server_tool_use") is not None or any(by_server):
        return None
    return Usage.read(usage).total_tokens or None


# The iterations in which the model itself continued. After a fallback to another model, the last one has a different
# type (source: `BetaFallbackMessageIterationUsage` of anthropic 2.12).
_SAMPLING = ("message", "fallback_message")
