"""What a row says of a call that several persons must approve: demands, approvals, edits, and what is missing."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.inbox.support import PAY, desk
from tests.kit.effort import examples
from tests.kit.world import World, each_store
from toolloop import Approve, Ask, Deny, Person, Rerun, tool
from toolloop.errors import BadLink, CallerError, DecisionConflict
from toolloop.inbox import InboxCall
from toolloop.testing import reply

ONE: tuple[Any, ...] = (reply(calls=[PAY]), reply("Paid."))
FAY, FRED = Person("fay", "finance"), Person("fred", "finance")
SUE = Person("sue", "support")
TWO_OF_FINANCE = Ask("above 1", need=2, of="finance", not_by="eve", rule="large")


@tool(needs_approval=True)
def pay(to: str, euros: int = 0, currency: str = "EUR") -> str:
    """Pay, in any currency."""
    return f"{euros} {currency} to {to}"


def asking(rule: Any, where: str = "memory", folder: Path = Path()) -> World:
    """A loop with a call that waits, because of this result of the policy."""
    found = desk(where, folder, script=ONE, config={"on_tool_call": lambda *_: rule})
    found.drive()
    return found


def row(at: World) -> InboxCall:
    (call,) = at.inbox.pending()
    return call


def judged_again(at: World, rule: Any) -> None:
    """Another worker takes the loop over, whose policy says this."""
    at.config = {"on_tool_call": lambda *_: rule}
    with at.open(take_over=True) as handle:
        handle.run()


@each_store
def test_a_row_says_who_has_approved_and_who_is_missing(where: str, tmp_path: Path) -> None:
    """As data, and in words."""
    at = asking(TWO_OF_FINANCE, where, tmp_path)
    before = row(at)
    (demand,) = before.demands
    assert (demand.need, demand.of, demand.not_by) == (2, ("finance",), ("eve",))
    assert (demand.fresh, demand.reason, demand.rule) == (False, "above 1", "large")
    assert (before.approvals, before.missing, before.edited) == ((), 2, None)
    assert before.progress == "0 of 2; 2 approvals of finance (not by eve)"
    at.inbox.decide("loop", {before: Approve(by=FAY)})
    after = row(at)
    (yes,) = after.approvals
    assert (yes.kind, yes.by, yes.groups, yes.via) == ("approve", "fay", ("finance",), "inbox")
    assert yes.at.timestamp() == at.now
    assert (after.missing, after.progress) == (1, "1 of 2: fay; 1 more approval of finance (not by eve)")
    assert after.notification_id == before.notification_id
    at.inbox.decide("loop", {after: Approve(by=FRED)})
    assert len(at.inbox.pending()) == 0


def test_a_call_that_any_person_may_approve_has_nothing_more_to_say() -> None:
    """Its id for notifications is that of earlier versions."""
    at = asking(Ask("why not"))
    call, stored = row(at), at.store.head("loop")
    assert (call.demands, call.approvals, call.missing, call.edited, call.progress) == ((), (), 1, None, "")
    assert not {"demands", "approvals", "edited"} & stored.pending[0].named.keys()
    old = sha256(f"{stored.created} approval {call.digest}".encode()).hexdigest()[:32]
    assert call.notification_id == old


@each_store
def test_what_was_shown_of_another_definition_of_the_tool_decides_nothing(where: str, tmp_path: Path) -> None:
    """Neither an old row, nor an old link; a person sees the call with a new digest, and is notified again."""
    at = asking(Ask(need=2), where, tmp_path)
    before = row(at)
    token = at.inbox.link("loop", "c1", base_url="https://example.org", person="bo").rpartition("/")[2]
    at.inbox.decide("loop", {before: Approve(by="ana")})
    at.inbox.decide("loop", {before: Approve(by="bo")})
    with at.open(tools=(pay,), on_drift="accept") as handle:
        handle.run()
    now = row(at)
    assert (now.approvals, now.missing, now.input) == ((), 2, before.input)
    assert now.notification_id != before.notification_id
    for decision in (Approve(by="ana"), Approve({"to": "eve"}, by="bo"), Deny("no", by="bo")):
        with pytest.raises(DecisionConflict, match="it has changed since it was shown"):
            at.inbox.decide("loop", {before: decision})
    with pytest.raises(BadLink):
        at.inbox.redeem(token, Deny("no"))
    at.inbox.decide("loop", {now: Approve(by="ana")})
    at.inbox.decide("loop", {now: Approve(by="bo")})
    with at.open(tools=(pay,)) as handle:
        assert handle.run().unwrap().text == "Paid."


def test_a_stricter_rule_is_another_reason_to_notify() -> None:
    """The call waits again under new demands; the same demands again are the same wait."""
    at = asking(Ask(of="finance"))
    first = row(at)
    judged_again(at, Ask(of="finance"))
    assert row(at).notification_id == first.notification_id
    at.inbox.decide("loop", {row(at): Approve(by=FAY)})
    judged_again(at, TWO_OF_FINANCE)
    then = row(at)
    assert then.digest == first.digest
    assert then.notification_id != first.notification_id
    assert then.progress == "1 of 2: fay; 1 more approval of finance (not by eve)"


def test_an_approval_that_counts_for_no_demand_is_shown_and_not_counted() -> None:
    """Here, one that was given before a rule asked for new ones."""
    at = asking([Ask("a", of="finance"), Ask("b", of="support")])
    at.inbox.decide("loop", {row(at): Approve(by=FAY)})
    at.inbox.decide("loop", {row(at): Approve(by=SUE)})
    judged_again(at, Ask("now", need=2, fresh=True))
    assert row(at).demands[0].fresh
    assert [each.by for each in row(at).approvals] == ["fay", "sue"]
    assert (row(at).missing, row(at).progress) == (2, "0 of 2; 2 approvals")


def test_an_edit_is_shown_as_not_judged_until_the_policy_judged_it() -> None:
    """What is missing before that may grow."""
    at = asking(Ask(need=2))
    at.inbox.decide("loop", {row(at): Approve({"to": "ana", "euros": 9}, by=FAY)})
    shown = row(at)
    assert (shown.edited, shown.input, shown.missing) == ("unjudged", {"to": "ana", "euros": 9}, 1)
    at.inbox.decide("loop", {shown: Approve(by=FRED)})
    judged_again(at, Ask(need=3))
    assert (row(at).edited, row(at).missing) == ("judged", 1)
    assert row(at).progress == "2 of 3: fay, fred; 1 more approval"


def test_a_call_whose_end_is_unknown_shows_who_wants_it_run_again() -> None:
    """A rerun is counted like an approval."""
    at = asking(Ask(need=2))
    for who in (FAY, FRED):
        at.inbox.decide("loop", {row(at): Approve(by=who)})
    handle = at.open()
    with suppress(KeyboardInterrupt):
        at.ran = Killed()
        handle.run()
    at.ran = []
    with at.open(take_over=True) as other:
        other.run()
    assert (row(at).why, row(at).approvals, row(at).missing) == ("uncertain", (), 2)
    at.inbox.decide("loop", {row(at): Rerun(by=FAY)})
    assert ([each.kind for each in row(at).approvals], row(at).progress) == (["rerun"], "1 of 2: fay; 1 more approval")


class Killed(list[str]):
    def append(self, _: str) -> None:
        raise KeyboardInterrupt


GROUPS = st.sampled_from([(), ("finance",), ("finance", "legal")])
ASKS = st.lists(
    st.builds(
        Ask,
        st.none() | st.just("why"),
        need=st.integers(1, 3),
        of=GROUPS,
        not_by=st.sampled_from([(), ("ana",)]),
        fresh=st.booleans(),
        rule=st.none() | st.just("r"),
    ),
    min_size=1,
    max_size=3,
)
SAID = st.tuples(
    st.builds(Person, st.sampled_from(["ana", "bo", "cy", "Ana "]), GROUPS),
    st.none() | st.builds(lambda euros: {"to": "x", "euros": euros}, st.integers(1, 2)),
    st.none() | ASKS,
)


@examples(60)
@given(ASKS, st.lists(SAID, max_size=5))
def test_a_row_says_what_a_handle_says(first: list[Ask], said: list[Any]) -> None:
    """Whatever is asked, approved and edited, and judged again by other rules."""
    at = asking(first)
    for who, edit, then in said:
        if not at.inbox.pending():
            break
        with suppress(CallerError):
            at.inbox.decide("loop", {row(at): Approve(edit, by=who)})
        if then is not None:
            judged_again(at, then)
        _assert_same(at)


def _assert_same(at: World) -> None:
    with at.open() as handle:
        calls = handle.pending
    rows = at.inbox.pending()
    assert [each.path for each in rows] == [each.path for each in calls]
    for shown, call in zip(rows, calls, strict=True):
        assert [_parts(each) for each in shown.demands] == [_parts(each) for each in call.demands]
        assert [_who(each) for each in shown.approvals] == [_who(each) for each in call.approvals]
        assert shown.missing == call.missing
        assert (shown.edited == "unjudged") is not call.is_edit_judged


def _parts(demand: Any) -> Any:
    return (demand.need, demand.of, demand.not_by, demand.fresh, demand.reason, demand.rule)


def _who(yes: Any) -> Any:
    return (yes.kind, yes.by, yes.groups, yes.at, yes.via)
