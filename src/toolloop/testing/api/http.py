"""A loopback HTTP server that starts and stops without a delay."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from attrs import frozen

_ACCEPT_TIMEOUT = 0.5  # seconds, in case the connection that ends the accept loop does not come through
_LOOK_EVERY = 0.01  # seconds between two checks whether the client of a held stream has hung up


@frozen
class Asked:
    """A request as it arrived, with header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@frozen
class Answered:
    """An answer to send.

    Attributes:
        body: the bytes, or a function that writes them in pieces and returns whether the connection can be reused.

    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Callable[[Line], bool]


class HungUp(Exception):
    """The connection was closed before the whole body was written."""


class Line:
    """Writes a body in pieces; each is one write, and one chunk of the transfer encoding.

    Every method raises `HungUp` once the client or the server has closed the connection.

    Args:
        connection: the socket.
        head: status and headers, ready to send.
        closing: set when the server closes.

    """

    def __init__(self, connection: socket.socket, head: bytes, closing: threading.Event) -> None:
        """Keep the connection, without sending."""
        self._connection = connection
        self._head = head
        self.closing = closing

    def start(self, send_buffer: int | None = None) -> None:
        """Set the size of the send buffer and send the head."""
        if send_buffer is not None:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self._send(self._head)

    def write(self, piece: bytes) -> None:
        """Send a chunk; wait until the operating system accepts it."""
        self._look()
        self._send(b"%x\r\n%s\r\n" % (len(piece), piece))

    def end(self) -> None:
        """Send the chunk that ends the body."""
        self._send(b"0\r\n\r\n")

    def wait(self, event: threading.Event) -> None:
        """Wait for an event while the client is connected."""
        while not event.wait(_LOOK_EVERY):
            self._look()

    def _send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise HungUp from error

    def _look(self) -> None:
        # The first write to a connection that the client has closed still succeeds, so check before it.
        self._connection.settimeout(0)
        try:
            gone = not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError as error:
            raise HungUp from error
        finally:
            self._connection.settimeout(None)
        if gone:
            raise HungUp


Respond = Callable[[Asked], Answered | None]


def _written(head: list[str], length: str) -> bytes:
    return "\r\n".join([*head, length, "", ""]).encode("latin-1")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any  # a `_Server`

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class says so
        """Log nothing: the requests are recorded."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.respond(Asked(self.command, self.path, headers, body))
        if answer is None:
            self.close_connection = True
            return
        head = [f"HTTP/1.1 {answer.status} {self.responses.get(answer.status, ('',))[0]}"]
        head += [f"{name}: {value}" for name, value in answer.headers.items() if name.lower() != "content-length"]
        if isinstance(answer.body, bytes):
            # One write, so one packet for a small answer.
            self.wfile.write(_written(head, f"content-length: {len(answer.body)}") + answer.body)
        else:
            line = Line(self.connection, _written(head, "transfer-encoding: chunked"), self.server.stopping)
            self.close_connection |= not answer.body(line)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the names that http.server looks for


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024  # a hundred loops may send requests at the same time

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.stopping = threading.Event()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.socket.settimeout(_ACCEPT_TIMEOUT)

    def server_bind(self) -> None:
        # HTTPServer.server_bind resolves a name that is never used, which may take seconds.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # of an IPv4 address

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        # Registered before it runs, so that close() finds every connection.
        with self._lock:
            self._connections[request] = thread
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up, or a server that closes, is expected.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - the base class says so
        return not self.stopping.is_set()

    def loop(self) -> None:
        # serve_forever checks for its end only at intervals.
        while not self.stopping.is_set():
            self.handle_request()

    def hang_up(self) -> list[threading.Thread]:
        with self._lock:
            open_now = dict(self._connections)
        for connection in open_now:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return list(open_now.values())


class Loopback:
    """A running HTTP server on a free port of the loopback interface.

    Args:
        respond: returns the answer to a request, or None to hang up. It runs in the thread of the connection.

    """

    def __init__(self, respond: Respond) -> None:
        """Bind and start."""
        self._server = _Server(respond)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.loop, name=f"fake-api-{self.port}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, hang up on every client, and wait until the threads have ended."""
        self._server.stopping.set()
        with contextlib.suppress(OSError):  # ends the accept loop
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        self._thread.join()
        self._server.server_close()
        for thread in self._server.hang_up():
            thread.join(timeout=5)
