"""Rebase pending records on a state that differs from the one they were recorded on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import define, evolve, field

from toolloop._journal.event_bus import LOG
from toolloop._journal.records import PendingRecord, is_new_turn
from toolloop._journal.reporting import watch
from toolloop.errors import CallerError, Conflict, UnreadableSnapshot
from toolloop.events import WatchEvent
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import step

# Other callers may record these without a conflict with a firm command.
_STILL = (ev.Decided, ev.Ticked, ev.GrantRevoked, ev.LinksRevoked, ev.MetadataChanged, ev.Ended, ev.Said, ev.Withdrawn)
# Events that only a driver records, and one that ends the turn of every driver.
_DRIVING = (
    ev.Woken,
    ev.Restored,
    ev.Opened,
    ev.Requested,
    ev.Replied,
    ev.RequestFailed,
    ev.Judged,
    ev.Started,
    ev.TurnEnded,
)


@define
class Reading:
    """The events that a store has behind a revision.

    Attributes:
        loop_id: the id of the loop.
        state: the state at that revision; then the state after the events.
        known: the records of this process that are stored.
        remote: the events that others stored.
        turns: the number of turns that those events ended.
        seen: the watch events.

    """

    loop_id: str
    state: State
    known: list[PendingRecord] = field(factory=list)
    remote: list[ev.Event] = field(factory=list)
    turns: int = 0
    seen: list[WatchEvent] = field(factory=list)

    def follow(
        self, events: Mapping[str, ev.Event], own: dict[str, PendingRecord], note: Callable[[State, State], object]
    ) -> None:
        """Apply the events.

        Args:
            events: the events by their ids.
            own: the records of this process that may be among them, by their ids.
            note: called with the states before and after each event.

        """
        for entry_id, event in events.items():
            before, self.state = self.state, _follow(self.loop_id, self.state, event)
            note(before, self.state)
            self.seen += watch(before, event, self.state)
            item = own.pop(entry_id, None)
            if item is None or (item.command is not None and item.rejection is not None):
                self.remote.append(event)  # an event of others; or a command that was reported as not recorded
                self.turns += is_new_turn(before, self.state)
            elif item.kind == "step" and not is_record_of(item, event):
                item.rejection = make_superseded_error(self.loop_id)  # an earlier version of its record
            else:
                self.known.append(item)
        for item in own.values():
            item.sent = False
        for item in self.known:
            item.stored = True


@define
class Rebase:
    """A rebase of pending records.

    Attributes:
        loop_id: the id of the loop.
        state: the stored state; then the state after each kept record.
        remote: the events that others stored meanwhile.
        kept: the records that are still pending.
        dropped: the records that no longer apply.

    """

    loop_id: str
    state: State
    remote: Sequence[ev.Event] = ()
    kept: list[PendingRecord] = field(factory=list)
    dropped: list[PendingRecord] = field(factory=list)

    def look_at(self, records: Iterable[PendingRecord]) -> None:
        """Keep the records that still apply, and record them on the new state."""
        for record in records:
            if self._takes(record):
                self.kept.append(record)
            else:
                self.dropped.append(record)
                name = type(record.event).__name__
                LOG.debug("dropped %s: it no longer applies", name, extra={"loop_id": self.loop_id})

    def _takes(self, record: PendingRecord) -> bool:
        if record.rejection is not None:
            return False
        if isinstance(record.event, ev.Adopted) or (isinstance(record.event, ev.Opened) and not record.event.path):
            return True  # the journal begins with it
        try:
            return self._is_recorded(record)
        except (CallerError, Conflict) as error:
            record.rejection = error
            return False

    def _is_recorded(self, record: PendingRecord) -> bool:
        # It was made from the old state: the bytes of a request, or the input of a call.
        is_stale = record.kind == "step" and bool(self.remote or self.dropped)
        if is_stale or (record.firm and any(not isinstance(event, _STILL) for event in self.remote)):
            raise make_superseded_error(self.loop_id)
        if record.command is not None:
            event = record.command(self.state)
            if event is None:
                return False
            if event != record.event:
                record.event = event
                record.encode()
        self.state = record.follow(self.state)
        return True

    @property
    def drives(self) -> int:
        """The number of remote events that only another driver can have stored."""
        return sum(isinstance(event, _DRIVING) for event in self.remote)

    @property
    def refusals(self) -> list[Exception]:
        """The reasons why commands were dropped."""
        return [each.rejection for each in self.dropped if each.command is not None and each.rejection is not None]


def _follow(loop_id: str, state: State, event: ev.Event) -> State:
    """Return the state after a stored event.

    Raises:
        UnreadableSnapshot: the state does not accept it.

    """
    try:
        return step(state, event)
    except CallerError as error:
        raise UnreadableSnapshot(
            f"the journal of the loop {loop_id!r} is damaged: {type(event).__name__} cannot follow the events "
            f"before it: {error}"
        ) from error


def outlives_lease(event: ev.Event) -> bool:
    """Return whether an event counts although its driver lost the loop: the end of a run, or an event of the caller."""
    if isinstance(event, ev.Ended):
        return event.attempt > 0 and (event.result is not None or bool(event.spent))
    return isinstance(event, ev.Continued)


def is_record_of(record: PendingRecord, event: ev.Event) -> bool:
    """Return whether a record has this event, at any time."""
    return evolve(record.event, at=event.at, seconds=event.seconds) == event


def find_dropped_start(event: ev.Event, unsure: Iterable[PendingRecord]) -> str:
    """Return the id of an earlier record of a start, which may be stored, so that it is not stored twice."""
    starts = [item for item in unsure if isinstance(item.event, ev.Started)] if isinstance(event, ev.Started) else []
    return next((item.id for item in starts if is_record_of(item, event)), "")


def drop_repeats(errors: Sequence[Exception]) -> tuple[Exception, ...]:
    """Return errors with at most one conflict, because a caller needs it only once."""
    conflicts = [error for error in errors if isinstance(error, Conflict)]
    return tuple(error for error in errors if error not in conflicts[1:])


def make_superseded_error(loop_id: str) -> Conflict:
    """Return the error for a command on a loop that has changed since it was shown."""
    return Conflict(
        f"the loop {loop_id!r} has continued elsewhere meanwhile, so the command was not recorded. Look at "
        "handle.pending_turn and handle.messages, then give a new command",
        loop_id=loop_id,
    )


def make_loss(loop_id: str) -> Conflict:
    """Return the error for a driver that has lost the loop to another driver."""
    return Conflict(
        f"another driver has taken over the loop {loop_id!r}, so this one cannot continue. The ends of its calls are "
        "still stored. Drive the loop again when the other driver has finished",
        loop_id=loop_id,
    )
