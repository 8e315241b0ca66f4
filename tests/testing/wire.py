"""A client that sees the bytes: it asks for a stream over a socket, and takes the chunks as they come."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from toolloop.testing import FakeMessagesAPI
from toolloop.testing.api.replies import Delayed
from toolloop.testing.api.streams import Streamed

ASK: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "What is new?"}],
}
_BODY = json.dumps({**ASK, "stream": True}).encode()


@frozen
class Seen:
    """What came: the head, the chunks, and whether the body was ended."""

    head: bytes
    chunks: list[bytes]
    ended: bool

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


class Wire:
    """One connection to a fake API."""

    def __init__(self, api: FakeMessagesAPI) -> None:
        """Connect."""
        self.socket = socket.create_connection(("127.0.0.1", int(api.url.rpartition(":")[2])), timeout=30)
        self._file = self.socket.makefile("rb", buffering=0)

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def ask(self) -> None:
        """Send the request."""
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: k\r\ncontent-length: {len(_BODY)}\r\n\r\n"
        self.socket.sendall(head.encode() + _BODY)

    def head(self) -> bytes:
        """The status and the headers."""
        lines = []
        while (line := self._file.readline()) not in {b"\r\n", b""}:
            lines.append(line)
        return b"".join(lines)

    def chunk(self) -> bytes | None:
        """The next chunk; b"" is the one that ends the body, None a connection that broke before it."""
        size = self._file.readline()
        if not size:
            return None
        data = b""
        while (left := int(size, 16) + 2 - len(data)) and (more := self._file.read(left)):
            data += more
        assert data.endswith(b"\r\n")
        return data[:-2]

    def seen(self) -> Seen:
        """The whole answer."""
        head, chunks = self.head(), []
        while chunk := self.chunk():
            chunks.append(chunk)
        return Seen(head, chunks, ended=chunk is not None)

    def is_silent(self) -> bool:
        """Whether nothing waits to be read."""
        self.socket.settimeout(0)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(30)
        return False


@contextmanager
def asked(api: FakeMessagesAPI) -> Iterator[Wire]:
    """A connection on which the request was sent."""
    wire = Wire(api)
    try:
        wire.ask()
        yield wire
    finally:
        wire.close()


def seen(answer: dict[str, Any] | Streamed | Delayed) -> Seen:
    """What comes for an answer."""
    with FakeMessagesAPI([answer]) as api, asked(api) as wire:
        return wire.seen()


def frames(body: bytes) -> list[bytes]:
    """The frames of a stream whose lines end as usual."""
    return [frame + b"\n\n" for frame in body.split(b"\n\n")[:-1]]


def events(body: bytes) -> list[dict[str, Any]]:
    """The events of such a stream."""
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]
