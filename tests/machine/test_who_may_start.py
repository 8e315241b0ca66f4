"""Who may start a call: over whatever may happen, each start has the persons that each demand asks for."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.effort import examples, some
from tests.kit.machine import making as m
from tests.kit.machine.voting import PERSONS, Judge
from toolloop.errors import CallerError
from toolloop.machine.queries import answer_of, driven, find_open_round, next_deadline, outstanding, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Conclude, EndTurn, Judge as ToJudge, RunCall, SendRequest
from toolloop.machine.record.loop import Path, State
from toolloop.machine.rules.approving import count_missing, list_approvals
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.rules.deciding import TAKES
from toolloop.machine.tree import fork, step
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, PolicyResult, Status, Wait, Why
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Texts
from toolloop.stores import dump, load

NAMES = (*PERSONS, *("ana", "bo", "cy", "bo", "cy") * 2)
GROUPS: tuple[tuple[str, ...], ...] = ((), ("finance",), ("legal",), *[("finance", "legal")] * 4)
INPUTS = tuple(encode({"a": each}) for each in (1, 2, 3))


class Office:
    """A tree of loops whose rules change, the persons who decide its calls, and drivers that die.

    The calls of `keyed` are loops. The rules of the outermost loop ask about their calls, too.

    Attributes:
        rules: the result of the policy for each input; `RAISES` is a policy that fails.
        rules_inside: the same for the policy of the loops inside calls.
        events: what was taken, in order.

    """

    RAISES = "raises"

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = 100.0
        self.setup = {"execution": rng.choice(("barrier", "ready")), "decision_timeout": rng.choice((None, None, 30.0))}
        self.is_nested = self.chance(3)
        self.state: State = m.state_after(ev.Ticked(at=self.clock), **self.setup)
        self.events: list[ev.Event] = []
        self.digests: dict[str, list[str]] = {}
        self.rules: dict[str, Any] = {}
        self.rules_inside: dict[str, Any] = {}
        self.is_steady = self.chance(3)  # two persons for each call, and the rules stay
        self.change_rules()
        if self.is_steady:
            self.rules = dict.fromkeys(INPUTS, Wait(Why.APPROVAL, demands=(Demand(2),)))
            self.rules_inside = dict.fromkeys(INPUTS)

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    # --- what happens -----------------------------------------------------------------------------------------------

    def live(self, steps: int) -> Office:
        acts = (
            *(self.drive,) * (15 if self.is_nested else 9),
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
            running = [(path, call) for path, call in self.calls() if call.status is Status.RUNNING]
            running = [(path, call) for path, call in running if not call.has_loop]
            if running and not self.chance(3):
                result = None if self.chance(2) else m.DONE
                path, call = self.rng.choice(running)
                assert self.take(ev.Ended(call.id, result, path=path))
                continue
            match next(iter(outstanding(self.state)), None):
                case SendRequest(path=path):
                    assert self.take(ev.Requested(path=path))
                    assert self.take(evolve(self.some_reply(path), path=path))
                case ToJudge(calls=names, path=path):
                    self.judge(names, path)
                case RunCall(call_id=call_id, path=path):
                    assert self.take(self.some_start(path, call_id))
                case Conclude(call_id=call_id, path=path):
                    answer = answer_of(self.state.loops[*path, call_id], Texts())
                    assert self.take(ev.Ended(call_id, answer, path=path))
                case EndTurn(path=path):
                    assert self.take(ev.TurnEnded(path=path))

    def some_reply(self, path: Path) -> ev.Replied:
        if path and self.chance(3):
            return m.make_replied("end_turn", m.text("done"))
        loop = self.state.loops[path]
        names = (f"t{loop.iterations + 1}{each}" for each in "ab"[: self.rng.randrange(1, 3)])
        return m.make_replied("tool_use", *(self.some_call(each, is_inside=bool(path)) for each in names))

    def some_call(self, call_id: str, *, is_inside: bool) -> Any:
        pick = self.rng.choice
        tools = ("pure", "once", "once") if is_inside or not self.is_nested else ("keyed", "keyed", "once")
        return m.call(call_id, pick(tools), input={"a": pick((1, 1, 1, 2, 3))})

    def some_start(self, path: Path, call_id: str) -> ev.Event:
        is_loop = m.the_call(self.state.loops[path], call_id).name == "keyed"
        return m.child(self.state, *path, call_id, **self.setup) if is_loop else ev.Started(call_id, path=path)

    def judge(self, names: tuple[str, ...], path: Path) -> None:
        calls = {call.id: call for at, call in self.calls() if at == path}
        results = [(each, self.verdict(calls[each], path)) for each in names]
        results = [(name, result) for name, result in results if result is not None]
        assert self.take(ev.Judged(tuple(results), path=path))  # type: ignore[arg-type]

    def verdict(self, call: Call, path: Path) -> PolicyResult | None:
        """What the rules say of a call: those around it forbid and ask, too."""
        inner = self.opinion(self.rules_inside if path else self.rules, call)
        outer = self.opinion(self.rules, call) if path else None
        if not isinstance(outer, (Wait, DecisionRecord)) or outer == m.APPROVE:
            return inner
        if m.DENY in (outer, inner):
            return m.DENY
        asks = [each for each in (outer, inner) if isinstance(each, Wait)]
        return Wait(Why.APPROVAL, demands=tuple(demand for ask in asks for demand in ask.demands or (Demand(),)))

    def opinion(self, rules: dict[str, Any], call: Call) -> PolicyResult | None:
        rule = rules[call.effective_input]
        if rule == self.RAISES:
            return Wait(Why.APPROVAL, demands=(Demand(fresh=True, reason=f"raised {self.rng.random()}", failed=True),))
        return rule  # type: ignore[no-any-return]

    def change_rules(self) -> None:
        for rules in () if self.is_steady else (self.rules, self.rules_inside):
            rules |= {each: self.some_rule() for each in INPUTS if each not in rules or self.chance(4)}

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
        """A person decides, of the calls that wait as a rule."""
        open_ = [*waiting(self.state)] or self.calls()
        chosen = [each for each in open_ if not self.chance(4)][:2]
        if chosen:
            named = [("/".join((*path, call.id)), self.decision(path, call)) for path, call in chosen]
            self.take(ev.Decided(tuple(each for each in named if self.is_news(each))))

    def is_news(self, named: tuple[str, DecisionRecord]) -> bool:
        """Whether it does not repeat another one; a repetition would not be recorded."""
        try:
            return step(self.state, ev.Decided((named,))) != self.state
        except CallerError:
            return True

    def decision(self, path: Path, call: Call) -> DecisionRecord:
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
            digest=self.some_digest(path, call),
            remember=spec if kind == "approve" and self.chance(2) else None,
        )

    def some_digest(self, path: Path, call: Call) -> str | None:
        if self.chance(8):
            return None
        seen = self.digests.get(call.id, [])
        return self.rng.choice(seen) if seen and self.chance(12) else self.digest(path, call)

    def digest(self, path: Path, call: Call) -> str:
        loop = self.state.loops[path]
        assert loop.round is not None
        return digest_of(loop.setup, loop.round.iteration, call)

    def note_digests(self) -> None:
        for path, call in self.calls():
            self.digests.setdefault(call.id, []).append(self.digest(path, call))

    def go_on(self) -> None:
        self.take(ev.Continued())

    def revoke(self) -> None:
        grants = [(path, grant.id) for path, loop in driven(self.state) for grant in loop.grants]
        if grants:
            path, name = self.rng.choice(grants)
            self.take(ev.GrantRevoked(name, path=path))

    # --- time, and other drivers ------------------------------------------------------------------------------------

    def tick(self) -> None:
        due = next_deadline(self.state)
        self.clock = max(self.clock, due + 1.0) if due is not None and self.chance(6) else self.clock + 5.0
        self.take(ev.Ticked(at=self.clock))

    def crash(self) -> None:
        if any(call.status is Status.RUNNING for _, call in self.calls()):
            self.wake()

    def wake(self) -> None:
        """Another driver takes the loop over, now and then with other tools."""
        changed = self.rng.choice(((), (), ("once",), ("keyed", "keyed/once"), ("keyed/pure",)))
        self.take(ev.Woken(changed_tools=changed, rebinds=not self.chance(3)))  # old journals do not rebind

    def copy(self) -> None:
        if self.state.root.round is not None and self.chance(4):
            self.state = fork(self.state, f"copy of {self.state.root.setup.loop_id}", self.clock)
            self.events.append(ev.Adopted(self.state, at=self.clock))

    def restore(self) -> None:
        assert load(dump(self.state)) == self.state

    def calls(self) -> list[tuple[Path, Call]]:
        """The calls of the open rounds, with the paths of their loops."""
        rounds = [(path, find_open_round(loop)) for path, loop in driven(self.state)]
        return [(path, call) for path, round_ in rounds if round_ is not None for call in round_.calls]


LIVES = st.tuples(st.integers(0, 2**32), st.integers(10, 200))


@examples(150)
@given(LIVES)
def test_each_start_has_the_persons_that_each_demand_asks_for(life: tuple[int, int]) -> None:
    """Of exactly the input that runs, since the last start that was not a repeat; no excluded person, no `Deny`."""
    Judge().read(Office(random.Random(life[0])).live(life[1]).events)


def test_the_lives_hold_what_matters() -> None:
    """Starts with two persons, edited, with fresh demands, by grants, as reruns, of other tools and inside calls."""
    seen: Counter[str] = Counter()
    for seed in some(range(150), 2):
        judge = Judge().read(Office(random.Random(seed)).live(100).events)
        seen.update(note for notes in judge.started for note in (*notes, "start"))
    assert min(seen[each] for each in ("two", "edited", "fresh", "grant", "rerun", "changed", "inside")) >= 3, seen


@examples(40)
@given(LIVES)
def test_the_order_of_two_approvals_does_not_matter(life: tuple[int, int]) -> None:
    """Of two persons, of the same input."""
    office = Office(random.Random(life[0])).live(life[1])
    for path, call in waiting(office.state):
        if call.why is not Why.APPROVAL or call.expires_at is not None:
            continue
        digest, groups = office.digest(path, call), ("finance", "legal")
        both = [DecisionRecord("approve", by=by, groups=groups, via="handle", digest=digest) for by in ("bo", "cy")]
        ends = [_state_after(office.state, (*path, call.id), each) for each in (both, both[::-1])]
        assert ends[0] == ends[1]


def _state_after(state: State, names: Path, decisions: list[DecisionRecord]) -> Any:
    for each in decisions:
        try:
            state = step(state, ev.Decided((("/".join(names), each),)))
        except CallerError:
            continue
    found = m.the_call(state.loops[names[:-1]], names[-1])
    return found.status, count_missing(found.demands, list_approvals(found))
