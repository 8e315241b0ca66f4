"""The bank that the tools of examples pay with."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from attrs import define, field

SECONDS = 60.0  # a deadline, not a wait


@define(eq=False)
class Bank:
    """Pays refunds, and writes down each that it was asked for: the witness outside of all loops.

    Attributes:
        asked: the orders, as they come in.
        paid: all orders so far.
        open: the bank answers only while this is set.

    """

    url: str
    asked: queue.Queue[int] = field(factory=queue.Queue)
    paid: list[int] = field(factory=list)
    open: threading.Event = field(factory=threading.Event)


@contextmanager
def a_bank() -> Iterator[Bank]:
    class Counter(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            order = json.loads(self.rfile.read(int(self.headers["content-length"])))["order"]
            bank.paid.append(order)
            bank.asked.put(order)
            if not bank.open.wait(SECONDS):
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"order {order} is paid".encode())

        def log_message(self, *_: Any) -> None:
            pass

        def finish(self) -> None:
            with ExitStack() as broken:  # the worker that asked may be gone
                broken.push(lambda kind, *_: kind is not None and issubclass(kind, OSError))
                super().finish()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    bank = Bank(f"http://127.0.0.1:{server.server_port}/refunds")
    bank.open.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield bank
    finally:
        bank.open.set()
        server.shutdown()
        server.server_close()
        thread.join()
