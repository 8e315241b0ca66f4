"""A world without a driver: it performs what is outstanding by drawing what comes of it, and plays the caller too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from tests.kit.machine import making as m
from tests.kit.machine.drawing import Drawing
from tests.kit.machine.editing import some_compaction, some_edit, some_params, some_taking
from toolloop.errors import CallerError
from toolloop.machine.machine import TRANSITIONS
from toolloop.machine.queries import answer_of, driven, list_running, outstanding, under_way, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Conclude, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import (
    Failed,
    Failure,
    Finished,
    Judging,
    Phase,
    Ready,
    Requesting,
    State,
    Stopping,
    Thread,
    TooDeep,
    Waiting,
)
from toolloop.machine.rules.calls import list_to_judge
from toolloop.machine.tree import begin, fork, step
from toolloop.machine.values.calls import Status, Wait, Why
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Limits
from toolloop.terminations import LIMITS

EVENTS: tuple[type[ev.Event], ...] = tuple(
    kind
    for kind in vars(ev).values()
    if isinstance(kind, type) and issubclass(kind, ev.Event) and kind not in (ev.Event, ev.Opened, ev.Adopted)
)
# What may be drawn for a loop inside a call.
BELOW = (
    ev.Requested,
    ev.Replied,
    ev.RequestFailed,
    ev.Judged,
    ev.Started,
    ev.Ended,
    ev.TurnEnded,
    ev.HistoryEdited,
    ev.GrantRevoked,
    ev.Woken,
)
# How a caller goes on, where there is one way.
ONWARD: dict[type[Phase], type[ev.Event]] = {Waiting: ev.Continued, Finished: ev.FollowedUp, Failed: ev.Continued}
DEEPEST = 3
# See `test_restored`, and `test_links_and_metadata_change_in_any_phase`.
_NEVER = (ev.Restored, ev.LinksRevoked, ev.MetadataChanged)


class World(Drawing):
    """One loop with all the loops inside its calls, its journal, and every state it was in.

    Attributes:
        nested: whether calls may have loops inside of them.
        forks: whether the loop is copied now and then, and the copy goes on with a journal of its own.
        journal: every event that was taken, `Opened` or `Adopted` first; `states[n]` is the state after `journal[n]`.
        past: the events of its journals before the last copy.
        refused: events that were refused, each with the state that refused it.

    """

    def __init__(
        self,
        rng: random.Random,
        *,
        without: tuple[type[ev.Event], ...] = (),
        nested: bool | None = None,
        forks: bool = False,
        **changes: Any,
    ) -> None:
        """`without`: events that do not happen in this world; `changes`: what of the setup is not drawn."""
        super().__init__(rng, m.state_after())
        self.without = without
        self.forks = forks
        self.nested = self.chance(2) if nested is None else nested
        self.past: list[ev.Event] = []
        self.begin(m.make_opened(m.user(), **(self.some_setup() | changes)))

    def begin(self, first: ev.Opened | ev.Adopted) -> None:
        self.state = begin(first)
        self.journal: list[ev.Event] = [first]
        self.states: list[State] = [self.state]
        self.refused: list[tuple[State, ev.Event, CallerError]] = []

    def adopt(self) -> World:
        """From here on the journal starts with the state as it is."""
        self.begin(ev.Adopted(self.state))
        return self

    def fork(self) -> None:
        """From here on it is a copy that goes on."""
        self.past += self.journal
        self.begin(ev.Adopted(fork(self.state, self.make_new("loop"), self.time()["at"])))

    def edits(self) -> bool:
        """Whether what is in the history may be lost from it in this world."""
        return ev.HistoryEdited not in self.without

    # --- events -------------------------------------------------------------------------------------------------

    def make(self, kind: type[ev.Event]) -> ev.Event:
        """An event of a kind: one that fits the state, as a rule, and now and then one that does not."""
        return self._add_time(self._makers()[kind]())

    def _add_time(self, event: ev.Event) -> ev.Event:
        event = evolve(event, **self.time())
        return evolve(event, path=self.path) if isinstance(event, BELOW) and not event.path else event

    def _makers(self) -> dict[type[ev.Event], Callable[[], ev.Event]]:
        return {
            ev.Requested: ev.Requested,
            ev.Replied: self.some_reply,
            ev.RequestFailed: self._make_failed,
            ev.Judged: self._make_judged,
            ev.Decided: self._make_decided,
            ev.Approved: lambda: ev.Approved(self._make_decided().decisions),
            ev.Started: lambda: ev.Started(self.a_call(Status.CLEARED, Status.PROPOSED)),
            ev.Ended: self._make_ended,
            ev.Ticked: self.some_tick,
            ev.TurnEnded: lambda: ev.TurnEnded(waits=self.chance(2)),
            ev.Continued: self._make_continued,
            ev.Stopped: lambda: ev.Stopped(self.make_new("enough"), waits=self.chance(2)),
            ev.HistoryEdited: self._make_edited,
            ev.HistoryTaken: lambda: some_taking(self),
            ev.Changed: self._make_changed,
            ev.GrantRevoked: self.some_revocation,
            ev.LinksRevoked: lambda: ev.LinksRevoked(self.rng.choice((None, "a")), by="ana"),
            ev.MetadataChanged: lambda: ev.MetadataChanged((("title", None, "Two"),), by="ana"),
            ev.FollowedUp: lambda: ev.FollowedUp(self.some_messages(), replace_last=self.edits() and self.chance(3)),
            ev.Said: self._make_said,
            ev.Withdrawn: self._make_withdrawn,
            ev.Woken: self._make_woken,
            ev.Restored: ev.Restored,
        }

    def _make_said(self) -> ev.Said:
        name, messages = self.make_new("said"), self.some_messages()
        brought = ("get_location", "pure", name) if self.count % 4 == 0 else ()
        tools = tuple(encode({"name": each, "input_schema": {"type": "object"}}) for each in brought)
        return ev.Said(name, messages, by="ana", tools=tools)

    def _make_withdrawn(self) -> ev.Withdrawn:
        kept = [each.id for each in self.state.root.kept]
        return ev.Withdrawn(self.rng.choice(kept) if kept else "nothing", by="ana")

    def _make_failed(self) -> ev.RequestFailed:
        retryable = not self.path or not self.chance(3)
        if self.chance(2):
            return ev.RequestFailed(Failure("model", "overloaded", 529, retryable=retryable))
        refused = Thread(None, 0, "f", "thread_not_found") if self.here.iterations % 2 else None
        return ev.RequestFailed(thread=refused)

    def _make_ended(self) -> ev.Ended:
        return ev.Ended(self.a_call(Status.RUNNING), None) if self.chance(6) else self.some_end()

    def _make_continued(self) -> ev.Continued:
        return ev.Continued(self.some_messages() if self.chance(2) and not self.has_failed() else ())

    def has_failed(self) -> bool:
        return isinstance(self.state.root.phase, Failed)

    def _make_edited(self) -> ev.HistoryEdited:
        compacts = self.path or not self.edits() or (isinstance(self.here.phase, Ready) and self.chance(2))
        return some_compaction(self, edits=self.edits()) if compacts else some_edit(self)

    def _make_changed(self) -> ev.Changed:
        limits = self.rng.choice((self.some_limits(), Limits(max_iterations=50)))
        if isinstance(self.here.phase, Finished) or self.chance(2):
            return ev.Changed(limits=limits)
        names = self.rng.choice(((), ("container",)))
        return ev.Changed(some_params(self, compaction=self.edits()), names, limits if self.chance(4) else None)

    def _make_judged(self) -> ev.Judged:
        round_ = self.here.round
        open_ = [] if round_ is None else list_to_judge(round_.calls)
        results = tuple((call.id, self.some_result()) for call in open_ if self.chance(2))
        if self.chance(25):
            results = (*results, ("toolu_foreign", Wait(Why.APPROVAL)))
        only = tuple(call.id for call in open_) if round_ is not None and round_.calls.members else ()
        return ev.Judged(results, stop=self.chance(15), reason="because", only=only)

    def _make_decided(self) -> ev.Decided:
        found = [place for place in waiting(self.state) if not self.chance(4)]
        if not found or self.chance(10):
            found += [(self.path, call) for call in self.calls()[:1]]
        decisions = []
        for self.path, call in found:
            decisions.append(("/".join((*self.path, call.id)), self.some_decision(call)))
        self.path = ()
        foreign = [("toolu_foreign", m.DENY), *decisions]
        return ev.Decided(tuple(decisions if decisions and not self.chance(25) else foreign))

    def _make_woken(self) -> ev.Woken:
        setup = self.here.setup
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
        begun = [path for path, loop in driven(self.state) if isinstance(loop.phase, Requesting)]
        begun += dict.fromkeys(path for path, _ in list_running(self.state))
        if begun and (not effects or self.chance(2)):
            self.path = self.rng.choice(begun)
            return self._answer() if isinstance(self.here.phase, Requesting) else self.make(ev.Ended)
        effect = self.rng.choice(effects)
        self.path = effect.path
        match effect:
            case SendRequest():
                return self.make(ev.Requested)
            case CancelRequest():
                return self._add_time(ev.RequestFailed())
            case Judge() if self.chance(6) and any(call.status is Status.WAITING for call in self.calls()):
                return self.make(self.rng.choice((ev.Decided, ev.Approved)))  # while the others are judged
            case Judge(calls=calls):
                return self._start(self.rng.choice(calls)) if calls and self.chance(10) else self.make(ev.Judged)
            case RunCall(call_id=call_id):
                return self._start(call_id)
            case Conclude(call_id=call_id):
                return self._conclude(call_id)
            case EndTurn():
                return self.make(ev.TurnEnded)

    def _start(self, call_id: str) -> ev.Event:
        if self.nested and len(self.path) < DEEPEST and not self.chance(3):
            return self._add_time(self.a_child(call_id))
        return self._add_time(ev.Started(call_id))

    def _conclude(self, call_id: str) -> ev.Event:
        result = answer_of(self.state.loops[(*self.path, call_id)], self.here.setup.texts)
        call = next(call for call in self.calls() if call.id == call_id)
        run: dict[str, Any] = {} if self.chance(3) else {"iteration": self.here.iterations, "attempt": call.attempts}
        return self._add_time(ev.Ended(call_id, result, **run))

    def _answer(self) -> ev.Event:
        """What comes of a request; where the caller said stop meanwhile, all of it."""
        phase = self.here.phase
        stopping = isinstance(phase, Requesting) and phase.stopping
        if self.chance(2 if stopping else 8):
            return self.make(self.rng.choice((ev.RequestFailed, *([ev.Woken] if stopping else []))))
        return self.make(ev.Replied)

    def is_busy(self) -> bool:
        """Whether a driver has something to do or to wait for."""
        return bool(outstanding(self.state)) or under_way(self.state)

    def choose(self) -> ev.Event:
        """What happens next: the driver's work more often than not, else the caller, now and then nonsense."""
        self.path = ()
        root = self.state.root
        asked = isinstance(root.phase, Waiting) and root.phase.reason == "decision_required"
        if asked and root.setup.execution == "ready" and self.chance(3):
            return self.make(ev.Continued)  # some still wait while the others run
        if waiting(self.state) and self.chance(2):  # also while others run
            return self.make(self.rng.choice((ev.Decided, ev.Approved)))
        self.path = self.rng.choice(self.paths())
        paused = isinstance(self.here.phase, Waiting) and self.here.round is None
        rarely = 1 if paused else (9 if self.path else 30) if self.calls() else 4  # a pause with a grant is rare
        if self.here.grants and self.chance(rarely):
            return self.make(ev.GrantRevoked)
        if self.path and self.chance(8):  # whatever, inside a call
            return self.make(self.rng.choice(BELOW))
        self.path = ()
        if (isinstance(root.phase, Requesting) or list_running(self.state)) and self.chance(15):
            return self.make(ev.Stopped)
        if isinstance(root.phase, Stopping) and self.chance(2):
            known = [kind for kind in TRANSITIONS[Stopping] if kind not in _NEVER]
            return self.make(self.rng.choice((*known, ev.Changed)))
        if root.kept and self.chance(4):
            return self.make(ev.Withdrawn)
        if isinstance(root.phase, (Ready, Requesting, Judging)) and self.chance(20):
            return self.make(ev.Said)
        if ev.HistoryTaken not in self.without and self.chance(20):
            return self.make(ev.HistoryTaken)
        if self.is_busy() and not self.chance(15 if self.nested else 5):  # a tree needs its time to grow
            return self.perform()
        return self.make(self._choose_said())

    def _choose_said(self) -> type[ev.Event]:
        """What the caller says, or whatever."""
        phase, pick = self.state.root.phase, self.rng.choice
        if isinstance(phase, Finished) and isinstance(phase.termination, LIMITS) and self.chance(2):
            return pick((ev.Woken, ev.Changed))
        if isinstance(phase, Failed) and self.state.root.round is not None and self.chance(3):
            return ev.Woken
        onward = ONWARD.get(type(phase))
        if onward is not None and self.chance(2):
            return onward
        rare = (ev.GrantRevoked, *(() if self.chance(3) else (ev.Stopped,)))
        never = (*self.without, *_NEVER)
        known = [kind for kind in TRANSITIONS[type(phase)] if kind not in (*rare, *never)]
        if not known or self.chance(12):
            known = [kind for kind in EVENTS if kind not in never]
        return pick(known)

    def live(self, steps: int) -> World:
        for _ in range(steps):
            if (
                self.forks
                and self.chance(25 if self.may_be_copied() else 60)
                and not isinstance(self.state.root.phase, TooDeep)
            ):
                self.fork()
            self.take(self.choose())
        return self

    def may_be_copied(self) -> bool:
        """Whether something open was looked at already, which a copy is to ask about again."""
        phase = self.state.root.phase
        return isinstance(phase, Judging) and any(call.status is Status.CLEARED for call in self.calls())

    def finish_work(self) -> World:
        """Drive on until it is the caller's turn, without the caller's saying anything."""
        for _ in range(1000):
            if not self.is_busy():
                return self
            self.take(self.perform())
        raise AssertionError(f"the driver never comes to an end: {self.state}")


# A world that lived a while: of each four one in which the loop is copied now and then.
lives = st.tuples(st.integers(0, 2**32), st.integers(0, 90)).map(
    lambda life: World(random.Random(life[0]), forks=life[0] % 4 == 0).live(life[1])
)
