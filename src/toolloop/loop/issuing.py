"""How commands reach the journal: what the caller edited goes first, then the command, and the driver is notified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from toolloop.face.results import Named, Yielded
from toolloop.loop.commands import Commands, Said
from toolloop.loop.journal import LOG, Journal
from toolloop.loop.message_edits import MessageEdits
from toolloop.machine.errors import ToolLoopError
from toolloop.machine.events import Event
from toolloop.machine.jsontext import JSON
from toolloop.machine.loop import Failed, Finished, TooDeep, Waiting
from toolloop.machine.state import State
from toolloop.machine.values import Command, Continue, Decision, InjectMessages, Stop

ENDED = (Finished, Failed, TooDeep)


class CommandIssuer:
    """Issues the caller's commands.

    Attributes:
        edits: what the caller made of the history.

    """

    def __init__(self, commands: Commands, journal: Journal, driver: Any, may_drive: Callable[[], object]) -> None:
        """Put the parts together. The caller has edited nothing yet. `may_drive`: raises `Drift` where nobody may."""
        self.edits = MessageEdits()
        self._commands = commands
        self._journal = journal
        self._driver = driver
        self._may_drive = may_drive

    def say(self, asked: str, said: Said, *, firm: bool = True) -> None:
        """Say a command about the loop as it is now, edits included.

        Args:
            asked: the name of the command, for errors.
            said: the command.
            firm: see `Journal.say`.

        """

        def act() -> None:
            self.take_edits(asked, said)
            self._journal.say(said, firm=firm)
            self.edits.taken()

        self._issue(act)

    def _issue(self, act: Callable[[], None]) -> None:
        """Do what the caller says, and tell those who watch.

        In a signal handler that has interrupted this thread while it holds the lock, it is done when that is released.
        """
        if not self._journal.is_interrupted:
            act()
            self._tell()
            return

        def later() -> None:
            try:
                act()
            except ToolLoopError as error:
                LOG.warning("what a signal handler said is refused: %s", error)
            self._tell()

        self._journal.bus.put_off(later)
        self._driver.notifier.notify()

    def _tell(self) -> None:
        """Tell those who watch, and the driver, that something was said."""
        self._driver.notifier.notify()
        self._journal.bus.tell()

    def take_edits(self, asked: str, said: Said | None = None) -> None:
        """Take over what the caller made of the history, if it is another; or leave it to be mended.

        `said`: the command before which this happens.
        """
        with self._journal.lock:  # of two threads, one takes the edit over
            edit = self.edits.edit(self._journal.state.root)
            if edit is None:
                return
            try:
                self._journal.say(partial(self._commands.edit, edit=edit, asked=asked, then=said), firm=False)
            finally:
                self.edits.settle(self._journal.state.root, edit)
        self._journal.bus.tell()

    def edit(self) -> list[JSON]:
        """Return the list to edit of the wait in which the caller is."""
        return self.edits.working(self._journal.state.root, is_driven=False)

    def command(self, command: Command) -> None:
        """Say what is to be done at a wait."""
        asked, said = self._commands.read(command)
        self.say(asked, said, firm=self._is_firm(command))

    def goes_on(self, turn: Yielded) -> bool:
        """Continue a `Yielded` whose calls are all decided. Return False if calls still wait.

        Raises:
            Drift: the loop may not be driven with what it has here.

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
        """Say what is to be done, wherever the loop is. See `ToolLoopHandle.resume`."""
        asked, said = self._commands.read(command)

        def said_anywhere(state: State) -> Event | None:
            phase = state.root.phase
            if isinstance(phase, ENDED) and not isinstance(command, InjectMessages):
                LOG.info("a command after the end does nothing", extra={"loop_id": state.root.setup.loop_id})
                return None
            if isinstance(command, Continue) and not isinstance(phase, Waiting):
                return None
            return said(state)

        self.say(asked, said_anywhere, firm=self._is_firm(command))

    def stop(self, reason: str | None) -> None:
        """End the loop, also after a failed request. After its end that does nothing."""
        asked, said = self._commands.read(Stop(reason))

        def said_before_the_end(state: State) -> Event | None:
            return None if isinstance(state.root.phase, (Finished, TooDeep)) else said(state)

        self.say(asked, said_before_the_end, firm=False)

    def _is_firm(self, command: Command) -> bool:
        """Return whether a command is meant for the wait in which it is said. A stop is meant wherever the loop is."""
        return isinstance(self._journal.state.root.phase, Waiting) and not isinstance(command, Stop)

    def decide(self, decisions: Sequence[tuple[Named, Decision]]) -> None:
        """Decide calls: all of them, or none."""
        self.tick()
        self._issue(lambda: self._journal.say(lambda state: self._commands.decide(state, decisions), firm=False))

    def tick(self, now: float | None = None) -> None:
        """Let calls expire whose deadline has passed. None: by the clock of the journal."""
        at = self._journal.now() if now is None else now
        if self._commands.tick(self._journal.state, at) is not None:
            self._issue(lambda: self._journal.say(lambda state: self._commands.tick(state, at), firm=False))

    def revoke(self, grant_id: str, by: str | None) -> None:
        """Take a grant back."""
        revoke = partial(self._commands.revoke, grant_id=grant_id, by=by)
        self._issue(lambda: self._journal.say(revoke, firm=False))
