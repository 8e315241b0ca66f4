"""The inbox for asyncio and trio. Store operations run in threads."""

from __future__ import annotations

import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from copy import copy
from datetime import date
from functools import partial
from typing import Any, Literal, overload

from toolloop._drivers.event_loops import run_in_thread
from toolloop._interface.grants import GivenGrant
from toolloop._interface.shown import Shown
from toolloop._interface.standing import Standing
from toolloop._journal.statistics import Statistics
from toolloop._public import set_module
from toolloop.errors import CallerError
from toolloop.inbox.inbox import CallKey, Inbox
from toolloop.inbox.items import InboxCall, ShownLoop, TrailEntry
from toolloop.inbox.listing import InboxCounts, InboxPage
from toolloop.inbox.rights.offers import Offer
from toolloop.inbox.rights.rights import May, Sees
from toolloop.inbox.watching import AT_REST, LoopChange, Until, changes_of_async, check_until, wait_until_async
from toolloop.machine.values.calls import Decision
from toolloop.machine.values.jsontext import JSON
from toolloop.machine.values.names import Person
from toolloop.stores.protocol import Store, StoredLoop


@set_module("toolloop")
class AsyncInbox:
    """`Inbox` with async methods. A store operation that has begun is not interrupted by cancellation."""

    def __init__(
        self,
        store: Store,
        secret: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
        via: str = "inbox",
    ) -> None:
        """Open a store. See `Inbox`."""
        self._inbox = Inbox(store, secret, clock=clock, via=via)

        self._store = store

    def as_(
        self, person: str | Person, *, may: May | None = None, sees: Sees | None = None, via: str = "inbox"
    ) -> AsyncInbox:
        """Return an inbox for one person; `may` and `sees` may be async. See `Inbox.as_`.

        Functions that are not async are called in threads.
        """
        inbox, mine = self._inbox._as(person, may, sees, via, may_wait=True), copy(self)  # noqa: SLF001 - its other face
        vars(mine).update(_inbox=inbox, _store=inbox._store)  # noqa: SLF001 - likewise
        return mine

    async def pending(  # noqa: PLR0913 - filters
        self,
        metadata: Mapping[str, str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
        *,
        tool: str | None = None,
        why: str | None = None,
        text: str | None = None,
        sort: Literal["deadline", "age"] = "deadline",
    ) -> InboxPage:
        """See `Inbox.pending`."""
        filters = partial(self._inbox.pending, tool=tool, why=why, text=text, sort=sort)
        return await run_in_thread(partial(filters, metadata, limit, cursor))

    async def counts(self, metadata: Mapping[str, str] | None = None) -> InboxCounts:
        """See `Inbox.counts`."""
        return await run_in_thread(partial(self._inbox.counts, metadata))

    async def statistics(self, since: date | None = None, metadata: Mapping[str, str] | None = None) -> Statistics:
        """See `Inbox.statistics`."""
        return await run_in_thread(partial(self._inbox.statistics, since, metadata))

    async def show(self, loop_id: str) -> ShownLoop:
        """See `Inbox.show`."""
        return await run_in_thread(partial(self._inbox.show, loop_id))

    async def offers(self, loop_id: str) -> dict[str, Offer]:
        """See `Inbox.offers`."""
        return await run_in_thread(partial(self._inbox.offers, loop_id))

    async def wait(self, loop_id: str, until: Until = AT_REST, timeout: float | None = None) -> StoredLoop:  # noqa: ASYNC109 - as in `Inbox`
        """Wait until a loop has a status, and return its row. See `Inbox.wait`."""
        return await wait_until_async(self._store, loop_id, check_until(until, timeout), timeout)

    def watch(self, loop_id: str) -> AsyncGenerator[LoopChange]:
        """Follow a loop: yield it as it is now, then each change. See `Inbox.watch`."""
        return changes_of_async(self._store, loop_id)

    async def trail(self, loop_id: str) -> tuple[TrailEntry, ...]:
        """See `Inbox.trail`."""
        return await run_in_thread(partial(self._inbox.trail, loop_id))

    def history(self, loop_id: str) -> Awaitable[tuple[TrailEntry, ...]]:
        """Return the audit trail. Deprecated: use `trail`."""
        warnings.warn("AsyncInbox.history() is now AsyncInbox.trail()", DeprecationWarning, stacklevel=2)
        return self.trail(loop_id)

    @overload
    async def decide(
        self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: Literal[False] = False
    ) -> dict[CallKey, Standing]: ...
    @overload
    async def decide(
        self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: bool
    ) -> dict[CallKey, Standing | CallerError]: ...
    async def decide(
        self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: bool = False
    ) -> dict[CallKey, Any]:
        """See `Inbox.decide`."""
        return await run_in_thread(partial(self._inbox.decide, loop_id, decisions, each=each))

    async def stop(self, loop_id: str, reason: str | None = None, by: str | Person | None = None) -> None:
        """See `Inbox.stop`."""
        await run_in_thread(partial(self._inbox.stop, loop_id, reason, by))

    async def say(
        self,
        loop_id: str,
        messages: str | Sequence[JSON],
        by: str | Person | None = None,
        key: str | None = None,
        *,
        tools: Sequence[JSON] = (),
    ) -> str:
        """See `Inbox.say`."""
        return await run_in_thread(partial(self._inbox.say, loop_id, messages, by, key, tools=tools))

    async def withdraw(self, loop_id: str, said: str, by: str | Person | None = None) -> None:
        """See `Inbox.withdraw`."""
        await run_in_thread(partial(self._inbox.withdraw, loop_id, said, by))

    async def retry(self, loop_id: str, by: str | Person | None = None) -> None:
        """See `Inbox.retry`."""
        await run_in_thread(partial(self._inbox.retry, loop_id, by))

    async def fork(
        self,
        loop_id: str,
        new_id: str | None = None,
        *,
        at: int | str | None = None,
        metadata: Mapping[str, str] | None = None,
        by: str | Person | None = None,
    ) -> str:
        """See `Inbox.fork`."""
        return await run_in_thread(partial(self._inbox.fork, loop_id, new_id, at=at, metadata=metadata, by=by))

    async def set_metadata(self, loop_id: str, /, by: str | Person | None = None, **changes: str | None) -> None:
        """See `Inbox.set_metadata`."""
        await run_in_thread(partial(self._inbox.set_metadata, loop_id, by, **changes))

    async def grants(self, loop_id: str) -> tuple[GivenGrant, ...]:
        """See `Inbox.grants`."""
        return await run_in_thread(partial(self._inbox.grants, loop_id))

    async def revoke(self, loop_id: str, grant: GivenGrant | str, by: str | Person | None = None) -> None:
        """See `Inbox.revoke`."""
        await run_in_thread(partial(self._inbox.revoke, loop_id, grant, by))

    async def link(  # noqa: PLR0913 - what a link is bound to
        self,
        loop_id: str,
        call: str | Shown,
        allow: Sequence[str] | None = None,
        expires_in: float = 86_400.0,
        base_url: str | None = None,
        *,
        person: str | Person | None = None,
    ) -> str:
        """See `Inbox.link`."""
        link = partial(self._inbox.link, loop_id, call, allow, expires_in, base_url, person=person)
        return await run_in_thread(link)

    async def revoke_links(self, loop_id: str, call: str | Shown | None = None, by: str | Person | None = None) -> None:
        """See `Inbox.revoke_links`."""
        await run_in_thread(partial(self._inbox.revoke_links, loop_id, call, by))

    async def linked(self, token: str) -> InboxCall:
        """See `Inbox.linked`."""
        return await run_in_thread(partial(self._inbox.linked, token))

    async def redeem(self, token: str, decision: Decision) -> Standing:
        """See `Inbox.redeem`."""
        return await run_in_thread(partial(self._inbox.redeem, token, decision))
