"""The threads of one application: whose they are, which tools they have, and who drives them."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
from attrs import define, field, frozen

from toolloop._drivers.event_loops import in_thread, spawn
from toolloop._worker.asynchronous import AsyncWorker
from toolloop.agui.doors import LOG
from toolloop.agui.live import Live
from toolloop.agui.terms import Event, Terms
from toolloop.errors import Conflict
from toolloop.inbox import AsyncInbox, May, Seen, Sees
from toolloop.inbox.rights.rights import Rights, with_answers
from toolloop.machine import Round
from toolloop.machine.values.names import Person
from toolloop.stores import Store
from toolloop.tools import ToolRegistry
from toolloop.tools.calls import ToolCall


@define
class Driver:
    """Drives loops in a task, from the first request on, until shutdown. Without a worker, others do."""

    worker: AsyncWorker | None
    _is_started: bool = False
    _stop: anyio.Event = field(factory=anyio.Event)
    _done: anyio.Event = field(factory=anyio.Event)

    def start(self) -> None:
        """Start the task, unless it was started."""
        if self.worker is not None and not self._is_started:
            self._is_started, self._done = True, anyio.Event()
            spawn(partial(self._run, self.worker))

    async def _run(self, worker: AsyncWorker) -> None:
        try:
            await worker.run(self._stop)
        except Exception:  # noqa: BLE001 - a fault of ours
            LOG.exception("the worker failed; the next request starts it again")
        finally:
            self._is_started = False
            self._done.set()

    async def stop(self) -> None:
        """Begin no more turns, and wait for those in progress."""
        self._stop.set()
        if self._is_started:
            await self._done.wait()


@frozen
class Threads:
    """The threads of one application. For the attributes without a description see `agui_app`.

    Attributes:
        open: opens the loop of an id, as `AsyncToolLoopHandle.open` does.
        terms: what clients may bring, and what they get.
        live: hands the events of loops that are driven here to clients.
        driver: drives loops.
        key: the key of the ids of loops.

    """

    store: Store
    open: Callable[..., Any]
    tools: ToolRegistry
    params: Mapping[str, Any]
    name: str
    may: May | None
    sees: Sees | None
    terms: Terms
    live: Live
    driver: Driver
    key: str = field(repr=False)

    def inbox_of(self, person: Person) -> AsyncInbox:
        """Return the inbox of a person, who sees only threads of this application."""
        return AsyncInbox(self.store).as_(person, may=self.may, sees=self._seen, via="agui")

    def _seen(self, person: Person) -> Seen:
        """Return the metadata of the threads of a person. It is called in threads."""
        if self.sees is None:
            return [{"agui": self.name, "owner": person.name}]
        seen: Seen = with_answers(self.sees)(person)
        mine = [each for each in ([{}] if seen is None else seen) if each.get("agui", self.name) == self.name]
        return [{**each, "agui": self.name} for each in mine]

    def loop_of(self, person: Person, thread: str) -> str:
        """Return the id of the loop of a thread, which may not exist.

        Without `sees`, each person has threads of their own: an id that another person uses leads nowhere.
        """
        if self.sees is not None:
            return thread
        named = json.dumps([self.name, person.name, thread]).encode()
        return f"agui-{hmac.new(self.key.encode(), named, hashlib.sha256).hexdigest()[:32]}"

    async def create(self, person: Person, thread: str, brought: Mapping[str, Event]) -> None:
        """Create the loop of a thread, with the tools of its front end. It waits for its first message."""
        tools = [*self.params.get("tools", ()), *brought.values()]
        params = {**self.params, "messages": [], **({"tools": tools} if tools else {})}
        metadata = {"agui": self.name, "owner": person.name, "thread": thread}
        with suppress(Conflict):  # another run has just created it
            async with self.open(loop_id=self.loop_of(person, thread), params=params, metadata=metadata):
                pass

    async def read(self, loop_id: str) -> tuple[tuple[ToolCall, ...], Round | None, frozenset[str]]:
        """Return the calls of a loop that wait, its open round, and the ids of all that was ever said in it."""
        async with self.open(loop_id=loop_id) as handle:
            root = handle.state.root
            return handle.pending, root.round, frozenset(root.said)

    async def offer(self, person: Person, loop_id: str, brought: Mapping[str, Event]) -> list[Event]:
        """Add the tools that come with a message, none of which changes. Return why others are ignored."""
        rights = Rights.of(person, self.may, None, may_wait=True)
        if not await in_thread(lambda: rights.allow("say", self.store.head(loop_id))):
            return []  # the message is refused, too
        async with self.open(loop_id=loop_id) as handle:
            tools = json.loads(handle.state.root.setup.params).get("tools") or []
            known = {each.get("name"): each for each in tools}
            more = [one for name, one in brought.items() if name not in known]
            is_full = bool(more) and not self.terms.have_room([*known.values(), *more])
            if more and not is_full:
                handle.update_params(tools=[*tools, *more])
                await handle.flush()
        full = "the thread has as many tools of front ends as it may have"
        notes = [{"what": "tool", "id": each["name"], "why": full} for each in more if is_full]
        changed = [name for name, one in brought.items() if known.get(name, one) != one]
        why = "the thread began with another definition, which stays"
        return [*notes, *[{"what": "tool", "id": name, "why": why} for name in changed]]
