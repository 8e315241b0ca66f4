"""The sync driver. It waits, fans out to threads, locks and records; it decides nothing.

It is a generator: where a reader reads the turn, each `yield` lets them hear what happened so far. Who wants no more
than the turn just runs it to its end. What is done side by side runs in threads, whose steps wait for the reader at the
same places.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, TypeVar

from toolloop.core.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.machine import under_way
from toolloop.core.values import Result
from toolloop.handle.bell import Bell
from toolloop.handle.calls import outcome, thread_of
from toolloop.handle.driving import Driving
from toolloop.handle.judging import ask_each
from toolloop.handle.streaming import close, exhaust
from toolloop.handle.tooling import Flight, Job
from toolloop.handle.turns import Completed, Error, Yielded

T = TypeVar("T")
Steps = Generator[None, None, T]
_APART = (SendRequest, RunCall)  # what can be done side by side


class SyncDriving(Driving):
    """The driver of `ToolLoopHandle`."""

    def _drive(self) -> Steps[Yielded | Completed | Error]:
        raised: Exception | None = None  # by a `stop_when`: what is under way comes to its end first, and is kept
        try:
            while True:
                self._bell.clear()  # before what rings is read, and looked at
                if self._outlet is not None:
                    yield
                effects = self._look() if raised is None else self._wind_up(raised)
                if not effects:
                    if self._calls_run():
                        # Not for ever: a Ctrl-C in the instant before the wait is seen only when it ends (CPython).
                        self._bell.wait(self._patience(0.5))
                    elif (result := self._result()) is not None:
                        return result
                elif apart := [effect for effect in effects if isinstance(effect, _APART)]:
                    yield from self._begin(apart, alone=len(effects) == 1 and self._is_alone())
                else:
                    try:
                        self._do_here(effects[0])
                    except Exception as error:  # noqa: BLE001 - it is raised once nothing is under way
                        raised = error
        finally:
            self._give_up_requests()

    def _look(self) -> tuple[Effect, ...]:
        """What is to be done now, once all that happened is stored, or may be stored with it."""
        self._expire()
        self._let_time_pass()
        if self._stored is not None:
            if self._rides():
                self._recorder.check()
            else:
                self._recorder.secure()
        if self._jobs:
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
        return self._limit_of_time() is None and not under_way(self._state)

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

    def _send(self, effect: SendRequest) -> Steps[None]:
        try:
            if (flight := self._take_request(effect.path)) is not None:
                self._recorder.secure()
                if self._outlet is not None:
                    yield
                yield from self._fly(flight)
        finally:
            self._give_up(effect.path)  # what the caller says counts from here on

    def _fly(self, flight: Flight) -> Steps[None]:
        if not self._is_asking(flight):
            return
        provider = flight.provider or self._provider
        try:
            with self._around(flight):
                if self._is_read(flight, provider):
                    reply = yield from self._read(flight, provider)
                else:
                    reply = provider.send(flight.request)
        except Exception as error:  # noqa: BLE001 - any failure of a provider is an Error result
            self._fault(flight, error)
        else:
            self._answer(flight, reply)

    def _read(self, flight: Flight, provider: Any) -> Steps[Any]:
        """A reply, piece by piece."""
        events = provider.stream(flight.request)
        try:
            for event in events:
                if self._hears(flight, event):
                    yield
                if not self._is_flying(flight):
                    break  # nobody waits for it any more
            return self._whole(flight, events)
        finally:
            close(events)

    def _run_alone(self, effect: RunCall) -> Steps[None]:
        """A call that runs alone runs in the caller's own thread, unless it may have to be left behind."""
        job = None
        try:
            job = self._start(effect)
            if job is None:
                return
            self._recorder.secure()
            if self._outlet is not None:
                yield
            if job.limit is not None:
                self._spawn(job)
            elif self._enter(job):
                self._came_back(job, outcome(job, self._settle))
        except BaseException:
            if job is not None and job.thread is None and job.entered:  # else nothing of it has happened
                self._cut(job)
            raise

    def _begin(self, effects: Sequence[SendRequest | RunCall], *, alone: bool) -> Steps[None]:
        """What is to be done alone is waited for right here."""
        if not alone:
            yield from self._begin_apart(effects)
        elif isinstance(effects[0], SendRequest):
            yield from self._send(effects[0])
        else:
            yield from self._run_alone(effects[0])

    def _begin_apart(self, effects: Iterable[SendRequest | RunCall]) -> Steps[None]:
        """What is done side by side is done in threads of its own."""
        begun = [
            self._take_request(effect.path) if isinstance(effect, SendRequest) else self._start(effect)
            for effect in effects
        ]
        self._recorder.secure()
        yield
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
            exhaust(self._fly(flight), None if self._outlet is None else self._outlet.wait)
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
