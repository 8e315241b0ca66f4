"""A site that speaks AG-UI: a model, a server in a process of its own, and the protocol's own clients under Node.js."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ag_ui.core import Event
from attrs import define, field
from pydantic import TypeAdapter

from tests.kit.fork_server import Child, ForkServer
from tests.kit.node import start_node
from toolloop import Inbox, SqliteStore
from toolloop.testing import FakeMessagesAPI, call, fault, reply, streamed
from toolloop.types import JSON

_EVENTS: TypeAdapter[Any] = TypeAdapter(list[Event])
LOCATION = {
    "name": "get_location",
    "description": "where the user is",
    "parameters": {"type": "object", "properties": {"precise": {"type": "boolean"}}},
}


def model(request: Any, refused: set[str]) -> Any:
    """Answer a request by the words of the last message in it. `refused`: the texts that were refused once."""
    messages = request["messages"]
    last, number = messages[-1]["content"], len(messages)
    blocks = [{"type": "text", "text": last}] if isinstance(last, str) else last
    text = " ".join(block["text"] for block in blocks if block["type"] == "text")
    is_child = request.get("system") == "child"
    if "refuse" in text and text not in refused:
        refused.add(text)
        return fault(400, message="No.")
    if any(block["type"] == "tool_result" for block in blocks):
        return streamed(reply("The child is done." if is_child else "All done now."))
    name = re.search(r"\[(\w+)\]", text)
    mark = "" if name is None else f"_{name[1]}"  # so that calls of different threads differ
    letter = {"path": "a.txt", "text": "hello"}
    other = call("write_file", {"path": "b.txt", "text": "B"}, id=f"tu_{number}_b{mark}")
    first = f"tu_{number}_a{mark}"
    calls = {
        "two": [call("write_file", letter, id=first), other],
        "mixed": [call("write_file", letter, id=first), call("get_location", {}, id=f"tu_{number}_b{mark}")],
        "write": [call("write_file", letter, id=first)],
        "where": [call("get_location", {"precise": True}, id=first)],
        "read": [call("read_file", {"path": "x.md"}, id=first)],
        "pay": [call("pay", {"to": "bo"}, id=first)],
        "secret": [call("sign_in", {"token": "swordfish"}, id=first)],
        "hold": [call("hold", id=first)],
        "stall": [call("stall", id=first)],
        "nested": [call("helper", {"prompt": f"write it [{number}{mark}]"}, id=f"tu_{number}_h{mark}")],
    }
    found = next((calls[word] for word in calls if word in text), None)
    if found is None:
        return streamed(reply(f"You said: {text}"))
    if is_child:
        found = [{**each, "id": f"{each['id']}_child"} for each in found]
    return streamed(reply("Let me see.", thinking="The user wants something.", calls=found))


class Node:
    """Node.js with clients of the protocol's library."""

    def __init__(self) -> None:
        self._process = start_node("agui", "clients.mjs")
        self._numbers = count()
        self._lock = threading.Lock()
        self._answers: dict[int, SimpleQueue[Any]] = {}
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def begin(self, command: str, **given: Any) -> SimpleQueue[Any]:
        """Give a command, whose answer comes to a queue."""
        number, answer = next(self._numbers), SimpleQueue[Any]()
        with self._lock:
            self._answers[number] = answer
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"number": number, "command": command, **given}) + "\n")
            self._process.stdin.flush()
        return answer

    def ask(self, command: str, **given: Any) -> Any:
        """Give a command, and return its answer."""
        return answer_of(self.begin(command, **given))

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = json.loads(line)
            self._answers.pop(found["number"]).put(found)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._thread.join()
        self._process.stdout.close()
        assert self._process.wait(30) == 0


def answer_of(queue: SimpleQueue[Any]) -> Any:
    found = queue.get(timeout=60)
    assert "failed" not in found, found["failed"]
    return found["answer"]


@define
class Run:
    """What a client has after a run.

    Attributes:
        events: the events that came, all of which fit the protocol.
        pending: the interrupts that the client has.
        refused: the error with which the client's own call failed.

    """

    messages: list[Any]
    pending: list[Any]
    events: list[Any]
    state: Any
    errors: list[str] = field(factory=list)
    unhandled: list[str] = field(factory=list)
    refused: str | None = None
    status: int | None = None
    result: JSON = None

    def __attrs_post_init__(self) -> None:
        _EVENTS.validate_python(self.events)

    @property
    def types(self) -> list[str]:
        """The types of the events, without repetitions."""
        types = [each["type"] for each in self.events]
        return [each for at, each in enumerate(types) if types[at - 1 : at] != [each]]

    @property
    def end(self) -> Any:
        """The event that ended the run."""
        ends = [each for each in self.events if each["type"] in ("RUN_FINISHED", "RUN_ERROR")]
        assert ends == self.events[-1:], self.types
        return ends[0]

    @property
    def notes(self) -> list[Any]:
        """What was not applied."""
        return [note for each in self.events if each["type"] == "CUSTOM" for note in each["value"]]

    @property
    def said(self) -> list[tuple[str, str]]:
        """The roles and texts of the client's messages."""
        return [(each["role"], each.get("content") or "") for each in self.messages if each["role"] != "reasoning"]


