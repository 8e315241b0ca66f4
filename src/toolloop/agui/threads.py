"""The threads of one application: whose they are, which tools they have, and who drives them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Any

import anyio
import anyio.lowlevel
from attrs import define, field, frozen

from toolloop import AsyncInbox, AsyncWorker, Person, ToolCall
from toolloop.agui.conversation import Terms
from toolloop.agui.doors import LOG
from toolloop.errors import Conflict
from toolloop.inbox import Action, LiveEvents, May, Seen, Sees
from toolloop.stores import Store, StoredLoop


@define
class Driver:
    """Drives loops in a task, from the first request on, until shutdown. Without a worker, others do."""

    worker: AsyncWorker | None
    _stop: anyio.Event = field(factory=anyio.Event)
    _done: anyio.Event | None = None
    _task: object = None  # an event loop keeps no reference to its tasks

    def start(self) -> None:
        """Start the task, unless it runs."""
        if self.worker is not None and (self._done is None or self._done.is_set()):
            self._done = anyio.Event()
            self._task = _spawn(partial(self._run, self.worker, self._done))

    async def _run(self, worker: AsyncWorker, done: anyio.Event) -> None:
        try:
            await worker.run(self._stop)
        except Exception:  # noqa: BLE001 - a fault of ours, which under trio would end the program
            LOG.exception("the worker failed; the next request starts it again")
        finally:
            done.set()

    async def stop(self) -> None:
        """Begin no more turns, and wait for those in progress."""
        self._stop.set()
        if self._done is not None:
            await self._done.wait()


def _spawn(run: Callable[[], Coroutine[Any, Any, None]]) -> object:
    """Run an async function in a task that belongs to the event loop, and not to the request that came first."""
    loop: Any = anyio.lowlevel.current_token().native_token
    if isinstance(loop, asyncio.AbstractEventLoop):
        return loop.create_task(run())
    return sys.modules["trio"].lowlevel.spawn_system_task(run)


@frozen
class Threads:
    """The threads of one application. For the attributes without a description see `agui_app`.

    Attributes:
        begin: creates and opens the loop of an id, as `AsyncToolLoopHandle.open` does.
        terms: what clients may bring, and what they get.
        live: hands the events of loops that are driven here to clients.
        driver: drives loops.
        key: the key of the ids of loops.

    """

    store: Store
    begin: Callable[..., Any]
    name: str
    may: May | None
    sees: Sees | None
    terms: Terms
    live: LiveEvents
    driver: Driver
    key: str = field(repr=False)

    def inbox_of(self, person: Person, *, is_front_end: bool = False) -> AsyncInbox:
        """Return the inbox of a person, who sees only threads of this application.

        `is_front_end`: answers are results that a front end has made, so only calls of its own tools take them.
        """

        def may(person: Person, action: Action, loop: StoredLoop, call: ToolCall | None) -> bool | Awaitable[bool]:
            """Return whether the person may do that. It is asked as it is stored, whatever was shown before."""
            is_theirs = call is None or (call.why != "approval" and (call.brought or not is_front_end))
            if action == "answer" and not is_theirs:
                return False  # clients give no result of a tool of the server that did not start
            return True if self.may is None else self.may(person, action, loop, call)

        return AsyncInbox(self.store).as_(person, may=may, sees=self._seen, via="agui")

    def _seen(self, person: Person) -> Seen | Awaitable[Seen]:
        """Return the metadata of the threads of a person. It is called in threads."""
        if self.sees is None:
            return [{"agui": self.name, "owner": person.name}]
        seen = self.sees(person)
        return self._await_seen(seen) if isawaitable(seen) else self._only_mine(seen)

    async def _await_seen(self, seen: Awaitable[Seen]) -> Seen:
        return self._only_mine(await seen)

    def _only_mine(self, seen: Seen) -> Seen:
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

    async def create(self, person: Person, thread: str) -> None:
        """Create the loop of a thread. It waits for its first message."""
        metadata = {"agui": self.name, "owner": person.name, "thread": thread}
        with suppress(Conflict):  # another run has just created it
            async with self.begin(loop_id=self.loop_of(person, thread), metadata=metadata):
                pass
