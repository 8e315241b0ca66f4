"""The sync handle."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, Self

from toolloop.face.config import DEFAULT_CONFIG, LoopConfig, LoopContext
from toolloop.face.results import Completed, Error, Yielded
from toolloop.loop.assembly import Driver, assemble
from toolloop.loop.handle import HandleBase, Turn
from toolloop.loop.journal import LOG
from toolloop.loop.opening import loaded, new_loop, restored
from toolloop.loop.operations import exhaust
from toolloop.loop.streaming import TurnStream, Unread
from toolloop.loop.sync_driver import SyncDriver
from toolloop.machine.errors import Conflict, IllegalCommand, ToolLoopError
from toolloop.machine.jsontext import JSON
from toolloop.machine.loop import Waiting
from toolloop.providers import provider_for
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry


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
        BadTool: two tools of one name, an async tool, something that is no tool.
        TypeError: a parameter is not JSON, or the provider is none.
        ValueError: a parameter that is missing, or not the caller's to give.

    """

    _driver_class: ClassVar[type[Driver]] = SyncDriver

    def __init__(  # noqa: PLR0913 - the parts of a loop, all but two of them optional
        self,
        provider: Any,
        *,
        params: Mapping[str, Any],
        tools: Iterable[Any] | ToolRegistry = (),
        config: LoopConfig = DEFAULT_CONFIG,
        context: LoopContext | ToolContext | None = None,
        store: Store | None = None,
        loop_id: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Set the loop up; nothing is sent or stored, and no clock starts."""
        parts = new_loop(
            params=params,
            tools=tools,
            config=config,
            context=context,
            store=store,
            loop_id=loop_id,
            clock=clock,
            is_async=False,
        )
        self._assemble(assemble(provider_for(provider, is_async=False), parts, SyncDriver))

    @classmethod
    def open(  # noqa: PLR0913 - the parts of a loop that no store can hold
        cls,
        store: Store,
        loop_id: str,
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: LoopContext | ToolContext | None = None,
        on_drift: str = "raise",
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
            config: None takes the stored limits. Callables are in no store: give them again.
            context: as for a new handle; its depth is the stored one.
            on_drift: `raise` if tools, callables or parameters are others than they were; `accept` to go on with these.
            take_over: drive it although another driver holds the lease. What that one started becomes uncertain.
            clock: as for a new handle.

        Raises:
            LoopNotFound: it is not there, and there are no `params`.
            UnreadableSnapshot: what is stored is damaged, foreign, or of a newer format.
            Drift: what changed.
            StoreError: the store failed.

        """
        while True:
            parts = loaded(
                store,
                loop_id,
                tools=tools,
                params=params,
                config=config,
                context=context,
                on_drift=on_drift,
                take_over=take_over,
                clock=clock,
                is_async=False,
            )
            handle = cls._made(provider_for(provider, is_async=False), parts)
            try:
                handle._begin_stored()  # noqa: SLF001 - its own class
            except Conflict:
                if parts.rev:
                    raise
                continue  # somebody created it in this very moment
            return handle

    @classmethod
    def restore(  # noqa: PLR0913 - the parts of a loop that no snapshot can hold
        cls,
        snapshot: Mapping[str, JSON],
        provider: Any,
        *,
        tools: Iterable[Any] | ToolRegistry = (),
        params: Mapping[str, Any] | None = None,
        config: LoopConfig | None = None,
        context: LoopContext | ToolContext | None = None,
        store: Store | None = None,
        on_drift: str = "raise",
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """A loop from its snapshot, in this process or another. The next request has the very same bytes.

        Args:
            snapshot: what `snapshot()` returned.
            provider: as for a new handle.
            tools: as for a new handle.
            params: brings back what a snapshot leaves out (headers, timeouts, tokens); what else it holds is compared.
            config: None takes the stored limits. Callables are in no snapshot: give them again.
            context: as for a new handle; its depth is the stored one.
            store: where it is kept from now on, as a new loop there: two copies of one snapshot are two loops.
            on_drift: `raise` if tools, callables or parameters are others than they were; `accept` to go on with these.
            clock: as for a new handle.

        Raises:
            UnreadableSnapshot: it is damaged, foreign, or of a newer format.
            Drift: what changed.
            BadTool: two tools of one name.
            InvalidHistory: the API would refuse the history with these parameters.

        """
        parts = restored(
            snapshot,
            tools=tools,
            params=params,
            config=config,
            context=context,
            store=store,
            on_drift=on_drift,
            clock=clock,
            is_async=False,
        )
        return cls._made(provider_for(provider, is_async=False), parts)

    def flush(self) -> None:
        """Store what could not be stored before, and look at what others stored.

        Every call that says something or drives does so itself; this is for a program that only shows the loop.

        Raises:
            StoreError: the store still fails; nothing is lost.

        """
        self._take_edits("flush()")
        self._journal.commit()
        self._journal.refresh()

    def close(self) -> None:
        """Store what waits to be stored, and give the lease back. The handle stays usable."""
        try:
            self._take_edits("close()")
            self._journal.commit()
        finally:
            self._journal.bus.close()
            self._late()

    def __enter__(self) -> Self:
        """Return the handle; `__exit__` closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the handle. After an exception, a failing store is logged and not raised."""
        try:
            self.close()
        except ToolLoopError:
            if error[0] is None:
                raise
            LOG.exception("not everything is stored yet", extra={"loop_id": self.loop_id})

    def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller can act.

        Raises:
            IllegalCommand: a `Yielded` waits for a command, or another caller drives.
            InvalidHistory: the API would refuse the edited history; nothing was sent.
            Conflict: another driver has the stored loop.
            StoreError: the store failed; what happened is kept, and stored by the next call.

        """
        turn: Turn = exhaust(self._steps("next_turn()"))
        return turn

    @contextmanager
    def stream_turn(self) -> Iterator[TurnStream]:
        """Drive like `next_turn()`, and read what happens while it happens.

        `with handle.stream_turn() as stream:` gives a stream. Iterate it for the events of the turn, in order: those of
        `toolloop.events` that observers are told, and the pieces of the reply as they come in. Then `stream.turn` is
        what `next_turn()` would have returned. Nothing happens until the stream is read, and the turn never runs ahead
        of its reader. Who leaves before the end gives the request up: the loop is as it was before. A call that has
        started is left to the next turn.

        A provider without `stream` answers as a whole, and there are no pieces.

        Raises:
            CallerError, StoreError: while it is read, as `next_turn`.

        """
        unread = Unread(self._driver.notifier)
        stream = TurnStream(self._steps("stream_turn()", unread), unread, self._engine.timer)
        try:
            yield stream
        finally:
            stream.leave()

    def _steps(self, asked: str, unread: Unread | None = None) -> Generator[None, None, Turn]:
        """Return the steps of a turn, which know themselves: see `Driving`."""
        own: list[weakref.ref[Any]] = []
        steps = self._turning(asked, own, unread)
        own.append(weakref.ref(steps))
        return steps

    def _turning(self, asked: str, own: list[weakref.ref[Any]], unread: Unread | None) -> Generator[None, None, Turn]:
        self._driving.begin(own[0], asked=asked, state=type(self.state.root.phase).__name__)
        try:
            self._take_edits(asked)
            over = self._result_now()
            self._edits.taken()
            if over is not None:
                return over
            with nullcontext() if self._lease is None else self._lease.held(), self._read_by(unread):
                return self._turn() or (yield from self._driver.drive(self._turn))
        finally:
            self._late()

    def _result_now(self) -> Turn | None:
        """Return the terminal result; None: there is something to drive. Others may have given the command."""
        try:
            return self._result_at_hand()
        except IllegalCommand:
            if not self._journal.refresh():
                raise
            return self._result_at_hand()

    def run(self, ask: Callable[[Yielded], object] | None = None) -> Yielded | Completed | Error:
        """Keep going while nothing needs the caller.

        Args:
            ask: called with the `Yielded` when calls wait; it decides them through it. If all are decided then, the
                loop continues; else, and without `ask`, the waiting `Yielded` is returned.

        """
        while True:
            with nullcontext() if self._lease is None else self._lease.kept():
                turn = self._run_to_question()
            if not isinstance(turn, Yielded) or not turn.pending or ask is None:
                return turn
            ask(turn)
            self._journal.refresh()
            if self.pending_turn is turn and not self._goes_on(turn):
                return turn

    def _run_to_question(self) -> Turn:
        """Drive until calls wait, or the loop has ended. The lease stays from turn to turn."""
        while True:
            if isinstance(self.state.root.phase, Waiting):
                self._journal.refresh()
                self._tick()
            turn = self.pending_turn
            if turn is None:
                try:
                    result = self.next_turn()
                except IllegalCommand:
                    if self._driving.is_active or not isinstance(self.state.root.phase, Waiting):
                        raise
                    continue  # another process drove it to a wait in this very moment
                if not isinstance(result, Yielded):
                    return result
                turn = result
            self._tick()
            if not self._goes_on(turn):
                return turn
