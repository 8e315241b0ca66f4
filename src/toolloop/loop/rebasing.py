"""Rebasing: what becomes of records that wait, when the state is another than the one they were recorded on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, evolve, field

from toolloop.loop.journal import LOG, PendingRecord
from toolloop.loop.reporting import watch
from toolloop.machine import events as ev
from toolloop.machine.errors import CallerError, Conflict, UnreadableSnapshot
from toolloop.machine.state import State
from toolloop.machine.tree import step

# Others may record these, and the loop is still where a caller saw it: what a firm command is about has not moved.
_STILL = (ev.Decided, ev.Ticked, ev.GrantRevoked, ev.Ended)
# What only a driver records.
_DRIVING = (ev.Woken, ev.Opened, ev.Requested, ev.Replied, ev.RequestFailed, ev.Judged, ev.Started, ev.TurnEnded)


@define
class Rebase:
    """Records that wait, looked at again.

    Attributes:
        loop_id: of the loop.
        state: that is stored; then, the state after all that is kept.
        remote: what others stored meanwhile.
        kept: the records that wait still.
        dropped: those that do not count any more.

    """

    loop_id: str
    state: State
    remote: Sequence[ev.Event] = ()
    kept: list[PendingRecord] = field(factory=list)
    dropped: list[PendingRecord] = field(factory=list)

    def look_at(self, records: Iterable[PendingRecord]) -> None:
        """Keep those records that still count, and record them on the new state."""
        for record in records:
            if self._takes(record):
                self.kept.append(record)
            else:
                self.dropped.append(record)
                LOG.debug("%s no longer counts", type(record.event).__name__, extra={"loop_id": self.loop_id})

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
        # It was made of the loop as it was: a request's bytes, a call's input.
        is_stale = record.kind == "step" and bool(self.remote or self.dropped)
        if is_stale or (record.firm and any(not isinstance(event, _STILL) for event in self.remote)):
            raise superseded(self.loop_id)
        if record.command is not None:
            event = record.command(self.state)
            if event is None:
                return False
            if event != record.event:
                record.event = event
                record.encode()
        after = step(self.state, record.event)
        record.seen, record.after = watch(self.state, record.event, after), after
        self.state = after
        return True

    @property
    def drives(self) -> int:
        """How many of the remote events only another driver can have stored."""
        return sum(isinstance(event, _DRIVING) for event in self.remote)

    @property
    def refusals(self) -> list[Exception]:
        """Why commands do not count."""
        return [each.rejection for each in self.dropped if each.command is not None and each.rejection is not None]


def follow(loop_id: str, state: State, event: ev.Event) -> State:
    """Return the state after an event of the store.

    Raises:
        UnreadableSnapshot: it is not possible there.

    """
    try:
        return step(state, event)
    except CallerError as error:
        raise UnreadableSnapshot(
            f"the journal of the loop {loop_id!r} is damaged: {type(event).__name__} cannot follow the events "
            f"before it: {error}"
        ) from error


def outlives_lease(event: ev.Event) -> bool:
    """Return whether an event counts although its driver lost the loop: it tells of its run, or is the caller's."""
    if isinstance(event, ev.Ended):
        return event.attempt > 0 and (event.result is not None or bool(event.spent))
    return isinstance(event, ev.Continued)


def is_record_of(record: PendingRecord, event: ev.Event) -> bool:
    """Return whether a record is of this event, whenever that happened."""
    return evolve(record.event, at=event.at, seconds=event.seconds) == event


def without_repeats(errors: Sequence[Exception]) -> tuple[Exception, ...]:
    """Return errors with one conflict at most: a caller whose loop moved on learns that once."""
    conflicts = [error for error in errors if isinstance(error, Conflict)]
    return tuple(error for error in errors if error not in conflicts[1:])


def superseded(loop_id: str) -> Conflict:
    """Return the error for a command about a loop that is no longer as it was shown."""
    return Conflict(
        f"the loop {loop_id!r} went on elsewhere meanwhile, so this was not done: look at handle.pending_turn and "
        "handle.messages, and say what is to be done now",
        loop_id=loop_id,
    )


def taken_over(loop_id: str) -> Conflict:
    """Return the error for a driver that is not the driver any more."""
    return Conflict(
        f"another driver has taken the loop {loop_id!r} over, so this one cannot go on. Ends of its calls are stored "
        "all the same. Drive the loop again when the other driver is done",
        loop_id=loop_id,
    )
