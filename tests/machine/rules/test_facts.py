"""Facts that a loop keeps about tools that are gone, and errors for calls without a decision."""

from __future__ import annotations

from attrs import evolve

from tests.kit.machine import making as m
from toolloop.errors import AlreadyDecided
from toolloop.machine.record import journal_events as ev
from toolloop.machine.rules.deciding import make_already_decided_error
from toolloop.machine.values.calls import DecisionRecord
from toolloop.machine.values.setup import LoopFacts, ToolFacts, keep_gone

PAY = ToolFacts("pay", "once", "always", "1", secret=("token",))
LOOK = ToolFacts("look", "pure", "never", "2")


def agent(*tools: ToolFacts) -> ToolFacts:
    return ToolFacts("agent", "once", "never", "3", inside=LoopFacts("4", tools, frozenset()))


def test_the_facts_of_a_tool_that_is_gone_stay_until_it_is_back() -> None:
    """Inside calls that are loops, too. Its secret parameters stay known."""
    first = evolve(m.setup(), tools=(PAY, agent(PAY, LOOK)))
    tools, gone = keep_gone(first, (agent(LOOK),))
    without = evolve(first, tools=tools, gone_tools=gone)
    assert gone == (PAY,)
    assert without.tool("pay") is None
    assert without.secrets_of("pay") == ("token",)
    kept = without.tool("agent")
    assert kept is not None
    assert kept.inside is not None
    assert (kept.inside.tools, kept.inside.gone_tools) == ((LOOK,), (PAY,))
    back, gone = keep_gone(without, (PAY, agent(PAY, LOOK)))
    assert (back, gone) == ((PAY, agent(PAY, LOOK)), ())
    assert keep_gone(first, (LOOK, evolve(LOOK, name="agent")))[0] == (LOOK, evolve(LOOK, name="agent"))


def test_the_error_for_a_decision_after_an_expiry_has_its_time() -> None:
    """There is no decision to name."""
    call = m.the_call(m.state_after(m.make_replied("tool_use", m.call("c")), m.asks("c")))._replace(expires_at=60.0)
    error = make_already_decided_error("c", call, AlreadyDecided)
    assert "expired at 1970-01-01T00:01:00+00:00 without a decision" in str(error)
    assert (error.call, error.decision, error.by) == ("c", None, None)
    denied = call._replace(decision=DecisionRecord("deny", by="ana", at=5.0))
    error = make_already_decided_error("c", denied, AlreadyDecided)
    assert (error.by, "nothing is left to decide" in str(error)) == ("ana", True)


def test_messages_at_the_end_of_a_taken_history_may_stay_beside_it() -> None:
    """Only a resumption may follow them."""
    state = m.state_after(m.make_replied("pause_turn", m.text("so far"), m.server_call("srvtoolu_1")))
    taken = m.go(state, ev.HistoryTaken(beside=1))
    assert (len(taken.root.unjoined), len(taken.root.messages)) == (1, len(state.root.messages) - 1)
