"""The digest of a call: a decision is taken only on the call as it is, of the tool that it has now."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from toolloop.errors import CallerError
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import step
from toolloop.machine.values.calls import DecisionRecord, Status, Wait, Why
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import encode

INPUTS = tuple(encode({"a": each}) for each in (1, 2, 3))
# What a policy demands: the reason of a fresh demand makes it another one.
DEMANDS = {
    "one": (),
    "two": (Demand(2),),
    "fresh": (Demand(1, fresh=True),),
    "two, fresh": (Demand(2, fresh=True, reason="today"),),
}
# What happens: who decides how, on which of the digests that were ever shown (the newest: 0), with which input.
DECIDES = st.tuples(
    st.sampled_from(("approve", "approve", "edit", "rerun")),
    st.sampled_from(("ana", "bo")),
    st.sampled_from((0, 0, 1, 2)),
    st.sampled_from(INPUTS),
)
Picture = tuple[str, int, int]  # the input that would run, the starts, and the number of the tool
HAPPENS = st.one_of(DECIDES, DECIDES, st.sampled_from(("accept", "wake", "continue", "run", "repeat", *DEMANDS)))


@define
class Desk:
    """A loop with a call, whose tool changes, and persons with old and new pictures of it.

    Attributes:
        seen: what persons saw of the call while it waited, oldest first: its digest, and what it was then.
        tool: how often another tool was accepted.

    """

    state: State
    seen: list[tuple[str, Picture]] = field(factory=list)
    tool: int = 0

    def show(self) -> None:
        call = the_call(self.state)
        if call.status is Status.WAITING:
            now = (digest_of(self.state.root.setup, 1, call), self.picture())
            self.seen = [*(each for each in self.seen if each != now), now]

    def picture(self) -> Picture:
        call = the_call(self.state)
        return call.effective_input, call.attempts, self.tool

    def take(self, event: ev.Event) -> bool:
        try:
            self.state = step(self.state, event)
        except CallerError:
            return False
        self.show()
        return True

    def live(self, name: str) -> None:
        match name:
            case "accept":
                self.tool += 1
                assert self.take(ev.Woken(changed_tools=("keyed",), rebinds=True))
            case "wake":
                assert self.take(ev.Woken())
            case "continue":
                self.take(ev.Continued())
            case "repeat":  # by the machine, if its tool allows it
                for each in ("continue", "run", "wake"):
                    self.live(each)
            case "run":
                self.take(ev.Started("c"))  # until it is taken over, so that its end is unknown
            case _:
                self.take(m.make_judged(c=Wait(Why.APPROVAL, demands=DEMANDS[name])))

    def decide(self, kind: str, by: str, back: int, content: str) -> None:
        digest, shown = self.seen[-1 - back % len(self.seen)]
        before, now = self.state, self.picture()
        made = DecisionRecord("approve" if kind == "edit" else kind, by=by, via="inbox", digest=digest)  # type: ignore[arg-type]
        made = evolve(made, content=content) if kind == "edit" else made
        if (self.take(ev.Decided((("c", made),))) or self.take(ev.Approved((("c", made),)))) and self.state != before:
            assert shown == now


@examples(300)
@given(st.sampled_from([*DEMANDS]), st.sampled_from(("once", "keyed")), st.lists(HAPPENS, min_size=3, max_size=30))
def test_a_decision_is_taken_only_on_the_call_as_it_was_shown(
    demands: str, effect: Any, life: list[str | tuple[str, str, int, str]]
) -> None:
    """Over approvals of two persons, edits, runs, reruns and changes of the tool, each with old digests, too."""
    tools = tuple(evolve(each, effect=effect) for each in m.TOOLS)
    state = m.state_after(m.make_replied("tool_use", m.call("c", "keyed")), tools=tools, execution="ready")
    desk = Desk(state)
    desk.live(demands)
    for each in life:
        desk.live(each) if isinstance(each, str) else desk.decide(*each)


def test_an_approval_of_an_earlier_run_does_not_count_for_a_fresh_demand() -> None:
    """Ana's approval stands after the machine repeats the run; sent again, it is not one of what is asked now."""
    state = m.state_after(m.make_replied("tool_use", m.call("c", "keyed")), execution="ready")
    desk = Desk(state)
    desk.live("one")
    desk.decide("approve", "ana", 0, INPUTS[0])
    desk.live("repeat")
    desk.live("fresh")
    stands = desk.state
    desk.decide("approve", "ana", 1, INPUTS[0])
    assert desk.state == stands
    desk.decide("approve", "ana", 0, INPUTS[0])
    assert the_call(desk.state).status is Status.DECIDED
