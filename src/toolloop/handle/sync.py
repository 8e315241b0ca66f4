"""The sync handle. Its driver waits, fans out to threads, locks and records; it decides nothing."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from toolloop.core import limits
from toolloop.core.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import IllegalCommand
from toolloop.core.machine import under_way
from toolloop.core.values import Result
from toolloop.handle.bell import Bell
from toolloop.handle.by_hand import SyncByHand
from toolloop.handle.calls import outcome, thread_of
from toolloop.handle.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig, LoopContext, check_parts
from toolloop.handle.judging import ask_each
from toolloop.handle.making import to_open
from toolloop.handle.tooling import Flight, Job
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

    def next_turn(self) -> Yielded | Completed | Error:
        """Drive to the next point where the caller has a say.

        Raises:
            IllegalCommand: a `Yielded` waits for a command, or another caller drives.
            InvalidHistory: the API would refuse the edited history; nothing was sent.
            Conflict: another driver has the stored loop.
            StoreError: the store failed; what happened is kept, and stored by the next call.

        """
        try:
            with self._driving("next_turn()"):
                if (over := self._say(self._nothing_to_drive)) is not None:
                    return over
                with self._holding_the_lease():
                    return self._ready_to_drive() or self._drive()
        finally:
            self._store_ends()  # of a call that came to its end in the very moment in which driving did

    @contextmanager
    def _holding_the_lease(self) -> Iterator[None]:
        try:
            self._take_lease()
            yield
            self._recorder.secure()
        except BaseException:
            self._flush_quietly()
            raise
        finally:
            self._end_lease()

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

    def _drive(self) -> Yielded | Completed | Error:
        raised: Exception | None = None  # by a `stop_when`: what is under way comes to its end first, and is kept
        try:
            while True:
                effects = self._look() if raised is None else self._wind_up(raised)
                apart = [effect for effect in effects if isinstance(effect, SendRequest | RunCall)]
                match effects:
                    case (SendRequest() as only,) if self._is_alone():
                        self._send(only)
                    case (RunCall() as only,) if self._is_alone():
                        self._run_alone(only)
                    case _ if apart:
                        self._begin_apart(apart)
                    case (first, *_):
                        try:
                            self._do_here(first)
                        except Exception as error:  # noqa: BLE001 - it is raised once nothing is under way
                            raised = error
                    case _ if self._calls_run():
                        # Not for ever: a Ctrl-C in the instant before the wait is seen only when it ends (CPython).
                        self._bell.wait(self._patience(0.5))
                    case _:
                        if (result := self._result()) is not None:
                            return result
        finally:
            self._give_up_requests()

    def _look(self) -> tuple[Effect, ...]:
        """What is to be done now, once all that happened is stored."""
        self._bell.clear()
        self._expire()
        self._let_time_pass()
        self._recorder.secure()
        for job in self._unlaunched():
            self._spawn(job)
        return self._effects()

    def _wind_up(self, raised: Exception) -> tuple[Effect, ...]:
        """What is to be done until nothing is under way; then this is raised."""
        effects = tuple(effect for effect in self._look() if isinstance(effect, CancelRequest))
        if not effects and not self._calls_run():
            raise raised
        return effects

    def _is_alone(self) -> bool:
        """Whether what is to be done can be waited for right here: nothing else runs, and no time is to run out."""
        return not under_way(self._state) and limits.time_left(self._state) is None

    def _do_here(self, effect: Effect) -> None:
        match effect:
            case Judge():
                if (questions := self._judging(effect)) is not None:
                    self._judged(effect, ask_each(questions))
            case Conclude():
                if (asked := self._concluding(effect)) is not None:
                    self._concluded(effect, ask_each(asked))
            case CancelRequest():
                self._give_up(effect.path)
            case EndTurn():
                self._turn_ended(effect)

    def _send(self, effect: SendRequest) -> None:
        with self._flight(effect.path) as flight:
            if flight is not None:
                self._recorder.secure()
                self._fly(flight)

    def _fly(self, flight: Flight) -> None:
        if not self._is_asking(flight):
            return
        try:
            reply = (flight.provider or self._provider).send(flight.request)
        except Exception as error:  # noqa: BLE001 - any failure of a provider is an Error result
            self._fault(flight, error)
        else:
            self._answer(flight, reply)

    def _run_alone(self, effect: RunCall) -> None:
        """A call that runs alone runs in the caller's own thread, unless it may have to be left behind."""
        job = None
        try:
            job = self._start(effect)
            if job is None:
                return
            self._recorder.secure()
            if job.limit is not None:
                self._spawn(job)
            elif self._enter(job):
                self._came_back(job, outcome(job, self._settle))
        except BaseException:
            if job is not None and job.thread is None and job.entered:  # else nothing of it has happened
                self._cut(job)
            raise

    def _begin_apart(self, effects: Iterable[SendRequest | RunCall]) -> None:
        """What is done side by side is done in threads of its own."""
        begun = [
            self._take_request(effect.path) if isinstance(effect, SendRequest) else self._start(effect)
            for effect in effects
        ]
        self._recorder.secure()
        for each in begun:
            if isinstance(each, Flight):
                self._send_apart(each)
            elif each is not None:
                self._spawn(each)

    def _send_apart(self, flight: Flight) -> None:
        try:
            thread_of("/".join(("toolloop-request", *flight.path)), self._fly_apart, flight).start()
        except RuntimeError as error:  # no more threads are to be had
            self._fault(flight, error)

    def _fly_apart(self, flight: Flight) -> None:
        try:
            self._fly(flight)
        except BaseException as error:  # noqa: BLE001 - an exit or interrupt is the driver's to raise
            with self._recorder.lock:
                if self._is_flying(flight):
                    self._abort = error
        finally:
            self._drop(flight)
            self._ring()

    def _filter(self, job: Job, result: Result) -> None:
        self._end(job, ask_each(self._filtering(job, result)))

    def _make_bell(self) -> None:
        self._bell = Bell()

    def _ring(self) -> None:
        self._bell.ring()
