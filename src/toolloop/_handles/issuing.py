"""Issue commands to the journal: first the caller's edits of the history, then the command; then notify the driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import define, field

from toolloop._drivers.driver import AnyNotifier
from toolloop._engine.deciding import Decided, Decisions
from toolloop._interface.decisions import name_of
from toolloop._interface.message_edits import MessageEdits
from toolloop._interface.results import Yielded
from toolloop._journal.event_bus import LOG
from toolloop._journal.journal import Journal, is_interrupted
from toolloop.errors import AlreadyDecided, ToolLoopError
from toolloop.machine.record.journal_events import Event
from toolloop.machine.record.loop import Failed, Finished, State, TooDeep, Waiting
from toolloop.machine.values.calls import Command, Continue, InjectMessages, Stop
from toolloop.machine.values.jsontext import JSON
from toolloop.machine.values.names import Person

if TYPE_CHECKING:
    from toolloop._handles.commands import Commands, Said

ENDED = (Finished, Failed, TooDeep)


@define(eq=False)
class CommandIssuer:
    """Issues the caller's commands.

    Args:
        commands: the commands, as functions of the state.
        journal: records them.
        notifier: of the driver.
        may_drive: raises `Drift` if the loop may not be driven.

    Attributes:
        edits: the caller's edits of the history.

    """

    _commands: Commands
    _journal: Journal
    _notifier: AnyNotifier
    _may_drive: Callable[[], object]
    edits: MessageEdits = field(factory=MessageEdits, init=False)

    def issue(self, asked: str, said: Said, *, firm: bool = True) -> None:
        """Issue a command for the current loop, including edits.

        Args:
            asked: the name of the command, for errors.
            said: the command.
            firm: see `Journal.issue`.

        """

        def act() -> None:
            self.take_edits(asked, said)
            self._journal.issue(said, firm=firm)
            self.edits.invalidate()

        self._perform(act)

    def _perform(self, act: Callable[[], None]) -> None:
        """Call a function that issues a command, and deliver the watch events.

        In a signal handler that interrupted this thread while it holds the lock, it is called after the release.
        """
        if not is_interrupted(self._journal):
            act()
            self._tell()
            return

        def act_later() -> None:
            try:
                act()
            except ToolLoopError as error:
                extra = {"loop_id": self._journal.state.root.setup.loop_id}
                LOG.warning("a command from a signal handler was refused: %s", error, extra=extra)
            self._tell()

        self._journal.bus.put_off(act_later)
        self._notifier.notify()

    def _tell(self) -> None:
        """Deliver the watch events of a command, and notify the driver."""
        self._notifier.notify()
        self._journal.bus.tell()

    def take_edits(self, asked: str, said: Said | None = None) -> None:
        """Apply the caller's edits of the history, if there are any. If they are refused, the list keeps them.

        `said`: the command that follows.
        """
        with self._journal.lock:  # if two threads do this, only one applies the edit
            edit = self.edits.find_edit(self._journal.state.root)
            if edit is None:
                return
            try:
                self._journal.issue(partial(self._commands.edit, edit=edit, asked=asked, then=said), firm=False)
            finally:
                self.edits.settle(self._journal.state.root, edit)
        self._journal.bus.tell()

    def edit(self) -> list[JSON]:
        """Return the list to edit for the current wait."""
        return self.edits.open_list(self._journal.state.root, is_driven=False)

    def give(self, command: Command) -> None:
        """Give a command to a waiting loop."""
        asked, said = self._commands.read(command)
        self.issue(asked, said, firm=self._is_firm(command))

    def continue_turn(self, turn: Yielded) -> bool:
        """Continue a `Yielded` whose calls are all decided. Return False if calls still wait.

        Raises:
            Drift: the loop may not be driven with its current configuration.

        """
        with self._journal.lock:
            if not turn.is_spent:
                if turn.pending:
                    return False
                self._may_drive()
                self._journal.record(self._commands.go_on(self._journal.state), "step")
        self._journal.bus.tell()
        return True

    def resume(self, command: Command) -> None:
        """Give a command in any state. See `ToolLoopHandle.resume`."""
        asked, said = self._commands.read(command)

        def say_anywhere(state: State) -> Event | None:
            phase = state.root.phase
            if isinstance(phase, ENDED) and not isinstance(command, InjectMessages):
                LOG.info("ignored a command after the end", extra={"loop_id": state.root.setup.loop_id})
                return None
            if isinstance(command, Continue) and not isinstance(phase, Waiting):
                return None
            return said(state)

        self.issue(asked, say_anywhere, firm=self._is_firm(command))

    def stop(self, reason: str | None, by: str | Person | None = None) -> None:
        """End the loop, also after a failed request. After the end, this does nothing."""
        asked, said = self._commands.read(Stop(reason, by=by))

        def say_before_the_end(state: State) -> Event | None:
            return None if isinstance(state.root.phase, (Finished, TooDeep)) else said(state)

        self.issue(asked, say_before_the_end, firm=False)

    def _is_firm(self, command: Command) -> bool:
        """Return whether a command is only for the current wait. A stop is for any state."""
        return isinstance(self._journal.state.root.phase, Waiting) and not isinstance(command, Stop)

    def decide(self, decisions: Decisions, *, each: bool = False) -> tuple[Any, ...]:
        """Decide calls, and return what stands in each: a `Standing`, or with `each` the error of a refused decision.

        In a signal handler that interrupted this thread, the outcome is that of the state before the interruption.
        """
        decided = Decided(None, ())

        def say(state: State) -> Event | None:
            nonlocal decided  # the last evaluation is the one that is recorded
            decided = self._commands.decide(state, decisions, each=each)
            return decided.event

        try:
            if is_interrupted(self._journal):
                say(self._journal.state)
            self._perform(lambda: self._journal.issue(say, firm=False))
        except AlreadyDecided as error:
            raise self._journal.explain(error) from None
        explain = self._journal.explain
        return tuple([explain(one) if isinstance(one, AlreadyDecided) else one for one in decided.outcomes])

    def tick(self, now: float | None = None) -> None:
        """Let calls expire whose deadline has passed. `now`: None means the clock of the journal."""
        at = self._journal.now() if now is None else now
        if self._commands.tick(self._journal.state, at) is not None:
            self._perform(lambda: self._journal.issue(lambda state: self._commands.tick(state, at), firm=False))

    def revoke(self, grant_id: str, by: str | Person | None) -> None:
        """Revoke a grant."""
        revoke = partial(self._commands.revoke, grant_id=grant_id, by=name_of(by))
        self._perform(lambda: self._journal.issue(revoke, firm=False))
