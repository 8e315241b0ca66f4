"""Who may start a call: over whatever may happen, each start has the persons that each demand asks for."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, strategies as st

from tests.effort import examples
from tests.machine import making as m
from tests.machine.voting import PERSONS, Judge
from toolloop.errors import CallerError
from toolloop.machine.queries import next_deadline, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn, Judge as ToJudge, RunCall, SendRequest
from toolloop.machine.record.loop import Finished
from toolloop.machine.record.state import State
from toolloop.machine.rules.approving import missing, yeses
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.rules.deciding import TAKES
from toolloop.machine.tree import fork, outstanding, step
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, PolicyResult, Status, Wait, Why
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import encode
from toolloop.stores import dump, load

NAMES = (*PERSONS, *("ana", "bo", "cy", "bo", "cy") * 2)
GROUPS: tuple[tuple[str, ...], ...] = ((), ("finance",), ("legal",), *[("finance", "legal")] * 4)
INPUTS = tuple(encode({"a": each}) for each in (1, 2, 3))


class Office:
    """A loop whose rules change, the persons who decide its calls, and drivers that die.

    Attributes:
        rules: the result of the policy for each input; `RAISES` is a policy that fails.
        events: what was taken, in order.

    """

    RAISES = "raises"

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = 100.0
        setup = {"execution": rng.choice(("barrier", "ready")), "decision_timeout": rng.choice((None, None, 30.0))}
        self.state: State = m.after(ev.Ticked(at=self.clock), **setup)
        self.events: list[ev.Event] = []
        self.digests: dict[str, list[str]] = {}
        self.rules: dict[str, Any] = {}
        self.is_steady = self.chance(3)  # two persons for each call, and the rules stay
        self.change_rules()
        if self.is_steady:
            self.rules = dict.fromkeys(INPUTS, Wait(Why.APPROVAL, demands=(Demand(2),)))

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    # --- what happens -----------------------------------------------------------------------------------------------

    def live(self, steps: int) -> Office:
        acts = (
            *(self.drive,) * 9,
            *(self.decide,) * 12,
            *(self.go_on,) * 7,
            *(self.change_rules, self.crash, self.wake, self.tick),
            *(self.copy, self.restore, self.revoke) * self.chance(2),
        )
        for _ in range(steps):
            self.rng.choice(acts)()
            self.note_digests()
        return self

    def take(self, event: ev.Event) -> bool:
        """Whether it was taken. A refusal must leave the state as it was."""
        try:
            self.state = step(self.state, event)
        except CallerError:
            return False
        self.events.append(event)
        return True

    def drive(self) -> None:
        """Perform what is outstanding, up to somewhere."""
        for _ in range(self.rng.randrange(1, 9)):
            running = [call for call in self.calls() if call.status is Status.RUNNING]
            if running and not self.chance(3):
                result = None if self.chance(2) else m.DONE
                assert self.take(ev.Ended(self.rng.choice(running).id, result))
                continue
            match next(iter(outstanding(self.state)), None):
                case SendRequest():
                    names = (f"t{self.state.root.iterations + 1}{each}" for each in "ab"[: self.rng.randrange(1, 3)])
                    calls = [self.some_call(each) for each in names]
                    assert self.take(ev.Requested())
                    assert self.take(m.replied("tool_use", *calls))
                case ToJudge(calls=names):
                    self.judge(names)
                case RunCall(call_id=call_id):
                    assert self.take(ev.Started(call_id))
                case EndTurn():
                    assert self.take(ev.TurnEnded())

    def some_call(self, call_id: str) -> Any:
        pick = self.rng.choice
        return m.call(call_id, pick(("pure", "once", "once")), input={"a": pick((1, 1, 1, 2, 3))})

    def judge(self, names: tuple[str, ...]) -> None:
        calls = {call.id: call for call in self.calls()}
        results = [(each, self.verdict(calls[each])) for each in names]
        assert self.take(ev.Judged(tuple((name, result) for name, result in results if result is not None)))

    def verdict(self, call: Call) -> PolicyResult | None:
        rule = self.rules[call.effective_input]
        if rule == self.RAISES:
            return Wait(Why.APPROVAL, demands=(Demand(fresh=True, reason=f"raised {self.rng.random()}", failed=True),))
        return rule  # type: ignore[no-any-return]

    def change_rules(self) -> None:
        if not self.is_steady:
            self.rules |= {each: self.some_rule() for each in INPUTS if each not in self.rules or self.chance(4)}

    def some_rule(self) -> Any:
        pick = self.rng.choice
        match self.rng.randrange(12):
            case 0 | 1:
                return None
            case 2 | 3:
                return Wait(Why.APPROVAL)
            case 4:
                return self.RAISES
            case 5 if self.chance(2):
                return pick((m.DENY, m.APPROVE, m.approve({"a": self.rng.randrange(1, 4)})))
        return Wait(Why.APPROVAL, demands=tuple(self.some_demand() for _ in range(pick((1, 1, 2)))))

    def some_demand(self) -> Demand:
        pick = self.rng.choice
        of = pick(((), (), ("finance",), ("legal", "finance")))
        return Demand(pick((1, 1, 2, 2, 3)), of, pick(((), (), (), ("ana",), ("Bo",))), fresh=self.chance(3))

    # --- who says what ----------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Somebody decides, of the calls that wait as a rule."""
        open_ = [call for _, call in waiting(self.state)] or list(self.calls())
        if open_:
            self.take(ev.Decided(tuple((call.id, self.decision(call)) for call in open_ if not self.chance(4))[:2]))

    def decision(self, call: Call) -> DecisionRecord:
        pick = self.rng.choice
        kinds: Any = TAKES[call.why or Why.APPROVAL] if not self.chance(12) else ("approve", "rerun")
        kind = kinds[0] if not self.chance(12) else pick(kinds)
        content = pick(INPUTS) if kind == "approve" and self.chance(5) else None
        spec = GrantSpec(uses=pick((None, 1)), expires_at=pick((None, self.clock + 20.0)))
        return DecisionRecord(
            kind,
            encode("mine") if kind == "answer" else content,
            by=pick(NAMES),
            groups=pick(GROUPS),
            via="handle",
            at=pick((0.0, self.clock, self.clock + 1000.0 * self.chance(20))),
            digest=self.some_digest(call),
            remember=spec if kind == "approve" and self.chance(2) else None,
        )

    def some_digest(self, call: Call) -> str | None:
        if self.chance(8):
            return None
        seen = self.digests.get(call.id, [])
        return self.rng.choice(seen) if seen and self.chance(12) else self.digest(call)

    def digest(self, call: Call) -> str:
        assert self.state.root.round is not None
        return digest_of(self.state.root.setup, self.state.root.round.iteration, call)

    def note_digests(self) -> None:
        for call in self.calls():
            self.digests.setdefault(call.id, []).append(self.digest(call))

    def go_on(self) -> None:
        self.take(ev.Continued())

    def revoke(self) -> None:
        if self.state.root.grants:
            self.take(ev.GrantRevoked(self.rng.choice(self.state.root.grants).id))

    # --- time, and other drivers ------------------------------------------------------------------------------------

    def tick(self) -> None:
        due = next_deadline(self.state)
        self.clock = max(self.clock, due + 1.0) if due is not None and self.chance(6) else self.clock + 5.0
        self.take(ev.Ticked(at=self.clock))

    def crash(self) -> None:
        if any(call.status is Status.RUNNING for call in self.calls()):
            self.wake()

    def wake(self) -> None:
        self.take(ev.Woken())

    def copy(self) -> None:
        if self.state.root.round is not None and self.chance(4):
            self.state = fork(self.state, f"copy of {self.state.root.setup.loop_id}", self.clock)
            self.events.append(ev.Adopted(self.state, at=self.clock))

    def restore(self) -> None:
        assert load(dump(self.state)) == self.state

    def calls(self) -> tuple[Call, ...]:
        loop = self.state.root
        return () if loop.round is None or isinstance(loop.phase, Finished) else tuple(loop.round.calls)


