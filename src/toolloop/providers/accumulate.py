"""A reply out of the events of its stream: the same JSON that the API would have sent without streaming.

The grammar is in the API's documentation of streaming. What is not known (events, deltas, blocks, fields) is passed
over or kept as it came, never refused.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from toolloop.core.errors import ProtocolError
from toolloop.core.jsontext import JSON, decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Under these the model was stopped in the middle of what it wrote, so a tool's input may be half there. No call of
# such a reply ever runs.
_CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})

_SHOWN = 200  # characters of what makes no sense

# Deltas whose pieces are joined: the type of the delta, and the field that holds the piece and becomes the whole.
_JOINED = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def accumulate(events: Iterable[Mapping[str, JSON]]) -> dict[str, JSON]:
    """The message that a stream of raw events amounts to.

    Raises:
        ProtocolError: the stream ended early, or made no sense; the same request may fare better.

    """
    accumulator = Accumulator()
    for event in events:
        accumulator.add(event)
    return accumulator.message()


class Accumulator:
    """Takes the raw events of one stream, in order, and gives the message at the end."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._message: dict[str, JSON] = {}
        self._blocks: dict[int, dict[str, JSON]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._ended = False
        self._problem: ProtocolError | None = None

    def add(self, event: Mapping[str, JSON]) -> None:
        """Take one event. What does not fit is told by `message`.

        So the stream is read to its end: under trio an async iterator of the SDK must not be left half-way.
        """
        if self._problem is not None:
            return
        try:
            self._add(event)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self._problem = ProtocolError(
                f"an event of the reply's stream makes no sense where it came ({type(error).__name__}: {error}): "
                f"{str(event)[:_SHOWN]}. Send the same request again",
                retryable=True,
            )
            self._problem.__cause__ = error

    def message(self) -> dict[str, JSON]:
        """The whole message.

        Raises:
            ProtocolError: an event made no sense, the stream ended early, or the input of a call is not a JSON object.

        """
        if self._problem is not None:
            raise self._problem
        stop_reason = self._message.get("stop_reason")
        if not self._ended or stop_reason is None:
            reached = (
                "its first event" if not self._message else "its stop reason" if stop_reason is None else "its end"
            )
            raise ProtocolError(
                f"the reply's stream ended before {reached}: the reply is not complete. Send the same request again",
                retryable=True,
            )
        for (index, field), pieces in self._pieces.items():
            block = self._blocks[index]
            whole = "".join(pieces)
            if field != "partial_json":
                block[field] = whole
            elif whole.strip():  # a call without arguments may stream nothing at all
                block["input"] = _input(block, whole, stop_reason)
        return self._message | {"content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _add(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "message_start":
                self._message = copy.deepcopy(dict(event["message"]))
            case "content_block_start":
                self._start_block(_integer(event["index"]), copy.deepcopy(dict(event["content_block"])))
            case "content_block_delta":
                self._extend_block(event["index"], event["delta"])
            case "message_delta":
                self._end_message(event)
            case "message_stop":
                self._ended = True
            case _:  # pings, the end of a block (nothing depends on it, and a cut block has none), what is to come
                pass

    def _start_block(self, index: int, block: dict[str, JSON]) -> None:
        if block["type"] == "fallback":
            # Another model goes on from here; an unstreamed reply carries the name of the last (anthropic-sdk 2.12).
            self._message["model"] = block["to"]["model"]
        self._blocks[index] = block

    def _extend_block(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta" | "thinking_delta" | "input_json_delta" as kind:
                field = _JOINED[kind]
                pieces = self._pieces.setdefault((index, field), [_string(block.get(field) or "")])
                pieces.append(_string(delta[field]))
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), copy.deepcopy(delta["citation"])]
            case "compaction_delta":  # one, and whole
                block.update({name: copy.deepcopy(value) for name, value in delta.items() if name != "type"})
            case _:
                pass

    def _end_message(self, event: Mapping[str, Any]) -> None:
        event = copy.deepcopy(dict(event))
        _overwrite(self._message, event["delta"])
        # The counts are totals so far, not additions; those left out or null keep their first value.
        self._message["usage"] = _recounted(self._message.get("usage") or {}, event.get("usage") or {})
        beside = {name: value for name, value in event.items() if name not in {"type", "delta", "usage"}}
        _overwrite(self._message, beside)


def _overwrite(target: dict[str, JSON], changes: Mapping[str, JSON]) -> None:
    for name, value in changes.items():
        if value is not None or name not in target:
            target[name] = value


def _recounted(counts: Mapping[str, JSON], told: Mapping[str, JSON]) -> dict[str, JSON]:
    """Counts, overwritten by those that were told since; in the objects among them likewise."""
    new = dict(counts)
    for name, value in told.items():
        if isinstance(value, dict) and isinstance(counts.get(name), dict):
            new[name] = _recounted(counts[name], value)
        elif value is not None or name not in new:
            new[name] = value
    return new


def _integer(value: JSON) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(f"the index {value!r} is not an integer")


def _string(value: JSON) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"the piece {value!r} is not a string")


def _input(block: Mapping[str, JSON], text: str, stop_reason: str) -> JSON:
    problem: Exception | None = None
    try:
        value = decode(text)
    except (ValueError, RecursionError) as error:
        value, problem = None, error
    if isinstance(value, dict):
        return value
    if stop_reason in _CUT_OFF:
        return {}
    raise ProtocolError(
        f"the input of the call {block.get('id')!r} of {block.get('name')!r} is not a JSON object: "
        f"{text[:_SHOWN]!r}. Send the same request again",
        retryable=True,
    ) from problem
