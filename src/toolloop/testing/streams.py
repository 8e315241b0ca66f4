"""How an answer streams: what is odd about its events, and how its bytes come over the wire."""

from __future__ import annotations

import bisect
import itertools
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from toolloop.core.freezing import frozen
from toolloop.testing import sse
from toolloop.testing.http import HungUp
from toolloop.testing.replies import Fault, Verbatim

if TYPE_CHECKING:
    from toolloop.testing.http import Line

_FRAME = re.compile(rb".+?(?:\n\n|\r\n\r\n|\r\r|\Z)", re.DOTALL)


@define(eq=False)
class RecordedStream:
    """How a stream goes, or went; see `RecordedRequest.stream`.

    Attributes:
        events: how many were written whole so far; written is what the operating system took to send.
        bytes: how many bytes of the event stream were written so far, without what HTTP adds.
        hung_up: set when the client closed the connection before the end.
        ended: set when no more is written: all is out, it was cut, the client hung up, or the server closed.

    """

    events: int = 0
    bytes: int = 0
    hung_up: threading.Event = field(factory=threading.Event)
    ended: threading.Event = field(factory=threading.Event)


@frozen(eq=False, kw_only=True)
class Streamed:
    """An answer, and how it streams; see `streamed`.

    Attributes:
        arrived: set when the stream has come to its `hold`, and waits.

    """

    answer: Any
    chunk: int | None = None
    hold: int | None = None
    cut: int | None = None
    cut_bytes: int | None = None
    send_buffer: int | None = None
    end: int | None = None
    end_bytes: int | None = None
    fault: Fault | None = None
    without: Collection[str] = ()
    inputs: Mapping[str, str] = field(factory=dict)
    noise: bool = False
    newline: str = "\n"
    released: threading.Event = field(factory=threading.Event, init=False)
    arrived: threading.Event = field(factory=threading.Event, init=False)

    def release(self) -> None:
        """Let the stream go on."""
        self.released.set()


def streamed(  # noqa: PLR0913 - each is something that happens to streams
    answer: Mapping[str, Any] | Verbatim,
    *,
    chunk: int | None = None,
    hold: int | None = None,
    cut: int | None = None,
    cut_bytes: int | None = None,
    send_buffer: int | None = None,
    end: int | None = None,
    end_bytes: int | None = None,
    fault: Fault | None = None,
    without: Collection[str] = (),
    inputs: Mapping[str, str] | None = None,
    noise: bool = False,
    newline: str = "\n",
) -> Streamed:
    r"""An answer to a request for a stream, and what is special about the stream.

    Positions count events (or bytes of the event stream) as a slice does: negative ones from the end, and those behind
    the end mean the end. `message_start`, the start of the first block and a ping are the first three events.

    Args:
        answer: what `reply` or `compacted` makes; or `verbatim`, with the text of a recorded stream, which takes no
            `without`, `inputs`, `noise` or `newline`.
        chunk: the bytes of a write, and of a chunk of the transfer encoding; 1 splits lines and characters. Unless
            given, each event is one.
        hold: after so many events the stream stops until `release()`; its `arrived` is set then. Closing the server
            ends it.
        cut: after so many events the connection breaks.
        cut_bytes: likewise, in bytes.
        send_buffer: the size in bytes of the socket's send buffer. Small, it makes the server wait for a client that
            reads slowly, after some ten kilobytes in place of megabytes.
        end: after so many events the stream ends, as if it were whole: -1 leaves out `message_stop`, 0 all.
        end_bytes: likewise, in bytes: -1 leaves the last event unfinished.
        fault: what `fault` makes: an error event where `end` says.
        without: types of events that are left out.
        inputs: texts that are streamed as the input of calls, in place of its JSON, by the names of the tools.
        noise: between the events comes what a client must pass over: comments, pings, events and deltas of unknown
            types. It is not counted as events.
        newline: what ends a line; `"\r\n"` and `"\r"` are allowed too.

    Raises:
        TypeError: the answer is none that can be streamed.
        ValueError: an option that does not go with the others, or with the answer.

    """
    if not isinstance(answer, Mapping | Verbatim):
        raise TypeError(f"{answer!r} cannot be streamed: give what reply, compacted or verbatim makes")
    if fault is not None and end is None:
        raise ValueError("fault is the event that comes where the stream ends: say where, with end")
    if isinstance(answer, Verbatim) and (without or inputs or noise or newline != "\n"):
        raise ValueError("a verbatim stream is sent as it is: without, inputs, noise and newline are for replies")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk is {chunk}: a write has 1 byte or more")
    return Streamed(
        answer=answer,
        chunk=chunk,
        hold=hold,
        cut=cut,
        cut_bytes=cut_bytes,
        send_buffer=send_buffer,
        end=end,
        end_bytes=end_bytes,
        fault=fault,
        without=frozenset(without),
        inputs=dict(inputs or {}),
        noise=noise,
        newline=newline,
    )


