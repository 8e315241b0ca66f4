"""The sync handle."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from toolloop.core.errors import IllegalCommand
from toolloop.handle.by_hand import SyncByHand
from toolloop.handle.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig, LoopContext, check_parts
from toolloop.handle.failing import is_driven
from toolloop.handle.making import to_open
from toolloop.handle.streaming import Outlet, TurnStream, exhaust
from toolloop.handle.threads import Steps
from toolloop.handle.turns import Completed, Error, Yielded
from toolloop.providers import provider_for
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry


class ToolLoopHandle(SyncByHand):
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
        context = DEFAULT_CONTEXT if context is None else context
        check_parts(config, context, loop_id=loop_id, clock=clock)
        if config.has_async():
            raise TypeError("a callable of the config is async, and ToolLoopHandle is not: use AsyncToolLoopHandle")
        self._make_bell()
        self._open(
            provider_for(provider, is_async=False),
            params=params,
            tools=tools,
            config=config,
            context=context,
            loop_id=loop_id or uuid.uuid4().hex,
            clock=clock,
            store=store,
        )

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
        return cls._from_store(
            store,
            loop_id,
            provider,
            tools=tools,
            params=params,
            config=config,
            context=context,
            on_drift=on_drift,
            take_over=take_over,
            clock=clock,
        )

    def flush(self) -> None:
        """Store what could not be stored before, and look at what others stored.

        Every call that says something or drives does so itself; this is for a program that only shows the loop.

        Raises:
            StoreError: the store fails still; nothing is lost.

        """
        self._recorder.flush()
        self._recorder.refresh()

    def close(self) -> None:
        """Store what waits to be stored, and give the lease back. The handle stays usable."""
        try:
            self._recorder.flush()
        finally:
            self._recorder.close()
            self._let_go()

    def __enter__(self) -> Self:
        """Open what the tools open: each context manager once, in the order of the tools."""
        self._refuse_open()
        opening = ExitStack()
        try:
            for each in to_open(self._tools):
                opening.enter_context(each)
        except BaseException:
            opening.__exit__(*sys.exc_info())  # one of them may swallow the exception, and we do not
            raise
        self._opened = opening
        return self

    def __exit__(self, *error: object) -> None:
        """Close what the tools opened, the last one first, and the loop's dealings with its store."""
        opened, self._opened = self._opened, None
        try:
            if opened is not None:
                opened.__exit__(*error)
        finally:
            if error[0] is None:
                self.close()
            else:
                self._close_quietly()
                self._recorder.close()

    def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller has a say.

        Raises:
            IllegalCommand: a `Yielded` waits for a command, or another caller drives.
            InvalidHistory: the API would refuse the edited history; nothing was sent.
            Conflict: another driver has the stored loop.
            StoreError: the store failed; what happened is kept, and stored by the next call.

        """
        return exhaust(self._turning("next_turn()"))

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
        outlet = Outlet(self._bell, self._watch)
        stream = TurnStream(self._turning("stream_turn()", outlet), outlet)
        try:
            yield stream
        finally:
            stream._close()  # noqa: SLF001 - a stream is its handle's own

    def _turning(self, asked: str, outlet: Outlet | None = None) -> Steps[Yielded | Completed | Error]:
        try:
            # Written out, and no context manager: one that is a generator is dear for each turn, and a Ctrl-C at the
            # beginning of an `__exit__` in Python would leave the lock behind.
            if not self._driver.acquire(blocking=False):
                raise is_driven(self._state, asked)
            try:
                self._read_by(outlet)
                return self._say(self._nothing_to_drive) or (yield from self._leased_drive())
            finally:
                try:
                    self._read_by(None)
                finally:
                    self._driver.release()
        finally:
            self._store_ends()  # of a call that came to its end in the very moment in which driving did

    def _leased_drive(self) -> Steps[Yielded | Completed | Error]:
        """Drive, with the lease of a stored loop in hand."""
        try:
            self._take_lease()
            turn = self._ready_to_drive() or (yield from self._drive())
            self._recorder.secure()
        except BaseException:
            self._flush_quietly()
            raise
        finally:
            self._end_lease()
        return turn

    def run(self, ask: Callable[[Yielded], object] | None = None) -> Yielded | Completed | Error:
        """Keep going while nothing needs the caller.

        Args:
            ask: called with the `Yielded` when calls wait; it decides them through it. If all are decided then, the
                loop goes on; else, and without `ask`, the waiting `Yielded` is returned.

        """
        with self._staying():
            while True:
                if self._waits():
                    self._recorder.refresh()
                    self._tick()
                turn = self.pending_turn
                if turn is None:
                    try:
                        result = self.next_turn()
                    except IllegalCommand:
                        if self._driver.locked() or not self._waits():
                            raise
                        continue  # somebody else drove it to a wait in this very moment
                    if not isinstance(result, Yielded):
                        return result
                    turn = result
                if turn.pending and ask is not None:
                    self._pause()
                    ask(turn)
                    self._recorder.refresh()
                    self._stays = True
                if not self._goes_on(turn):
                    return turn

    @contextmanager
    def _staying(self) -> Iterator[None]:
        """From turn to turn the lease stays, until the caller is asked or this is over."""
        self._stays = True
        try:
            yield
        finally:
            self._pause()
