"""What both drivers do about model requests and about time: the pure halves.

A request of the outermost loop that has no limit of time is waited for where it is sent. Any other one may have to be
given up before its reply comes, or goes out beside others: then nobody waits for it but the one who sends it, and what
becomes of it counts as long as its loop still waits for this very request.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from math import inf
from typing import Any

from attrs import evolve

from toolloop.core import events as ev
from toolloop.core import limits
from toolloop.core.effects import Effect, SendRequest
from toolloop.core.errors import IllegalCommand, InvalidHistory, ModelError, OutsideError, ProtocolError
from toolloop.core.jsontext import JSON, decode
from toolloop.core.machine import is_due, outstanding
from toolloop.core.replies import read_reply
from toolloop.core.states import Ready, Requesting, State
from toolloop.core.stops import STOP_REASONS
from toolloop.core.tree import loops
from toolloop.handle.beginning import all_params
from toolloop.handle.compacting import Compacting
from toolloop.handle.decisions import refuse_invalid
from toolloop.handle.editing import outgoing, refuse_lost_pause
from toolloop.handle.failing import failure_of, told
from toolloop.handle.kits import Kit, driven_at
from toolloop.handle.observing import NOTHING
from toolloop.handle.recording import LOG, Path
from toolloop.handle.streaming import AsyncOutlet, Outlet, delta_of
from toolloop.handle.tooling import Flight
from toolloop.handle.watching import RequestStarted
from toolloop.providers.accumulate import Accumulator
from toolloop.providers.protocol import Reply, Request
from toolloop.providers.replies import built_reply


class Flying(Compacting):
    """Requests and time."""

    _outlet: Any = None  # where a reader hears of the turn that is streamed: an `Outlet`, or an `AsyncOutlet`

    # What was to be done in a state, and in how many seconds a loop has used up its time: nobody looks twice.
    _found: tuple[State, tuple[Effect, ...], float | None] | None = None

    # --- where things stand ---

    def _to_do(self) -> tuple[Effect, ...]:
        """What is to be done now. See `outstanding`."""
        found = self._found
        if found is None or found[0] is not self._recorder.state:
            found = self._look_up()
        return found[1]

    def _limit_of_time(self) -> float | None:
        """In how many active seconds of the state a loop has used up its time; None: none ever does."""
        found = self._found
        if found is None or found[0] is not self._recorder.state:
            found = self._look_up()
        return found[2]

    def _look_up(self) -> tuple[State, tuple[Effect, ...], float | None]:
        state = self._recorder.state
        self._found = found = state, outstanding(state), limits.time_left(state)
        return found

    def _at(self, path: Path) -> State | None:
        """The loop at a path while it is being driven; None where it is no more, or a loop above it stands still."""
        return driven_at(self._recorder.state, path) if path else self._recorder.state

    def _ready_kit(self, path: Path) -> Kit | None:
        """The kit of a loop that is to do something; None if that is not to be done any more.

        A loop whose tool is gone is lost with the call it is in. One that has other tools here than it fell asleep with
        wakes up with these first.
        """
        for depth in range(1, len(path) + 1):
            kit = self._kit(path[:depth])
            if kit is None:
                if self._at(path[:depth]) is not None:
                    self._record(ev.Cancelled(path[depth - 1], at=self._recorder.now(), path=path[: depth - 1]))
                return None
        loop, kit = self._at(path), self._kit(path)
        if kit is None or loop is None or not kit.is_new:
            return kit
        setup = kit.changes(loop.ledger.setup)
        if setup is not None:
            self._record(ev.Woken(setup, driver=self._owner, at=self._recorder.now(), path=path))
        kit.is_new, kit.is_unjudged = False, kit.is_unjudged or setup is not None
        return kit if setup is None else None

    # --- time ---

    def _lap(self) -> float:
        """Active seconds since the last event; none pass while nobody drives."""
        return self._watch.lap() if self._driver.locked() else 0.0

    def _time_left(self) -> float:
        """How many seconds may pass until a loop of the tree has used up its time."""
        left = self._limit_of_time()
        return inf if left is None else max(0.0, left - self._watch.so_far())

    def _lap_in_time(self) -> float | None:
        """The seconds that go with what begins now. None: a loop has used up its time with them, and that is said."""
        left, seconds = self._limit_of_time(), self._lap()
        if left is None or seconds < left:
            return seconds
        self._record(ev.Ticked(at=self._recorder.now(), seconds=seconds))
        return None

    def _let_time_pass(self) -> None:
        """Say so when a loop has used up its time: then there is something to be done about it."""
        if self._limit_of_time() is None:
            return
        with self._recorder.lock:
            if self._time_left() == 0.0:
                self._record(ev.Ticked(at=self._recorder.now(), seconds=self._lap()))

    def _let_pass(self, now: float) -> bool:
        """Whether time alone changes what is to be done by now; then that is recorded, and it is to be looked at anew.

        What is done next is done at that very moment, so that time cannot come between.
        """
        if not is_due(self._state, now):
            return False
        self._record(ev.Ticked(at=now))
        return True

    # --- requests ---

    def _take_request(self, path: Path) -> Flight | None:
        """The request to send, recorded as under way."""
        problem = self._fetch_secrets(path) if path else None
        with self._recorder.lock:
            kit, loop = self._ready_kit(path), self._at(path)
            if kit is None or not isinstance(loop, Ready) or SendRequest(path) not in self._to_do():
                return None
            flight = None
            if problem is None:
                try:
                    first = self._compact_first(kit, loop, path)
                    if first is None:
                        return None
                    flight = first if isinstance(first, Flight) else Flight(path, self._request_of(kit, first, path))
                except (InvalidHistory, IllegalCommand) as error:
                    if not path:
                        raise
                    problem = ModelError(str(error))  # nobody can edit the history of a loop inside a call
            is_summary = flight is not None and flight.wanted is not None
            requested = ev.Requested(summary=is_summary, at=self._recorder.now(), path=path)
            if flight is None:
                self._record(requested)
                self._failed(path, problem or ModelError("there is no request"), 0.0)
                return None
            self._flights[path] = flight
            self._record(requested)
            flight.recorded = None if self._stored is None else self._stored.staged(requested)
            return flight

    def _fetch_secrets(self, path: Path) -> ModelError | None:
        """Have at hand what no journal holds of a loop's parameters. This may run code of the caller's."""
        kit = self._kit(path)
        try:
            if kit is not None:
                kit.fetch_secrets()
        except Exception as error:  # noqa: BLE001 - code of the caller's may raise anything
            what = f"the params of the sub_loop could not be had again: {told(error)}"
            problem = ModelError(what, retryable=True)
            problem.__cause__ = error
            return problem
        return None

    def _request_of(self, kit: Kit, loop: Ready, path: Path) -> Request:
        """The request of a loop.

        Raises:
            InvalidHistory: the API would refuse it.
            IllegalCommand: it goes on with a pause that lost what it is bound to.

        """
        ledger = loop.ledger
        refuse_lost_pause(loop, asked="next_turn()")
        request = kit.requests.make(
            ledger.setup.params,
            ledger.messages,
            ledger.container,
            tail=loop.tail,
            unbound=ledger.unbound,
        )
        if kit.requests.may_add_up() or kit.is_unjudged:  # over rounds that were each judged by themselves
            texts = outgoing(loop, list(ledger.messages))
            if path:
                refuse_invalid(texts, all_params(decode(ledger.setup.params), kit.tools), asked="next_turn()")
            else:
                self._refuse(texts, "next_turn()")
            kit.requests.passed()
            kit.is_unjudged = False
        return request

    # --- replies that are read piece by piece ---

    def _read_by(self, outlet: Outlet | AsyncOutlet | None) -> None:
        """From here on a turn is read through an outlet, or not at all."""
        self._outlet = outlet
        self._recorder.reader = None if outlet is None else outlet.tell
        self._watch.resume()  # whoever read the turn may have left at its last event

    def _around(self, flight: Flight) -> AbstractContextManager[object]:
        """What observers want around a request."""
        if not self._kits.audience(flight.path):
            return NOTHING
        loop = self._at(flight.path)
        iteration = 1 if loop is None else loop.ledger.iterations + 1
        return self._recorder.around(RequestStarted(iteration, summary=flight.wanted is not None, path=flight.path))

    def _is_read(self, flight: Flight, provider: Any) -> bool:
        """Whether the reply to a request is to be read piece by piece."""
        return (
            self._recorder.reader is not None and flight.wanted is None and callable(getattr(provider, "stream", None))
        )

    def _hears(self, flight: Flight, event: Mapping[str, JSON]) -> bool:
        """Take an event of a reply's stream. Whether there is something to tell the reader."""
        if flight.read is None:
            flight.read = Accumulator()
        piece = flight.read.add(event)
        if piece is None:
            return False
        with self._recorder.lock:
            loop = self._at(flight.path)
            if loop is None or not self._is_flying(flight):
                return False
            self._recorder.tell(delta_of(piece, loop.ledger.iterations + 1, flight.path))
        return True

    def _whole(self, flight: Flight, events: object) -> Reply:
        """The reply that was read.

        Raises:
            ProtocolError: it is not complete, or makes no sense.

        """
        read = Accumulator() if flight.read is None else flight.read
        return built_reply(read.message(), getattr(events, "request_id", None))

    def _is_flying(self, flight: Flight) -> bool:
        """Whether the loop waits for the reply to this very request."""
        return self._flights.get(flight.path) is flight and isinstance(self._at(flight.path), Requesting)

    def _is_asking(self, flight: Flight) -> bool:
        """Whether the very request that was recorded is still to be sent: somebody else may have been first."""
        if self._stored is not None and (flight.recorded is None or not flight.recorded.stored):
            return False
        return self._is_flying(flight)

    def _answer(self, flight: Flight, reply: Any) -> None:
        with self._recorder.lock:
            if not self._lands(flight):
                return
            took = round(time.monotonic() - flight.begun, 6)
            if flight.wanted is not None:
                self._summed(flight, reply, took)
            else:
                self._answered(flight, reply, self._lap(), took if flight.path else 0.0)

    def _fault(self, flight: Flight, error: Exception) -> None:
        """A provider raised. Whatever it was, the outside world failed, and the loop is as it was before."""
        if not isinstance(error, OutsideError):
            wrapped = ModelError(f"the provider raised {told(error)}")
            wrapped.__cause__ = error
            error = wrapped
        error = _with_text(error, flight)
        with self._recorder.lock:
            if not self._lands(flight):
                return
            if flight.wanted is not None:
                self._summed(flight, error, 0.0)
            else:
                self._failed(flight.path, error, self._lap())

    def _summed(self, flight: Flight, came: Any, took: float) -> None:
        """A summary was asked for: record what came of it."""
        if (loop := self._at(flight.path)) is not None:
            event = self._summed_up(loop.ledger, flight.wanted, came, took)
            self._record(evolve(event, seconds=self._lap(), path=flight.path))

    def _lands(self, flight: Flight) -> bool:
        """A request is over. Whether its loop still waited for it."""
        if not self._is_flying(flight):
            extra = {"loop_id": self.loop_id, "path": "/".join(flight.path)}
            LOG.warning("a model request ended too late to count", extra=extra)
            return False
        del self._flights[flight.path]
        return True

    def _answered(self, flight: Flight, reply: Mapping[str, JSON], seconds: float, took: float) -> None:
        """A request was answered: record it. `took`: how long it took, if other things were under way beside it."""
        try:
            read = read_reply(reply, text=getattr(reply, "text", None), request_id=getattr(reply, "request_id", None))
        except ProtocolError as error:
            self._failed(flight.path, _with_text(error, flight), seconds)
            return
        if read.stop_reason is not None and read.stop_reason not in STOP_REASONS:
            LOG.warning(
                "the stop reason %r is unknown: the loop ends, and nothing runs",
                read.stop_reason,
                extra={"loop_id": self.loop_id},
            )
        self._record(ev.Replied(read, took, at=self._recorder.now(), seconds=seconds, path=flight.path))

    def _failed(self, path: Path, error: Exception, seconds: float) -> None:
        """A request failed: record it."""
        self._live_errors[path] = error
        self._record(ev.RequestFailed(failure_of(error), at=self._recorder.now(), seconds=seconds, path=path))

    def _give_up(self, path: Path) -> None:
        """Nobody waits any more for the reply to a request, if that is still under way."""
        with self._recorder.lock:
            flight = self._flights.pop(path, None)
            if flight is not None:
                flight.cancel()
            if isinstance(self._at(path), Requesting):
                self._record(ev.RequestCancelled(at=self._recorder.now(), seconds=self._lap(), path=path))

    def _give_up_requests(self) -> None:
        """The same for every request: nobody drives any more."""
        with self._recorder.lock:
            for path, _ in tuple(loops(self._state)):
                self._give_up(path)
            self._flights.clear()

    def _drop(self, flight: Flight) -> None:
        """A request is over, and nothing is known of it: it is given up, unless another took its place."""
        with self._recorder.lock:
            if self._flights.get(flight.path) is flight:
                self._give_up(flight.path)

    def _drop_left_behind(self) -> None:
        """Cancel what waits for replies that no loop waits for any more."""
        with self._recorder.lock:
            for flight in tuple(self._flights.values()):
                if not self._is_flying(flight):
                    del self._flights[flight.path]
                    flight.cancel()


def _with_text(error: OutsideError, flight: Flight) -> OutsideError:
    """The error of a request, with what of its reply was read by then."""
    if flight.read is not None:
        error.partial_text = flight.read.partial_text or None
    return error
