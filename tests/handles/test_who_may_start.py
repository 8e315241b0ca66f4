"""Who had a say in a start: what was found, and the scenarios of several persons, at the handles."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.handles.test_stored_waking import list_told
from tests.kit.concurrency import either_kind
from tests.kit.tools import PAY, pay
from tests.kit.world import AnyHandle, World, hold_at
from toolloop import Approve, Ask, Continue, Deny, Grant, Inbox, Person, Rerun, Texts, ToolCall, tool
from toolloop.errors import AlreadyDecided, Conflict, DecisionConflict, IllegalCommand, UndecidedCalls
from toolloop.events import CallApproved, CallDecided
from toolloop.stores.memory import MemoryStore
from toolloop.testing import call, reply

FAY, FRED = Person("fay", "finance"), Person("fred", ("finance",))
SUE, SAM = Person("sue", "support"), Person("sam", "support")
LEA = Person("lea", ("legal", "finance"))


class Rules:
    """A policy whose rule is replaced while loops wait."""

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def __call__(self, call: ToolCall, _view: object) -> Any:
        return self.rule(call) if callable(self.rule) else self.rule


def shop(kind: str, rule: Any, **config: Any) -> tuple[World, Rules, AnyHandle]:
    """A stored loop that wants to pay 1, its policy, and a handle whose turn is over."""
    rules = Rules(rule)
    script = (reply(calls=[PAY]), reply("done"))
    world = World(kind, MemoryStore(), script=script, config={"on_tool_call": rules, **config})
    peer = world.open()
    peer.next_turn()
    return world, rules, peer


def decide(peer: AnyHandle, decision: Any, call: Any = None) -> None:
    """Decide the call as it is shown now."""
    turn = peer.turn()
    shown = turn.pending[0] if call is None else call
    peer.say(lambda: peer.handle.decide({shown: decision}))


def waits(peer: AnyHandle) -> tuple[str, ...]:
    return tuple(call.id for call in peer.handle.pending)


def go_on(peer: AnyHandle) -> tuple[str, ...]:
    """Continue, and return the calls that wait then."""
    peer.say(peer.turn().continue_loop)
    peer.next_turn()
    return waits(peer)


def ask_above(limit: int, ask: Any) -> Callable[[ToolCall], Any]:
    return lambda call: ask if call.effective_input["amount"] > limit else Ask("any payment")


@either_kind
def test_an_edit_does_not_satisfy_what_is_asked_about_it(kind: str) -> None:
    """Support approves with 50,000, for which the rule wants finance: it waits for finance, with the edited input."""
    world, _, peer = shop(kind, ask_above(1000, Ask("more than 1,000", of="finance", fresh=True)))
    decide(peer, Approve({"amount": 50_000}, by=SUE))
    assert go_on(peer) == ("t1",)
    (call,) = peer.turn().pending
    assert (call.effective_input, call.reason, world.ran) == ({"amount": 50_000}, "more than 1,000", [])
    with pytest.raises(IllegalCommand, match=r"sam does not count\. pay needs 1 approval of finance"):
        decide(peer, Approve(by=SAM))
    decide(peer, Approve(by=SUE))  # the approval of its author stands, and is not one of finance
    assert waits(peer) == ("t1",)
    decide(peer, Approve(by=FAY))
    assert go_on(peer) == ()
    assert world.ran == ["t1"]


@either_kind
@pytest.mark.parametrize("ask", [Ask(need=2), Ask(fresh=True), Ask(of="legal")])
def test_an_old_approval_does_not_meet_a_stricter_rule(kind: str, ask: Ask) -> None:
    """Approved, then taken over by a worker whose rule is stricter: it waits."""
    world, rules, peer = shop(kind, Ask())
    decide(peer, Approve(by=FAY))
    rules.rule = ask
    worker = world.open(take_over=True)
    assert go_on(worker) == ("t1",)
    assert world.ran == []
    decide(worker, Approve(by=LEA))
    assert go_on(worker) == ()
    assert world.ran == ["t1"]


@either_kind
def test_an_accepted_change_of_the_tool_begins_the_count_again(kind: str) -> None:
    """Two approved `pay`, which may run once; in the worker it may be repeated. Two must approve that."""
    world, _, peer = shop(kind, Ask(need=2))
    decide(peer, Approve(by="ana"))
    decide(peer, Approve(by="bo"))
    peer.say(peer.turn().continue_loop)
    worker = world.open(tools=(tool(pay.function, effect="keyed"), *world.tools[1:]), on_drift="accept")
    worker.run()
    assert [(call.why, call.approvals) for call in worker.handle.pending] == [("approval", ())]
    decide(worker, Approve(by="bo"))
    decide(worker, Approve(by="cy"))
    assert go_on(worker) == ()
    assert world.ran == ["t1"]


def test_a_tool_that_is_back_has_no_approvals() -> None:
    """It was gone, and may be another one now."""
    world, _, peer = shop("sync", Ask(need=2), execution="ready")
    decide(peer, Approve(by="ana"))
    for tools, approvals in ((world.tools[1:], 1), (world.tools, 0)):
        worker = world.open(tools=tools, on_drift="accept")
        assert go_on(worker) == ("t1",)
        assert len(worker.handle.pending[0].approvals) == approvals


def test_from_one_person_to_two_while_it_waits() -> None:
    """Ana approved under the old rule; under the new one she is one of two."""
    world, rules, peer = shop("sync", Ask(need=1, of="finance"))
    rules.rule = Ask(need=2, of="finance")
    decide(peer, Approve(by=FAY))
    worker = world.open(take_over=True)
    assert go_on(worker) == ("t1",)
    with pytest.raises(UndecidedCalls):
        worker.say(worker.turn().continue_loop)
    decide(worker, Approve(by=FAY))  # who repeats gets the approval that stands
    assert waits(worker) == ("t1",)
    decide(worker, Approve(by=FRED))
    assert go_on(worker) == ()
    assert world.ran == ["t1"]


@either_kind
def test_a_rerun_needs_the_persons_that_the_start_needed(kind: str) -> None:
    """Two approved, the driver died in the tool, and cy says rerun: one of two. Then the policy judges."""
    world, _, peer = shop(kind, Ask(need=2))
    decide(peer, Approve(by="ana"))
    decide(peer, Approve(by="bo"))
    peer.say(peer.turn().continue_loop)
    with hold_at(world, "t1", peer) as turn:
        worker = world.open(take_over=True)
        worker.run()
        decide(worker, Rerun(by="cy"))
        with pytest.raises(UndecidedCalls):
            worker.say(worker.turn().continue_loop)
        decide(worker, Rerun(by="ana"))
        assert go_on(worker) == ()
    with pytest.raises(Conflict):
        turn.result()
    assert world.ran == ["t1", "t1"]


@either_kind
def test_a_rerun_is_judged_by_a_rule_that_is_stricter_now(kind: str) -> None:
    """Started, taken over, then forbidden: the rerun does not start, and the model learns that the end is unknown."""
    world, rules, peer = shop(kind, Ask())
    decide(peer, Approve(by="ana"))
    peer.say(peer.turn().continue_loop)
    with hold_at(world, "t1", peer) as turn:
        worker = world.open(take_over=True)
        worker.run()
        rules.rule = Deny("not any more")
        decide(worker, Rerun(by="cy"))
        worker.say(worker.turn().continue_loop)
        worker.run()
    with pytest.raises(Conflict):
        turn.result()
    assert (list_told(world), world.ran) == ([Texts().uncertain.format(reason="not any more")], ["t1"])


@either_kind
def test_a_policy_that_raises_on_an_edit_is_not_satisfied_by_its_author(kind: str) -> None:
    """But by a person who decides while it fails, also if it fails in another way each time."""
    errors = itertools.cycle((OSError("unreadable"), KeyError("rule")))

    def rule(call: ToolCall) -> Any:
        if call.effective_input["amount"] == 2:
            raise next(errors)
        return Ask()

    world, _, peer = shop(kind, rule)
    decide(peer, Approve({"amount": 2}, by="ana"))
    assert go_on(peer) == ("t1",)
    decide(peer, Approve(by="bo"))
    worker = world.open(take_over=True)
    assert go_on(worker) == ()
    assert world.ran == ["t1"]


def test_spellings_of_one_name_are_one_person_and_misleading_names_are_refused() -> None:
    """Five spellings, one person; and no person is a rule."""
    world, _, peer = shop("sync", Ask(need=2, not_by=("eve",)))
    decide(peer, Approve(by="ana"))
    for name in ("Ana ", "\uff21na", " ANA"):
        decide(peer, Approve(by=name))
    for name in ("an\u0430", "", "rule: x"):
        with pytest.raises(IllegalCommand, match="is refused as the name of a person"):
            decide(peer, Approve(by=name))
    for stranger in ("Eve", None):
        with pytest.raises(IllegalCommand, match=r"pay needs 1 more approval \(not by eve\)"):
            decide(peer, Approve(by=stranger))
    assert world.ran == []
    assert waits(peer) == ("t1",)


def test_two_rules_ask_each_for_a_group() -> None:
    """Ana approves an edit; bo, whose page shows the model's input, learns that she has edited it."""
    world, _, peer = shop("sync", [Ask("money", of="finance"), Ask("law", of="legal")])
    shown = peer.turn().pending[0]
    assert shown.reason == "money; law"
    decide(peer, Approve({"amount": 7}, by=Person("ana", "finance")))
    with pytest.raises(DecisionConflict, match="ana has edited it"):
        decide(peer, Approve(by=Person("bo", "legal")), shown)
    decide(peer, Approve(by=Person("bo", "legal")))
    assert go_on(peer) == ()
    assert world.ran == ["t1"]


