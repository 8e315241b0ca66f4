"""Store the commands of people in loops that another process drives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import evolve, frozen

from toolloop._engine.deciding import Decided
from toolloop._handles.commands import Commands
from toolloop._handles.forking import Fork
from toolloop._interface.decisions import name_of
from toolloop._interface.shown import Named, bind_to_digest
from toolloop._journal.journal import read_past_calls
from toolloop._journal.lease import is_held
from toolloop._journal.shared_journal import SharedJournal
from toolloop._journal.store_access import call_store, load_state
from toolloop.errors import AlreadyDecided, Conflict, NotAllowed, UnknownCall
from toolloop.inbox.items import InboxCall
from toolloop.inbox.rights.links import Link, kind_of
from toolloop.inbox.rights.offers import why_no_grant
from toolloop.inbox.rights.rights import Action, Rights
from toolloop.inbox.rights.seen_store import is_seen
from toolloop.inbox.stored_tools import StoredTools
from toolloop.machine.queries import waiting
from toolloop.machine.record.journal_events import Continued, Event
from toolloop.machine.record.loop import Failed, Finished, State, TooDeep, Waiting
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.machine.values.jsontext import describe_type
from toolloop.machine.values.names import Person
from toolloop.stores.protocol import Store
from toolloop.tools.calls import ToolCall


@frozen
class Commander:
    """Stores commands.

    Attributes:
        store: the store, as the person sees it.
        clock: returns seconds since the epoch.
        via: where people give the commands, for the audit trail.
        rights: of the person who decides; None: everything is allowed.

    """

    store: Store
    clock: Callable[[], float]
    via: str
    rights: Rights | None = None

    def who(self, by: str | Person | None) -> str | None:
        """Return the name of the person who acts.

        Raises:
            TypeError: `by` is not a name, or this inbox is already that of a person.
            ValueError: the name is refused.

        """
        if self.rights is None:
            return name_of(by)
        if by is not None:
            raise TypeError(f"by: leave it out, for this inbox is that of {self.rights.person.name!r}")
        return self.rights.person.name

    def signed(self, decision: Decision) -> Decision:
        """Return a decision with the person who makes it. It raises as `who`."""
        if self.rights is None or not isinstance(decision, Approve | Deny | Answer | Rerun):  # refused later
            return decision
        self.who(decision.by)
        return evolve(decision, by=self.rights.person)

    def bind(self, loop_id: str, decisions: Mapping[Any, Decision]) -> list[tuple[Named, Decision]]:
        """Return the decisions of `Inbox.decide`, bound to what was shown, and with the person who makes them."""
        if not isinstance(decisions, Mapping):
            raise TypeError(f"decide(): expected a mapping of calls to decisions, got {describe_type(decisions)}")
        for call in decisions:
            if isinstance(call, InboxCall) and call.loop_id != loop_id:
                raise UnknownCall(
                    f"the call {call.id!r} belongs to loop {call.loop_id!r}, not to {loop_id!r}", call=call.id, known=()
                )
        return [bind_to_digest(call, self.signed(decision)) for call, decision in decisions.items()]

    def decide(
        self, loop_id: str, pairs: Sequence[tuple[Named, Decision]], link: Link | None = None, *, each: bool = False
    ) -> list[Any]:
        """Store decisions, and return what stands in each call. `link`: the link that they are made with."""
        decided = Decided(None, ())

        def said(state: State, commands: Commands) -> Event | None:
            nonlocal decided  # the last evaluation is the one that is recorded
            if link is not None:
                link.find_call(state)
            decided = commands.decide(state, pairs, each=each)
            return decided.event

        try:
            self.say(loop_id, said, link)
        except AlreadyDecided as error:
            raise self.with_decision(loop_id, error) from None
        explain = partial(self.with_decision, loop_id)
        return [explain(one) if isinstance(one, AlreadyDecided) else one for one in decided.outcomes]

    def check(self, action: Action, loop_id: str, call: ToolCall | None = None) -> None:
        """Refuse an action that is not allowed.

        Raises:
            LoopNotFound: the loop does not exist.
            NotAllowed: the person may not do that.

        """
        if self.rights is not None:
            self.rights.check(action, call_store(loop_id, partial(self.store.head, loop_id)), call)

    def check_seen(self, metadata: Mapping[str, str]) -> None:
        """Refuse metadata with which the person would not see the loop.

        Raises:
            NotAllowed: that is so.

        """
        sees = None if self.rights is None else self.rights.sees
        if sees is not None and not is_seen(metadata, sees()):
            raise NotAllowed(f"with the metadata {dict(metadata)}, you would not see the loop. Give other metadata")

    def _check(self, rights: Rights, loop_id: str, call: ToolCall, decision: Decision) -> None:
        """Refuse a decision that the person may not make."""
        row = call_store(loop_id, partial(self.store.head, loop_id))
        rights.check(kind_of(decision), row, call)
        if isinstance(decision, Approve) and decision.remember is not None:
            if (why := why_no_grant(call, rights.person)) is not None:
                raise NotAllowed(f"the approval of {'/'.join(call.path)!r} may not give a grant: {why}")
            rights.check("grant", row, call)
            rights.check_grant(decision.remember)

    def say(
        self,
        loop_id: str,
        said: Callable[[State, Commands], Event | None],
        link: Link | None = None,
        *,
        refuse: Callable[[], None] | None = None,
        commands_too: bool = False,
    ) -> None:
        """Store a command, and continue the loop if none of its calls waits.

        Args:
            loop_id: the loop.
            said: the command.
            link: the link that it is given with.
            refuse: raises if the person may not do that. Each decision is checked by itself.
            commands_too: continue the loop also if it waits for a command, not only if it waited for decisions.

        Raises:
            LoopNotFound: the loop does not exist.
            NotAllowed: the person may not do that.

        """
        via = self.via if link is None else "link"
        while True:
            known = load_state(self.store, loop_id)
            if link is not None:
                link.check_loop(self.store, known.first_id)
            if refuse is not None:  # after the load: what is stored is bound to the loop that was asked about
                refuse()
            journal = SharedJournal(known.state, self.clock, known.place(self.store))
            check = None if self.rights is None else partial(self._check, self.rights, loop_id)
            commands = Commands(StoredTools(known.state), journal.now, via, self.store.secret, check)
            command, then = partial(_with_commands, said, commands), partial(_continued, commands, commands_too)
            try:
                journal.issue(command, firm=False, then=then)
            except Conflict:
                if not journal.is_set_back:
                    raise
                continue  # the store was restored meanwhile: read the loop from the beginning
            journal.tell()
            return

    def fork(self, loop_id: str, wanted: Fork) -> None:
        """Store a copy of a loop, which waits for a command. See `Inbox.fork`."""
        state, stored = wanted.read(self.store, loop_id)
        self.check("fork", loop_id)
        if wanted.metadata is not None:
            self.check("metadata", loop_id)
            self.check_seen(wanted.metadata)
        copied = wanted.copy(state, self.clock())
        known = call_store(loop_id, partial(self.store.head, loop_id)).metadata
        place = wanted.place(self.store, loop_id, copied, known)
        # The loop that was read is the one that was asked about.
        call_store(loop_id, partial(self.store.load, loop_id, after=stored.rev, first_id=stored.entries[0].id))
        journal = SharedJournal(copied, self.clock, place)
        journal.is_handed_over = True
        journal.commit()

    def set_metadata(self, loop_id: str, changes: Mapping[str, str | None], by: str | Person | None) -> None:
        """Store a change of metadata. See `Inbox.set_metadata`."""
        who = self.who(by)

        def said(state: State, commands: Commands) -> Event | None:
            known = call_store(loop_id, partial(self.store.head, loop_id)).metadata
            event = commands.set_metadata(state, changes, known, who)
            self.check_seen({key: value for key, value in {**known, **changes}.items() if value is not None})
            return event

        self.say(loop_id, said, refuse=partial(self.check, "metadata", loop_id))

    def stop(self, loop_id: str, reason: str | None, by: str | Person | None) -> None:
        """Store a stop. Without a driver, there is nothing to wait for."""
        who = self.who(by)

        def said(state: State, commands: Commands) -> Event | None:
            if isinstance(state.root.phase, (Finished, TooDeep)):
                return None
            return commands.stop(state, reason, who, is_driven=is_held(self.store, loop_id))

        self.say(loop_id, said, refuse=partial(self.check, "stop", loop_id))

    def retry(self, loop_id: str, by: str | Person | None) -> None:
        """Store a retry, and make the loop due at once."""
        who = self.who(by)
        has_failed = call_store(loop_id, partial(self.store.head, loop_id)).status == "failed"

        def said(state: State, commands: Commands) -> Event | None:
            # If a worker cannot drive a loop, only the loop's head shows it.
            is_in_head = has_failed and not isinstance(state.root.phase, Failed)
            return None if is_in_head else commands.retry(state, who)

        self.say(loop_id, said, refuse=partial(self.check, "retry", loop_id))
        row = call_store(loop_id, partial(self.store.head, loop_id))
        head = evolve(row.head, attempts=0, retry_at=self.clock() if row.status == "failed" else None)
        write = partial(self.store.append, loop_id, [], expected_rev=row.rev, head=head, instead_of=row.head)
        with suppress(Conflict):  # a driver was faster
            call_store(loop_id, write)

    def with_decision(self, loop_id: str, error: AlreadyDecided) -> AlreadyDecided:
        """Return the error with the recorded decision, even if the round of the call is closed."""
        return error if error.decision is not None else read_past_calls(self.store, loop_id).explain(error)


def _with_commands(said: Callable[[State, Commands], Event | None], commands: Commands, state: State) -> Event | None:
    return said(state, commands)


def _continued(commands: Commands, commands_too: bool, state: State) -> Continued | None:  # noqa: FBT001 - for partial
    """Return the command to continue a loop whose calls are all decided. `commands_too`: see `Commander.say`."""
    phase = state.root.phase
    is_over = isinstance(phase, Waiting) and (commands_too or phase.reason == "decision_required")
    return commands.go_on(state) if is_over and not waiting(state) else None
