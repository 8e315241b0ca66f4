"""The inbox: list the waiting calls of a store, decide them, and send messages and commands."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, TypeVar, overload

from attrs import evolve

from toolloop._interface.decisions import name_of, said_turn
from toolloop._interface.grants import GivenGrant, standing_grants
from toolloop._interface.heads import head_of
from toolloop._interface.loop_view import view_of
from toolloop._interface.shown import Shown, bound
from toolloop._interface.standing import Standing
from toolloop._journal.journal import said_id
from toolloop._journal.lease import read_progress
from toolloop._journal.store_access import load_state, safely
from toolloop._public import set_module
from toolloop.errors import (
    CallerError,
    LinkUsed,
    LoopNotFound,
    UnknownCall,
)
from toolloop.inbox.commander import Commander
from toolloop.inbox.hiding import hide_in_messages, shown_inputs
from toolloop.inbox.items import InboxCall, ShownLoop, TrailEntry
from toolloop.inbox.links import Link, gone_error, new_link
from toolloop.inbox.listing import CallFilter, InboxPage
from toolloop.inbox.stored_tools import schemas_of
from toolloop.inbox.trail import read_trail
from toolloop.inbox.watching import AT_REST, LoopChange, Until, changes_of, check_until, wait_until
from toolloop.machine.rules.thinking import all_messages
from toolloop.machine.values.calls import Decision, Why
from toolloop.machine.values.jsontext import JSON, a_type, decode
from toolloop.machine.values.names import Person
from toolloop.stores.arguments import check_integer, check_kind, check_seconds, check_text
from toolloop.stores.checks import require_store
from toolloop.stores.protocol import Store, StoredLoop

CallKey = TypeVar("CallKey", bound="str | Shown")
_ALL = 2**62
VIAS = ("inbox", "page", "command", "dbos")
_A_DAY = 86_400.0


@set_module("toolloop")
class Inbox:
    """Decide calls in a store without a client, tools or parameters. It never drives a loop.

    You may call its methods from any thread. Decisions have the guarantees and the errors of `handle.decide`.
    """

    def __init__(
        self,
        store: Store,
        secret: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
        via: str = "inbox",
    ) -> None:
        """Open a store.

        Args:
            store: the store with the loops.
            secret: the key that signs links; None means a random key that the store keeps.
            clock: seconds since the epoch.
            via: where people decide through this inbox, for the audit trail: `inbox`, `page`, `command`, `dbos`, or
                `x-` and a name for a surface of yours.

        """
        require_store(store)
        if via not in VIAS and re.fullmatch(r"x-[\w.-]+", via) is None:
            raise ValueError(f"via: expected one of {', '.join(VIAS)}, or x- and a name of yours, got {via!r}")
        if secret is not None:
            check_text("secret", secret)
        self._store = store
        self._secret = secret
        self._clock = clock
        self._commander = Commander(store, clock, via)

    def pending(  # noqa: PLR0913 - filters
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
        """Return the waiting calls of all loops, without those that have expired. It reads no journal.

        Args:
            metadata: return only calls of loops whose metadata has all these entries.
            limit: the maximum number of calls.
            cursor: the `cursor` of an earlier page, to get the next page. It stays valid when loops are deleted.
            tool: return only calls of the tool with this name.
            why: return only calls that wait for this reason: `approval`, `external` or `uncertain`.
            text: return only calls with this text, in upper or lower case, in one of: the id and metadata of the loop,
                the names of the tools, `input`, `reason`, `asked`, `said`.
            sort: `deadline`: earliest deadline first, then oldest loop first. `age`: longest wait first.

        Raises:
            ValueError: an argument is not one of its values, or `cursor` is not of such a page.

        """
        check_integer("limit", limit, least=1)
        for name, value, allowed in (("why", why, (None, *Why)), ("sort", sort, ("deadline", "age"))):
            if value not in allowed:
                raise ValueError(f"{name}: expected one of {', '.join(filter(None, allowed))}, got {value!r}")
        for name, value in (("tool", tool), ("text", text)):
            check_kind(name, value, str | None)
        # In a loop that a worker cannot drive, calls can still be decided.
        loops = self._store.list(("needs_decision", "failed"), metadata=metadata, limit=_ALL)
        wanted = CallFilter(tool, why, text)
        return InboxPage(loops, self._clock(), wanted, sort=sort, limit=limit, cursor=cursor)

    def show(self, loop_id: str) -> ShownLoop:
        """Return a loop as JSON: the conversation so far, whole inputs, usage, and what is left of the limits.

        The values of parameters that a tool declares `secret` are hidden.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        row = safely(loop_id, partial(self._store.head, loop_id))
        state, _ = load_state(self._store, loop_id, row.rev)  # a driver may have continued since the head was read
        messages = [decode(text) for text in all_messages(state.root)]
        is_driven, progress = read_progress(self._store, row)
        return {
            **view_of(state, key=self._store.secret, running=progress.running, is_driven=is_driven),
            "status": row.status,
            "messages": hide_in_messages(messages, state.root.setup, self._store.secret),
            "metadata": dict(row.metadata),
            "created": datetime.fromtimestamp(row.created, UTC).isoformat(),
            "schemas": dict(schemas_of(state)),
            "shown": dict(shown_inputs(state)),
        }

    def wait(self, loop_id: str, until: Until = AT_REST, timeout: float | None = None) -> StoredLoop:
        """Wait until a loop has a status, and return its row.

        Args:
            loop_id: the loop.
            until: the status, or several. By default, those of a loop that needs a person or its caller, or has ended.
            timeout: the most seconds to wait; None means no limit.

        Raises:
            TimeoutError: it did not get the status in that time.
            LoopNotFound: the loop does not exist, or is deleted meanwhile.
            StoreError: the store failed.

        """
        return wait_until(self._store, loop_id, check_until(until, timeout), timeout)

    def watch(self, loop_id: str) -> Generator[LoopChange]:
        """Follow a loop: yield it as it is now, then each change, until you leave the iteration.

        A change is a new event, another status, the start or progress of a tool, or more text of a reply if the driver
        keeps that (`Worker(live=...)`). A slow reader gets the latest of several changes.

        Raises:
            LoopNotFound: the loop does not exist, or is deleted meanwhile.
            StoreError: the store failed.

        """
        return changes_of(self._store, loop_id)

    def trail(self, loop_id: str) -> tuple[TrailEntry, ...]:
        """Return the audit trail from the journal, oldest entry first: decisions and commands, with name and reason.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        return read_trail(safely(loop_id, partial(self._store.load, loop_id)).entries, self._store.secret)

    def history(self, loop_id: str) -> tuple[TrailEntry, ...]:
        """Return the audit trail. Deprecated: use `trail`."""
        warnings.warn("Inbox.history() is now Inbox.trail()", DeprecationWarning, stacklevel=2)
        return self.trail(loop_id)

    @overload
    def decide(
        self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: Literal[False] = False
    ) -> dict[CallKey, Standing]: ...
    @overload
    def decide(
        self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: bool
    ) -> dict[CallKey, Standing | CallerError]: ...
    def decide(self, loop_id: str, decisions: Mapping[CallKey, Decision], *, each: bool = False) -> dict[CallKey, Any]:
        """Decide calls of a loop, and return what stands in each. If no call waits after that, the loop continues.

        Args:
            loop_id: the loop.
            decisions: the decisions by call. An `InboxCall` as key binds the decision to the call as shown; a name is
                as for `handle.decide`.
            each: decide every call by itself, and return the error of a refused decision with its call. False: all
                decisions apply, or none does.

        Raises:
            LoopNotFound: the loop does not exist.
            UnknownCall: a call does not exist.
            AlreadyDecided: a call already has its result, unless the decision is the same.
            DecisionConflict: a call differs from the one shown, or another decision was made.
            IllegalCommand: a call does not wait or does not accept the decision, or an edited input is invalid.

        """
        if not isinstance(decisions, Mapping):
            raise TypeError(f"decide(): expected a mapping of calls to decisions, got {a_type(decisions)}")
        for call in decisions:
            if isinstance(call, InboxCall) and call.loop_id != loop_id:
                raise UnknownCall(
                    f"the call {call.id!r} belongs to loop {call.loop_id!r}, not to {loop_id!r}", call=call.id, known=()
                )
        pairs = [bound(call, decision) for call, decision in decisions.items()]
        return dict(zip(decisions, self._commander.decide(loop_id, pairs, each=each), strict=True))

    def stop(self, loop_id: str, reason: str | None = None, by: str | Person | None = None) -> None:
        """End a loop permanently, also after a failed request. It has no effect on an ended loop.

        Tools that run see `ctx.cancelled`, and the loop is `stopping` until they have ended. If their driver is gone,
        the loop ends at once.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        if not isinstance(reason, str | None):
            raise TypeError(f"stop(): reason: expected a str or None, got {a_type(reason)}")
        self._commander.stop(loop_id, reason, name_of(by))

    def say(
        self, loop_id: str, messages: str | Sequence[JSON], by: str | Person | None = None, key: str | None = None
    ) -> str:
        """Say something to the model, in any state of the loop. Return the id of what was said.

        As `handle.say`: it begins a user turn in an empty loop, after the end or after a failed request. In all other
        states it is kept until the API allows it; while calls wait or run, it goes out with their results. A loop that
        waits for a command continues.

        Args:
            loop_id: the loop.
            messages: what is said; a string is one user message.
            by: who says it, for the record.
            key: makes a repetition harmless. If something was said in this loop with the same key, nothing changes,
                and the id is the same.

        Raises:
            LoopNotFound: the loop does not exist.
            InvalidHistory: the API would refuse the messages there.

        """
        texts, name, who = said_turn(messages, "say()"), said_id(key), name_of(by)
        self._commander.say(loop_id, lambda state, commands: commands.say(state, texts, name, who), commands_too=True)
        return name

    def withdraw(self, loop_id: str, said: str, by: str | Person | None = None) -> None:
        """Take back what was said and is still kept. `said`: its id. `by`: who does it, for the record.

        Raises:
            LoopNotFound: the loop does not exist.
            IllegalCommand: it is in the conversation, was withdrawn before, or nothing with this id was said.

        """
        who = name_of(by)
        self._commander.say(loop_id, lambda state, commands: commands.withdraw(state, said, who))

    def retry(self, loop_id: str, by: str | Person | None = None) -> None:
        """Make a failed loop runnable again at once. Its attempts are counted from zero.

        The trail has a line for it if a request had failed. If no worker could drive the loop, only its row changes.

        Raises:
            LoopNotFound: the loop does not exist.
            IllegalCommand: the loop has not failed.

        """
        self._commander.retry(loop_id, name_of(by))

    def grants(self, loop_id: str) -> tuple[GivenGrant, ...]:
        """Return the standing grants of a loop and of the loops inside its calls.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        return tuple(standing_grants(load_state(self._store, loop_id)[0], self._clock()))

    def revoke(self, loop_id: str, grant: GivenGrant | str, by: str | Person | None = None) -> None:
        """Revoke a standing grant: it approves no further calls. Calls that have started continue.

        Args:
            loop_id: the loop.
            grant: a grant of `grants`, or its id.
            by: the person who revokes it, for the record.

        Raises:
            LoopNotFound: the loop does not exist.
            IllegalCommand: the grant is unknown.

        """
        name, who = grant.id if isinstance(grant, GivenGrant) else grant, name_of(by)
        self._commander.say(loop_id, lambda state, commands: commands.revoke(state, name, who))

    def link(  # noqa: PLR0913 - what a link is bound to
        self,
        loop_id: str,
        call: str | Shown,
        allow: Sequence[str] | None = None,
        expires_in: float = _A_DAY,
        base_url: str | None = None,
        *,
        person: str | Person | None = None,
    ) -> str:
        """Return a signed link, with which a person may decide a call once. It needs the extra `inbox`.

        Args:
            loop_id: the loop.
            call: the call, as for `decide`.
            allow: the decisions that the link allows. None: all that the call takes, but not to run it again.
            expires_in: seconds from now. The link is also invalid once its call no longer waits.
            base_url: the URL of the page that serves links. None: return only the token.
            person: who may use it, and decides then; with groups if the call needs them. None: each person who has it.

        Raises:
            ValueError: `allow` or `expires_in` is invalid, or `base_url` contains control characters.
            LoopNotFound: the loop does not exist.
            UnknownCall: the call does not exist, or does not wait.
            IllegalCommand: the call counts only approvals with a name, and `person` is None.

        """
        check_seconds("expires_in", expires_in)
        if base_url is not None and not base_url.isprintable():
            raise ValueError(f"base_url: expected a URL without control characters, got {base_url!r}")
        state, journal = load_state(self._store, loop_id)
        until = self._clock() + expires_in
        made = new_link(state, journal.entries[0].id, call, allow=allow, person=person, until=until)
        token = made.to_token(self._key())
        return token if base_url is None else f"{base_url.rstrip('/')}/link/{token}"

    def linked(self, token: str) -> InboxCall:
        """Return the call of a link, without using the link. `takes` has the decisions that the link allows.

        Raises:
            BadLink, LinkExpired, LinkUsed: the link is not valid.

        """
        link = Link.of(token, self._key(), self._clock())
        try:
            state, journal = load_state(self._store, link.loop_id)
            row = safely(link.loop_id, partial(self._store.head, link.loop_id))
        except LoopNotFound as error:
            raise gone_error(link) from error
        if journal.entries[0].id != link.first_id:
            raise gone_error(link)
        try:
            path = link.find_call(state).path
        except LinkUsed as error:
            raise self._commander.with_decision(link.loop_id, error) from None
        pending = head_of(state, 0.0, is_handed_over=False, key=self._store.secret).pending
        call = InboxCall.of(row, next(each for each in pending if each.path == path))
        return evolve(call, takes=tuple(kind for kind in call.takes if kind in link.allow))

    def redeem(self, token: str, decision: Decision) -> Standing:
        """Decide a call with a link, and return what stands in it. After a refused decision, the link stays valid.

        Args:
            token: the link.
            decision: the decision. Its `by` is the person who is signed in, if any; without it, the person of the
                link decides.

        Raises:
            BadLink: the link is forged, or the call has changed since the link was made.
            LinkExpired: the link has expired.
            LinkUsed: the call is already decided. The error has the decision, its author and its time.
            NotAllowed: the link is for another person.
            IllegalCommand: the link does not allow this decision, or the call does not accept it.

        """
        link = Link.of(token, self._key(), self._clock())
        try:
            stands = self._commander.decide(link.loop_id, [(link.path, link.bind(decision))], link)
        except LoopNotFound as error:
            raise gone_error(link) from error
        standing: Standing = stands[0]
        return standing

    def _key(self) -> str:
        return self._secret or self._store.secret()
