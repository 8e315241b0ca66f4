"""A reply out of the events of its stream: the same JSON that the API would have sent without streaming.

The grammar is in the API's documentation of streaming. What is not known (events, deltas, blocks, fields) is passed
over or kept as it came, never refused.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal

from toolloop.core.errors import ModelError, ProtocolError
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.providers.failures import broken_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Under these the model was stopped in the middle of what it wrote, so a tool's input may be half there. No call of
# such a reply ever runs.
_CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})

_SHOWN = 200  # characters of what makes no sense

# Deltas whose pieces are joined: the type of the delta, and the field that holds the piece and becomes the whole.
_JOINED = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


@frozen
class Piece:
    """What one event of a stream adds to a reply that somebody may want to see at once.

    Attributes:
        kind: what it is a piece of.
        index: of the block in the reply.
        value: the text, or of an input the JSON text; the pieces of a block joined are the whole. A citation whole.
        call_id: of an input, which call's.
        name: of an input, the name of the tool.

    """

    kind: Literal["text", "thinking", "citation", "input"]
    index: int
    value: JSON
    call_id: str = ""
    name: str = ""


def accumulate(events: Iterable[Mapping[str, JSON]]) -> dict[str, JSON]:
    """The message that a stream of raw events amounts to.

    Raises:
        ModelError: the stream said that it broke off.
        ProtocolError: the stream ended early, or made no sense; the same request may fare better.

    """
    accumulator = Accumulator()
    for event in events:
        accumulator.add(event)
    return accumulator.message()


class Accumulator:
    """Takes the raw events of one stream, in order, and gives the message at the end.

    A whole message, which some answer to a request for a stream, is taken for one too.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self._message: dict[str, JSON] = {}
        self._whole: dict[str, JSON] | None = None
        self._blocks: dict[int, dict[str, JSON]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._ended = False
        self._problem: ModelError | ProtocolError | None = None

    def add(self, event: Mapping[str, JSON]) -> Piece | None:
        """Take one event, and say what it adds.

        What does not fit is told by `message`: so a stream is read to its end, and its connection serves the next.
        """
        if self._problem is not None:
            return None
        try:
            return self._add(event)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            self._problem = ProtocolError(
                f"an event of the reply's stream makes no sense where it came ({type(error).__name__}: {error}): "
                f"{str(event)[:_SHOWN]}. Send the same request again",
                retryable=True,
            )
            self._problem.__cause__ = error
            return None

    @property
    def partial_text(self) -> str:
        """The text so far: that of all text blocks, joined by newlines."""
        blocks = sorted(self._blocks.items())
        texts = [
            "".join(self._pieces.get((index, "text"), ())) or block.get("text")
            for index, block in blocks
            if block["type"] == "text"
        ]
        return "\n".join(text for text in texts if isinstance(text, str))

    def message(self) -> dict[str, JSON]:
        """The whole message.

        Raises:
            ModelError: the stream said that it broke off.
            ProtocolError: an event made no sense, the stream ended early, or the input of a call is not a JSON object.

        """
        if self._problem is not None:
            raise self._problem
        if self._whole is not None:
            return self._whole
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

    def _add(self, event: Mapping[str, Any]) -> Piece | None:
        match event["type"]:
            case "message_start":
                self._message = copy.deepcopy(dict(event["message"]))
            case "content_block_start":
                return self._start_block(_integer(event["index"]), copy.deepcopy(dict(event["content_block"])))
            case "content_block_delta":
                return self._extend_block(event["index"], event["delta"])
            case "content_block_stop":
                return self._stop_block(event["index"])
            case "message_delta":
                self._end_message(event)
            case "message_stop":
                self._ended = True
            case "message":
                self._whole = _message(event)
            case "error":
                error = event["error"]
                self._problem = broken_off(error.get("type"), str(error.get("message")))
            case _:  # pings, what is to come
                pass
        return None

    def _start_block(self, index: int, block: dict[str, JSON]) -> Piece | None:
        if index in self._blocks:
            raise ValueError(f"block {index} has begun already")
        piece = None
        match block["type"]:
            case "text" | "thinking" as kind:
                piece = Piece(kind, index, _string(block.get(kind) or ""))
            case "fallback":
                # Another model goes on; an unstreamed reply carries the name of the last (anthropic-sdk 2.12).
                self._message["model"] = block["to"]["model"]
        self._blocks[index] = block
        return piece if piece is not None and piece.value else None

    def _extend_block(self, index: int, delta: Mapping[str, Any]) -> Piece | None:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta" | "thinking_delta" | "input_json_delta" as kind:
                field = _JOINED[kind]
                piece = _string(delta[field])
                self._pieces.setdefault((index, field), [_string(block.get(field) or "")]).append(piece)
                return self._piece(kind, index, piece) if piece else None
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                citation = copy.deepcopy(delta["citation"])
                block["citations"] = [*(block.get("citations") or ()), citation]
                return Piece("citation", index, copy.deepcopy(citation))
            case "compaction_delta":  # one, and whole
                block.update({name: copy.deepcopy(value) for name, value in delta.items() if name != "type"})
            case _:
                pass
        return None

    def _stop_block(self, index: int) -> Piece | None:
        """Nothing depends on the end of a block, and a cut one has none; but an input that came whole is told now."""
        block = self._blocks.get(index, {})
        if (
            block.get("type") in _CALLS
            and block.get("input")
            and not any(self._pieces.get((index, "partial_json"), ()))
        ):
            return self._piece("input_json_delta", index, encode(block["input"]))
        return None

    def _piece(self, delta: str, index: int, text: str) -> Piece:
        match delta:
            case "text_delta":
                return Piece("text", index, text)
            case "thinking_delta":
                return Piece("thinking", index, text)
        block = self._blocks[index]
        return Piece("input", index, text, call_id=str(block.get("id") or ""), name=str(block.get("name") or ""))

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


def _message(event: Mapping[str, JSON]) -> dict[str, JSON]:
    if isinstance(event.get("content"), list):
        return event if isinstance(event, dict) else dict(event)
    raise TypeError("the content of a message is not a list")


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
