"""Signed links: one use, one call, one time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from itsdangerous import URLSafeSerializer

from tests.inbox.support import desk, desk_of
from tests.kit.effort import examples
from tests.kit.world import World, each_store
from toolloop import Answer, Approve, Ask, Deny, Grant, Inbox, MemoryStore, Person
from toolloop.errors import BadLink, IllegalCommand, LinkExpired, LinkUsed, NotAllowed, ToolLoopError, UnknownCall
from toolloop.testing import call, reply


@each_store
def test_a_link_decides_its_call_once(where: str, tmp_path: Path) -> None:
    """A visitor who has it sees the call first. Used again, it says who decided, also if the same is said."""
    at = desk(where, tmp_path)
    at.drive(metadata={"owner": "ana"})
    address = at.inbox.link("loop", "c1", base_url="https://example.org/approvals/")
    base, _, token = address.rpartition("/")
    assert base == "https://example.org/approvals/link"
    assert at.inbox.linked(token) == at.inbox.pending()[0]
    assert at.inbox.linked(token).metadata == {"owner": "ana"}
    at.inbox.redeem(token, Approve(by="ana"))
    for again in (Approve(by="ana"), Deny("no")):
        with pytest.raises(LinkUsed) as used:
            at.inbox.redeem(token, again)
        assert (used.value.decision, used.value.by, used.value.call) == ("approve", "ana", "c1")
    with pytest.raises(LinkUsed):
        at.inbox.linked(token)
    assert [each.id for each in at.inbox.pending()] == ["c2"]


def deleted(at: World) -> None:
    at.store.delete("loop")


def created_again(at: World) -> None:
    at.store.delete("loop")
    at.drive()


def decided(at: World) -> None:
    at.inbox.decide("loop", {"c1": Deny("no", by="bo"), "c2": Deny("no", by="bo")})


def finished(at: World) -> None:
    decided(at)
    at.drive()


def went_on(at: World) -> None:
    at.now += 3601


def stopped(at: World) -> None:
    at.inbox.stop("loop", by="bo")


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (deleted, BadLink),
        (created_again, BadLink),
        (decided, LinkUsed),
        (finished, LinkUsed),
        (stopped, LinkUsed),
        (went_on, LinkExpired),
    ],
)
@each_store
def test_a_link_dies_with_what_it_was_made_for(
    where: str, happens: Callable[[World], None], error: type[ToolLoopError], tmp_path: Path
) -> None:
    """A loop that was created again under the id is another one, even if it asks the same."""
    at = desk(where, tmp_path)
    at.drive()
    token = at.inbox.link("loop", at.inbox.pending()[0], expires_in=3600)
    happens(at)
    before = [at.store.load(loop.loop_id) for loop in at.store.list()]
    for use in (lambda: at.inbox.redeem(token, Approve(by="eve")), lambda: at.inbox.linked(token)):
        with pytest.raises(error) as raised:
            use()
        if happens in (decided, finished):
            assert (vars(raised.value)["decision"], vars(raised.value)["by"]) == ("deny", "bo")
    assert [at.store.load(loop.loop_id) for loop in at.store.list()] == before
    assert at.ran == []


@each_store
def test_links_are_revoked(where: str, tmp_path: Path) -> None:
    """Those to one call, or all; links that are made after that are valid. The trail has it."""
    at = desk(where, tmp_path)
    at.drive()

    def is_valid(token: str) -> bool:
        try:
            return bool(at.inbox.linked(token).id)
        except BadLink:
            with pytest.raises(BadLink, match="revoked"):
                at.inbox.redeem(token, Approve(by="bo"))
            return False

    first, other = (at.inbox.link("loop", call, person="bo") for call in ("c1", "c2"))
    at.inbox.revoke_links("loop", "c1", by="ana")
    second = at.inbox.link("loop", "c1", person="bo")
    assert [is_valid(each) for each in (first, second, other)] == [False, True, True]
    at.inbox.revoke_links("loop", by="ana")
    third = at.inbox.link("loop", "c1")
    assert [is_valid(each) for each in (first, second, other, third)] == [False, False, False, True]
    at.inbox.redeem(third, Approve(by="cy"))
    assert [(each.kind, each.by, each.path) for each in at.inbox.trail("loop")] == [
        ("unlink", "ana", ("c1",)),
        ("unlink", "ana", ()),
        ("approve", "cy", ("c1",)),
    ]


def test_a_link_lets_no_later_call_run() -> None:
    """It is bound to one call, and a grant is not: also if the person of the link may approve this one."""
    at = desk_of(MemoryStore())
    at.drive()
    token, before = at.inbox.link("loop", "c1", person="bo", allow=["approve"]), at.store.load("loop")
    for grant in (Grant(), Grant(tool="add", match={})):
        with pytest.raises(IllegalCommand, match="later calls"):
            at.inbox.redeem(token, Approve(remember=grant))
    assert at.store.load("loop") == before
    at.inbox.redeem(token, Approve())


def test_a_link_expires_with_its_call() -> None:
    """A call that was not decided in time does not run."""
    at = desk_of(MemoryStore(), config={"decision_timeout": 60.0})
    at.drive()
    token = at.inbox.link("loop", "c1", expires_in=3600)
    at.now += 61
    with pytest.raises(LinkExpired):
        at.inbox.redeem(token, Approve(by="ana"))


def test_a_link_is_bound_to_the_call_as_it_was_shown() -> None:
    """And to the history in which it waits, although another call there has the same id."""
    at = desk_of(MemoryStore())
    at.drive()
    token = at.inbox.link("loop", "c1")
    other = desk_of(MemoryStore(), script=(reply(calls=[call("pay", {"to": "eve", "euros": 999}, id="c1")]),))
    other.drive()
    entries = [*at.store.load("loop").entries[:1], *other.store.load("loop").entries[1:]]
    head = other.store.head("loop").head
    at.store.delete("loop")
    at.store.create("loop", entries, head=head)
    with pytest.raises(BadLink, match="restored from a backup"):
        at.inbox.redeem(token, Approve())
    with pytest.raises(BadLink, match="restored from a backup"):
        at.inbox.linked(token)


def test_a_refused_use_does_not_spend_a_link() -> None:
    """What it does not allow, and what the call does not take."""
    at = desk_of(MemoryStore())
    at.drive()
    token = at.inbox.link("loop", "c1", allow=("approve",))
    for decision in (Deny("no"), Answer("x"), Approve(input={"to": 7})):
        with pytest.raises(IllegalCommand):
            at.inbox.redeem(token, decision)
    at.inbox.redeem(token, Approve(by="ana"))
    assert [entry.kind for entry in at.inbox.trail("loop")] == ["approve"]


@examples(60)
@given(st.integers(0, 1000), st.sampled_from("aZ.-_9"), st.text(max_size=20))
def test_a_changed_link_is_refused(number: int, other: str, text: str) -> None:
    """Any other text, and that of another store or secret."""
    at = desk_of(MemoryStore())
    at.drive()
    token = at.inbox.link("loop", "c1")
    place = number % (len(token) - 1)  # some bits of the last character carry nothing
    changed = token[:place] + other + token[place + 1 :]
    for bad in (changed, token[:place], text, Inbox(at.store, "secret").link("loop", "c1")):
        if bad != token:
            with pytest.raises(BadLink):
                at.inbox.linked(bad)
    assert at.inbox.linked(token).id == "c1"


def test_a_secret_of_ones_own_signs_links() -> None:
    """Any process that has it takes them."""
    at = desk_of(MemoryStore())
    at.drive()
    token = Inbox(at.store, "a long secret", clock=at.clock).link("loop", "c2")
    Inbox(at.store, "a long secret", clock=at.clock).redeem(token, Deny("no"))
    for bad in ("", 7):
        with pytest.raises((TypeError, ValueError), match="secret"):
            Inbox(at.store, bad)  # type: ignore[arg-type]


def test_a_link_is_made_only_for_a_call_that_waits() -> None:
    """And only for decisions that there are."""
    at = desk_of(MemoryStore())
    at.drive()
    with pytest.raises(UnknownCall, match="c1, c2"):
        at.inbox.link("loop", "c3")
    for allow in ((), "approve", ("approve", "dance"), ("approve", "rerun")):
        with pytest.raises(ValueError, match="allow"):
            at.inbox.link("loop", "c1", allow=allow)
    for never in (math.nan, math.inf):
        with pytest.raises(ValueError, match="expires_in"):
            at.inbox.link("loop", "c1", expires_in=never)
    with pytest.raises(ValueError, match="base_url"):
        at.inbox.link("loop", "c1", base_url="https://example.org\r\nbcc: eve@example.org")


# --- of one person ---------------------------------------------------------------------------------------------------


def shared(ask: Ask) -> World:
    """A loop whose calls need what is asked."""
    at = desk_of(MemoryStore(), config={"on_tool_call": lambda _call, _view: ask})
    at.drive()
    return at


@pytest.mark.parametrize("ask", [Ask(need=2), Ask(of="finance"), Ask(not_by="eve")])
def test_a_call_of_certain_persons_has_a_link_for_each(ask: Ask) -> None:
    """Without a person it is refused, because an approval without a name does not count."""
    at = shared(ask)
    with pytest.raises(IllegalCommand, match="person="):
        at.inbox.link("loop", "c1")
    token = at.inbox.link("loop", "c1", person=Person("fay", "finance"))
    assert at.inbox.redeem(token, Approve()).by == "fay"
    assert [(each.by, each.groups, each.via) for each in at.inbox.trail("loop")] == [("fay", ("finance",), "link")]


def test_a_link_of_a_person_is_spent_when_that_person_has_decided() -> None:
    """That of the other person stays valid, and completes the call."""
    at = shared(Ask(need=2))
    ana, bo = (at.inbox.link("loop", "c1", person=name) for name in ("ana", "bo"))
    assert at.inbox.redeem(ana, Approve()).missing == 1
    for use in (lambda: at.inbox.redeem(ana, Deny("after all")), lambda: at.inbox.linked(ana)):
        with pytest.raises(LinkUsed, match="ana has approved") as used:
            use()
        assert (used.value.by, used.value.decision) == ("ana", "approve")
    assert at.inbox.linked(bo).id == "c1"
    assert at.inbox.redeem(bo, Approve()).missing == 0


def test_a_link_of_one_person_is_refused_to_another() -> None:
    """With the person's login or without one, the person decides."""
    at = shared(Ask())
    token = at.inbox.link("loop", "c1", person="Ana")
    with pytest.raises(NotAllowed, match="this link is for Ana; bo cannot use it"):
        at.inbox.redeem(token, Approve(by="bo"))
    assert at.inbox.redeem(token, Deny("no", by=" ana")).by == "Ana"


def test_a_link_without_a_person_cannot_decide() -> None:
    """Not a person of the name "link"."""
    at = shared(Ask())
    assert at.inbox.redeem(at.inbox.link("loop", "c1"), Approve()).by is None
    assert [(each.by, each.via) for each in at.inbox.trail("loop")] == [(None, "link")]


def test_a_link_of_the_version_before_still_decides() -> None:
    """It has six parts."""
    at = shared(Ask())
    call = at.inbox.pending()[0]
    first = at.store.load("loop").entries[0].id
    parts = ["loop", first, ["c1"], call.digest, ["approve", "deny"], at.now + 60]
    token = str(URLSafeSerializer(at.store.secret(), salt="toolloop.link").dumps(parts))
    assert at.inbox.linked(token).takes == ("approve", "deny")
    assert at.inbox.redeem(token, Approve(by="ana")).by == "ana"