@frozen(eq=False)
class Delivery:
    """The body of a streamed answer: its frames, and how they are written."""

    frames: Sequence[bytes]
    how: Streamed
    record: RecordedStream = field(factory=RecordedStream)

    def __call__(self, line: Line) -> bool:
        """Write it all, or as much as the options and the client allow; whether the connection can be used again."""
        try:
            line.start(self.how.send_buffer)
            return self._write(line)
        except HungUp:
            if not line.closing:
                self.record.hung_up.set()
            return False
        finally:
            self.record.ended.set()

    def _write(self, line: Line) -> bool:
        how, body = self.how, b"".join(self.frames)
        ends = list(itertools.accumulate(map(len, self.frames), initial=0))
        hold = None if how.hold is None else ends[_position(how.hold, len(self.frames))]
        until = min(ends[_position(how.cut, len(self.frames))], _position(how.cut_bytes, len(body)))
        pauses = set(ends) if how.chunk is None else set(range(0, len(body), how.chunk))
        at = 0
        for pause in sorted({*pauses, until} if hold is None else {*pauses, until, hold}):
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


def laid_out(message: dict[str, Any], how: Streamed) -> list[bytes]:
    """The frames of a message's stream."""
    events = [event for event in sse.events(message, how.inputs) if event["type"] not in how.without]
    frames = [sse.frame(event) for event in events]
    if how.noise:
        frames = [b"".join(_noise(event, first=number == 0)) + frames[number] for number, event in enumerate(events)]
    return _ended([frame.replace(b"\n", how.newline.encode()) for frame in frames], how)


def laid_out_verbatim(body: bytes, how: Streamed) -> list[bytes]:
    """The frames of a stream that is there already."""
    return _ended(_FRAME.findall(body), how)


def _ended(frames: list[bytes], how: Streamed) -> list[bytes]:
    kept = frames[: how.end]
    if how.fault:
        error = {"type": how.fault.type, "message": how.fault.message}
        kept.append(sse.frame({"type": "error", "error": error}).replace(b"\n", how.newline.encode()))
    if how.end_bytes is None:
        return kept
    left = _position(how.end_bytes, sum(map(len, kept)))
    short = []
    for frame in kept:
        short.append(frame[:left])
        left -= len(short[-1])
    return [frame for frame in short if frame]


def _noise(event: dict[str, Any], *, first: bool) -> Iterator[bytes]:
    yield b": a comment\n\n"
    if not first:  # a stream begins with message_start, and ends with message_stop
        yield sse.frame({"type": "ping"})
        yield sse.frame({"type": "forecast", "index": 0, "mood": ["fine"]})
    if event["type"] in {"content_block_delta", "content_block_stop"}:  # a block is open
        delta = {"type": "mood_delta", "mood": "fine"}
        yield sse.frame({"type": "content_block_delta", "index": event["index"], "delta": delta})


def _position(position: int | None, length: int) -> int:
    """Where a slice up to this position ends."""
    return len(range(length)[:position])
