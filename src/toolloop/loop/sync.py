"""The sync handle."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self

from toolloop.face.config import LoopConfig
from toolloop.face.results import Completed, Error, Turn, Yielded
from toolloop.loop.assembly import Driver
from toolloop.loop.handle import HandleBase
from toolloop.loop.journal import LOG
from toolloop.loop.opening import Here
from toolloop.loop.operations import exhaust
from toolloop.loop.questions import perform_each
from toolloop.loop.streaming import TurnStream, Unread
from toolloop.loop.sync_driver import SyncDriver
from toolloop.machine.errors import ToolLoopError
from toolloop.machine.loop import Waiting
from toolloop.stores.protocol import Store
from toolloop.tools import Context, ToolRegistry


class ToolLoopHandle(HandleBase):
    """A tool-use loop that its caller drives, turn by turn.

    Args:
        provider: an `anthropic.Anthropic` client, or anything that implements `Provider`.
        params: the keyword arguments of `client.messages.create`, `messages` included.
        tools: functions made with `@tool`, objects made with `anthropic.beta_tool`, or a `ToolRegistry`.
        config: limits and callables.
        context: an object for the tools, and the depth; inside a tool, give its `ToolContext`.
        store: where the loop is kept. What happens is stored there before anything is done that it allows. The loop is
            created there by the first call that drives it or says something.
        loop_id: the id of the loop; a random one if it is left out.
        clock: seconds since the epoch, for the record and for deadlines.

    Raises:
        InvalidHistory: the API would refuse the messages.
        BadTool: two tools of one name, an async tool, something that is not a tool.
        TypeError: a parameter is not JSON, or the provider is not one.
        ValueError: a parameter that is missing, or not the caller's to give.

    """

    _driver_class: ClassVar[type[Driver]] = SyncDriver

    @classmethod
    def open(  # noqa: PLR0913 - the parts of a loop that no store can hold
        cls,
        store: Store,
        loop_id: str,
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        config: LoopConfig | None = None,
        context: Context | None = None,
        on_drift: Literal["raise", "accept", "strict"] = "raise",
        take_over: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Load a loop from a store, or create it there. Use it in a `with` statement, which closes it.

        Any number of processes may open one loop, and decide its calls. One of them drives it; the others get
        `Conflict` meanwhile. What a driver that is gone had started is known: a repeatable tool runs again, any other
        call waits as `uncertain`.

        Args:
            store: where the loops are.
            loop_id: which one.
            provider: as for a new handle.
            tools: as for a new handle.
            params: of a new loop. Of one that is there it brings back what is not stored (headers, timeouts, tokens);
                its messages are not looked at, and the rest is compared.
            metadata: of a new loop: strings that `store.list()` shows and filters by, such as an owner or a title; at
                most 4 kB. Of one that is there it is not looked at.
            config: None takes the stored limits. Callables are in no store: give them again.
            context: as for a new handle; its depth is the stored one.
            on_drift: judged when the loop is driven. `raise` refuses what may let something run that a person had gated
                (an approval that is gone, another effect), and another tool behind an open call; all else is adopted,
                with an event. `accept` adopts everything, `strict` refuses any change.
            take_over: drive it although another driver holds the lease. What that one started becomes uncertain.
            clock: as for a new handle.

        Raises:
            LoopNotFound: it is not there, and there are no `params`.
            UnreadableSnapshot: what is stored is damaged, foreign, or of a newer format.
            StoreError: the store failed.

        """
        here = Here.of(tools, config, context, clock, is_async=False)
        given = {"params": params, "metadata": metadata, "on_drift": on_drift, "take_over": take_over}
        return cls._loaded(here, store, loop_id, provider, **given)

    def flush(self) -> None:
        """Store what could not be stored before, and look at what others stored.

        Every call that says something or drives does so itself; this is for a program that only shows the loop.

        Raises:
            StoreError: the store still fails; nothing is lost.

        """
        self._issuer.take_edits("flush()")
        self._catch_up()

    def _catch_up(self) -> None:
        self._journal.commit()
        self._journal.refresh()
        self._journal.tell()

    def close(self) -> None:
        """Store what waits to be stored, and give the lease back. The handle stays usable.

        Raises:
            CallerError: an edit of the history can no longer be taken over; the lease was given back all the same.
            StoreError: the store failed; nothing is lost.

        """
        try:
            self._issuer.take_edits("close()")
            self._journal.commit()
        finally:
            self._journal.bus.close()
            self._assembly.late()

    def __enter__(self) -> Self:
        """Return the handle; `__exit__` closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the handle. After another exception, a failing store is logged and not raised."""
        try:
            self.close()
        except ToolLoopError as unstored:
            if error[0] is None:
                raise
            if error[0] is not type(unstored):
                LOG.warning("not everything is stored yet: %s", unstored, extra={"loop_id": self.loop_id})

    def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller can act.

        Raises:
            IllegalCommand: a `Yielded` waits for a command, or another caller drives.
            Drift: the loop was stored with other tools or policies, and may not go on with these.
            InvalidHistory: the API would refuse the edited history; nothing was sent.
            Conflict: another driver has the stored loop.
            StoreError: the store failed; what happened is kept, and stored by the next call.

        """
        try:
            turn: Turn = exhaust(self._steps("next_turn()"))
            return turn
        finally:
            self._assembly.late()

    def stream_turn(self) -> TurnStream:
        """Drive like `next_turn()`, and read what happens while it happens.

        `with handle.stream_turn() as stream:` gives a stream. Iterate it for the events of the turn, in order: those of
        `toolloop.events` that observers are told, and the pieces of the reply as they come in. Then `stream.turn` is
        what `next_turn()` would have returned. Nothing happens until the stream is read, and the turn never runs ahead
        of its reader. Who leaves before the end gives the request up: the loop is as it was before. A call that has
        started is left to the next turn. If a generator with the `with` statement in it is closed, the lease of a
        stored loop is given back within seconds, and not at once.

        A provider without `stream` answers as a whole, and there are no pieces.

        Raises:
            CallerError, StoreError: while it is read, as `next_turn`.

        """
        unread = Unread(self._driver.notifier)
        steps = self._steps("stream_turn()", unread)
        return TurnStream(steps, unread, self._engine.timer, self._assembly.late)

    def _turning(
        self, own: list[weakref.ref[Any]], asked: str, unread: Unread | None = None
    ) -> Generator[None, None, Turn]:
        """Drive one turn. `own`: see `Driving`."""
        self._driving.begin(own, asked=asked, state=type(self.state.root.phase).__name__)
        with self._assembly.turn(unread):
            self._issuer.take_edits(asked)
            if isinstance(self.state.root.phase, Waiting):
                self._catch_up()
            over = self._turns.terminal()
            self._issuer.edits.taken()
            if over is not None:
                return self._turns.hand_over(over)
            if self._lease is not None:
                self._lease.acquire()
            turn: Turn = self._turns.current() or (yield from self._driver.drive(self._turns.current))
            return self._turns.hand_over(turn)

    def run(
        self, ask: Callable[[Yielded], object] | None = None, *, until: Callable[[], bool] | None = None
    ) -> Yielded | Completed | Error:
        """Keep going while nothing needs the caller.

        Args:
            ask: called with the `Yielded` when calls wait; it decides them through it. If all are decided then, the
                loop continues; else, and without `ask`, the waiting `Yielded` is returned.
            until: asked after each turn. Once it returns True, the `Yielded` is returned though nothing waits, for a
                program that has to end. Any driver may continue the loop: a store lists it as `runnable`.

        """
        try:
            turn: Turn = exhaust(self._running(ask, until=until))
            return turn
        finally:
            self._assembly.late()

    def stream(self, ask: Callable[[Yielded], object] | None = None) -> TurnStream:
        """Keep going as `run()` does, and read what happens while it happens, over as many turns as that takes.

        `with handle.stream() as stream:`; then `stream.turn` is what `run()` would have returned. See `stream_turn()`.

        Args:
            ask: as for `run()`.

        """
        unread = Unread(self._driver.notifier)
        return TurnStream(self._running(ask, unread), unread, self._engine.timer, self._assembly.late)

    def _running(
        self,
        ask: Callable[[Yielded], object] | None,
        unread: Unread | None = None,
        until: Callable[[], bool] | None = None,
    ) -> Generator[None, None, Turn]:
        """Drive as `run()` does. Each step lets the reader of a stream read."""
        while True:
            questions = self._questions(until, partial(self._steps, "run()", unread), self._catch_up)
            try:
                turn = yield from perform_each(questions)
            finally:
                questions.close()
            self._assembly.late()
            if not isinstance(turn, Yielded) or not turn.pending or ask is None:
                return turn
            ask(turn)
            self._catch_up()
            if self.pending_turn is turn and not self._issuer.goes_on(turn):
                return turn
