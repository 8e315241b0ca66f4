"""The inbox: list the waiting calls of a store, decide them, and send messages and commands."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from datetime import date
from functools import partial
from typing import Any, Literal, TypeVar, cast, overload

from toolloop._handles.forking import Fork
from toolloop._interface.decisions import to_user_turn
from toolloop._interface.grants import GivenGrant, list_standing_grants
from toolloop._interface.loop_params import read_brought_tools
from toolloop._interface.shown import Shown
from toolloop._interface.standing import Standing
from toolloop._journal.records import make_said_id
from toolloop._journal.statistics import Statistics, add_up
from toolloop._journal.store_access import load_state, read_with_row
from toolloop._journal.tally import read_tallies
from toolloop._public import set_module
from toolloop.errors import CallerError
from toolloop.inbox.commander import Commander
from toolloop.inbox.items import InboxCall, ShownLoop, TrailEntry
from toolloop.inbox.linking import Links
from toolloop.inbox.listing import CallFilter, InboxCounts, InboxPage
from toolloop.inbox.rights.offers import Offer, list_offers
from toolloop.inbox.rights.rights import May, Rights, Sees
from toolloop.inbox.rights.seen_store import SeenStore
from toolloop.inbox.showing import shown_loop
from toolloop.inbox.trail import load_trail
from toolloop.inbox.watching import AT_REST, LoopChange, Until, changes_of, check_until, wait_until
from toolloop.machine.values.calls import Decision
from toolloop.machine.values.jsontext import JSON, describe_type
from toolloop.machine.values.names import Person
from toolloop.stores.arguments import check_integer, check_kind, check_metadata, check_text, require_store
from toolloop.stores.optional import NO_LIMIT, clock_of, count_by_status
from toolloop.stores.protocol import Store, StoredLoop

CallKey = TypeVar("CallKey", bound="str | Shown")
VIAS = ("inbox", "page", "command", "dbos", "agui", "acp")
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
            clock: seconds since the epoch, if the store has no clock.
            via: where people decide through this inbox, for the audit trail: `inbox`, `page`, `command`, `dbos`,
                `agui`, `acp`, or `x-` and a name for a surface of yours.

        """
        require_store(store)
        _check_via(via)
        if secret is not None:
            check_text("secret", secret)
        self._store = store
        self._secret = secret
        self._clock = clock_of(store, clock)
        self._commander = Commander(store, self._clock, via)

    def as_(
        self, person: str | Person, *, may: May | None = None, sees: Sees | None = None, via: str = "inbox"
    ) -> Inbox:
        """Return an inbox for one person, who sees and does only what these functions allow, each time that they do.

        For loops that the person does not see, it is as if they did not exist. Methods and decisions take no `by`.

        Args:
            person: the person, as your login says.
            may: returns whether the person may do something. It is called with the person, an action, the loop as
                `Store.head` returns it, and the `ToolCall`, or None; for an edit, the call has the edited input. The
                actions are `approve`, `deny`, `answer`, `rerun`, `say`, `stop`, `retry`, `grant` (also to revoke one),
                `link`, `fork` and `metadata`. All but True means no, also an exception. None allows everything.
            sees: takes the person, and returns a list of metadata, each of which a loop may have to be seen; or None
                for all loops. An exception is a `StoreError`.
            via: as for an inbox.

        Raises:
            TypeError: an argument has a wrong type, a function is async, or this inbox is that of a person.
            ValueError: the name of the person, or `via`, is refused.

        """
        return self._as(person, may, sees, via, may_wait=False)

    def _as(self, person: str | Person, may: May | None, sees: Sees | None, via: str, *, may_wait: bool) -> Inbox:
        """See `as_`. `may_wait`: whether the functions may be async."""
        if (known := self._commander.rights) is not None:
            raise TypeError(f"as_(): this inbox is that of {known.person.name!r}: use the inbox of the store")
        _check_via(via)
        rights = Rights.of(person, may, sees, may_wait=may_wait)
        # It has the methods that an inbox uses.
        store = self._store if rights.sees is None else cast("Store", SeenStore(self._store, rights.sees))
        mine = copy(self)
        vars(mine).update(_store=store, _commander=Commander(store, self._clock, via, rights))
        return mine

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
        wanted = CallFilter.of(tool=tool, why=why, text=text, sort=sort)
        # In a loop that a worker cannot drive, calls can still be decided.
        loops = self._store.list(("needs_decision", "failed"), metadata=metadata, limit=NO_LIMIT)
        return InboxPage(loops, self._clock(), wanted, sort=sort, limit=limit, cursor=cursor)

    def counts(self, metadata: Mapping[str, str] | None = None) -> InboxCounts:
        """Return how many loops have each status, and how many calls wait, without those that have expired.

        Args:
            metadata: count only loops whose metadata has all these entries.

        Raises:
            StoreError: the store failed.

        """
        return InboxCounts.of(*count_by_status(self._store, self._clock(), check_metadata(metadata)))

    def statistics(self, since: date | None = None, metadata: Mapping[str, str] | None = None) -> Statistics:
        """Return what became of calls, how long people took, and what loops cost.

        `since`: count from this day on, in UTC. `metadata`: count only loops whose metadata has all these entries. It
        reads no journal, if the store has `tallies`.
        """
        check_kind("since", since, date | None)
        return add_up(read_tallies(self._store, check_metadata(metadata)), since)

    def show(self, loop_id: str) -> ShownLoop:
        """Return a loop as JSON: the conversation so far, whole inputs, usage, and what is left of the limits.

        The values of parameters that a tool declares `secret` are hidden.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        return shown_loop(self._store, loop_id)

    def offers(self, loop_id: str) -> dict[str, Offer]:
        """Return what the person of this inbox may do with each call that waits, by its path joined with "/".

        It asks `may` about each of them. What it does not offer is refused, and what it offers may be refused later,
        because others decide, too. An inbox of no person offers all that a call accepts.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        row, known = read_with_row(self._store, loop_id, partial(load_state, self._store, loop_id))
        return dict(list_offers(known.state, row, self._commander.rights))

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
        return load_trail(self._store, loop_id)

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
            NotAllowed: the person of this inbox may not do that.

        """
        pairs = self._commander.bind(loop_id, decisions)
        return dict(zip(decisions, self._commander.decide(loop_id, pairs, each=each), strict=True))

    def stop(self, loop_id: str, reason: str | None = None, by: str | Person | None = None) -> None:
        """End a loop permanently, also after a failed request. It has no effect on an ended loop.

        Tools that run see `ctx.cancelled`, and the loop is `stopping` until they have ended. If their driver is gone,
        the loop ends at once.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        if not isinstance(reason, str | None):
            raise TypeError(f"stop(): reason: expected a str or None, got {describe_type(reason)}")
        self._commander.stop(loop_id, reason, by)

    def say(
        self,
        loop_id: str,
        messages: str | Sequence[JSON],
        by: str | Person | None = None,
        key: str | None = None,
        *,
        tools: Sequence[JSON] = (),
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
            tools: definitions of tools that the front end of that person has. As for `handle.say`.

        Raises:
            LoopNotFound: the loop does not exist.
            BadTool: `tools` has something else than definitions, or the loop would have too many.
            InvalidHistory: the API would refuse the messages there.

        """
        texts, name, brought = to_user_turn(messages, "say()"), make_said_id(key), read_brought_tools(tools)
        who, refuse = self._commander.who(by), partial(self._commander.check, "say", loop_id)
        self._commander.say(
            loop_id,
            lambda state, commands: commands.say(state, texts, name, who, brought),
            refuse=refuse,
            commands_too=True,
        )
        return name

    def withdraw(self, loop_id: str, said: str, by: str | Person | None = None) -> None:
        """Take back what was said and is still kept. `said`: its id. `by`: who does it, for the record.

        Raises:
            LoopNotFound: the loop does not exist.
            IllegalCommand: it is in the conversation, was withdrawn before, or nothing with this id was said.

        """
        who, refuse = self._commander.who(by), partial(self._commander.check, "say", loop_id)
        self._commander.say(loop_id, lambda state, commands: commands.withdraw(state, said, who), refuse=refuse)

    def retry(self, loop_id: str, by: str | Person | None = None) -> None:
        """Make a failed loop runnable again at once. Its attempts are counted from zero.

        The trail has a line for it if a request had failed. If no worker could drive the loop, only its row changes.

        Raises:
            LoopNotFound: the loop does not exist.
            IllegalCommand: the loop has not failed.

        """
        self._commander.retry(loop_id, by)

    def fork(
        self,
        loop_id: str,
        new_id: str | None = None,
        *,
        at: int | str | None = None,
        metadata: Mapping[str, str] | None = None,
        by: str | Person | None = None,
    ) -> str:
        """Store an independent copy of a loop, and return its id. The loop itself is unchanged.

        The copy waits: no worker continues it before a person has said something in it, or has decided its calls.

        Args:
            loop_id: the loop.
            new_id: the id of the copy; a random one by default.
            at: as for `ToolLoopHandle.fork`: an iteration, or the id of a message of a user in `show`.
            metadata: None means that of the loop. A person needs the rights `fork` and, to change it, `metadata`.
            by: who does it, for the record.

        Raises:
            LoopNotFound: the loop does not exist.
            IllegalCommand: the loop has no such point.
            NotAllowed: the person may not do that, or would not see the copy.
            Conflict: a loop with the new id exists.

        """
        wanted = Fork.of(new_id, at, metadata, self._commander.who(by), self._commander.via)
        self._commander.fork(loop_id, wanted)
        return wanted.loop_id

    def set_metadata(self, loop_id: str, /, by: str | Person | None = None, **changes: str | None) -> None:
        """Change metadata of a loop, such as its title or owner: `set_metadata("rent", title="May", draft=None)`.

        It is in the trail, with the values before and after.

        Args:
            loop_id: the loop.
            by: who does it, for the record.
            changes: the new values by key; None removes one. The other keys stay.

        Raises:
            LoopNotFound: the loop does not exist.
            NotAllowed: the person may not do that, or would not see the loop any more.
            TypeError, ValueError: it is not metadata, or more than 4 kB.

        """
        self._commander.set_metadata(loop_id, changes, by)

    def grants(self, loop_id: str) -> tuple[GivenGrant, ...]:
        """Return the standing grants of a loop and of the loops inside its calls.

        Raises:
            LoopNotFound: the loop does not exist.

        """
        return tuple(list_standing_grants(load_state(self._store, loop_id).state, self._clock()))

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
        name, who = grant.id if isinstance(grant, GivenGrant) else grant, self._commander.who(by)
        refuse = partial(self._commander.check, "grant", loop_id)
        self._commander.say(loop_id, lambda state, commands: commands.revoke(state, name, who), refuse=refuse)

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
            IllegalCommand: `person` is None, but the call counts only approvals with a name, or this inbox is that of a
                person with `may` or `sees`.

        """
        make = partial(self._links.make, loop_id, call, allow=allow, person=person)
        return make(expires_in=expires_in, base_url=base_url)

    def revoke_links(self, loop_id: str, call: str | Shown | None = None, by: str | Person | None = None) -> None:
        """Revoke the links to a waiting call; None means all links of the loop. Later links are valid.

        It raises `LoopNotFound`, and `UnknownCall` if the call does not wait.
        """
        self._links.revoke(loop_id, call, by)

    def linked(self, token: str) -> InboxCall:
        """Return the call of a link, without using the link. `takes` has the decisions that the link allows.

        Raises:
            BadLink, LinkExpired, LinkUsed: the link is not valid.
            NotAllowed: it is for another person than this inbox.

        """
        return self._links.show(token)

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
            NotAllowed: the link is for another person, or the person of this inbox may not do that.
            IllegalCommand: the link does not allow this decision, or the call does not accept it.

        """
        return self._links.redeem(token, decision)

    @property
    def _links(self) -> Links:
        return Links(self._commander, self._secret)


def _check_via(via: str) -> None:
    if via not in VIAS and re.fullmatch(r"x-[\w.-]+", via) is None:
        raise ValueError(f"via: expected one of {', '.join(VIAS)}, or x- and a name of yours, got {via!r}")