def test_who_approves_may_deny_before_it_is_complete() -> None:
    """One word settles."""
    world, _, peer = shop("sync", Ask(need=2))
    decide(peer, Approve(by="ana"))
    decide(peer, Deny("I was wrong", by="ana"))
    assert go_on(peer) == ()
    assert world.ran == []


def test_a_decision_of_a_policy_names_its_rule() -> None:
    """A person cannot write such a name."""
    world, _, peer = shop("sync", Deny("forbidden", rule="no-pay", rule_digest="d1"))
    (call,) = peer.turn().calls
    assert call.decision is not None
    assert (call.decision.by, world.ran) == ("rule: no-pay", [])
    _, _, other = shop("sync", Ask())
    with pytest.raises(IllegalCommand, match="only a policy names its rule"):
        other.handle.decide({"t1": Deny("no", rule="x")})


@pytest.mark.parametrize(
    "made",
    [
        lambda: Ask(need=0),
        lambda: Ask(need=True),
        lambda: Ask(of=(1,)),  # type: ignore[arg-type]
        lambda: Ask(remind_after=(-1.0,)),
    ],
)
def test_an_ask_that_makes_no_sense_fails_in_the_policy(made: Callable[[], Ask]) -> None:
    """So the caller is asked, as by a policy that raises."""
    with pytest.raises((TypeError, ValueError), match=re.compile("Ask")):
        made()
    _, _, peer = shop("sync", lambda _: made())
    (call,) = peer.turn().pending
    assert "the policy raised" in str(call.reason)


