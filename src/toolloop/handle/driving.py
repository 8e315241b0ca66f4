"""What both drivers do between their waits: the pure halves of judging, concluding, and ending a turn.

Any thread may decide, stop or inject at any moment. So whatever a driver does, it looks at the state again under the
lock first: what was outstanding a moment ago need not be any more, and then it just looks again what is.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from toolloop.core import events as ev
from toolloop.core.effects import Conclude, Effect, EndTurn, Judge
from toolloop.core.errors import Conflict
from toolloop.core.evolving import evolve
from toolloop.core.machine import under_way
from toolloop.core.states import Judging, Running
from toolloop.core.tree import answer_of, is_over
from toolloop.core.values import Result
from toolloop.handle.calls import Calling
from toolloop.handle.filtering import filtering
from toolloop.handle.judging import Question
from toolloop.handle.riding import is_recorded_first
from toolloop.handle.turns import Yielded


class Driving(Calling):
    """The shared half of the two drivers."""

    def _effects(self) -> tuple[Effect, ...]:
        """What is to be done now. An exit or interrupt that a tool raised is raised here, in the driver."""
        if self._abort is not None:
            abort, self._abort = self._abort, None
            raise abort
        return self._to_do()

    def _goes_on(self, turn: Yielded) -> bool:
        """Continue a `Yielded` whose calls are all decided, unless somebody gave it its command already."""
        with self._recorder.lock:
            if not turn.is_spent:
                self._tick()  # it may have taken a while to ask
                if turn.pending:
                    return False
                # Somebody else may have said it first, or something better: the loop goes on all the same.
                with self._passing(), suppress(Conflict):
                    turn.continue_loop()
            return True

    def _rides(self) -> bool:
        """Whether what waits to be stored may go with what is done next. See `riding`."""
        stored = self._stored
        if stored is None or self._abort is not None or self._unlaunched() or not stored.may_wait:
            return False
        return is_recorded_first(self._state, self._to_do(), self._kits.root)

    def _calls_run(self) -> bool:
        """Whether something was begun whose end will come: a call, or a request, anywhere in the tree."""
        return under_way(self._state)

    # --- policies ---

    def _judging(self, effect: Judge) -> Generator[Question, Any, ev.Judged] | None:
        """The questions to ask; each is to be answered by what it returns or raises. None if nobody is to judge."""
        with self._recorder.lock:
            kit, loop = self._ready_kit(effect.path), self._at(effect.path)
            if kit is None or not isinstance(loop, Judging) or effect not in self._to_do():
                return None
            return kit.judges.judge(loop, effect, kit.external(loop.ledger.setup), self._recorder.now())

    def _judged(self, effect: Judge, event: ev.Judged) -> None:
        """Record a judgement, unless the caller stopped the loop meanwhile."""
        with self._recorder.lock:
            loop = self._at(effect.path)
            if isinstance(loop, Judging):
                if effect.path:
                    event = evolve(event, path=effect.path)
                quiet = not event.stop and not event.verdicts and loop.round.calls
                # A judgement that lets all run is in no journal, so its time goes with the first start.
                self._record(event if quiet else evolve(event, seconds=self._lap()))

    # --- loops inside calls ---

    def _concluding(self, effect: Conclude) -> Generator[Question, Any, Result] | None:
        """The questions to ask the result filters about what the loop inside a call came to; None if it is not over."""
        with self._recorder.lock:
            kit, loop = self._ready_kit(effect.path), self._at(effect.path)
            call = loop.round.find(effect.call_id) if isinstance(loop, Running) else None
            if kit is None or not isinstance(loop, Running) or call is None or call.child is None:
                return None
            if not is_over(call.child):
                return None
            result = answer_of(call.child, loop.ledger.setup.texts)
            if kit.tools.get(call.name) is None:  # it is gone, and what it came to is known
                return _nobody_asked(result)
            job = self._job(effect.path, kit, loop, call)
            return filtering(kit.config.result_filters, job, result, self._recorder.tell)

    def _concluded(self, effect: Conclude, result: Result) -> None:
        """Record what the loop inside a call came to, unless the caller stopped the loop meanwhile."""
        with self._recorder.lock:
            loop = self._at(effect.path)
            call = loop.round.find(effect.call_id) if isinstance(loop, Running) else None
            if not isinstance(loop, Running) or call is None or effect not in self._to_do():
                return
            took = 0.0 if call.child is None else round(call.child.ledger.active, 6)
            run = (loop.round.iteration, call.attempts)
            ended = ev.Ended(call.id, result, took, *run, above=loop.ledger.setup.runs, path=effect.path)
            self._record(evolve(ended, at=self._recorder.now(), seconds=self._lap()))

    def _turn_ended(self, effect: EndTurn) -> None:
        with self._recorder.lock:
            now = self._recorder.now()
            if effect in self._to_do() and not self._let_pass(now):
                self._record(ev.TurnEnded(at=now, path=effect.path))


def _nobody_asked(result: Result) -> Generator[Question, Any, Result]:
    """A result that no filter looks at."""
    yield from ()
    return result
