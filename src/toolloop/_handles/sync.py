"""The sync handle."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self

from toolloop._drivers.streaming import TurnStream, Unread
from toolloop._drivers.sync_driver import SyncDriver
from toolloop._engine.operations import exhaust
from toolloop._engine.questions import perform_each
from toolloop._handles.forking import Fork
from toolloop._handles.handle import HandleBase
from toolloop._handles.opening import Here, Opening
from toolloop._handles.turns import check_ask
from toolloop._interface.config import LoopConfig
from toolloop._interface.decisions import name_of
from toolloop._interface.results import Completed, Error, Turn, Yielded
from toolloop._public import set_module
from toolloop.errors import ToolLoopError
from toolloop.machine.record.loop import Waiting
from toolloop.machine.values.names import Person
from toolloop.providers import Provider
from toolloop.providers.anthropic import SdkClient
from toolloop.stores.protocol import Store
from toolloop.tools import Context
from toolloop.tools.registry import Tools


@set_module("toolloop")
class ToolLoopHandle(HandleBase[Provider | SdkClient, SyncDriver]):
    """A tool-use loop that its caller drives, turn by turn.

    Args:
        provider: an `anthropic.Anthropic` client, or anything that implements `Provider`.
        params: the keyword arguments of `client.messages.create`, `messages` included.
        tools: functions made with `@tool`, objects made with `anthropic.beta_tool`, or a `ToolRegistry`.
        config: limits and callables.
        context: an object for the tools, and the depth. Inside a tool, pass its `ToolContext`.
        store: the store of the loop. Each event is stored before any action that it allows. The first call that drives
            the loop or gives a command creates the loop in the store.
        loop_id: the id of the loop; a random one by default.
        clock: returns seconds since the epoch, for the record and for deadlines, if the store has no clock (`now`).

    Raises:
        InvalidHistory: the API would refuse the messages.
        BadTool: two tools have the same name, a tool is async, or an object is not a tool.
        TypeError: a parameter is not JSON, or the provider is not a provider.
        ValueError: a parameter is missing, or cannot be set by the caller.

    """

    _driver_class: ClassVar[type[SyncDriver]] = SyncDriver

    @classmethod
    def open(  # noqa: PLR0913 - the parts of a loop that are not stored
        cls,
        store: Store,
        loop_id: str,
        provider: Provider | SdkClient,
        *,
        tools: Tools = (),
        params: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
        config: LoopConfig | None = None,
        context: Context | None = None,
        on_drift: Literal["raise", "accept", "strict"] = "raise",
        take_over: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Load a loop from a store, or create it there. Use it in a `with` statement, which closes it.

        Any number of processes may open one loop and decide its calls. One of them drives it; the others get
        `Conflict` meanwhile. The calls that a dead driver had started are known: repeatable tools run again, and other
        calls wait as `uncertain`.

        Args:
            store: the store of the loops.
            loop_id: the id of the loop.
            provider: as for a new handle.
            tools: as for a new handle.
            params: the parameters of a new loop. For an existing loop, they supply those that are not stored (headers,
                timeouts, tokens). Its messages are ignored, and the others are compared.
            metadata: for a new loop: strings that `store.list()` shows and filters by, such as an owner or a title; at
                most 4 kB. It is ignored for an existing loop.
            config: None keeps the stored limits. A store has no callables, so pass them again.
            context: as for a new handle; its depth is the stored one.
            on_drift: how to handle changes since the loop was stored, checked when you drive it. `raise` refuses
                changes that may let a gated call run (a removed approval, another effect), and another tool for an
                open call; it adopts other changes, with an event. `accept` adopts all changes, `strict` refuses all.
                After `accept`, calls that have not started wait for approval again if `raise` refuses the change of
                their tool.
            take_over: drive it even if another driver holds the lease. Calls that it started become uncertain.
            clock: as for a new handle.

        Raises:
            LoopNotFound: it does not exist, and there are no `params`.
            UnreadableSnapshot: the stored loop is damaged, not from toolloop, or in a newer format.
            StoreError: the store failed.

        """
        here = Here.of(provider, tools, config, context, clock, is_async=False)
        opening = Opening(here, store, loop_id, params, metadata, on_drift, take_over)
        return cls._load(opening)

    def flush(self) -> None:
        """Store everything pending, and read the events that others stored.

        Methods that drive the loop or give a command do this themselves. Use it in a program that only shows the loop.

        Raises:
            StoreError: the store still fails; nothing is lost.

        """
        self._parts.issuer.take_edits("flush()")
        self._catch_up()

    def _catch_up(self) -> None:
        self._parts.journal.commit()
        self._parts.journal.refresh()
        self._parts.journal.tell()

    def fork(
        self,
        loop_id: str | None = None,
        *,
        at: int | str | None = None,
        metadata: Mapping[str, str] | None = None,
        by: str | Person | None = None,
    ) -> Self:
        """Return an independent copy: as the loop is now, or as it was. It is stored if the loop is.

        Started calls are uncertain in it, open calls wait for a decision again, and it has no grants. The loop itself
        is unchanged.

        Args:
            loop_id: the id of the copy; a random one by default.
            at: an iteration: the loop after its round closed, or after its reply if that made no calls. Or the id of a
                message of a user, as in `view(messages=True)`: the loop just before it, so that you can say it
                differently. Parameters, system prompt, tools and limits are those of then, and its usage is zero. It
                is read from the journal, also from before a compaction. None: as it is now, with its usage.
            metadata: for a stored copy; None means that of the loop.
            by: who does it, for the record.

        Raises:
            IllegalCommand: the loop has no such point, `at` is given and the loop has no store, or it is nested too
                deep to run.
            Conflict: a loop with this id exists.
            StoreError: the store failed.

        """
        wanted = Fork.of(loop_id, at, metadata, by, "handle")
        self._parts.issuer.take_edits("fork()")
        return self._fork(wanted)

    def set_metadata(self, by: str | Person | None = None, **changes: str | None) -> None:
        """Change metadata of the stored loop, such as a title: `set_metadata(title="Refund", draft=None)`.

        It is in the trail, with the values before and after. The other keys stay.

        Args:
            by: who does it, for the record.
            changes: the new values by key; None removes one. All keys and values have at most 4 kB.

        Raises:
            IllegalCommand: the loop has no store.
            TypeError, ValueError: it is not metadata, or too much.

        """
        self._change_metadata(changes, self._read_metadata(), name_of(by))

    def close(self) -> None:
        """Store everything pending, and give the lease back. The handle stays usable.

        Raises:
            CallerError: an edit of the history can no longer be applied. The lease was given back.
            StoreError: the store failed; nothing is lost.

        """
        try:
            self._parts.issuer.take_edits("close()")
            self._parts.journal.commit()
        finally:
            self._parts.journal.bus.close()
            self._parts.late()

    def __enter__(self) -> Self:
        """Return the handle; `__exit__` closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the handle. After another exception, a failure of the store is logged, not raised."""
        try:
            self.close()
        except ToolLoopError as unstored:
            self._report_unstored(unstored, error[0])

    def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where you can act.

        Raises:
            IllegalCommand: a `Yielded` waits for a command, or another caller drives.
            Drift: the configuration differs from when the loop was stored, and may not be used.
            InvalidHistory: the API would refuse the edited history; nothing was sent.
            Conflict: another driver holds the stored loop.
            StoreError: the store failed. The events are kept, and the next call stores them.

        """
        try:
            turn: Turn = exhaust(self._parts.driving.make_steps(self._drive_turn, "next_turn()"))
            return turn
        finally:
            self._parts.late()

    def stream_turn(self) -> TurnStream:
        """Drive like `next_turn()`, and stream the events as they happen.

        Use `with handle.stream_turn() as stream:`, and iterate the stream for the events of the turn, in order: the
        events of `toolloop.events` that observers get, and the pieces of the reply. Then `stream.turn` is the result
        that `next_turn()` would have returned. The turn begins with the first read, and never runs ahead of its
        reader. Entering the `with` statement takes the lease, and raises what is known before the first event.

        Leaving the stream early gives the request up, and the loop is as it was before. A call that has started is left
        to the next turn. If a generator that contains the `with` statement is closed, the lease of a stored loop is
        given back within seconds.

        With a provider without `stream`, the reply arrives as a whole, without pieces.

        Raises:
            CallerError, StoreError: as for `next_turn`, by the `with` statement, or later during iteration.

        """
        unread = Unread(self._parts.driver.notifier)
        steps = self._parts.driving.make_steps(self._drive_turn, "stream_turn()", unread)
        return TurnStream(steps, unread, self._parts.engine.timer, self._parts.late)

    def _drive_turn(
        self, own: list[weakref.ref[Any]], asked: str, unread: Unread | None = None
    ) -> Generator[None, None, Turn]:
        """Drive one turn. `own`: see `Driving`."""
        parts, turns = self._parts, self._parts.turns
        parts.driving.begin(own, asked=asked)
        with parts.driving.turn(unread):
            if (edits := parts.issuer.edits).working is not None:
                parts.issuer.take_edits(asked)
            if isinstance(parts.journal.state.root.phase, Waiting):
                self._catch_up()
            over = turns.find_end()
            if edits.working is not None:
                edits.invalidate()
            if over is not None:
                return turns.hand_over(over)
            if parts.lease is not None:
                parts.lease.acquire()
            turn = turns.find_current()
            if turn is None and unread is not None:
                parts.engine.make_woken()  # raises `Drift` when the stream is entered
                yield
            if turn is not None:
                return turns.hand_over(turn)
            steps: Generator[None, None, Turn] = parts.driver.drive(turns.find_turn_at_rest, unread)
            return turns.hand_over((yield from steps))

    def run(
        self, ask: Callable[[Yielded], object] | None = None, *, until: Callable[[], bool] | None = None
    ) -> Yielded | Completed | Error:
        """Drive turns until the caller is needed.

        Args:
            ask: called with the `Yielded` when calls wait, to decide them. If all are decided then, the loop continues.
                Otherwise, or without `ask`, the waiting `Yielded` is returned.
            until: called after each turn. Once it returns True, the `Yielded` is returned even if no call waits, so
                that a program can end. Any driver may continue the loop: a store lists it as `runnable`.

        Raises:
            TypeError: `ask` cannot be called.

        """
        check_ask(ask, "run()")
        try:
            turn: Turn = exhaust(self._run_steps(ask, until=until))
            return turn
        finally:
            self._parts.late()

    def stream(self, ask: Callable[[Yielded], object] | None = None) -> TurnStream:
        """Drive like `run()`, over any number of turns, and stream the events as they happen.

        Use `with handle.stream() as stream:`. At the end, `stream.turn` is the result that `run()` would have returned.
        It is that at once if nothing can be driven, because calls wait or the loop has ended. See `stream_turn()`.

        Args:
            ask: as for `run()`. If calls wait already, it is called when the stream is entered.

        """
        check_ask(ask, "stream()")
        unread = Unread(self._parts.driver.notifier)
        return TurnStream(self._run_steps(ask, unread), unread, self._parts.engine.timer, self._parts.late)

    def _run_steps(
        self,
        ask: Callable[[Yielded], object] | None,
        unread: Unread | None = None,
        until: Callable[[], bool] | None = None,
    ) -> Generator[None, None, Turn]:
        """Drive like `run()`. At each step, the reader of a stream can read."""
        while True:
            next_turn = partial(self._parts.driving.make_steps, self._drive_turn, "run()", unread)
            questions = self._parts.turns.make_questions(until, next_turn, self._catch_up)
            self._parts.engine.goes_on = unread is None and self._parts.lease is not None
            known = self._parts.journal.lost
            try:
                turn = yield from perform_each(questions)
            finally:
                self._parts.engine.goes_on = False
                questions.close()
            self._parts.late()
            self._parts.turns.refuse_loss(known)
            if not isinstance(turn, Yielded) or not turn.pending or ask is None:
                return turn
            ask(turn)
            self._catch_up()
            if self.pending_turn is turn and not self._parts.issuer.continue_turn(turn):
                return turn
