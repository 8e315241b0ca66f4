"""What a world is made of: everything that may be drawn, for the state that a loop is in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from attrs import evolve

from tests.kit.machine import making as m
from toolloop._usage import IterationUsage, Usage
from toolloop.machine.queries import driven, next_deadline
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Loop, State, Thread
from toolloop.machine.record.replies import find_open_server_calls
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.values.calls import (
    Call,
    DecisionRecord,
    GrantSpec,
    Outcome,
    PolicyResult,
    Reject,
    Result,
    Status,
    Wait,
    Why,
)
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Budget, Limits, LoopDetection
from toolloop.machine.values.stop_reasons import STOP_REASONS

STOPS = (*STOP_REASONS, "tool_use", "tool_use", "tool_use", "end_turn", "pause_turn", None, "a_new_reason")
Kind = Literal["approve", "deny", "answer", "rerun"]
CIRCLES = (LoopDetection(1, "inject_warning"), LoopDetection(2, "stop"))
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [m.text("x")]}
UNKNOWN = {"type": "hologram", "z": 10**30, "a": [1.5, None, {"y": True, "b": "é"}]}


class Drawing:
    """Draws whatever may happen to a loop in its present state, or to one of those inside its calls.

    Attributes:
        state: of the outermost loop.
        path: in which loop of the tree it happens.

    """

    def __init__(self, rng: random.Random, state: State) -> None:
        self.rng = rng
        self.state = state
        self.path: tuple[str, ...] = ()
        self.count = 0
        self.clock = 100.0
        self.generous = self.chance(3)  # policies ask, and the caller approves and remembers it

    @property
    def here(self) -> Loop:
        """The loop in which it happens."""
        return self.state.at(self.path) or self.state.root

    def paths(self) -> list[tuple[str, ...]]:
        """Those of all loops of the tree."""
        return [path for path, _ in driven(self.state)]

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def make_new(self, word: str) -> str:
        self.count += 1
        return f"{word}_{self.count}"

    def time(self) -> dict[str, Any]:
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
            budget=Budget(pick((None, None, 2, 5)), pick((None, None, 0, 2, 4)), output_tokens=pick((None, None, 20))),
        )

    def some_setup(self) -> dict[str, Any]:
        pick = self.rng.choice
        return {
            "limits": pick((Limits(), Limits(), self.some_limits())),
            "depth": pick((0, 0, 0, 1)),
            "execution": pick(("barrier", "ready")),
            "max_parallel_tools": pick((1, 2, 8, None)),
            "callables": pick((frozenset[str](), frozenset({"stop_when"}))),
            "decision_timeout": None if self.generous else pick((None, 4.0, 30.0)),
            "loop_detection": None if self.generous else pick((None, *CIRCLES)),
            "members": True,
        }

    def some_blocks(self) -> Iterator[Any]:
        """What a reply may hold: calls, server calls open and closed, thinking, blank text, blocks of unknown types."""
        for server in sorted(find_open_server_calls(self.here.unjoined)):
            if not self.chance(3):
                yield m.server_result(server)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2, 3))):
            kind = self.rng.randrange(7)
            match kind:
                case 0:
                    yield m.thinking(self.make_new("hm"))
                case 1:
                    yield m.text(self.rng.choice(("", "  \n")))
                case 2:
                    yield UNKNOWN
                case 3:
                    server = self.make_new("srvtoolu")
                    yield m.server_call(server)
                    if self.chance(2):
                        yield m.server_result(server)
                case _:
                    yield m.text(self.make_new("words"))

    def some_reply(self) -> ev.Replied:
        stop = self.rng.choice(STOPS)
        how_many = self.rng.choice((1, 1, 2, 3, 5)) if stop == "tool_use" else self.rng.choice((0, 0, 0, 1, 2))
        how_many = 0 if self.chance(20) else how_many
        make = m.code_call if self.chance(6) else m.call
        tools = ("pure", "once") if self.generous else ("pure", "keyed", "once", "unknown")
        round_ = self.here.iterations + 1  # so ids are the same in other loops of the tree
        calls = [make(f"toolu_{round_}_{n}", self.rng.choice(tools)) for n in range(how_many)]
        if round_ % 4 == 2:  # without a draw, so that other lives stay as they are
            sets = (None, "computer", "computer", "browser", "computer")
            calls = [each | {"toolset_name": of} if of else each for each, of in zip(calls, sets, strict=False)]
        usage = {"input_tokens": self.rng.randrange(9), "output_tokens": self.rng.randrange(9)}
        more: dict[str, Any] = {"stop_details": {"category": "cyber"}} if stop == "refusal" else {}
        if self.chance(2):
            more["container"] = {"id": self.make_new("container")}
        replied = m.make_replied(stop, *self.some_blocks(), *calls, usage=usage, model="m", **more)
        return evolve(replied, thread=Thread(f"msg_{round_}", round_, "f") if round_ % 3 == 1 else None)

    def some_content(self) -> str:
        return encode(self.rng.choice(("", "done", [], [m.text("found")], [FOUND])))

    def some_decision(self, call: Call) -> DecisionRecord:
        kinds: dict[Why, tuple[Kind, ...]] = {
            Why.UNCERTAIN: ("rerun", "answer", "deny"),
            Why.EXTERNAL: ("answer", "deny"),
        }
        asked: tuple[Kind, ...] = ("approve", "approve", "answer", "deny")
        kind: Kind = self.rng.choice(kinds.get(call.why or Why.APPROVAL, asked))
        kind = "approve" if self.chance(2 if self.generous and call.why is Why.APPROVAL else 12) else kind
        content = None
        if kind == "answer":
            content = self.some_content()
        elif kind == "approve" and self.chance(2):
            content = encode({"a": self.rng.randrange(3)})
        spec = self.some_spec() if kind == "approve" and (self.generous or self.chance(4)) else None
        decision = DecisionRecord(kind, content, reason="why", digest=self.some_digest(call), remember=spec)
        return evolve(decision, **self.some_person())

    def some_person(self) -> dict[str, Any]:
        """Who decides, and where; now and then as a version did that knew neither groups nor places."""
        pick = self.rng.choice
        return {
            "by": pick(("ana", "ana", "Bo ", "bo", None)),
            "groups": pick(((), ("finance",), ("finance", "legal"))),
            "via": pick((None, "handle", "inbox")),
        }

    def some_demands(self) -> tuple[Demand, ...]:
        pick = self.rng.choice
        drawn = (
            Demand(pick((1, 1, 2)), pick(((), ("finance",))), pick(((), (), ("ana",))), fresh=self.chance(3))
            for _ in range(pick((0, 0, 1, 1, 2)))
        )
        return tuple(drawn)

    def some_spec(self) -> GrantSpec:
        """What is remembered, as a rule, of the call's own tool."""
        match = self.rng.choice((None, None, {}, {"a": 1}, {"a": "*"}))
        return GrantSpec(
            tool=self.rng.choice((None, None, None, "pure", "once") if match is None else (None, "pure", "once")),
            match=None if match is None else encode(match),
            uses=self.rng.choice((None, None, 1, 2)),
            expires_at=self.rng.choice((None, None, self.clock + 4.0)),
        )

    def some_digest(self, call: Call) -> str | None:
        match self.rng.randrange(10):
            case 0:
                return "another"
            case 1 | 2 if self.here.round:
                return digest_of(self.here.setup, self.here.round.iteration, call)
            case 3 | 4 | 5 if self.here.round and call.demands:
                return digest_of(self.here.setup, self.here.round.iteration, call)
        return None

    def some_result(self) -> PolicyResult:
        match self.rng.randrange(2 if self.generous else 6):
            case 0 | 1:
                asked = Wait(Why.APPROVAL, "a policy", expires_in=self.rng.choice((None, None, 3.0)))
                return evolve(asked, fresh=self.chance(4), demands=self.some_demands())
            case 2:
                return Wait(Why.EXTERNAL)
            case 3:
                return Reject(Outcome.INVALID_INPUT, "bad input")
        kind: Kind = self.rng.choice(("approve", "deny", "answer"))
        contents = {"approve": encode({"a": 9}), "answer": self.some_content()}
        return DecisionRecord(kind, contents.get(kind) if self.chance(2) else None, reason="policy")

    def some_tick(self) -> ev.Ticked:
        """Time that passes up to the next deadline, beyond it, or not quite so far."""
        deadline = next_deadline(self.state)
        if deadline is not None:
            self.clock = max(self.clock, deadline + self.rng.choice((-0.5, 0.0, 0.0, 10.0)))
        return ev.Ticked()

    def some_end(self) -> ev.Ended:
        """The end of the run that runs, by name or not; or of one that is not awaited any more."""
        call_id = self.a_call(Status.RUNNING)
        result = Result(self.some_content(), outcome=self.rng.choice(tuple(Outcome)))
        spent = tuple(self.some_usage() for _ in range(2)) if self.chance(6) else ()
        if self.chance(3):
            return ev.Ended(call_id, result, spent=spent)
        call = next((call for call in self.calls() if call.id == call_id), None)
        iteration = self.here.iterations + (1 if self.chance(10) else 0)
        attempt = 1 if call is None or self.chance(4) else call.attempts
        above = self._draw_above() if self.chance(2) else ()
        return ev.Ended(call_id, result, iteration=iteration, attempt=attempt, above=above, spent=spent)

    def _draw_above(self) -> tuple[tuple[int, int], ...]:
        """Which runs of the calls above it is in; now and then other ones."""
        runs = self.here.setup.runs
        return tuple((iteration, run + 1) for iteration, run in runs) if self.chance(6) else runs

    def some_usage(self) -> IterationUsage:
        """A call drove a loop of its own, and that another."""
        usage = Usage(input_tokens=self.rng.randrange(9), output_tokens=self.rng.randrange(9))
        return IterationUsage(1, "m", usage=usage, path=self.rng.choice(((), ("its_own",))))

    def some_revocation(self) -> ev.GrantRevoked:
        known = [grant.id for grant in self.here.grants]
        return ev.GrantRevoked(self.rng.choice(known) if known and not self.chance(10) else "0/nobody", by="ana")

    def a_child(self, call_id: str) -> ev.Opened:
        """A loop inside a call of the loop in which it happens."""
        above = self.here.setup
        iteration = self.here.iterations + (1 if self.chance(30) else 0)
        call = next((call for call in self.calls() if call.id == call_id), None)
        within = (*above.within, (iteration, call_id, 1 if call is None else call.attempts + 1))
        setup = m.setup(**self.some_setup() | {"depth": above.depth + 1, "within": within, "loop_id": above.loop_id})
        return ev.Opened(setup, (m.user(self.make_new("task")),), path=(*self.path, call_id))

    def calls(self) -> Sequence[Call]:
        return self.here.round.calls if self.here.round else ()

    def a_call(self, *statuses: Status) -> str:
        """The id of a call in one of these statuses, as a rule; else of any."""
        fitting = [call.id for call in self.calls() if call.status in statuses]
        anybody = [call.id for call in self.calls()] or ["toolu_foreign"]
        return self.rng.choice(fitting if fitting and not self.chance(10) else anybody)

    def some_messages(self) -> tuple[str, ...]:
        first = m.user(self.make_new("injected"))
        return (first, m.system(self.make_new("injected"))) if self.chance(4) else (first,)
