"""A web service for real: uvicorn and its workers, the bank that it pays with, browsers in other processes."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

_EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
_BROWSER = Path(__file__).with_name("web_browser.py")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
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


@frozen
class Service:
    """A uvicorn that serves the web app on a free port."""

    url: str
    process: subprocess.Popen[bytes]


@contextmanager
def served(loops: Path, api: str, bank: Bank, *arguments: str) -> Iterator[Service]:
    """Start uvicorn; the socket listens before it does, so a request that comes early waits.

    Args:
        loops: the file of the store.
        api: the address of the Messages API.
        bank: that pays.
        arguments: more of them for uvicorn.

    """
    environment = {name: value for name, value in os.environ.items() if name.lower() not in _PROXIES}
    environment |= {"ANTHROPIC_BASE_URL": api, "ANTHROPIC_API_KEY": "none", "LOOPS": str(loops), "BANK": bank.url}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        fd, port = listening.fileno(), listening.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(_EXAMPLES), "--fd", str(fd), *arguments]
        process = subprocess.Popen([*command, "--log-level", "error", "web_app:app"], env=environment, pass_fds=[fd])
    try:
        yield Service(f"http://127.0.0.1:{port}", process)
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@frozen
class Answer:
    """What a browser got. `status` is 0 where the connection broke."""

    status: int
    body: Any


class Browser:
    """An HTTP client in a process of its own. What it is told to ask, it asks at once; `answer()` waits for it."""

    def __init__(self, url: str, user: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_BROWSER), url, user], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, method: str, path: str, body: Any = None) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps([method, path, body]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        assert self._process.stdout
        return Answer(*json.loads(self._process.stdout.readline()))

    def get(self, path: str) -> Answer:
        self.ask("GET", path)
        return self.answer()

    def post(self, path: str, body: Any = None) -> Answer:
        self.ask("POST", path, body)
        return self.answer()

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()
