"""Store the commands of people in loops that another process drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import evolve, frozen

from toolloop._handles.commands import Commands
from toolloop._handles.deciding import Decided
from toolloop._interface.shown import Named
from toolloop._journal.event_bus import EventBus
from toolloop._journal.lease import is_held
from toolloop._journal.shared_journal import SharedJournal
from toolloop._journal.store_access import load_state, safely
from toolloop.errors import AlreadyDecided, Conflict, LoopNotFound
from toolloop.inbox.links import Link
from toolloop.inbox.stored_tools import StoredTools
from toolloop.inbox.trail import read_trail, with_decision
from toolloop.machine.queries import waiting
from toolloop.machine.record.journal_events import Continued, Event
from toolloop.machine.record.loop import Failed, Finished, TooDeep, Waiting
from toolloop.machine.record.state import State
from toolloop.machine.values.calls import Decision
from toolloop.stores.protocol import Store


@frozen
class Commander:
    """Stores commands. `clock`: seconds since the epoch; `via`: where people give them, for the audit trail."""

    store: Store
    clock: Callable[[], float]
    via: str

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
        told = partial(self.with_decision, loop_id)
        return [told(one) if isinstance(one, AlreadyDecided) else one for one in decided.outcomes]

    def say(
        self,
        loop_id: str,
        said: Callable[[State, Commands], Event | None],
        link: Link | None = None,
        *,
        commands_too: bool = False,
    ) -> None:
        """Store a command, and continue the loop if none of its calls waits.

        Args:
            loop_id: the loop.
            said: the command.
            link: the link that it is given with.
            commands_too: continue the loop also if it waits for a command, not only if it waited for decisions.

        """
        state, stored = load_state(self.store, loop_id)
        first_id = stored.entries[0].id
        if link is not None and link.first_id != first_id:
            raise LoopNotFound(f"the loop {loop_id!r} was deleted and created again", loop_id=loop_id)
        bus = EventBus(loop_id)
        journal = SharedJournal(state, self.clock, bus, store=self.store, rev=stored.rev, first_id=first_id)
        via = self.via if link is None else "link"
        commands = Commands(StoredTools(state), journal.now, via, self.store.secret)
        journal.say(lambda state: said(state, commands), firm=False, then=partial(_continued, commands, commands_too))
        journal.tell()

    def stop(self, loop_id: str, reason: str | None, by: str | None) -> None:
        """Store a stop. Without a driver, there is nothing to wait for."""

        def said(state: State, commands: Commands) -> Event | None:
            if isinstance(state.root.phase, (Finished, TooDeep)):
                return None
            return commands.stop(state, reason, by, is_driven=is_held(self.store, loop_id))

        self.say(loop_id, said)

    def retry(self, loop_id: str, by: str | None) -> None:
        """Store a retry, and make the loop due at once."""
        has_failed = safely(loop_id, partial(self.store.head, loop_id)).status == "failed"

        def said(state: State, commands: Commands) -> Event | None:
            # If a worker cannot drive a loop, only the loop's head shows it.
            is_in_head = has_failed and not isinstance(state.root.phase, Failed)
            return None if is_in_head else commands.retry(state, by)

        self.say(loop_id, said)
        row = safely(loop_id, partial(self.store.head, loop_id))
        head = evolve(row.head, attempts=0, retry_at=self.clock() if row.status == "failed" else None)
        write = partial(self.store.append, loop_id, [], expected_rev=row.rev, head=head, instead_of=row.head)
        with suppress(Conflict):  # a driver was faster
            safely(loop_id, write)

    def with_decision(self, loop_id: str, error: AlreadyDecided) -> AlreadyDecided:
        """Return the error with the recorded decision, even if the round of the call is closed."""
        if error.decision is not None:
            return error
        entries = safely(loop_id, partial(self.store.load, loop_id)).entries
        return with_decision(error, read_trail(entries, self.store.secret))


def _continued(commands: Commands, commands_too: bool, state: State) -> Continued | None:  # noqa: FBT001 - for partial
    """Return the command to continue a loop whose calls are all decided. `commands_too`: see `Commander.say`."""
    phase = state.root.phase
    is_over = isinstance(phase, Waiting) and (commands_too or phase.reason == "decision_required")
    return commands.go_on(state) if is_over and not waiting(state) else None
