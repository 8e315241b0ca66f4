"""The sync handle. Its driver waits, fans out to threads, locks and records; it decides nothing."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from toolloop.core.effects import Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import IllegalCommand
from toolloop.core.states import Running
from toolloop.core.values import Result
from toolloop.handle.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig, LoopContext, check_parts
from toolloop.handle.driving import Driving, outcome
from toolloop.handle.making import to_open
from toolloop.handle.tooling import Job
from toolloop.handle.turns import Completed, Error, Yielded
from toolloop.providers import provider_for
from toolloop.stores.protocol import Store
from toolloop.tools import ToolContext, ToolRegistry


class ToolLoopHandle(Driving):
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
        while True:
            effects = self._look()
            match effects:
                case (SendRequest(),):
                    self._send()
                case (Judge(),):
                    if (questions := self._judging()) is not None:
                        self._judged(ask_each(questions))
                case (EndTurn(),):
                    self._turn_ended()
                case (RunCall() as only,) if not self._calls_run():
                    self._run_alone(only.call_id)
                case (RunCall(), *_):
                    self._run_in_threads([effect.call_id for effect in effects if isinstance(effect, RunCall)])
                case _ if isinstance(self._state, Running):
                    # Not for ever: a Ctrl-C in the instant before the wait is seen only when it ends (CPython).
                    self._bell.wait(self._patience(0.5))
                case _:
                    if (result := self._result()) is not None:
                        return result

    def _look(self) -> tuple[Effect, ...]:
        """What is to be done now, once all that happened is stored."""
        self._bell.clear()
        self._expire()
        self._recorder.secure()
        for job in self._unlaunched():
            self._spawn(job)
        return self._effects()

    def _send(self) -> None:
        with self._flight() as request:
            if request is None:
                return
            self._recorder.secure()
            if not self._is_asking():
                return
            try:
                reply = self._provider.send(request)
            except Exception as error:  # noqa: BLE001 - any failure of a provider is an Error result
                self._fault(error)
            else:
                self._answer(reply)

    def _run_alone(self, call_id: str) -> None:
        """A call that runs alone runs in the caller's own thread, unless it may have to be left behind."""
        job = None
        try:
            job = self._start(call_id)
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

    def _run_in_threads(self, call_ids: Iterable[str]) -> None:
        """Calls that run side by side run in threads of their own."""
        jobs = [self._start(call_id) for call_id in call_ids]
        self._recorder.secure()
        for job in jobs:
            if job is not None:
                self._spawn(job)

    def _filter(self, job: Job, result: Result) -> None:
        self._end(job, ask_each(self._filtering(job, result)))

    def _make_bell(self) -> None:
        self._bell = threading.Event()

    def _ring(self) -> None:
        self._bell.set()


def ask_each(questions: Generator[Any, Any, Any]) -> Any:
    """Answer each question of a generator by calling it."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            function, arguments = questions.send(answer) if error is None else questions.throw(error)
        except StopIteration as done:
            return done.value
        except RuntimeError as wrapped:
            if error is not None and wrapped.__cause__ is error:
                raise error from None  # Python wraps a StopIteration that passes through a generator
            raise
        answer, error = None, None
        try:
            answer = function(*arguments)
        except Exception as raised:  # noqa: BLE001 - the generator knows what a failing policy means
            error = raised
