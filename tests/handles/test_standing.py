"""What a decision returns: the decision that stands in each call, and with `each` the error of a refused one."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.handles.test_who_may_start import FAY, FRED, LEA, SUE, Rules, shop
from tests.kit.concurrency import either_kind
from tests.kit.tools import PAY
from tests.kit.world import AnyHandle, World
from toolloop import Answer, Approve, Ask, Deny, Inbox, Person
from toolloop.errors import AlreadyDecided, CallerError, IllegalCommand
from toolloop.stores import MemoryStore
from toolloop.testing import call, reply
from toolloop.types import Decision, Standing

IDS = ("a", "b", "c")


def parts(standing: Standing) -> tuple[Any, ...]:
    return standing.kind, standing.by, standing.is_yours, standing.missing


@either_kind
def test_the_decision_that_stands_is_returned(kind: str) -> None:
    """One's own, also when it is given again; and that of another person who was faster."""
    _, _, peer = shop(kind, Ask())
    (shown,) = peer.handle.pending
    bo, ana = ({shown: Deny("no", by=name)} for name in ("bo", "ana"))
    first = peer.say(lambda: peer.handle.decide(bo))
    assert set(first) == {shown}
    assert (parts(first[shown]), first[shown].reason) == (("deny", "bo", True, 0), "no")
    assert peer.say(lambda: peer.handle.decide(bo)) == first
    assert parts(peer.say(lambda: peer.handle.decide(ana))[shown]) == ("deny", "bo", False, 0)


@either_kind
def test_each_approval_says_how_many_are_missing(kind: str) -> None:
    """A repeated approval returns the person's own approval, also after others have completed it."""
    _, _, peer = shop(kind, [Ask(need=2), Ask(of="legal")])
    turn = peer.turn()
    (shown,) = turn.pending
    while_open = [(FAY, "fay", True, 2), (FRED, "fred", True, 1), (FAY, "fay", True, 1), (LEA, "lea", True, 0)]
    for person, by, is_yours, still in [*while_open, (FRED, "fred", True, 0), (SUE, "lea", False, 0)]:
        standing = peer.say(lambda person=person: turn.approve(shown, by=person))  # type: ignore[misc]
        assert parts(standing) == ("approve", by, is_yours, still)


@either_kind
@pytest.mark.parametrize("last", [Deny("no", by="bo"), Answer("by hand", by="bo"), Deny("after all", by="ana")])
def test_a_denial_or_an_answer_stands_over_the_approvals_before_it(kind: str, last: Decision) -> None:
    _, _, peer = shop(kind, Ask(need=2))
    turn = peer.turn()
    (shown,) = turn.pending
    peer.say(lambda: turn.approve(shown, by="ana"))
    standing = peer.say(lambda: peer.handle.decide({shown: last}))[shown]
    assert parts(standing) == (type(last).__name__.lower(), last.by, True, 0)
    assert turn.calls[0].status == "settled"


@either_kind
def test_what_changes_nothing_is_not_in_the_trail(kind: str) -> None:
    """In a batch, too: a repeated approval does not add a line."""
    calls = [call("pay", {"amount": 1}, id=each) for each in ("a", "b")]
    script = (reply(calls=calls), reply("done"))
    world = World(kind, MemoryStore(), script=script, config={"on_tool_call": Rules(Ask(need=2))})
    peer = world.open()
    peer.next_turn()
    a, b = peer.turn().pending
    for decisions in ({a: Approve(by="ana")}, {a: Approve(by="ana"), b: Approve(by="ana")}):
        peer.say(lambda decisions=decisions: peer.handle.decide(decisions))  # type: ignore[misc]
    trail = Inbox(world.store).trail("loop")
    assert [(each.path, each.by) for each in trail] == [(("a",), "ana"), (("b",), "ana")]


@either_kind
def test_an_edit_that_no_rule_has_judged_says_so(kind: str) -> None:
    """Then `missing` is a lower bound."""
    _, _, peer = shop(kind, Ask(need=2))
    turn = peer.turn()
    (shown,) = turn.pending
    assert peer.say(lambda: turn.approve(shown, by="ana")).is_judged
    standing = peer.say(lambda: turn.approve(shown, {"amount": 2}, by="ana"))
    assert (parts(standing), standing.is_judged) == (("approve", "ana", True, 1), False)


