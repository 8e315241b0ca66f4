"""A world without a driver: it performs what is outstanding by drawing what comes of it, and plays the caller too."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Literal

from attrs import evolve

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.effects import EndTurn, Judge, RunCall, SendRequest
from toolloop.core.errors import CallerError
from toolloop.core.jsontext import encode
from toolloop.core.machine import TRANSITIONS, begin, outstanding, step
from toolloop.core.policy import digest_of
from toolloop.core.replies import open_server_calls
from toolloop.core.setup import Budget, Limits
from toolloop.core.states import Deciding, Failure, Finished, Judging, Ready, Running, State
from toolloop.core.stops import STOP_REASONS
from toolloop.core.terminations import LIMITS
from toolloop.core.values import Call, Outcome, Reject, Result, Ruling, Status, Verdict, Wait, Why

EVENTS: tuple[type[ev.Event], ...] = tuple(
    kind
    for kind in vars(ev).values()
    if isinstance(kind, type) and issubclass(kind, ev.Event) and kind not in (ev.Event, ev.Opened)
)
STOPS = (*STOP_REASONS, "tool_use", "tool_use", "tool_use", "end_turn", "pause_turn", None, "a_new_reason")
Kind = Literal["approve", "deny", "answer", "rerun"]
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [m.text("x")]}
UNKNOWN = {"type": "hologram", "z": 10**30, "a": [1.5, None, {"y": True, "b": "é"}]}


class World:
    """One loop, its journal, and every state it was in.

    Attributes:
        journal: every event that was taken, `Opened` first; `states[n]` is the state after `journal[n]`.
        refused: events that were refused, each with the state that refused it.

    """

    def __init__(self, rng: random.Random, *, without: tuple[type[ev.Event], ...] = (), **changes: Any) -> None:
        """`without`: events that do not happen in this world; `changes`: what of the setup is not drawn."""
        self.rng = rng
        self.without = without
        self.count = 0
        self.clock = 100.0
        opening = m.opened(m.user(), **(self.some_setup() | changes))
        self.journal: list[ev.Event] = [opening]
        self.state: State = begin(opening)
        self.states: list[State] = [self.state]
        self.refused: list[tuple[State, ev.Event, CallerError]] = []

    # --- drawing ------------------------------------------------------------------------------------------------

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def new(self, word: str) -> str:
        self.count += 1
        return f"{word}_{self.count}"

    def time(self) -> dict[str, float]:
        """When an event happens, and how long it took; clocks of other machines may lag behind."""
        self.clock += self.rng.choice((0.0, 1.0, 2.5, -3.0))
        return {"at": self.clock, "seconds": self.rng.choice((0.0, 0.0, 0.5))}

    def some_limits(self) -> Limits:
        pick = self.rng.choice
        return Limits(
            max_iterations=pick((None, 0, 1, 3, 10)),
            max_pauses=pick((None, 0, 1, 3)),
            timeout=pick((None, None, 5.0)),
            max_depth=pick((None, 1, 3, 3)),
            budget=Budget(tool_calls=pick((None, None, 0, 2)), output_tokens=pick((None, None, 20))),
        )

    def some_setup(self) -> dict[str, Any]:
        pick = self.rng.choice
        return {
            "limits": pick((Limits(), Limits(), self.some_limits())),
            "depth": pick((0, 0, 0, 1)),
            "execution": pick(("barrier", "ready")),
            "max_parallel_tools": pick((1, 2, 8, None)),
            "callables": pick((frozenset[str](), frozenset({"stop_when"}))),
        }

    def some_blocks(self) -> Iterator[Any]:
        """What a reply may hold: calls, server calls open and closed, thinking, blank text, blocks nobody knows."""
        for server in sorted(open_server_calls(getattr(self.state, "tail", ()))):
            if not self.chance(3):
                yield m.server_result(server)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3))):
            kind = self.rng.randrange(7)
            match kind:
                case 0:
                    yield m.thinking()
                case 1:
                    yield m.text(self.rng.choice(("", "  \n")))
                case 2:
                    yield UNKNOWN
                case 3:
                    server = self.new("srvtoolu")
                    yield m.server_call(server)
                    if self.chance(2):
                        yield m.server_result(server)
                case _:
                    yield m.text(self.new("words"))

    def some_reply(self) -> ev.Replied:
        stop = self.rng.choice(STOPS)
        how_many = self.rng.choice((1, 1, 2, 3, 5)) if stop == "tool_use" else self.rng.choice((0, 0, 0, 1, 2))
        how_many = 0 if self.chance(20) else how_many
        make = m.code_call if self.chance(6) else m.call
        tools = ("pure", "keyed", "once", "unknown")
        calls = [make(self.new("toolu"), self.rng.choice(tools)) for _ in range(how_many)]
        usage = {"input_tokens": self.rng.randrange(9), "output_tokens": self.rng.randrange(9)}
        more: dict[str, Any] = {"stop_details": {"category": "cyber"}} if stop == "refusal" else {}
        if self.chance(2):
            more["container"] = {"id": self.new("container")}
        return m.replied(stop, *self.some_blocks(), *calls, usage=usage, model="m", **more)

    def some_content(self) -> str:
        return encode(self.rng.choice(("", "done", [], [m.text("found")], [FOUND])))

    def some_ruling(self, call: Call) -> Ruling:
        kinds: dict[Why, tuple[Kind, ...]] = {
            Why.UNCERTAIN: ("rerun", "answer", "deny"),
            Why.EXTERNAL: ("answer", "deny"),
        }
        asked: tuple[Kind, ...] = ("approve", "approve", "answer", "deny")
        kind: Kind = self.rng.choice(kinds.get(call.why or Why.APPROVAL, asked))
        kind = "approve" if self.chance(12) else kind
        content = None
        if kind == "answer":
            content = self.some_content()
        elif kind == "approve" and self.chance(2):
            content = encode({"a": self.rng.randrange(3)})
        return Ruling(kind, content, reason="why", digest=self.some_digest(call))

    def some_digest(self, call: Call) -> str | None:
        match self.rng.randrange(10):
            case 0:
                return "another"
            case 1 | 2 if isinstance(self.state, Deciding | Running):
                return digest_of(self.state.ledger.setup, self.state.round.iteration, call)
        return None

    def some_verdict(self, call: Call) -> Verdict:
        match self.rng.randrange(6):
            case 0 | 1:
                return Wait(Why.APPROVAL, reason="a policy")
            case 2:
                return Wait(Why.EXTERNAL)
            case 3:
                return Reject(Outcome.INVALID_INPUT, "bad input")
        kind: Kind = self.rng.choice(("approve", "deny", "answer"))
        contents = {"approve": encode({"a": 9}), "answer": self.some_content()}
        return Ruling(kind, contents.get(kind) if self.chance(2) else None, reason="policy")

    def replaces(self) -> bool:
        return ev.HistoryEdited not in self.without and self.chance(3)

    def some_messages(self) -> tuple[str, ...]:
        first = m.user(self.new("injected"))
        return (first, m.system(self.new("injected"))) if self.chance(4) else (first,)

    # --- events -------------------------------------------------------------------------------------------------

    def make(self, kind: type[ev.Event]) -> ev.Event:
        """An event of a kind: one that fits the state, as a rule, and now and then one that does not."""
        return evolve(self._makers()[kind](), **self.time())

    def _makers(self) -> dict[type[ev.Event], Callable[[], ev.Event]]:
        return {
            ev.Replied: self.some_reply,
            ev.RequestFailed: lambda: ev.RequestFailed(Failure("model", "overloaded", 529, retryable=True)),
            ev.RequestCancelled: ev.RequestCancelled,
            ev.Judged: self._judged,
            ev.Decided: self._decided,
            ev.Started: lambda: ev.Started(self._a_call(Status.CLEARED, Status.PROPOSED)),
            ev.Ended: lambda: ev.Ended(
                self._a_call(Status.RUNNING), Result(self.some_content(), outcome=self.rng.choice(tuple(Outcome)))
            ),
            ev.Cancelled: lambda: ev.Cancelled(self._a_call(Status.RUNNING)),
            ev.TurnEnded: ev.TurnEnded,
            ev.Continued: ev.Continued,
            ev.Injected: lambda: ev.Injected(self.some_messages(), hold=self.chance(4)),
            ev.Stopped: lambda: ev.Stopped("enough"),
            ev.HistoryEdited: lambda: ev.HistoryEdited((m.user(self.new("edited")),)),
            ev.ParamsChanged: lambda: ev.ParamsChanged(encode({"model": self.new("model")})),
            ev.FollowedUp: lambda: ev.FollowedUp(self.some_messages(), replace_last=self.replaces()),
            ev.Extended: lambda: ev.Extended(self.rng.choice((self.some_limits(), Limits(max_iterations=50)))),
            ev.Retried: ev.Retried,
            ev.Woken: self._woken,
            ev.Forked: lambda: ev.Forked(self.new("loop")),
        }

    def calls(self) -> tuple[Call, ...]:
        return self.state.round.calls if isinstance(self.state, Judging | Deciding | Running) else ()

    def _a_call(self, *statuses: Status) -> str:
        fitting = [call.id for call in self.calls() if call.status in statuses]
        anybody = [call.id for call in self.calls()] or ["toolu_foreign"]
        return self.rng.choice(fitting if fitting and not self.chance(10) else anybody)

    def _judged(self) -> ev.Judged:
        open_ = [call for call in self.calls() if not call.judged and call.status in ("proposed", "cleared")]
        verdicts = tuple((call.id, self.some_verdict(call)) for call in open_ if self.chance(3))
        if self.chance(25):
            verdicts = (*verdicts, ("toolu_foreign", Wait(Why.APPROVAL)))
        return ev.Judged(verdicts, stop=self.chance(15), reason="because")

    def _decided(self) -> ev.Decided:
        waiting = [call for call in self.calls() if call.status is Status.WAITING and not self.chance(4)]
        if not waiting or self.chance(10):
            waiting += self.calls()[:1]
        rulings = tuple((call.id, self.some_ruling(call)) for call in waiting)
        return ev.Decided(rulings if rulings and not self.chance(25) else (("toolu_foreign", m.DENY), *rulings))

    def _woken(self) -> ev.Woken:
        setup = self.state.ledger.setup
        return ev.Woken(evolve(setup, max_parallel_tools=self.rng.choice((1, 4))) if self.chance(3) else None)

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
        """What comes of the effects that are outstanding, and of the calls that run."""
        effects = outstanding(self.state)
        running = [call.id for call in self.calls() if call.status is Status.RUNNING]
        if running and (not effects or self.chance(2)):
            return self.make(ev.Cancelled if self.chance(6) else ev.Ended)
        match self.rng.choice(effects):
            case SendRequest():
                if self.chance(12):
                    return self.make(ev.RequestCancelled)
                return self.make(ev.RequestFailed if self.chance(12) else ev.Replied)
            case Judge() if self.chance(6) and any(call.status is Status.WAITING for call in self.calls()):
                return self.make(ev.Decided)  # while the others are judged
            case Judge(calls=calls):
                return self.make(ev.Started if calls and self.chance(10) else ev.Judged)
            case RunCall(call_id=call_id):
                return ev.Started(call_id, **self.time())
            case EndTurn():
                return self.make(ev.TurnEnded)
        raise AssertionError(effects)

    def busy(self) -> bool:
        """Whether a driver has something to do or to wait for."""
        return bool(outstanding(self.state)) or any(call.status is Status.RUNNING for call in self.calls())

    def choose(self) -> ev.Event:
        """What happens next: the driver's work more often than not, else the caller, now and then nonsense."""
        ready = self.state.ledger.setup.execution == "ready"
        if isinstance(self.state, Deciding) and ready and self.chance(3):
            return self.make(ev.Continued)  # some still wait while the others run
        waiting = any(call.status is Status.WAITING for call in self.calls())
        if waiting and self.chance(2):  # also while others run
            return self.make(ev.Decided)
        if isinstance(self.state, Judging) and self.state.round.having(Status.CLEARED) and self.chance(6):
            return self.make(ev.Forked)
        if isinstance(self.state, Running) and outstanding(self.state) == (EndTurn(),) and self.chance(2):
            return self.make(ev.Continued)  # a driver's word is left out
        if self.busy() and not self.chance(5):
            return self.perform()
        if isinstance(self.state, Finished) and isinstance(self.state.termination, LIMITS) and self.chance(2):
            return self.make(ev.Woken if self.chance(2) else ev.Extended)
        rare = () if self.chance(3) else (ev.Stopped, ev.Forked)
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


def is_request(state: State) -> bool:
    """Whether a driver would send a request now."""
    return isinstance(state, Ready) and outstanding(state) == (SendRequest(),)