@define
class Client:
    """A client of the protocol's library, of one user."""

    site: Site
    name: str
    more: dict[str, Any] = field(factory=dict)

    def say(self, text: str, message_id: str | None = None) -> None:
        name = message_id or f"m-{next(self.site.numbers)}"
        self.add({"id": name, "role": "user", "content": text})

    def add(self, message: dict[str, Any]) -> None:
        self.site.node.ask("add", name=self.name, message=message)

    def begin(self, **params: Any) -> SimpleQueue[Any]:
        return self.site.node.begin("run", name=self.name, params=params)

    def run(self, *said: str, **params: Any) -> Run:
        """Say something, and run to the next pause."""
        for text in said:
            self.say(text)
        return Run(**answer_of(self.begin(**params)))

    def answer(self, *payloads: Any, **params: Any) -> Run:
        """Answer the interrupts, in order; None dismisses one."""
        return self.run(resume=[*map(entry, self.pending, payloads)], **params)

    def leave(self) -> None:
        """Close the connection of the run."""
        self.site.node.ask("leave", name=self.name)

    @property
    def pending(self) -> list[Any]:
        found: list[Any] = self.site.node.ask("look", name=self.name)["pending"]
        return found


def entry(interrupt: Any, payload: Any) -> Any:
    """Return the answer to an interrupt, or to its id. None: it is dismissed."""
    name = interrupt if isinstance(interrupt, str) else interrupt["id"]
    more = {"status": "cancelled"} if payload is None else {"status": "resolved", "payload": payload}
    return {"interruptId": name, **more}


YES, NO = {"approved": True}, {"approved": False}


@define
class Site:
    """A model, a store, a server, and clients."""

    forks: ForkServer
    node: Node
    folder: Path
    api: FakeMessagesAPI
    settings: dict[str, Any] = field(factory=dict)
    numbers: Iterator[int] = field(factory=count)
    store: SqliteStore = field(init=False)
    inbox: Inbox = field(init=False)
    server: Child = field(init=False)
    url: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.store = SqliteStore(self.path)
        self.inbox = Inbox(self.store)
        self.start()

    def start(self) -> None:
        """Start the server."""
        self.server, self.url = self.another()

    def another(self) -> tuple[Child, str]:
        """Start one more server over the same store."""
        given = {"store": str(self.path), "model": self.api.url, "witness": str(self.witness), **self.settings}
        child = self.forks.start("serve_agui", **given)
        return child, f"http://127.0.0.1:{child.hear('port')['port']}/"

    def restart(self) -> None:
        """Kill the server, and start another one."""
        self.server.kill()
        self.start()

    @property
    def path(self) -> Path:
        return self.folder / "loops.db"

    @property
    def witness(self) -> Path:
        return self.folder / "witness"

    def ran(self) -> list[str]:
        """What the tools did."""
        return self.witness.read_text().splitlines() if self.witness.exists() else []

    def client(self, thread: str, user: str = "ana", *, url: str | None = None, **more: Any) -> Client:
        """Return a new client."""
        name = f"c-{next(self.numbers)}"
        self.node.ask("make", name=name, url=url or self.url, thread=thread, user=user, **more)
        return Client(self, name)

    def run_of(self, running: SimpleQueue[Any]) -> Run:
        """Wait for the end of a run."""
        return Run(**answer_of(running))

    def loop_of(self, thread: str, owner: str = "ana") -> str:
        """Return the loop of a thread."""
        (row,) = self.store.list(metadata={"thread": thread, "owner": owner})
        return row.loop_id


@contextmanager
def open_site(forks: ForkServer, node: Node, folder: Path, **settings: Any) -> Iterator[Site]:
    """Open a site."""
    with FakeMessagesAPI(partial(model, refused=set())) as api:
        site = Site(forks, node, folder, api, settings)
        try:
            yield site
        finally:
            site.server.clear_away()


def texts(messages: Sequence[Any], role: str) -> list[str]:
    """Return the texts of the messages of a role."""
    return [each["content"] for each in messages if each["role"] == role and each.get("content")]
