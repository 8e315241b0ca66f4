"""JSON-RPC messages, one a line, over two binary files."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from anyio import to_thread

_MOST = 32 * 1024 * 1024  # bytes of a message
_PARSE, _INVALID = -32700, -32600
_TYPES = (str, int, type(None))  # of ids, and of what may be looked up


def take_over_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Take the standard input and output for the protocol, and return them.

    From then on, nothing else reads the one or writes to the other: what is printed goes to the standard error, also by
    child processes.
    """
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return source, sink


class LineTransport:
    """The transport of a connection. A line that is not a message is answered with an error, and skipped."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        """Keep the files. They are read and written in threads."""
        self._source, self._sink = source, sink
        self._writing = asyncio.Lock()  # it is fair, so messages are written in the order in which they are sent

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while line := await to_thread.run_sync(self._read, abandon_on_cancel=True):
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(_PARSE, f"this line is not JSON, or has more than {_MOST} bytes")
                continue
            if isinstance(message, dict) and all(isinstance(message.get(key), _TYPES) for key in ("id", "method")):
                return message
            await self._refuse(_INVALID, "expected one JSON-RPC message, with an id that is a string or an integer")
        return None

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message."""
        async with self._writing:
            await to_thread.run_sync(self._write, json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def close(self) -> None:
        """Do nothing: the files belong to the caller."""

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})

    def _read(self) -> bytes:
        with suppress(OSError):  # the editor is gone
            line = rest = self._source.readline(_MOST)
            while len(rest) == _MOST and not rest.endswith(b"\n"):
                rest, line = self._source.readline(_MOST), b"too long"
            return line
        return b""

    def _write(self, line: bytes) -> None:
        with suppress(OSError):
            self._sink.write(line)
            self._sink.flush()
