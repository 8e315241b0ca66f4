"""A judge of who had a say: it reads a journal, and knows no rule of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import define, evolve, field

from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Judging, State
from toolloop.machine.tree import fold, step
from toolloop.machine.values.calls import DecisionRecord, Reject, Wait, Why
from toolloop.machine.values.demands import Demand

# Whom a name stands for; zero is no person. Not computed: a rule of the machine must not judge itself.
PERSONS: dict[str | None, int] = {
    "ana": 1,
    "Ana ": 1,
    "\uff21\uff2e\uff21": 1,
    "bo": 2,
    "Bo": 2,
    "cy": 3,
    "\u0430na": 4,
    None: 0,
    "": 0,
    " ": 0,
}
REPEATABLE = {"pure", "keyed"}


@define
class Asked:
    """A demand, and which approval is the first that counts for it."""

    demand: Demand
    since: int = 0


@define
class Vote:
    """An approval of one input."""

    person: int
    groups: tuple[str, ...]


@define
class Given:
    """A grant: the vote of who gave it, for a tool and an input, until a time."""

    vote: Vote
    tool: str
    input: str
    until: float | None


@define
class Ballot:
    """What is known of one call.

    Attributes:
        input: what would run.
        yes: the approvals of that input since the last start that the machine does not repeat by itself.
        waited: whether it ever waited for a person.
        had_say: whether a person has approved it since that start.
        changed: whether its tool was replaced by another one.
        is_to_judge: whether no policy has judged the newest edit, or the order to run it again.

    """

    tool: str
    proposed: str
    input: str
    asked: list[Asked] = field(factory=list)
    yes: list[Vote] = field(factory=list)
    waited: bool = False
    closed: bool = False
    running: bool = False
    had_say: bool = False
    starts: int = 0
    is_judged: bool = False
    is_asked: bool = False
    changed: bool = False
    is_to_judge: bool = False

    def reset(self) -> None:
        self.yes, self.had_say = [], False
        for each in self.asked:
            each.since = 0

    def judge(self, result: Any, grants: list[Vote]) -> None:
        """The newest demands stand. One that stood already keeps its approvals."""
        if isinstance(result, Wait) and result.why is Why.APPROVAL:
            self.is_asked, old = True, list(self.asked)
            self.asked = [self._stands(old, each) for each in result.demands]
            is_met = bool(self.yes or grants) and not self.list_unmet(grants)
            self.waited = self.waited or not is_met
        elif isinstance(result, Reject) or (isinstance(result, DecisionRecord) and result.kind != "approve"):
            self.closed = True

    def _stands(self, old: list[Asked], demand: Demand) -> Asked:
        for each in old:
            if (each.demand.failed and demand.failed) or fields_of(each.demand) == fields_of(demand):
                return Asked(demand, each.since)
        return Asked(demand, len(self.yes))

    def approve(self, decision: DecisionRecord) -> None:
        if decision.content is not None and decision.content != self.input:
            self.reset()
            self.input = decision.content
            self.is_to_judge = True
        self.yes.append(Vote(PERSONS[decision.by], decision.groups))
        self.had_say = True

    def list_unmet(self, grants: Iterable[Vote] = ()) -> list[Asked]:
        """The demands that neither persons nor one of these grants have met."""
        open_ = []
        for each in self.asked:
            counted = self.yes[each.since :] if each.demand.fresh else self.yes
            open_ += [] if is_enough(each.demand, counted) else [each]
        if not open_:
            return []
        for grant in grants:
            if all(
                each.demand.need == 1 and not each.demand.fresh and is_enough(each.demand, [grant]) for each in open_
            ):
                return []
        return open_


def fields_of(demand: Demand) -> tuple[Any, ...]:
    d = demand
    return (d.need, d.of, d.not_by, d.fresh, d.reason, d.rule, d.rule_digest, d.expires_in, d.remind_after, d.failed)


def is_enough(demand: Demand, votes: Iterable[Vote]) -> bool:
    """Whether so many different persons as it needs have voted who may."""
    named = demand.need > 1 or demand.of or demand.not_by
    barred = {PERSONS[name] for name in demand.not_by}
    persons = {
        vote.person
        for vote in votes
        if not (named and (vote.person == 0 or vote.person in barred))
        if not demand.of or set(demand.of) & set(vote.groups)
    }
    return len(persons) >= demand.need


def add_omitted(journal: Iterable[ev.Event]) -> Iterator[ev.Event]:
    """Yield the events of a journal, and before a start the judgement without results that it omits."""
    state: State | None = None
    for event in journal:
        if state is not None and isinstance(event, ev.Started | ev.Opened):
            path = event.path[:-1] if isinstance(event, ev.Opened) else event.path
            if isinstance(state.loops[path].phase, Judging):
                yield ev.Judged(path=path)
        state = fold([event]) if state is None else step(state, event)
        yield event


class Judge:
    """Follows a journal of a tree of loops, and refuses a start without its approvals.

    Attributes:
        started: for each start, what was notable about it.
        below: those of the loops inside calls, by the call.

    """

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.below: dict[str, Judge] = {}
        self.calls: dict[str, Ballot] = {}
        self.grants: dict[str, Given] = {}
        self.iteration = 0
        self.now = 0.0
        self.started: list[set[str]] = []

    def read(self, journal: Iterable[ev.Event]) -> Judge:
        for event in journal:
            self.pass_time(event.at)
            self.take(event)
        return self

    def pass_time(self, at: float) -> None:
        self.now = max(self.now, at)
        for judge in self.below.values():
            judge.pass_time(at)

    def take(self, event: ev.Event) -> None:
        match event:
            case ev.Opened(path=(call_id,)):
                self._start(self.calls[call_id])
                self.below[call_id] = judge = Judge(self.depth + 1)
                judge.started = self.started
                judge.now = self.now
            case ev.Event(path=(call_id, *path)):
                self.below[call_id].take(evolve(event, path=tuple(path)))
            case _:
                self._take(event)

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Replied(reply=reply):
                self.iteration += 1
                self.calls = {call.id: Ballot(call.name, call.input, call.input) for call in reply.calls()}
            case ev.Judged(results=results):
                for name, result in results:
                    self._judge(self.calls[name], result)
                for call in self.calls.values():
                    call.is_judged, call.is_to_judge = True, call.is_to_judge and not call.had_say
            case ev.Decided(decisions=decisions):
                for name, decision in decisions:
                    above, _, below = name.rpartition("/")
                    if above:
                        self.below[above].take(ev.Decided(((below, decision),)))
                    else:
                        self._decide(name, self.calls[name], decision)
            case ev.GrantRevoked(grant_id=grant_id):
                del self.grants[grant_id]
            case ev.Started(call_id=call_id):
                self._start(self.calls[call_id])
            case ev.Ended(call_id=call_id, result=None) if self.calls[call_id].tool not in REPEATABLE:
                self._lose(self.calls[call_id])
            case ev.Ended(call_id=call_id):
                self.below.pop(call_id, None)
                self.calls[call_id].running, self.calls[call_id].closed = False, True
            case ev.Woken(changed_tools=names):
                for name, call in self.calls.items():
                    if call.running and name not in self.below:
                        self._lose(call)
                    if call.tool in {each.split("/")[0] for each in names}:
                        self._change(call)
                for name, judge in self.below.items():
                    begin = self.calls[name].tool + "/"
                    theirs = tuple(each[len(begin) :] for each in names if each.startswith(begin))
                    judge.take(ev.Woken(changed_tools=theirs))
            case ev.Adopted():
                for call in (call for name, call in self.calls.items() if name not in self.below):
                    call.reset()
                    call.input = call.input if call.starts else call.proposed
                    call.waited, call.running = call.waited or call.is_judged, False
                self.grants = {}
                for judge in self.below.values():
                    judge.take(event)

    def list_standing(self, call: Ballot) -> list[Vote]:
        """The votes of the grants that cover what would run."""
        until = [each for each in self.grants.values() if each.until is None or each.until > self.now]
        return [each.vote for each in until if (each.tool, each.input) == (call.tool, call.input)]

    def _judge(self, call: Ballot, result: Any) -> None:
        call.judge(result, self.list_standing(call))
        is_edit = isinstance(result, DecisionRecord) and result.kind == "approve" and result.content is not None
        if is_edit and not (call.asked or call.yes):
            assert isinstance(result, DecisionRecord)
            call.input = str(result.content)

    def _decide(self, name: str, call: Ballot, decision: DecisionRecord) -> None:
        if decision.kind in ("deny", "answer"):
            call.closed = True
            return
        call.approve(decision)
        if decision.remember is not None:
            given = Given(call.yes[-1], call.tool, call.input, decision.remember.expires_at)
            self.grants[f"{self.iteration}/{name}"] = given

    def _start(self, call: Ballot) -> None:
        assert not call.is_to_judge, "no policy has judged it"
        assert not call.closed, "it was denied, answered or has its result"
        standing = self.list_standing(call)
        unmet = call.list_unmet(standing)
        assert not unmet, f"{unmet} is not met by {call.yes} and the grants {standing}"
        assert not call.waited or call.had_say or standing, "it waited, and has no approval since"
        notes = {"edited"} if call.input != call.proposed else set()
        notes |= {"two"} if any(each.demand.need > 1 for each in call.asked) else set()
        notes |= {"fresh"} if any(each.demand.fresh for each in call.asked) else set()
        notes |= {"grant"} if call.is_asked and standing and not call.had_say else set()
        self.started.append(notes)
        notes |= {"changed"} if call.changed and not call.starts else set()
        notes |= {"inside"} if self.depth and call.waited else set()
        notes |= {"rerun"} if call.starts and call.tool not in REPEATABLE else set()
        call.running, call.starts = True, call.starts + 1

    def _change(self, call: Ballot) -> None:
        """Its tool is another one now. A call that persons had to do with begins again, unless it was started."""
        if not call.starts and not call.closed and (call.yes or call.asked):
            call.changed = True
            call.waited = True
            call.reset()

    def _lose(self, call: Ballot) -> None:
        call.running = False
        if call.tool not in REPEATABLE:
            call.reset()
            call.waited = call.is_to_judge = True
