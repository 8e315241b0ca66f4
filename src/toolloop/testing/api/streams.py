"""Streamed answers: their events and faults, and how their bytes are written."""

from __future__ import annotations

import bisect
import itertools
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from toolloop.machine.values.jsontext import encode
from toolloop.providers.scripted import events_of
from toolloop.testing.api.http import HungUp
from toolloop.testing.api.replies import Fault, Verbatim

if TYPE_CHECKING:
    from toolloop.testing.api.http import Line

_FRAME = re.compile(rb".+?(?:\n\n|\r\n\r\n|\Z)", re.DOTALL)


@define(eq=False)
class RecordedStream:
    """The progress of a stream; see `RecordedRequest.stream`.

    Attributes:
        events: the number of complete events written so far, which means that the operating system accepted them.
        bytes: the number of bytes of the event stream written so far, without the bytes that HTTP adds.
        hung_up: set when the client closed the connection before the end.
        ended: set when nothing more will be written, for any reason.

    """

    events: int = 0
    bytes: int = 0
    hung_up: threading.Event = field(factory=threading.Event)
    ended: threading.Event = field(factory=threading.Event)


@frozen(eq=False)
class Streamed:
    """An answer to a request for a stream, with options for the stream.

    Positions count events (or bytes of the event stream) like the end of a slice: negative positions count from the
    end, and positions after the end mean the end. The first three events are `message_start`, the start of the first
    block, and a ping.

    Args:
        answer: a `reply` or `compacted` message; or `verbatim` with the text of a recorded stream, which cannot be
            combined with `without`, `inputs`, `noise` and `newline`.
        chunk: the number of bytes per write, and per chunk of the transfer encoding; 1 splits lines and characters. By
            default each event is one write.
        hold: the number of events after which the stream stops until `release()`. Closing the server ends it.
        cut: the number of events after which the connection breaks.
        cut_bytes: the same, in bytes.
        send_buffer: the size in bytes of the socket's send buffer. With a small one, the server waits for a slow client
            after some ten kilobytes instead of megabytes.
        end: the number of events after which the stream ends as if it were complete: -1 leaves out `message_stop`, 0
            leaves out all events.
        end_bytes: the same, in bytes: -1 leaves the last event incomplete.
        fault: a `fault`, sent as an error event at the position `end`.
        without: the types of events to leave out.
        inputs: by tool name, the text that is streamed as the input of the tool's calls instead of their JSON.
        noise: whether to insert comments, pings and unknown events and deltas, which a client must skip. They do not
            count as events.
        newline: the end of each line. A carriage return, alone or with a line feed, is also legal.

    Attributes:
        arrived: set when the stream has reached its `hold`, and waits.

    Raises:
        TypeError: the answer cannot be streamed.
        ValueError: an option does not fit the others, or the answer.

    """

    answer: Any
    chunk: int | None = field(default=None, kw_only=True)
    hold: int | None = field(default=None, kw_only=True)
    cut: int | None = field(default=None, kw_only=True)
    cut_bytes: int | None = field(default=None, kw_only=True)
    send_buffer: int | None = field(default=None, kw_only=True)
    end: int | None = field(default=None, kw_only=True)
    end_bytes: int | None = field(default=None, kw_only=True)
    fault: Fault | None = field(default=None, kw_only=True)
    without: Collection[str] = field(default=(), kw_only=True)
    inputs: Mapping[str, str] = field(factory=dict, kw_only=True)
    noise: bool = field(default=False, kw_only=True)
    newline: str = field(default="\n", kw_only=True)
    released: threading.Event = field(factory=threading.Event, init=False)
    arrived: threading.Event = field(factory=threading.Event, init=False)

    def __attrs_post_init__(self) -> None:
        """Check that the options fit together."""
        if not isinstance(self.answer, (Mapping, Verbatim)):
            raise TypeError(f"streamed(): cannot stream {self.answer!r}. Pass a reply, compacted or verbatim answer")
        if self.fault is not None and self.end is None:
            raise ValueError("streamed(): fault needs a position. Pass end as well")
        if isinstance(self.answer, Verbatim) and (self.without or self.inputs or self.noise or self.newline != "\n"):
            raise ValueError(
                "streamed(): a verbatim stream is sent unchanged. Remove without, inputs, noise and newline"
            )
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"streamed(): chunk is {self.chunk}. Pass 1 or more bytes")

    def release(self) -> None:
        """Continue the stream after its `hold`."""
        self.released.set()


