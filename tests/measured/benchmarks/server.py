"""A Messages API that answers by rote in its own process: `python -m tests.measured.benchmarks.server [--record]`.

It prints its port and serves until its standard input ends. With `--record` a GET returns the headers
and bodies received since the last GET, as one JSON list of pairs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import cache
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING

from tests.measured.benchmarks import scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

_TURNS = re.compile(rb"The conversation has (\d+) turns")
_FOLLOWS = re.compile(rb'"previous_message_id": *"msg_(\d{8})(\d{12})"')
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)

_recorded: list[bytes] = []


class _Connection(StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self) -> None:
        while first := self.rfile.readline():
            length, headers = 0, []
            while (line := self.rfile.readline()).strip():
                headers.append(line.decode().strip())
                if match := _LENGTH.match(line):
                    length = int(match[1])
            body = self.rfile.read(length)
            self.wfile.write(_recording() if first.startswith(b"GET") else _answer(headers, body))


def _answer(headers: list[str], body: bytes) -> bytes:
    if "--record" in sys.argv:
        _recorded.append(b"[%b,%b]" % (scenario.encode(headers), body))
    if follows := _FOLLOWS.search(body):
        return _reply(int(follows[2]) + 1, int(follows[1]))
    found = _TURNS.search(body)
    if found is None:
        raise ValueError("the request has no system prompt of the scenario")
    # A role per message, and one message before the first turn, three before the second, and so on. A `"role"` inside
    # a text would be escaped, and so be no match.
    return _reply((body.count(b'"role"') + 1) // 2, int(found[1]))


@cache
def _reply(turn: int, turns: int) -> bytes:
    return _response(scenario.encode(scenario.reply(turn, turns)), b"request-id: req_%020d\r\n" % turn)


def _recording() -> bytes:
    pairs, _recorded[:] = list(_recorded), []
    return _response(b"[" + b",".join(pairs) + b"]")


def _response(body: bytes, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        headers,
        len(body),
        body,
    )


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Run the server in a process of its own, and give its URL."""
    command = [sys.executable, "-m", __name__, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the server has no standard output to read its port from")
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        # Leaving closes the server's standard input, which ends it.


def main() -> None:
    """Serve until standard input ends."""
    ThreadingTCPServer.daemon_threads = True
    with ThreadingTCPServer(("127.0.0.1", 0), _Connection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main()