def test_a_call_shows_what_is_missing_and_who_has_approved_it() -> None:
    """So does the error where the loop cannot continue."""
    _, _, peer = shop("sync", [Ask(need=2, of="finance"), Ask(not_by="eve")])
    decide(peer, Approve({"amount": 3}, by=FAY))
    (shown,) = peer.turn().pending
    assert (shown.missing, shown.is_edit_judged) == (1, False)
    assert [(each.by, each.groups, each.via) for each in shown.approvals] == [("fay", ("finance",), "handle")]
    assert [(each.need, each.of, each.not_by) for each in shown.demands] == [(2, ("finance",), ()), (1, (), ("eve",))]
    with pytest.raises(UndecidedCalls, match=r"meanwhile\. pay needs 1 more approval of finance$"):
        peer.say(peer.turn().continue_loop)
    decide(peer, Approve(by=LEA))
    (decided,) = peer.turn().calls
    assert (decided.missing, decided.demands) == (0, shown.demands)
    assert decided.decision is not None
    assert (decided.decision.groups, decided.decision.via) == (("legal", "finance"), "handle")


# --- whose clock, and whose name -------------------------------------------------------------------------------------


def test_the_clock_of_a_person_expires_no_call() -> None:
    """A day ahead: her own decision is too late by it and is not recorded, and all others can go on."""
    rules = Rules(Ask(expires_in=60.0))
    calls = [call("pay", {"amount": 1}, id=each) for each in ("t1", "t2")]
    world = World("sync", MemoryStore(), script=(reply(calls=calls), reply("done")), config={"on_tool_call": rules})
    peer = world.open()
    peer.next_turn()
    before = world.journal()
    ahead, right = Inbox(world.store, clock=lambda: time.time() + 86_400), Inbox(world.store)
    with pytest.raises(AlreadyDecided, match="expired at"):
        ahead.decide("loop", {"t1": Deny("no", by="ana")})
    assert world.journal() == before
    right.decide("loop", {"t1": Deny("no", by="ana")})
    right.decide("loop", {"t2": Approve(by="bo")})
    kinds = [(each.kind, each.by, each.via) for each in right.trail("loop")]
    assert kinds == [("deny", "ana", "inbox"), ("approve", "bo", "inbox")]


