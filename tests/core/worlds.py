"""A world without a driver: it performs what is outstanding by drawing what comes of it, and plays the caller too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from attrs import evolve

from tests.core import making as m
from tests.core.drawing import Drawing
from tests.core.editing import some_compaction, some_edit, some_params
from tests.core.taken import TAKEN, some_adoption, some_discarding, some_reopening
from toolloop.core import events as ev
from toolloop.core.effects import CancelRequest, Conclude, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import CallerError
from toolloop.core.machine import TRANSITIONS, begin, outstanding, step
from toolloop.core.nesting import BELOW
from toolloop.core.setup import Limits
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Failure,
    Finished,
    Judging,
    Paused,
    Proposed,
    Requesting,
    Running,
    State,
)
from toolloop.core.terminations import LIMITS
from toolloop.core.tree import answer_of, loops, under_way, waiting
from toolloop.core.values import Status, Wait, Why

EVENTS: tuple[type[ev.Event], ...] = tuple(
    kind
    for kind in vars(ev).values()
    if isinstance(kind, type) and issubclass(kind, ev.Event) and kind not in (ev.Event, ev.Opened, ev.Adopted)
)
# How a caller goes on, where there is one way.
ONWARD: dict[type[State], type[ev.Event]] = {
    Executed: ev.Continued,
    Paused: ev.Continued,
    Proposed: ev.Continued,
    Finished: ev.FollowedUp,
    Failed: ev.Retried,
}
DEEPEST = 3


class World(Drawing):
    """One loop with all the loops inside its calls, its journal, and every state it was in.

    Attributes:
        nested: whether calls may have loops inside of them.
        shown: whether replies are shown, and the caller may take the history into their own hands.
        journal: every event that was taken, `Opened` or `Adopted` first; `states[n]` is the state after `journal[n]`.
        refused: events that were refused, each with the state that refused it.

    """

    def __init__(
        self,
        rng: random.Random,
        *,
        without: tuple[type[ev.Event], ...] = (),
        nested: bool | None = None,
        shown: bool = False,
        **changes: Any,
    ) -> None:
        """`without`: events that do not happen in this world; `changes`: what of the setup is not drawn."""
        super().__init__(rng, m.after())
        self.without = without if shown else (*without, *TAKEN)
        self.nested = self.chance(2) if nested is None else nested
        self.shown = shown
        self._begin(m.opened(m.user(), **(self.some_setup() | {"shows_replies": shown} | changes)))

    def _begin(self, first: ev.Opened | ev.Adopted) -> None:
        self.state = begin(first)
        self.journal: list[ev.Event] = [first]
        self.states: list[State] = [self.state]
        self.refused: list[tuple[State, ev.Event, CallerError]] = []

    def adopt(self) -> World:
        """From here on the journal starts with the state as it is."""
        self._begin(ev.Adopted(self.state))
        return self

    def edits(self) -> bool:
        """Whether what is in the history may be lost from it in this world."""
        return ev.HistoryEdited not in self.without

    # --- events -------------------------------------------------------------------------------------------------

    def make(self, kind: type[ev.Event]) -> ev.Event:
        """An event of a kind: one that fits the state, as a rule, and now and then one that does not."""
        return self._timed(self._makers()[kind]())

    def _timed(self, event: ev.Event) -> ev.Event:
        event = evolve(event, **self.time())
        return evolve(event, path=self.path) if isinstance(event, BELOW) and not event.path else event

    def _makers(self) -> dict[type[ev.Event], Callable[[], ev.Event]]:
        return {
            ev.Requested: lambda: ev.Requested(summary=self.chance(6)),
            ev.Replied: self.some_reply,
            ev.RequestFailed: lambda: ev.RequestFailed(Failure("model", "overloaded", 529, retryable=True)),
            ev.RequestCancelled: ev.RequestCancelled,
            ev.Judged: self._judged,
            ev.Decided: self._decided,
            ev.Started: lambda: ev.Started(self.a_call(Status.CLEARED, Status.PROPOSED)),
            ev.Ended: self.some_end,
            ev.Spent: self.some_spending,
            ev.Cancelled: lambda: ev.Cancelled(self.a_call(Status.RUNNING)),
            ev.Ticked: self.some_tick,
            ev.TurnEnded: ev.TurnEnded,
            ev.Continued: ev.Continued,
            ev.Injected: lambda: ev.Injected(self.some_messages()),
            ev.Stopped: lambda: ev.Stopped(self.new("enough")),
            ev.HistoryEdited: lambda: some_edit(self),
            ev.Compacted: lambda: some_compaction(self, edits=self.edits()),
            ev.ParamsChanged: lambda: ev.ParamsChanged(some_params(self, compaction=self.edits())),
            ev.GrantRevoked: self.some_revocation,
            ev.FollowedUp: lambda: ev.FollowedUp(self.some_messages(), replace_last=self.edits() and self.chance(3)),
            ev.Extended: lambda: ev.Extended(self.rng.choice((self.some_limits(), Limits(max_iterations=50)))),
            ev.Retried: ev.Retried,
            ev.Woken: self._woken,
            ev.Forked: lambda: ev.Forked(self.new("loop")),
            ev.ReplyDiscarded: lambda: some_discarding(self),
            ev.RoundAdopted: lambda: some_adoption(self),
            ev.CallsReopened: lambda: some_reopening(self),
        }

    def _judged(self) -> ev.Judged:
        open_ = [call for call in self.calls() if not call.judged and call.status in ("proposed", "cleared")]
        verdicts = tuple((call.id, self.some_verdict(call)) for call in open_ if self.chance(2))
        if self.chance(25):
            verdicts = (*verdicts, ("toolu_foreign", Wait(Why.APPROVAL)))
        return ev.Judged(verdicts, stop=self.chance(15), reason="because")

    def _decided(self) -> ev.Decided:
        found = [place for place in waiting(self.state) if not self.chance(4)]
        if not found or self.chance(10):
            found += [(self.path, call) for call in self.calls()[:1]]
        rulings = []
        for self.path, call in found:
            rulings.append(("/".join((*self.path, call.id)), self.some_ruling(call)))
        self.path = ()
        return ev.Decided(tuple(rulings if rulings and not self.chance(25) else [("toolu_foreign", m.DENY), *rulings]))

    def _woken(self) -> ev.Woken:
        setup = self.here.ledger.setup
        pick = self.rng.choice
        drift: dict[str, Any] = {"max_parallel_tools": pick((1, 4)), "tools": pick((m.TOOLS, m.OTHER_TOOLS))}
        return ev.Woken(evolve(setup, **drift) if self.chance(3) else None)

    # --- the course of things -----------------------------------------------------------------------------------

    def take(self, event: ev.Event) -> bool:
        """Let it happen; whether it was taken. A refusal must leave the state as it was."""
        before = self.state
        try:
            state = step(before, event)
        except CallerError as error:
            self.refused.append((before, event, error))
            return False
        self.state = state
        self.journal.append(event)
        self.states.append(state)
        return True

    def perform(self) -> ev.Event:
        """What comes of the effects that are outstanding, and of what is under way, anywhere in the tree."""
        effects = outstanding(self.state)
        under_way = [path for path, loop in loops(self.state) if _is_under_way(loop)]
        if under_way and (not effects or self.chance(2)):
            self.path = self.rng.choice(under_way)
            if isinstance(self.here, Requesting):
                return self._answer()
            return self.make(ev.Cancelled if self.chance(6) else ev.Ended)
        effect = self.rng.choice(effects)
        self.path = effect.path
        match effect:
            case SendRequest():
                return self.make(ev.Requested)
            case CancelRequest():
                return self.make(ev.RequestCancelled)
            case Judge() if self.chance(6) and any(call.status is Status.WAITING for call in self.calls()):
                return self.make(ev.Decided)  # while the others are judged
            case Judge(calls=calls):
                return self._start(self.rng.choice(calls)) if calls and self.chance(10) else self.make(ev.Judged)
            case RunCall(call_id=call_id):
                return self._start(call_id)
            case Conclude(call_id=call_id):
                return self._concluded(call_id)
            case EndTurn():
                return self.make(ev.TurnEnded)

    def _start(self, call_id: str) -> ev.Event:
        if self.nested and len(self.path) < DEEPEST and not self.chance(3):
            return self._timed(self.a_child(call_id))
        return self._timed(ev.Started(call_id))

    def _concluded(self, call_id: str) -> ev.Event:
        call = next(call for call in self.calls() if call.id == call_id)
        assert call.child is not None
        result = answer_of(call.child, self.here.ledger.setup.texts)
        run: dict[str, Any] = (
            {} if self.chance(3) else {"iteration": self.here.ledger.iterations, "attempt": call.attempts}
        )
        return self._timed(ev.Ended(call_id, result, **run))

    def _answer(self) -> ev.Event:
        """What comes of a request; where the caller said stop meanwhile, all of it."""
        here = self.here
        assert isinstance(here, Requesting)
        others = (ev.RequestCancelled, ev.RequestFailed, *([ev.Woken] if here.stopped else []))
        if self.chance(2 if here.stopped else 8):
            return self.make(self.rng.choice(others))
        return self.make(ev.Compacted if here.summary else ev.Replied)

    def busy(self) -> bool:
        """Whether a driver has something to do or to wait for.

        Where the caller has the word a driver has neither. (In a shown loop whose round was adopted while a loop inside
        of a call had a request under way, that request is still in the state then; no handle comes there.)
        """
        if isinstance(self.state, Deciding):
            return bool(outstanding(self.state))
        return bool(outstanding(self.state)) or under_way(self.state)

    def choose(self) -> ev.Event:
        """What happens next: the driver's work more often than not, else the caller, now and then nonsense."""
        self.path = ()
        ready = self.state.ledger.setup.execution == "ready"
        if isinstance(self.state, Deciding) and ready and self.chance(3):
            return self.make(ev.Continued)  # some still wait while the others run
        if self.shown and isinstance(self.state, Judging | Running) and self.chance(3 if waiting(self.state) else 8):
            return self.make(ev.RoundAdopted)
        if waiting(self.state) and self.chance(2):  # also while others run
            return self.make(ev.Decided)
        if isinstance(self.state, Judging) and self.state.round.having(Status.CLEARED) and self.chance(6):
            return self.make(ev.Forked)
        if isinstance(self.state, Proposed) and self.state.round.having(Status.CLEARED) and self.chance(4):
            return self.make(ev.Forked)
        self.path = self.rng.choice(self.paths())
        rarely = (
            1 if isinstance(self.here, Paused) else (9 if self.path else 30) if self.calls() else 4
        )  # a pause with a grant is rare
        if self.here.ledger.grants and self.chance(rarely):
            return self.make(ev.GrantRevoked)
        if self.path and self.chance(8):  # whatever, inside a call
            return self.make(self.rng.choice([kind for kind in BELOW if kind in self._makers()]))
        self.path = ()
        if isinstance(self.state, Requesting) and self.chance(15):
            return self.make(ev.Stopped)
        if self.shown and self.chance(6):
            return self.make(self.rng.choice(TAKEN))
        if self.busy() and not self.chance(15 if self.nested else 5):  # a tree needs its time to grow
            return self.perform()
        if isinstance(self.state, Finished) and isinstance(self.state.termination, LIMITS) and self.chance(2):
            return self.make(ev.Woken if self.chance(2) else ev.Extended)
        if isinstance(self.state, Failed) and self.state.round is not None and self.chance(3):
            return self.make(ev.Woken)
        onward = ONWARD.get(type(self.state))
        if onward is not None and self.chance(2):
            return self.make(onward)
        rare: tuple[type[ev.Event], ...] = () if self.chance(3) else (ev.Stopped, ev.Forked)
        rare = (*rare, ev.GrantRevoked, *([ev.Forked] if self.generous else []))
        known = [kind for kind in TRANSITIONS[type(self.state)] if kind not in (*rare, *self.without)]
        if not known or self.chance(12):
            known = [kind for kind in EVENTS if kind not in self.without]
        return self.make(self.rng.choice(known))

    def live(self, steps: int) -> World:
        for _ in range(steps):
            self.take(self.choose())
        return self

    def finish_work(self) -> World:
        """Drive on until the caller has the word, without the caller's saying anything."""
        for _ in range(1000):
            if not self.busy():
                return self
            self.take(self.perform())
        raise AssertionError(f"the driver never comes to an end: {self.state}")


def _is_under_way(loop: State) -> bool:
    """Whether something was begun in this very loop whose end is not known yet."""
    if isinstance(loop, Running):
        return any(call.child is None for call in loop.round.having(Status.RUNNING))
    return isinstance(loop, Requesting)