streamed = Streamed  # written like the other constructors of answers


@frozen(eq=False)
class Delivery:
    """The body of a streamed answer: its frames, and how they are written."""

    frames: Sequence[bytes]
    how: Streamed
    record: RecordedStream = field(factory=RecordedStream)

    def __call__(self, line: Line) -> bool:
        """Write as much as the options and the client permit; return whether the connection can be reused."""
        try:
            line.start(self.how.send_buffer)
            return self._write(line)
        except HungUp:
            if not line.closing.is_set():
                self.record.hung_up.set()
            return False
        finally:
            self.record.ended.set()

    def _write(self, line: Line) -> bool:
        how, body = self.how, b"".join(self.frames)
        ends = list(itertools.accumulate(map(len, self.frames), initial=0))
        hold = None if how.hold is None else ends[_position(how.hold, len(self.frames))]
        until = min(ends[_position(how.cut, len(self.frames))], _position(how.cut_bytes, len(body)))
        pauses = {until, *(ends if how.chunk is None else range(0, len(body), how.chunk))}
        at = 0
        for pause in sorted(pauses if hold is None else {*pauses, hold}):
            if pause > until:
                break
            if pause > at:
                line.write(body[at:pause])
                at = pause
                self.record.bytes = at
                self.record.events = bisect.bisect_right(ends, at) - 1
            if at == hold:
                how.arrived.set()
                line.wait(how.released)
        if how.cut is not None or how.cut_bytes is not None:
            return False
        line.end()
        return True


def frames_of(message: dict[str, Any], how: Streamed) -> list[bytes]:
    """Return the frames of the stream of a message."""
    events = [event for event in events_of(message, how.inputs) if event["type"] not in how.without]
    frames = [_frame(event) for event in events]
    if how.noise:
        frames = [b"".join([*_noise(event), frame]) for event, frame in zip(events, frames, strict=True)]
    return _ended(frames, how)


def frames_of_text(body: bytes, how: Streamed) -> list[bytes]:
    """Return the frames of the text of a recorded stream."""
    return _ended(_FRAME.findall(body), how)


def _frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {encode(event)}\n\n".encode()


def _ended(frames: list[bytes], how: Streamed) -> list[bytes]:
    kept = frames[: how.end]
    if how.fault:
        kept.append(_frame({"type": "error", "error": {"type": how.fault.type, "message": how.fault.message}}))
    if how.newline != "\n":
        kept = [frame.replace(b"\n", how.newline.encode()) for frame in kept]
    left = _position(how.end_bytes, sum(map(len, kept)))
    ends = itertools.accumulate(map(len, kept), initial=0)
    return [frame[: left - start] for start, frame in zip(ends, kept, strict=False) if start < left]


def _noise(event: dict[str, Any]) -> Iterator[bytes]:
    yield b": a comment\n\n"
    if event["type"] != "message_start":  # which comes first
        yield _frame({"type": "ping"})
        yield _frame({"type": "forecast", "index": 0, "mood": ["fine"]})
    if event["type"] in {"content_block_delta", "content_block_stop"}:  # a block is open
        delta = {"type": "mood_delta", "mood": "fine"}
        yield _frame({"type": "content_block_delta", "index": event["index"], "delta": delta})


def _position(position: int | None, length: int) -> int:
    """Return where a slice up to this position ends."""
    return len(range(length)[:position])
