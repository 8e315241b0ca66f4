"""An editor: the protocol's own client, which a test tells what to do, over a socket to an agent."""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from acp import RequestError, schema
from acp.core import Connection

from tests.kit.node import start_node
from toolloop.acp.transport import LineTransport

DEADLINE = 30.0
FOLDER = "/srv/project"


class Refused(Exception):
    """The agent answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Card:
    """A request for permission that the editor shows."""

    def __init__(self, params: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
        self.call = params["toolCall"]
        self.options = {each["optionId"]: each for each in params["options"]}
        self._answer = answer

    def choose(self, option: str) -> None:
        self._answer({"outcome": {"outcome": "selected", "optionId": option}})

    def dismiss(self) -> None:
        """The card goes away without an answer."""
        self._answer({"outcome": {"outcome": "cancelled"}})


class Editor:
    """One connection to an agent. What comes in is kept in order: updates, cards, answers."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._answers: dict[int, Future[Any]] = {}
        self._ids = itertools.count()
        self._changed = threading.Condition()
        self.cards: queue.Queue[Card] = queue.Queue()
        self.updates: list[dict[str, Any]] = []
        self.is_closed = threading.Event()

    # --- what a test does ---

    def begin(self, method: str, **params: Any) -> Future[Any]:
        """Send a request, and do not wait for its answer."""
        number, answer = next(self._ids), Future[Any]()
        self._answers[number] = answer
        self._send({"ask": number, "method": method, "params": params})
        return answer

    def ask(self, method: str, **params: Any) -> Any:
        return self.begin(method, **params).result(DEADLINE)

    def note(self, method: str, **params: Any) -> None:
        self._send({"note": method, "params": params})

    def initialize(self) -> Any:
        return self.ask("initialize", protocolVersion=1, clientCapabilities={})

    def new(self, cwd: str = FOLDER) -> str:
        return str(self.ask("session/new", cwd=cwd, mcpServers=[])["sessionId"])

    def load(self, session: str, cwd: str = FOLDER) -> Any:
        return self.ask("session/load", sessionId=session, cwd=cwd, mcpServers=[])

    def prompt(self, session: str, text: str) -> Future[Any]:
        return self.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def turn(self, session: str, text: str) -> str:
        """Send a prompt, and return the stop reason."""
        return str(self.prompt(session, text).result(DEADLINE)["stopReason"])

    def cancel(self, session: str) -> None:
        self.note("session/cancel", sessionId=session)

    def card(self) -> Card:
        """Return the next card."""
        return self.cards.get(timeout=DEADLINE)

    def close(self) -> None:
        self._send({"close": True})
        assert self.is_closed.wait(DEADLINE)

    def end(self) -> None:
        """Close it, unless it is closed."""
        if not self.is_closed.is_set():
            self.close()

    # --- what a test sees ---

    @property
    def said(self) -> str:
        """What the agent said."""
        return "".join(
            each["content"]["text"] for each in self.updates if each["sessionUpdate"] == "agent_message_chunk"
        )

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for updates until something is so."""
        with self._changed:
            assert self._changed.wait_for(is_so, DEADLINE), self.updates

    def wait_for_text(self, text: str) -> None:
        self.wait_until(lambda: text in self.said)

    def calls(self) -> dict[str, list[str]]:
        """Return the statuses of each call, in order."""
        found: dict[str, list[str]] = {}
        for each in self.updates:
            if "toolCallId" in each:
                found.setdefault(each["toolCallId"], []).append(each.get("status", ""))
        return found

    def statuses(self) -> list[list[str]]:
        return [*self.calls().values()]

    def kinds(self) -> list[str]:
        """Return the kinds of updates, without repetitions in a row."""
        return [kind for kind, _ in itertools.groupby(each["sessionUpdate"] for each in self.updates)]

    # --- what the client tells ---

    def take(self, told: dict[str, Any]) -> None:
        """Take what the client says."""
        match told:
            case {"update": {"update": update}}:
                with self._changed:
                    self.updates.append(update)
                    self._changed.notify_all()
            case {"card": number, "params": params}:
                self.cards.put(Card(params, lambda result: self._send({"answer": number, "result": result})))
            case {"answered": number, "result": result}:
                self._answers.pop(number).set_result(result)
            case {"failed": number, "code": code, "message": message}:
                self._answers.pop(number).set_exception(Refused(code, message))
            case {"closed": True}:
                self.is_closed.set()


class NpmClients:
    """A process of Node.js with the SDK of npm. `problems`: what it found wrong with messages of agents."""

    def __init__(self) -> None:
        self._process = start_node("acp", "client.mjs")
        self._editors: dict[int, Editor] = {}
        self._numbers = itertools.count()
        self.problems: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def open(self, path: Path) -> Editor:
        """Connect to an agent that listens on a socket."""
        number = next(self._numbers)
        editor = self._editors[number] = Editor(lambda words: self._tell(n=number, **words))
        self._tell(n=number, connect=str(path))
        return editor

    def _tell(self, **words: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "problem" in told:
                self.problems.append(told["problem"])
            else:
                self._editors[told["n"]].take(told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        assert self._process.wait(DEADLINE) == 0
        self._reader.join(DEADLINE)
        self._process.stdout.close()


class PythonClient:
    """The SDK of Python, in an event loop of its own thread. Each message is checked by the models of the schema."""

    def __init__(self, path: Path) -> None:
        self.editor = Editor(self._tell)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._loop = asyncio.new_event_loop()
        self._cards: list[asyncio.Future[Any]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(DEADLINE)

    def _run(self) -> None:
        with suppress(ConnectionError):
            self._loop.run_until_complete(self._talk())
        self._loop.close()
        self.editor.take({"closed": True})

    async def _talk(self) -> None:
        with self._socket, self._socket.makefile("rb") as source, self._socket.makefile("wb") as sink:
            self._connection = Connection(self._answer, LineTransport(source, sink), listening=False)
            self._ready.set()
            try:
                await self._connection.main_loop()
            finally:
                await self._connection.close()

    async def _answer(self, method: str, params: Any, _: bool) -> Any:
        if method == "session/update":
            schema.SessionNotification.model_validate(params)
            self.editor.take({"update": params})
            return None
        schema.RequestPermissionRequest.model_validate(params)
        self._cards.append(self._loop.create_future())
        self.editor.take({"card": len(self._cards) - 1, "params": params})
        return await self._cards[-1]

    def _tell(self, words: dict[str, Any]) -> None:
        def act() -> None:
            match words:
                case {"ask": number, "method": method, "params": params}:
                    self._tasks.add(self._loop.create_task(self._ask(number, method, params)))
                case {"note": method, "params": params}:
                    self._tasks.add(self._loop.create_task(self._connection.send_notification(method, params)))
                case {"answer": number, "result": result}:
                    self._cards[number].set_result(result)
                case {"close": True}:
                    self._socket.shutdown(socket.SHUT_RDWR)

        self._loop.call_soon_threadsafe(act)

    async def _ask(self, number: int, method: str, params: Any) -> None:
        try:
            result = await self._connection.send_request(method, params)
        except RequestError as error:
            self.editor.take({"failed": number, "code": error.code, "message": str(error)})
        except ConnectionError as error:
            self.editor.take({"failed": number, "code": 0, "message": str(error)})
        else:
            self.editor.take({"answered": number, "result": result})

    def close(self) -> None:
        self.editor.end()
        self._thread.join(DEADLINE)


@contextmanager
def python_editor(path: Path) -> Iterator[Editor]:
    """An editor that uses the SDK of Python."""
    client = PythonClient(path)
    try:
        yield client.editor
    finally:
        client.close()
