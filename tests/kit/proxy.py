"""A network between a client and a server, which a test can cut or let fall silent at any piece of what is sent."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from attrs import define, field

Act = Literal["pass", "cut", "mute"]


@define(eq=False)
class Proxy:
    """Forwards the connections to a Unix socket, one thread each.

    Attributes:
        judge: gets each piece that the server sends, by its number in all connections, and says what happens to
            it: it is passed on; the connection is cut; or nothing of it is passed on any more, in either direction.
        requests: the pieces that clients have sent, so the number of times that they waited for an answer.

    """

    target: str
    judge: Callable[[int], Act] = lambda _: "pass"
    pieces: int = 0
    requests: int = 0
    _listening: socket.socket = field(factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _open: list[socket.socket] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return  # it is closed
            server = socket.socket(socket.AF_UNIX)
            with self._lock:
                self._open += [client, server]
            try:
                server.connect(self.target)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            try:
                while self._pass_on(client, selector) != "cut":
                    pass
            except OSError:
                pass  # either end is gone

    def _pass_on(self, client: socket.socket, selector: selectors.BaseSelector) -> Act:
        for key, _ in selector.select():
            piece = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
            if not piece:
                return "cut"
            with self._lock:
                if key.fileobj is client:
                    self.requests += 1
                    act: Act = "pass"
                else:
                    self.pieces += 1
                    act = self.judge(self.pieces)
            if act == "mute":
                self._swallow(client)
                return "cut"
            if act == "cut":
                return act
            key.data.sendall(piece)
        return "pass"

    @staticmethod
    def _swallow(client: socket.socket) -> None:
        """Forward nothing more, until the client gives the connection up."""
        while client.recv(1 << 20):
            pass

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):  # it is cut already
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def close(self) -> None:
        if self._listening.fileno() >= 0:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
        self.cut()


@contextmanager
def start_proxy(url: str) -> Iterator[tuple[Proxy, str]]:
    """A network in front of a database, and the URL through it. `url`: of `tests.kit.postgres`."""
    base, _, folder = url.partition("?host=")
    proxy = Proxy(f"{folder}/.s.PGSQL.5432")
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy, f"{base}?host=127.0.0.1&port={proxy.port}&sslmode=disable&gssencmode=disable"
    finally:
        proxy.close()
