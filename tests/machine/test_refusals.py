"""Refused events: the error says what was asked, of a loop in which phase, and why not; and which call it is about."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve

from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from tests.kit.machine.nested import ask, at, begin_with_calls, finish, loop_inside, waits
from toolloop.errors import AlreadyDecided, CallerError, DecisionConflict, IllegalCommand, UnknownCall
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Kept, State
from toolloop.machine.tree import step
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, StandingGrant, Status, Wait, Why
from toolloop.machine.values.setup import Budget, Limits

ASKED = m.state_after(m.make_replied("tool_use", m.call("c")))
ASKING = m.go(ASKED, m.asks("c"))
NESTED = m.go(begin_with_calls("p"), *ask("p", "a"))
STANDING = m.go(begin_with_calls("p"), *waits("p"), ev.TurnEnded())
SPENT = m.go(begin_with_calls("p", limits=Limits(budget=Budget(requests=1))))
ELSEWHERE = m.setup(within=((7, "x", 1),))
OPENED = m.child(m.go(m.state_after(), *ask("", "p")), "p")


def refusal_of(state: State, event: ev.Event) -> tuple[str, str, str, object]:
    """What a refusal says, and what can be read from it."""
    with pytest.raises(IllegalCommand) as refused:
        step(state, event)
    return str(refused.value), refused.value.asked, refused.value.state, refused.value.allowed


@pytest.mark.parametrize(
    ("state", "event", "phase", "why"),
    [
        (m.state_after(limits=Limits(max_iterations=0)), ev.Requested(), "Ready", "a limit forbids the request"),
        (m.state_after(), ev.TurnEnded(), "Ready", "something can still be done, or is in progress"),
        (ASKED, ev.Started("x"), "Judging", "'x' is not a call that may start"),
        (ASKED, m.make_ended("c"), "Judging", "'c' is not a running call"),
        (
            ASKED,
            ev.HistoryTaken(reply=m.user()),
            "Judging",
            "the reply is not an assistant message with calls",
        ),
        (
            ASKED,
            ev.HistoryTaken(reply=m.make_said(m.call("c")), rerun=("x",)),
            "Judging",
            "'x' is not a call of the open round",
        ),
        (ASKED, ev.Woken(ELSEWHERE), "Judging", "the setup is for a loop at another path"),
        (NESTED, m.make_ended("p"), "Running", "the loop inside 'p' is not over"),
        (NESTED, ev.TurnEnded(), "Running", "something can still be done, or is in progress"),
        (
            NESTED,
            ev.Stopped(path=("p",)),
            "Running",
            "it is only for the outermost loop",
        ),
        (NESTED, ev.Requested(path=("p", "a")), "Running", "there is no loop inside the call 'p/a'"),
        (NESTED, evolve(OPENED, path=("x", "y", "z")), "Running", "there is no loop inside the call 'x/y'"),
        (
            m.go(m.state_after(), *ask("", "p")),
            evolve(OPENED, setup=ELSEWHERE),
            "Running",
            "the setup of the new loop is not for the call 'p'",
        ),
        (STANDING, ev.Requested(path=("p",)), "Waiting", "the loop above is not running"),
        (SPENT, ev.Requested(path=("p",)), "Running", "a limit of a loop above forbids it"),
    ],
)
def test_a_refusal_says_what_was_asked_and_why_not(state: State, event: ev.Event, phase: str, why: str) -> None:
    """To the last word; and what was asked, and the phase, can be read from it."""
    name = type(event).__name__
    said = f"{name} is not allowed while the loop is {phase}: {why}"
    assert refusal_of(state, event) == (said, name, phase, ())


def test_a_loop_without_an_open_round_takes_no_decision() -> None:
    """It waits for its caller, but not for a decision: a decision is refused there."""
    closed = m.state_after(m.make_replied("tool_use", m.call("c")), ev.Started("c"), m.make_ended("c"), ev.TurnEnded())
    with pytest.raises(IllegalCommand, match="a decision is not allowed while the loop is Waiting") as refused:
        step(closed, m.make_decided(c=m.DENY))
    assert refused.value.asked == "a decision"
    assert "a decision" not in refused.value.allowed


# --- decisions in loops inside calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "x/a", "p/x", "p/a/b", "q/a", "p//a", "//a", "/p/a", "p/a/", "p/", "/", ""])
def test_one_decision_that_names_no_call_refuses_those_beside_it(name: str) -> None:
    """Wherever in the tree; and it says what waits."""
    asking = m.go(begin_with_calls("p", "q"), *waits("p"))
    with pytest.raises(UnknownCall) as refused:
        step(asking, ev.Decided((("p/a", m.APPROVE), (name, m.APPROVE))))
    assert str(refused.value) == f"cannot approve the call {name!r}: it is not in the open round. Waiting calls: p/a"
    assert the_call(loop_inside(asking), "a").status is Status.WAITING


def test_a_wrong_name_is_answered_with_the_calls_that_wait_in_that_loop() -> None:
    """With their paths from the outermost loop."""
    asking = m.go(begin_with_calls("p", "q"), *waits("p"), *waits("q"))
    for name, known in (("p/x", ("p/a",)), ("p/x/y", ("p/a",)), ("x", ("p/a", "q/a"))):
        with pytest.raises(UnknownCall) as refused:
            step(asking, ev.Decided(((name, m.DENY),)))
        assert (refused.value.call, refused.value.known) == (name, known)


def decide_before(*decisions: tuple[str, DecisionRecord]) -> State:
    return m.go(
        begin_with_calls("p"), *ask("p", "a", "b"), *at("p", m.asks("a", "b")), ev.TurnEnded(), ev.Decided(decisions)
    )


def expire() -> State:
    asks = ev.Judged((("a", Wait(Why.APPROVAL, expires_in=5.0)),))
    asking = m.go(begin_with_calls("p"), *ask("p", "a"), *at("p", asks), ev.TurnEnded())
    return step(asking, ev.Ticked(at=asking.root.now + 6.0))


def settle() -> State:
    """A call inside has its result, and another waits."""
    return m.go(begin_with_calls("p"), *ask("p", "a", "b"), *at("p", ev.Started("a"), m.make_ended("a")))


@pytest.mark.parametrize(
    ("state", "name", "decision", "kind"),
    [
        (decide_before(), "p/nix", m.APPROVE, UnknownCall),
        (decide_before(), "p/a", DecisionRecord("approve", digest="of another"), DecisionConflict),
        (decide_before(), "p/a", m.RERUN, IllegalCommand),
        (decide_before(("p/a", m.APPROVE)), "p/a", m.DENY, DecisionConflict),
        (expire(), "p/a", m.APPROVE, AlreadyDecided),
        (m.go(begin_with_calls("p"), *ask("p", "a"), *at("p", ev.Started("a"))), "p/a", m.DENY, IllegalCommand),
        (settle(), "p/a", m.DENY, AlreadyDecided),
        (m.go(begin_with_calls("p"), *ask("p", "a")), "p/a/b", m.DENY, UnknownCall),
        (m.go(begin_with_calls("p"), *finish("p")), "p/a", m.DENY, UnknownCall),
    ],
    ids=["no call", "digest", "kind", "decided", "expired", "running", "settled", "no loop", "ended"],
)
def test_an_error_about_a_call_inside_names_it_by_its_path(
    state: State, name: str, decision: DecisionRecord, kind: type[CallerError]
) -> None:
    """In its text and in its attributes: ids may repeat in a tree, and what is named can be said back."""
    with pytest.raises(kind) as refused:
        step(state, ev.Decided(((name, decision),)))
    assert repr(name) in str(refused.value)
    if kind is not IllegalCommand:
        assert getattr(refused.value, "call", None) == name
    if name == "p/nix":
        assert getattr(refused.value, "known", None) == ("p/a", "p/b")


def test_what_was_said_is_said_and_withdrawn_once() -> None:
    """By its id; the error names it."""
    words = (m.user("also"),)
    said = m.go(ASKING, ev.Said("s1", words, "ana", said_at=7.0), ev.Said("s2", words))
    assert said.root.kept == (Kept("s1", words, "ana", 7.0), Kept("s2", words))
    gone = step(said, ev.Withdrawn("s1"))
    assert gone.root.kept == said.root.kept[1:]
    for state, event, refused in (
        (said, ev.Said("s1", words), "say(): something with the id 's1' was said before"),
        (said, ev.Withdrawn("s3"), "withdraw(): nothing with the id 's3' was said"),
        (gone, ev.Withdrawn("s1"), "withdraw(): 's1' is in the conversation already, or was withdrawn before"),
    ):
        assert refusal_of(state, event) == (refused, refused.partition(":")[0], "Waiting", ())


def test_a_grant_that_is_not_there_is_answered_with_those_that_are() -> None:
    """They are what can be revoked."""
    granted = (StandingGrant("1/a", "once"), StandingGrant("1/b", "once"))
    for grants, named in (((), "none"), (granted, "1/a, 1/b")):
        state = State({(): ASKING.root._replace(grants=grants)})
        said = f"unknown grant '1/x'; standing grants: {named}"
        ids = tuple(grant.id for grant in grants)
        assert refusal_of(state, ev.GrantRevoked("1/x")) == (said, "revoking a grant", "Waiting", ids)


# --- what a refused decision says ------------------------------------------------------------------------------------

PAIR = m.go(m.state_after(m.make_replied("tool_use", m.call("c"), m.call("d"))), m.asks("c", "d"))
ANA = evolve(m.DENY, by="ana", at=60.0)
LIMITED = m.go(ASKED, ev.Judged((("c", Wait(Why.APPROVAL, expires_in=5.0)),), at=100.0))
NOT_ASKED = m.state_after(m.make_replied("tool_use", m.call("c"), m.call("d")), m.make_judged())
DENIED = (
    "the call 'c' was decided already (deny by ana at 1970-01-01T00:01:00+00:00), and has its result (denied); "
    "nothing is left to decide"
)
EXPIRED = "the call 'c' expired at 1970-01-01T00:01:45+00:00 without a decision, and does not run. Continue the loop"


@pytest.mark.parametrize(
    ("state", "decision", "said", "read"),
    [
        (
            m.go(PAIR, m.make_decided(c=ANA)),
            m.APPROVE,
            DENIED,
            ("deny", "ana", 60.0),
        ),
        (
            m.go(PAIR, m.make_decided(c=m.answer())),
            m.DENY,
            (
                "the call 'c' was decided already (answer at 1970-01-01T00:00:00+00:00), and has its result (answered)"
                "; nothing is left to decide"
            ),
            ("answer", None, 0.0),
        ),
        (
            m.go(PAIR, m.make_decided(c=evolve(m.APPROVE, by="ana"))),
            m.DENY,
            (
                "the call 'c' was decided already (approve by ana at 1970-01-01T00:00:00+00:00); this deny differs "
                "from that decision, which cannot be changed"
            ),
            ("approve", "ana", 0.0),
        ),
        (m.go(LIMITED, ev.Ticked(at=106.0)), m.APPROVE, EXPIRED, (None, None, None)),
        (LIMITED, evolve(m.APPROVE, at=106.0), EXPIRED, (None, None, None)),
        (
            m.go(NOT_ASKED, ev.Started("c"), ev.Started("d"), m.make_ended("c")),
            m.DENY,
            "the call 'c' did not need a decision, and has its result (returned); nothing is left to decide",
            (None, None, None),
        ),
        (
            ASKING,
            DecisionRecord("approve", digest="of another"),
            (
                "cannot approve the call 'c': it has changed since it was shown (the digests differ). Look at "
                "handle.pending, and decide the calls that are listed there"
            ),
            (None, None, None),
        ),
    ],
)
def test_a_decision_that_comes_too_late_is_answered_with_the_one_that_stands(
    state: State, decision: DecisionRecord, said: str, read: tuple[str | None, str | None, float | None]
) -> None:
    """What it is, who made it and when."""
    with pytest.raises((AlreadyDecided, DecisionConflict)) as refused:
        step(state, m.make_decided(c=decision))
    kind, by, at = read
    assert str(refused.value) == said
    assert (refused.value.call, refused.value.decision, refused.value.by) == ("c", kind, by)
    assert refused.value.at == (None if at is None else datetime.fromtimestamp(at, UTC))


@pytest.mark.parametrize(
    ("state", "decision", "said", "phase", "takes"),
    [
        (
            m.go(NOT_ASKED, ev.Started("c")),
            m.DENY,
            (
                "cannot deny the call 'c': it is running, and does not wait for a decision. Let the loop continue, or "
                "stop it"
            ),
            "running",
            (),
        ),
        (
            ASKING,
            evolve(m.APPROVE, remember=GrantSpec(tool="pure")),
            (
                "the grant given with the call 'c' is for the tool 'pure', but the call is of 'once'. Give the grant a "
                "match for the input ({} matches any input)"
            ),
            "decided",
            (),
        ),
        (
            ASKING,
            m.RERUN,
            "cannot rerun the call 'c': it waits for approval and never ran. Allowed: approve, deny, answer",
            "waiting",
            ("approve", "deny", "answer"),
        ),
        (
            m.go(NOT_ASKED, ev.Started("c"), ev.Woken()),
            m.APPROVE,
            (
                "cannot approve the call 'c': it was started and its end is unknown, so an approval would run it a "
                "second time. Allowed: rerun, answer, deny"
            ),
            "waiting",
            ("rerun", "answer", "deny"),
        ),
    ],
)
def test_a_decision_that_a_call_does_not_take_says_why(
    state: State, decision: DecisionRecord, said: str, phase: str, takes: tuple[str, ...]
) -> None:
    """To the last word; and what can be read from it."""
    assert refusal_of(state, m.make_decided(c=decision)) == (said, decision.kind, phase, takes)


def test_the_same_decision_again_changes_nothing() -> None:
    """An approval that names the input that runs anyway is the same, too; one of another input is not."""
    approved = m.go(PAIR, m.make_decided(c=m.approve({"a": 2})))
    for same in (m.approve({"a": 2}), evolve(m.approve({"a": 2}), by="bo")):
        assert step(approved, m.make_decided(c=same)).root.calls == approved.root.calls
    for other in (m.APPROVE, m.approve({"a": 1}), m.DENY):
        with pytest.raises(DecisionConflict):
            step(approved, m.make_decided(c=other))
    plain = m.go(PAIR, m.make_decided(c=m.APPROVE))
    assert step(plain, m.make_decided(c=m.approve({"a": 1}))).root.calls == plain.root.calls
    denied = m.go(PAIR, m.make_decided(c=m.DENY))
    assert step(denied, m.make_decided(c=m.DENY)).root.calls == denied.root.calls
    with pytest.raises(AlreadyDecided):
        step(denied, m.make_decided(c=m.answer()))
