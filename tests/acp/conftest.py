from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests.acp.agents import Agents, Ran, loops_at, model
from tests.acp.editor import Editor, NpmClients
from toolloop import Inbox, MemoryStore
from toolloop.acp import AcpLoops, AcpSession
from toolloop.inbox import InboxCall
from toolloop.stores import Store
from toolloop.testing import FakeMessagesAPI


@pytest.fixture(scope="session")
def npm() -> Iterator[NpmClients]:
    """The SDK of npm, in one process. It finds nothing wrong in all tests."""
    with NpmClients() as clients:
        yield clients
    assert clients.problems == []


@define
class Desk:
    """A store, its agents, and a person elsewhere.

    Attributes:
        store: as the person elsewhere has it, and agents, unless `given` has another one.
        api: the model.
        ran: what ran.
        inbox: that of a person who is not at the editor.
        given: other parts of the loops of agents that start from now on.
        sessions: the sessions that the factory was called with.
        script: what the model says instead, first.

    """

    folder: Path
    npm: NpmClients
    path: Path
    stack: ExitStack
    api: FakeMessagesAPI = field(init=False)
    script: list[Any] = field(factory=list)
    given: dict[str, Any] = field(factory=dict)
    sessions: list[AcpSession] = field(factory=list)
    store: Store = field(factory=MemoryStore)

    def __attrs_post_init__(self) -> None:
        answer = lambda body: self.script.pop(0) if self.script else model(body)  # noqa: E731 - one line
        self.api = self.stack.enter_context(FakeMessagesAPI(answer))
        self.path = self.stack.enter_context(Agents(self.path, self.loops).listening())

    def loops(self, session: AcpSession) -> AcpLoops:
        self.sessions.append(session)
        return loops_at(self.folder, self.api.url, **{"store": self.store, **self.given})

    @property
    def ran(self) -> list[str]:
        return Ran(self.folder / "ran").lines

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.store)

    def waiting(self) -> InboxCall:
        """The only call that waits."""
        [call] = self.inbox.pending()
        return call

    def open(self) -> Editor:
        """An editor with an agent of its own."""
        editor = self.npm.open(self.path)
        self.stack.callback(editor.end)
        editor.initialize()
        return editor


@pytest.fixture
def desk(npm: NpmClients, tmp_path: Path) -> Iterator[Desk]:
    """The path of a socket is short, so it is not in the folder of the test."""
    with ExitStack() as stack:
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield Desk(tmp_path, npm, sockets / "acp", stack)