LIVES = st.tuples(st.integers(0, 2**32), st.integers(10, 200))


@examples(150)
@given(LIVES)
def test_each_start_has_the_persons_that_each_demand_asks_for(life: tuple[int, int]) -> None:
    """Of exactly the input that runs, since the last start that was not a repeat; no excluded person, no `Deny`."""
    Judge().read(Office(random.Random(life[0])).live(life[1]).events)


def test_the_lives_hold_what_matters() -> None:
    """Starts with two persons, after an edit, with fresh demands, by grants and after an uncertain end."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        judge = Judge().read(Office(random.Random(seed)).live(100).events)
        seen.update(note for notes in judge.started for note in (*notes, "start"))
    assert min(seen[each] for each in ("two", "edited", "fresh", "grant", "rerun")) >= 3, seen


@examples(40)
@given(LIVES)
def test_the_order_of_two_approvals_does_not_matter(life: tuple[int, int]) -> None:
    """Of two persons, of the same input."""
    office = Office(random.Random(life[0])).live(life[1])
    for _, call in waiting(office.state):
        if call.why is not Why.APPROVAL or call.expires_at is not None:
            continue
        both = [
            DecisionRecord("approve", by=by, groups=("finance", "legal"), via="handle", digest=office.digest(call))
            for by in ("bo", "cy")
        ]
        ends = [_after(office.state, call, both), _after(office.state, call, both[::-1])]
        assert ends[0] == ends[1]


def _after(state: State, call: Call, decisions: list[DecisionRecord]) -> Any:
    for each in decisions:
        try:
            state = step(state, ev.Decided(((call.id, each),)))
        except CallerError:
            continue
    assert state.root.round is not None
    found = state.root.round.find(call.id)
    assert found is not None
    return found.status, missing(found.demands, yeses(found))