@either_kind
def test_who_opens_a_loop_and_approves_all_expires_no_call(kind: str) -> None:
    """Also with a clock that is a day ahead: only the driver of a loop lets its time pass."""
    rules = Rules(lambda call: Ask(expires_in=60.0 if call.id == "t1" else None))
    calls = [call("pay", {"amount": 1}, id=each) for each in ("t1", "t2")]
    world = World(kind, MemoryStore(), script=(reply(calls=calls), reply("done")), config={"on_tool_call": rules})
    peer = world.open()
    peer.next_turn()
    before = world.journal()
    ahead = world.open(clock=lambda: time.time() + 86_400)
    assert (waits(ahead), world.journal()) == (("t1", "t2"), before)
    ahead.say(partial(ahead.turn().approve_all, by="ana"))  # by that clock, it is too late for the first
    assert (waits(ahead), world.journal()) == (("t1",), [*before, "Decided"])
    peer.flush()
    decide(peer, Approve(by="bo"))
    assert go_on(peer) == ()
    assert sorted(world.ran) == ["t1", "t2"]


def test_whatever_a_person_does_is_in_the_trail_with_the_name() -> None:
    """By handle and by inbox, with the place."""
    world, _, peer = shop("sync", Ask())
    inbox, handle = Inbox(world.store), peer.handle
    turn = peer.turn()
    peer.say(lambda: turn.approve(turn.pending[0], by=Person("ana", "finance"), remember=Grant()))
    peer.say(lambda: handle.grants.revoke(handle.grants[0], by="bo"))
    peer.say(lambda: turn.continue_loop(by="cy"))
    peer.next_turn()
    peer.say(lambda: peer.turn().inject_and_continue("hurry", by="dee"))
    peer.say(lambda: handle.extend(max_iterations=20, by="eve"))
    assert peer.run().unwrap().text == "done"
    peer.say(lambda: handle.follow_up("more", by="fay"))
    inbox.stop("loop", "enough", by=Person("gus"))
    found = [(each.kind, each.by, each.via) for each in inbox.trail("loop")]
    assert found == [
        ("approve", "ana", "handle"),
        ("revoke", "bo", "handle"),
        ("continue", "cy", "handle"),
        ("say", "dee", "handle"),
        ("extend", "eve", "handle"),
        ("say", "fay", "handle"),
        ("stop", "gus", "inbox"),
    ]
    assert inbox.trail("loop")[0].groups == ("finance",)


def test_the_trail_says_what_came_of_each_decision() -> None:
    """Approvals with what was missing then, the outcome beside the last decision, and an expiry as a line."""
    now = time.time()
    rules = Rules(lambda call: Ask(need=2, expires_in=None if call.id == "t1" else 60.0))
    calls = [call("pay", {"amount": 1}, id=each) for each in ("t1", "t2", "t3")]
    script = (reply(calls=calls), reply("done"))
    config = {"on_tool_call": rules}
    world = World("sync", MemoryStore(), script=script, config=config, clock=lambda: now)
    peer = world.open()
    peer.next_turn()
    inbox, first = Inbox(world.store, clock=lambda: now), peer.turn().pending[0]
    inbox.decide("loop", {first: Approve(by=FAY)})
    inbox.decide("loop", {"t1": Approve(by=FRED, digest=first.digest), "t3": Deny("no", by=FAY)})
    peer.close()
    now += 61
    peer = world.open()
    assert peer.run().unwrap().text == "done"
    parts = [(each.kind, each.by, each.path, each.missing, each.outcome) for each in inbox.trail("loop")]
    assert parts == [
        ("approve", "fay", ("t1",), 1, None),
        ("approve", "fred", ("t1",), 0, "returned"),
        ("deny", "fay", ("t3",), 0, "denied"),
        ("expired", None, ("t2",), 0, "expired"),
    ]
    assert inbox.trail("loop")[0].digest == first.digest


def test_each_approval_is_reported_while_it_happens() -> None:
    """An observer learns who approved and how many are missing; the last approval decides the call."""
    seen: list[Any] = []
    config = {"on_tool_call": Rules(Ask(need=2)), "observers": [seen.append]}
    world = World("sync", MemoryStore(), script=(reply(calls=[PAY]), reply("done")), config=config)
    peer = world.open()
    peer.next_turn()
    decide(peer, Approve(by="ana"))
    decide(peer, Approve(by="ana"))
    decide(peer, Approve({"amount": 2}, by="bo"))
    decide(peer, Approve(by="ana"))
    told = [(each.by, getattr(each, "missing", 0)) for each in seen if isinstance(each, (CallApproved, CallDecided))]
    assert told == [("ana", 1), ("bo", 1), ("ana", 0)]


