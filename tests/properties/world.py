"""What a loop under test lives in: its fake API over real HTTP, its store, its time, and what is known from outside."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
from anthropic import DefaultHttpxClient

from tests.properties.bench import TOOLS, Bench, StopWhen
from tests.properties.counting import CountingRecorder, StoredJournal, Way, watched
from tests.properties.settings import Clock, Setting, new_store
from tests.properties.shortening import SummingScript, is_for_summary
from tests.properties.wire import exact
from toolloop import LoopContext, SqliteStore, ToolLoopHandle
from toolloop.core.states import Deciding, Judging, Running, State
from toolloop.core.values import Call
from toolloop.stores.protocol import Store
from toolloop.testing import FakeMessagesAPI, fault


class World:
    """A handle over real HTTP, and what surrounds it.

    Args:
        setting: how it is set up.
        taken: where the transitions are counted.

    """

    handle: ToolLoopHandle
    journal: CountingRecorder | StoredJournal

    def __init__(self, setting: Setting, taken: Counter[Way]) -> None:
        """Start the servers, and make the handle."""
        self.setting = setting
        self.taken = taken
        self.clock = Clock()
        self.script = SummingScript()
        self.edited = False
        self.compacted: set[str] = set()  # the strategies that changed the history
        self.injected: list[str] = []
        self.received: list[Any] = []
        self.summaries: list[Any] = []
        self.sent: list[tuple[bytes, int]] = []  # each request, and how many replies there were before it
        self.in_flight = ""  # what is to happen while the next request is under way
        self.is_unheard = False  # the next reply comes to nobody
        self.rest = ExitStack()
        self.api = self.rest.enter_context(FakeMessagesAPI(self.script))
        self.client = self.api.client(http_client=self._listening())
        self.mirror = self.rest.enter_context(FakeMessagesAPI(lambda body: fault(400), enforce=False))
        self.mirror_client = self.mirror.client()
        self.bench = Bench(has_policy=setting.has_policy, interfere=self.interfere, find=self._find)
        self.context = LoopContext(self.bench)
        self.stop_when = StopWhen()
        self.config = setting.config(self.stop_when)
        self.folder: Path | None = None
        self.stores = 0
        self.store = self.new_store() if setting.store else None
        self.take(
            ToolLoopHandle(
                self.client,
                params=setting.params(),
                tools=TOOLS,
                config=self.config,
                context=self.context,
                clock=self.clock,
                store=self.store,
            )
        )

    def close(self) -> None:
        """Stop the servers, and throw the stores away."""
        self.rest.close()

    def new_store(self) -> Store:
        """One more store of the kind that was drawn."""
        if self.folder is None:
            self.folder = Path(self.rest.enter_context(tempfile.TemporaryDirectory()))
        self.stores += 1
        store = new_store(self.setting.store, str(self.folder / f"{self.stores}.db"))
        if isinstance(store, SqliteStore):
            self.rest.enter_context(store)
        return store

    def take(self, handle: ToolLoopHandle, counted: int = 0) -> None:
        """Go on with this handle."""
        if hasattr(self, "journal"):
            self.note_compactions()
        self.handle = self.driver = handle
        self.beside: ToolLoopHandle | None = None  # another handle of the same stored loop
        self.journal = watched(handle, self.taken, counted)

    def note_compactions(self) -> None:
        """With what the history was compacted."""
        if isinstance(self.journal, StoredJournal):
            self.journal.read_on()
        self.compacted |= self.journal.compacted

    @property
    def is_behind(self) -> bool:
        """Whether another handle said something that this one has not heard."""
        return self.journal.is_ahead_of(self.handle)

    @property
    def truth(self) -> State:
        """Where the loop is: as its journal says, if it has one."""
        said = self.journal.read_on() if isinstance(self.journal, StoredJournal) else None
        return said or self.handle.state

    @property
    def is_stored(self) -> bool:
        """Whether the loop is in its store by now."""
        return isinstance(self.journal, StoredJournal) and self.journal.read_on() is not None

    def _find(self, call_id: str) -> Call | None:
        state = self.driver.state
        return state.round.find(call_id) if isinstance(state, Judging | Deciding | Running) else None

    def _listening(self) -> httpx2.Client:
        hooks: Any = {"request": [self._see], "response": [self._hear]}
        return DefaultHttpxClient(trust_env=False, verify=False, event_hooks=hooks)

    def _see(self, request: httpx2.Request) -> None:
        self.sent.append((request.read(), len(self.received)))
        what, self.in_flight = self.in_flight, ""
        if not what:
            return
        try:
            self.interfere(what, None)
        except Exception:  # of a request for a summary it would only be a reason why there is none
            self.bench.wrong.append(traceback.format_exc())
            raise

    def _hear(self, response: httpx2.Response) -> None:
        raw = response.read()
        is_unheard, self.is_unheard = self.is_unheard, False
        if response.status_code == 200 and raw.startswith(b"{") and not is_unheard:
            asked = is_for_summary(json.loads(response.request.content))
            (self.summaries if asked else self.received).append(exact(raw))

    def interfere(self, what: str, call_id: str | None) -> None:
        """Something happens in the middle of a call, or of a request."""
        raise NotImplementedError