@either_kind
def test_approving_all_gives_one_approval_to_each_call(kind: str) -> None:
    world = World(kind, MemoryStore(), script=(reply(calls=[PAY, TWICE]),), config={"on_tool_call": ask_for_two})
    peer = world.open()
    peer.next_turn()
    turn = peer.turn()
    first, second = turn.pending
    with pytest.raises(IllegalCommand, match="give by="):
        turn.approve_all()
    assert not any(each.approvals for each in turn.pending)
    standing = peer.say(lambda: turn.approve_all(by="ana"))
    assert {each.id: parts(standing[each]) for each in (first, second)} == {
        "t1": ("approve", "ana", True, 0),
        "t2": ("approve", "ana", True, 1),
    }


TWICE = call("pay", {"amount": 2}, id="t2")


def ask_for_two(shown: Any, _view: object) -> Ask:
    return Ask(need=2 if shown.effective_input["amount"] == 2 else 1)


# --- each by itself --------------------------------------------------------------------------------------------------


def three(ask: Any) -> tuple[World, AnyHandle]:
    """A loop in which three calls wait."""
    script = [reply(calls=[call("pay", {"amount": 1}, id=name) for name in IDS]), reply("done")]
    config = {"on_tool_call": Rules(ask)}
    world = World("sync", MemoryStore(), script=script, config=config, clock=lambda: 1_800_000_000.0)
    peer = world.open()
    peer.next_turn()
    return world, peer


PEOPLE = st.sampled_from([None, "ana", "bo", Person("fay", "finance")])
GIVEN: st.SearchStrategy[Decision] = st.one_of(
    st.builds(Approve, by=PEOPLE),
    st.builds(Approve, st.sampled_from([{"amount": 1}, {"amount": 5}, {"amount": "much"}]), by=PEOPLE),
    st.builds(Deny, st.just("no"), by=PEOPLE),
    st.builds(Answer, st.just("paid by hand"), by=PEOPLE),
)
ASKS = st.sampled_from([Ask(), Ask(need=2), Ask(of="finance"), Ask(not_by="bo")])


@given(ASKS, st.lists(st.dictionaries(st.sampled_from([*IDS, "x"]), GIVEN, min_size=1), min_size=1, max_size=3))
def test_each_call_by_itself_is_as_one_after_the_other(ask: Ask, rounds: list[dict[str, Decision]]) -> None:
    """The loop, the returned decisions and the errors are equal to those of single decisions; it is one event."""
    (world, one), (_, other) = three(ask), three(ask)
    for decisions in rounds:
        before = len(world.journal())
        together = one.say(lambda decisions=decisions: one.handle.decide(decisions, each=True))  # type: ignore[misc]
        assert list(together) == list(decisions)
        assert len(world.journal()) <= before + 1
        for name, decision in decisions.items():
            outcome = together[name]
            if isinstance(outcome, Standing):
                assert other.handle.decide({name: decision}) == {name: outcome}
            else:
                with pytest.raises(type(outcome), match=f"^{re.escape(str(outcome))}$"):
                    other.handle.decide({name: decision})
        assert one.turn().calls == other.turn().calls


# --- in an inbox -----------------------------------------------------------------------------------------------------


def test_an_inbox_returns_what_stands() -> None:
    """Also with `each`, and for a call whose round is closed: there the error says who decided."""
    world, peer = three([Ask(need=2)])
    inbox = Inbox(world.store, clock=world.clock)
    first, second, third = inbox.pending()
    standing = inbox.decide("loop", {first: Deny("no", by="ana"), second: Approve(by="ana")})
    assert {shown.id: parts(each) for shown, each in standing.items()} == {
        "a": ("deny", "ana", True, 0),
        "b": ("approve", "ana", True, 1),
    }
    told = inbox.decide(
        "loop", {first: Approve(by="bo"), second: Approve(by="bo"), third: Deny("nor this", by="bo")}, each=True
    )
    refused = told[first]
    assert isinstance(refused, AlreadyDecided)
    assert refused.by == "ana"
    assert [parts(each) for each in told.values() if isinstance(each, Standing)] == [
        ("approve", "bo", True, 0),
        ("deny", "bo", True, 0),
    ]
    assert peer.run().unwrap().text == "done"
    late: Any = inbox.decide("loop", {"a": Approve(by="bo"), "x": Deny("no")}, each=True)
    assert isinstance(late["a"], AlreadyDecided)
    assert (late["a"].by, late["a"].decision) == ("ana", "deny")
    assert isinstance(late["x"], CallerError)
