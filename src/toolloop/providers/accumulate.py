"""Assemble a reply from the events of its stream: the same JSON that the API sends without streaming.

The grammar follows the API's documentation on streaming. Unknown events and deltas are skipped; unknown blocks and
fields are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field, frozen

from toolloop.errors import ModelError, ProtocolError
from toolloop.machine.record.replies import accept_id
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.providers.sdk_errors import broken_off

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# With these stop reasons the reply was cut off, so the input of a call may be incomplete. Its calls never run.
_CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})

_SHOWN = 200  # characters of an invalid event or input

# Deltas whose texts are joined: the field with the text, and the kind of the piece.
_JOINED: dict[str, tuple[str, Literal["text", "thinking", "input"]]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
}

_CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


@frozen
class Piece:
    """The part of a reply that one event adds, for display while the reply streams.

    Attributes:
        kind: the kind of content.
        index: the index of the block in the reply.
        value: the text, the JSON text of an input, or a whole citation. The pieces of a block, joined, are its content.
        call_id: for an input, the id of the call.
        name: for an input, the name of the tool.

    """

    kind: Literal["text", "thinking", "citation", "input"]
    index: int
    value: JSON
    call_id: str = ""
    name: str = ""


def accumulate(events: Iterable[Mapping[str, JSON]]) -> dict[str, JSON]:
    """Return the message that the raw events of a stream make up.

    Raises:
        ModelError: the stream contains an error event.
        ProtocolError: the stream ended early or is invalid; the same request may succeed.

    """
    accumulator = Accumulator()
    for event in events:
        accumulator.add(event)
    return accumulator.message()


@define(eq=False, repr=False)
class Accumulator:
    """Collect the raw events of one stream, in order, and return the message at the end.

    A whole message is also accepted, because some servers answer a streaming request with one.
    """

    _message: dict[str, JSON] = field(factory=dict, init=False)
    _whole: dict[str, JSON] | None = field(default=None, init=False)
    _blocks: dict[int, dict[str, JSON]] = field(factory=dict, init=False)
    _pieces: dict[tuple[int, str], list[str]] = field(factory=dict, init=False)
    _ended: bool = field(default=False, init=False)
    _problem: ModelError | ProtocolError | None = field(default=None, init=False)

    def add(self, event: Mapping[str, JSON]) -> Piece | None:
        """Add one event, and return the piece that it adds.

        An invalid event raises nothing here; `message` raises the error. So a stream is read to its end, and its
        connection can be reused.
        """
        if self._problem is not None:
            return None
        try:
            return self._add(event)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            self._problem = ProtocolError(
                f"the stream has an invalid event ({type(error).__name__}: {error}): {str(event)[:_SHOWN]}. "
                "Send the same request again",
                retryable=True,
            )
            self._problem.__cause__ = error
            return None

    @property
    def partial_text(self) -> str:
        """The text so far: the texts of all text blocks, joined by newlines."""
        texts = [
            "".join(self._pieces.get((index, "text"), ())) or block.get("text")
            for index, block in sorted(self._blocks.items())
            if block["type"] == "text"
        ]
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def partial(self) -> dict[str, JSON] | None:
        """The message so far, with the blocks of text and thinking that have begun; None if nothing has arrived."""
        if not self._message:
            return None
        joined = {(index, name): "".join(pieces) for (index, name), pieces in self._pieces.items()}
        blocks = [
            block | {kind: joined.get((index, kind), block.get(kind))}
            for index, block in sorted(self._blocks.items())
            if (kind := block["type"]) in {"text", "thinking"}
        ]
        return self._message | {"content": blocks}

    def message(self) -> dict[str, JSON]:
        """Return the whole message.

        Raises:
            ModelError: the stream contains an error event.
            ProtocolError: an event is invalid, the stream ended early, or the input of a call is not a JSON object.

        """
        if self._problem is not None:
            raise self._problem
        if self._whole is not None:
            return self._whole
        stop_reason = self._message.get("stop_reason")
        if not self._ended or stop_reason is None:
            missing = "first event" if not self._message else "stop reason" if stop_reason is None else "last event"
            raise ProtocolError(
                f"the stream of the reply ended before its {missing}. Send the same request again",
                retryable=True,
            )
        for (index, name), pieces in self._pieces.items():
            block, whole = self._blocks[index], "".join(pieces)
            if name != "partial_json":
                block[name] = whole
            elif whole.strip():  # a call without arguments may stream no input
                block["input"] = _input(block, whole, stop_reason)
        return self._message | {"content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _add(self, event: Mapping[str, Any]) -> Piece | None:
        match event["type"]:
            case "message_start":
                self._message = dict(event["message"])
            case "content_block_start":
                return self._start_block(event["index"], dict(event["content_block"]))
            case "content_block_delta":
                return self._extend_block(event["index"], event["delta"])
            case "content_block_stop":
                return self._stop_block(event["index"])
            case "message_delta":
                self._end_message(event)
            case "message_stop":
                self._ended = True
            case "message":
                if not isinstance(event["content"], list):
                    raise TypeError("the content of a message is not a list")
                self._whole = event if isinstance(event, dict) else dict(event)
            case "error":
                error = event["error"]
                self._problem = broken_off(error.get("type"), str(error.get("message")))
        return None

    def _start_block(self, index: Any, block: dict[str, JSON]) -> Piece | None:
        if not isinstance(index, int) or index in self._blocks:
            raise ValueError(f"the index {index!r} is not an int, or its block has already begun")
        kind = block["type"]
        text = _string(block.get(kind) or "") if kind in {"text", "thinking"} else ""
        if kind == "fallback":
            # Another model continues. A reply without streaming names the last model (anthropic-sdk 2.12).
            self._message["model"] = block["to"]["model"]
        self._blocks[index] = block
        return Piece(block["type"], index, text) if text else None

    def _extend_block(self, index: int, delta: Mapping[str, Any]) -> Piece | None:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta" | "thinking_delta" | "input_json_delta" as kind:
                name, piece_kind = _JOINED[kind]
                text = _string(delta[name])
                self._pieces.setdefault((index, name), [_string(block.get(name) or "")]).append(text)
                return self._piece(piece_kind, index, text)
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
                return Piece("citation", index, delta["citation"])
            case "compaction_delta":  # a block has one, with all its fields
                block.update({name: value for name, value in delta.items() if name != "type"})
        return None

    def _stop_block(self, index: int) -> Piece | None:
        """Return an input that came complete with the start of its block. The end of a block adds nothing else."""
        block = self._blocks.get(index, {})
        came_in_pieces = any(self._pieces.get((index, "partial_json"), ()))
        if block.get("type") not in _CALLS or not block.get("input") or came_in_pieces:
            return None
        return self._piece("input", index, encode(block["input"]))

    def _piece(self, kind: Literal["text", "thinking", "input"], index: int, text: str) -> Piece | None:
        if not text:
            return None
        if kind != "input":
            return Piece(kind, index, text)
        block = accept_id(self._blocks[index])  # `read_reply` does the same with the whole reply
        return Piece(kind, index, text, call_id=str(block.get("id") or ""), name=str(block.get("name") or ""))

    def _end_message(self, event: Mapping[str, Any]) -> None:
        _overwrite(self._message, event["delta"])
        # The counts are totals, not increments. Missing and null counts keep their first value.
        self._message["usage"] = _recounted(self._message.get("usage") or {}, event.get("usage") or {})
        _overwrite(self._message, {name: event[name] for name in event.keys() - {"type", "delta", "usage"}})


def _overwrite(target: dict[str, JSON], changes: Mapping[str, JSON]) -> None:
    for name, value in changes.items():
        if value is not None or name not in target:
            target[name] = value


def _recounted(counts: Mapping[str, JSON], changes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the counts with the changes. Nested objects are merged in the same way."""
    new = dict(counts)
    merged = {
        name: _recounted(counts[name], value)
        if isinstance(value, dict) and isinstance(counts.get(name), dict)
        else value
        for name, value in changes.items()
    }
    _overwrite(new, merged)
    return new


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