def test_the_clock_of_a_command_expires_no_call() -> None:
    """A handle of a person a day ahead extends, continues and revokes: the call can still be decided."""
    world, _, peer = shop("sync", Ask(expires_in=60.0))
    peer.close()
    world.clock, right = (lambda: time.time() + 86_400), world.clock
    person = world.open()
    person.say(lambda: person.handle.extend(max_iterations=50, by="eve"))
    with pytest.raises(UndecidedCalls):
        person.say(lambda: person.handle.resume(Continue(by="eve")))
    person.close()
    assert Inbox(world.store, clock=right).decide("loop", {"t1": Deny("no", by="bo")})["t1"].is_yours


def test_an_edit_that_stands_is_approved_by_its_digest() -> None:
    """After its approvals were dropped, too: an interrupted call does not run again on the id alone."""
    world, _, peer = shop("sync", Ask())
    decide(peer, Approve({"amount": 50_000}, by="ana"))
    peer.say(peer.turn().continue_loop)
    with hold_at(world, "t1", peer) as turn:
        worker = world.open(take_over=True)
        worker.run()
        with pytest.raises(DecisionConflict, match="its input was edited"):
            worker.say(lambda: worker.handle.decide({"t1": Rerun(by="bo")}))
        decide(worker, Rerun(by="bo"))
        assert go_on(worker) == ()
    with pytest.raises(Conflict):
        turn.result()


def test_a_policy_cannot_change_what_the_others_see() -> None:
    """All get the same view."""
    seen: list[str] = []

    def meddle(_call: ToolCall, view: Any) -> None:
        for name in ("outer", "iteration", "_loop"):
            try:
                setattr(view, name, None)
            except AttributeError:
                seen.append(name)

    World("sync", MemoryStore(), script=(reply(calls=[PAY]),), config={"on_tool_call": meddle}).open().next_turn()
    assert seen == ["outer", "iteration", "_loop"]


@pytest.mark.parametrize("rule", [Approve(by="rule: x"), Approve(by="RULE : x")])
def test_only_a_rule_has_the_name_of_a_rule(rule: Any) -> None:
    """Another policy that takes it asks a person."""
    world, _, peer = shop("sync", rule)
    (call,) = peer.turn().pending
    assert call.reason is not None
    assert "give rule=" in call.reason
    assert world.ran == []


class Text(str):
    """A text that claims to be another."""

    __slots__ = ()

    def casefold(self) -> str:
        return f"{id(self)}"

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def test_a_name_is_its_text() -> None:
    """Whatever its class says: ana twice is one person, and the journal reads as it was written."""
    world, _, peer = shop("sync", Ask(need=2, of="finance"))
    for _ in range(2):
        decide(peer, Approve(by=Person(Text("ana"), ("finance",))))
    assert waits(peer) == ("t1",)
    with pytest.raises(IllegalCommand, match="does not count"):
        decide(peer, Approve(by=Person("bo", (Text("sales"),))))
    assert world.open().handle.pending[0].missing == 1


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_odd_reason_of_a_policy_is_asked_about() -> None:
    """It is shown as what can be shown, and the call waits."""
    _, _, peer = shop("sync", Ask(Odd()))  # type: ignore[arg-type]
    assert peer.turn().pending[0].reason == "an Odd that cannot be shown"


@pytest.mark.parametrize("via", ["handle", "", " ", "x-", "rule: x", "x-a b"])
def test_an_inbox_says_where_people_decide(via: str) -> None:
    with pytest.raises(ValueError, match="via: expected one of inbox, page, command, dbos, agui, acp, or x-"):
        Inbox(MemoryStore(), via=via)
    Inbox(MemoryStore(), via="x-slack")


@pytest.mark.parametrize("name", ["", "an\u0430", "rule: x", "a\u200b"])
def test_a_misleading_name_is_refused_wherever_it_is_given(name: str) -> None:
    """Before anything is recorded."""
    world, _, peer = shop("sync", Ask())
    before = world.journal()
    inbox, turn = Inbox(world.store), peer.turn()
    given: list[Callable[[], object]] = [
        lambda: turn.continue_loop(by=name),
        lambda: turn.inject_and_continue("x", by=name),
        lambda: turn.stop(by=name),
        lambda: peer.handle.stop(by=name),
        lambda: peer.handle.extend(max_iterations=5, by=Person(name)),
        lambda: peer.handle.follow_up("x", by=name),
        lambda: peer.handle.retry(by=name),
        lambda: peer.handle.grants.revoke("x", by=name),
        lambda: inbox.stop("loop", by=name),
        lambda: inbox.say("loop", "x", by=name),
    ]
    for each in given:
        with pytest.raises(ValueError, match="is refused as the name of a person"):
            each()
    assert world.journal() == before
