"""Another driver takes a loop over, and copies of loops; and what is asked of a loop by those who list it."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from tests.kit.machine import making as m
from tests.kit.machine.making import the_call
from tests.kit.machine.nested import ask, at, begin_with_calls, finish, kinds, loop_inside, waits
from toolloop.errors import CallerError
from toolloop.machine.queries import LoopStatus, answer_of, driven, everywhere, outstanding, status_of
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import EndTurn, SendRequest
from toolloop.machine.record.loop import Failure, Finished, State, round_of
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import fork, step
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, Outcome, Result, Status, Wait, Why
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.demands import Demand
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Limits, Texts

TWO = m.make_replied("tool_use", m.call("c", "pure"), m.call("d", "pure"))


def approve(by: str) -> ev.Approved:
    digest = digest_of(m.setup(), 1, Call("c", "keyed", encode({"a": 1})))
    return ev.Approved((("c", DecisionRecord("approve", by=by, digest=digest, via="handle")),))


FAILS = (ev.Requested(), ev.RequestFailed(m.FAILURE))


# --- waking ----------------------------------------------------------------------------------------------------------


def test_a_request_whose_driver_is_gone_is_made_again() -> None:
    """Its reply is never received; as if it had not been made, but for its number.

    The setup may be another one from here on.
    """
    first, other = m.state_after(ev.Requested(), ev.Woken()), ev.Woken(m.setup(max_parallel_tools=1), driver="b")
    assert first.root == m.state_after().root._replace(requests=1)
    assert m.state_after(ev.Requested(), other).root == m.state_after(max_parallel_tools=1).root._replace(requests=1)
    failed = m.state_after(ev.RequestFailed(m.FAILURE))
    assert step(failed, ev.Woken()) == failed


def test_a_tree_wakes_up_as_a_whole() -> None:
    """Requests are made again, tools that ran are lost, at every depth; what is settled stays."""
    state = m.go(
        begin_with_calls("p", "q", inside=("p/b",)), *ask("p/b", "c", tool="once"), *at("p/b", ev.Started("c"))
    )
    state = step(m.go(state, *at("q", ev.Requested())), ev.Woken())
    assert kinds(state) == {"": "Running", "p": "Running", "p/b": "Running", "q": "Ready"}
    assert the_call(loop_inside(state, "p/b"), "c").why is Why.UNCERTAIN
    assert outstanding(state) == (EndTurn(("p", "b")), SendRequest(("q",)))
    alone = m.go(begin_with_calls("p"), *ask("p", "c", tool="once"), *at("p", ev.Started("c"), ev.Woken()))
    assert the_call(loop_inside(alone), "c").why is Why.UNCERTAIN
    deep = m.go(begin_with_calls("p", limits=Limits(max_depth=1)), ev.Ticked())
    over_ = m.go(deep, *at("p", ev.TurnEnded()))
    assert kinds(step(over_, ev.Woken())) == {"": "Running", "p": "TooDeep"}


def test_the_end_of_a_turn_brings_the_previews_of_calls_that_wait() -> None:
    """Also in loops inside calls and around them; those of other calls are ignored."""
    lost = m.state_after(m.make_replied("tool_use", m.call("c")), ev.Started("c"), ev.Woken())
    state = step(lost, ev.TurnEnded(previews=(("c", "pays 1"), ("x", "pays 2"))))
    assert (the_call(state).preview, m.phase(state)) == ("pays 1", "decision_required")
    tree = m.go(begin_with_calls("p"), *ask("p", "c", tool="once"), *at("p", ev.Started("c"), ev.Woken()))
    tree = m.go(tree, *at("p", ev.TurnEnded(previews=(("c", "pays 3"),))))
    assert the_call(loop_inside(tree), "c").preview == "pays 3"
    tree = step(tree, ev.TurnEnded(previews=(("p", "runs"),)))
    assert (the_call(tree, "p").preview, m.phase(tree)) == (None, "decision_required")


def test_what_a_limit_left_wakes_up_too() -> None:
    """Where the loop goes on, what ran is uncertain, and what had not started is judged again."""
    state = m.state_after(
        m.make_replied("tool_use", m.call("c"), m.call("d")), ev.Started("c"), limits=Limits(timeout=5.0)
    )
    limited = m.go(state, ev.Ticked(seconds=9.0), ev.TurnEnded(), ev.Woken())
    assert isinstance(limited.root.phase, Finished)
    onward = step(limited, ev.Changed(limits=Limits()))
    assert (the_call(onward).why, the_call(onward, "d").judged) == (Why.UNCERTAIN, False)
    judged = m.state_after(TWO, m.asks("c"), ev.Woken())
    assert [call.judged for call in (the_call(judged), the_call(judged, "d"))] == [False, False]


# --- accepted changes of a tool --------------------------------------------------------------------------------------

FRESH = Demand(2, fresh=True)
YES = DecisionRecord("approve", by="ana", via="handle")
GRANTED = (
    *(m.asks("c"), m.make_decided(c=evolve(YES, remember=GrantSpec(match="{}", uses=2))), ev.Continued()),
    *(ev.Started("c"), m.make_ended("c"), ev.TurnEnded(), ev.Continued()),
    *(m.make_replied("tool_use", m.call("c", "keyed")), m.asks("c")),
)
FORMS: dict[str, tuple[ev.Event, ...]] = {
    "one of two": (m.make_judged(c=Wait(Why.APPROVAL, demands=(FRESH,))), approve("ana")),
    "decided": (m.asks("c"), m.make_decided(c=YES)),
    "cleared": (m.asks("c"), m.make_decided(c=YES), ev.Continued()),
    "edited": (m.asks("c"), m.make_decided(c=evolve(YES, content=encode({"a": 2}))), ev.Continued()),
    "judged again": (m.asks("c"), m.make_decided(c=YES), ev.Continued(), ev.Woken(), m.asks("c")),
    "cleared by a grant": GRANTED,
}


@pytest.mark.parametrize("events", FORMS.values(), ids=FORMS)
def test_an_accepted_change_of_its_tool_begins_the_count_of_a_call_again(events: tuple[ev.Event, ...]) -> None:
    """It waits for approval of the input that would run; the demands stand, and approvals count from here on."""
    asked_ = m.state_after(m.make_replied("tool_use", m.call("c", "keyed")), *events)
    state = step(asked_, ev.Woken(changed_tools=("keyed",)))
    call, before = the_call(state), the_call(asked_)
    assert (call.status, call.why, call.approvals, call.decision) == (Status.WAITING, Why.APPROVAL, (), None)
    assert digest_of(m.setup(), 1, call) == digest_of(m.setup(), 1, before)  # so it is in old journals
    rebound = the_call(step(asked_, ev.Woken(changed_tools=("keyed",), rebinds=True)))
    assert rebound == call._replace(redefined=1)
    assert digest_of(m.setup(), 1, rebound) != digest_of(m.setup(), 1, before)
    assert (call.demands, call.effective_input) == (before.demands, before.effective_input)
    assert not any(demand.since for demand in call.demands)
    with pytest.raises(CallerError):
        m.go(state, ev.Started("c"))
    assert the_call(m.go(asked_, ev.Woken(changed_tools=("once", "other")))).approvals == before.approvals
    assert the_call(step(asked_, ev.Woken())).decision == before.decision


def test_an_accepted_change_leaves_calls_that_persons_have_nothing_to_do_with() -> None:
    """Those that wait for a first approval, that may run unasked, that were started, and that have a result."""
    two = m.make_replied("tool_use", *(m.call(name, "keyed") for name in "cdefg"))
    state = m.state_after(two, m.make_judged(c=Wait(Why.APPROVAL), e=m.DENY, f=Wait(Why.EXTERNAL)), execution="ready")
    state = m.go(state, ev.Continued(), ev.Started("d"))
    assert step(state, ev.Woken(changed_tools=("keyed",))) == step(state, ev.Woken())
    settled = m.go(state, m.make_ended("d"), ev.Stopped())
    assert step(settled, ev.Woken(changed_tools=("keyed",))) == step(settled, ev.Woken())


def test_the_grant_of_a_call_that_is_asked_for_again_is_replaced() -> None:
    """By that of its next approval: one call gives one grant, which is revoked by its id."""
    first, second = (evolve(YES, remember=GrantSpec(uses=uses)) for uses in (1, 2))
    state = m.state_after(
        m.make_replied("tool_use", m.call("c")), m.asks("c"), m.make_decided(c=first), ev.Woken(changed_tools=("once",))
    )
    state = step(state, m.make_decided(c=second))
    assert [(grant.id, grant.uses) for grant in state.root.grants] == [("1/c", 2)]
    assert step(state, ev.GrantRevoked("1/c")).root.grants == ()


def test_a_call_that_is_asked_for_again_has_no_more_time_than_before() -> None:
    """The deadline of its first wait stands; a call that a grant had cleared gets one."""
    timed = m.state_after(m.make_replied("tool_use", m.call("c")), *FORMS["cleared"][:2], decision_timeout=30.0)
    again = m.go(timed, ev.Continued(), ev.Woken(at=20.0, changed_tools=("once",)))
    assert the_call(again).expires_at == 30.0
    assert the_call(m.go(again, ev.Ticked(at=31.0))).result is not None
    never = m.state_after(m.make_replied("tool_use", m.call("c", "keyed")), *GRANTED, decision_timeout=30.0)
    assert the_call(step(never, ev.Woken(at=20.0, changed_tools=("keyed",)))).expires_at == 50.0


def test_an_accepted_change_reaches_the_loops_that_have_the_tool() -> None:
    """By the names of the tools of the calls that lead there, from the loop that is woken."""
    below = Wait(Why.APPROVAL, demands=(FRESH,))
    state = begin_with_calls("p", "q", inside=("p/b",), execution="ready")
    state = m.go(state, *ask("p/b", "a", tool="once"), *at("p/b", m.make_judged(a=below)))
    state = m.go(state, *ask("q", "a", tool="once"), *at("q", m.make_judged(a=below)))
    digests = {
        path: digest_of(loop_inside(state, path).setup, 1, the_call(loop_inside(state, path), "a"))
        for path in ("p/b", "q")
    }
    for path, digest in digests.items():
        state = step(state, ev.Approved(((f"{path}/a", evolve(YES, digest=digest)),)))

    def approvals(*changed_tools: str, path: str = "") -> tuple[int, int]:
        woken = m.go(state, *at(path, ev.Woken(changed_tools=changed_tools)))
        deep, flat = (the_call(loop_inside(woken, each), "a") for each in ("p/b", "q"))
        return len(deep.approvals), len(flat.approvals)

    assert approvals() == approvals("once") == approvals("pure") == approvals("other/once") == (1, 1)
    assert approvals("pure/once") == (1, 0)
    assert approvals("pure/pure/once") == (0, 1)
    assert approvals("pure/once", path="p") == (0, 1)


# --- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        (m.state_after(), "Ready"),
        (m.state_after(ev.Requested()), "Ready"),
        (m.state_after(TWO), "Judging"),
        (m.state_after(m.make_replied("end_turn", m.text("so")), callables=frozenset({"stop_when"})), "Judging"),
        (m.state_after(TWO, m.make_judged()), "decision_required"),
        (
            m.state_after(TWO, m.asks("c"), m.make_decided(c=m.approve({"a": 2})), ev.Woken(), ev.Continued()),
            "decision_required",
        ),
        (
            m.state_after(TWO, ev.Started("c"), m.make_ended("c"), ev.Started("d"), m.make_ended("d"), ev.TurnEnded()),
            "tools_executed",
        ),
        (m.state_after(m.make_replied("pause_turn")), "paused"),
        (m.state_after(ev.RequestFailed(m.FAILURE)), "Failed"),
        (m.state_after(ev.Stopped()), "Finished"),
    ],
)
def test_a_copy_stands_where_its_loop_stood(state: State, phase: str) -> None:
    """But that a request is made again, and that calls that a caller looked at are asked about."""
    copy = fork(state, "copy", 0.0)
    assert (m.phase(copy), m.history(copy)) == (phase, m.history(state))
    assert list(copy.loops) == [()]
    assert copy.root.active == state.root.active


def test_a_copy_has_no_grants() -> None:
    """What its caller allowed once and for all was allowed in the other loop."""
    granted = m.state_after(TWO, m.asks("c"), m.make_decided(c=evolve(m.APPROVE, remember=GrantSpec(match="{}"))))
    assert (len(granted.root.grants), fork(granted, "copy", 0.0).root.grants) == (1, ())


def test_the_calls_of_a_copy_wait_from_then_on() -> None:
    """However long the loop had waited with the copy."""
    copy = fork(m.state_after(TWO, m.make_judged(), decision_timeout=5.0), "copy", 100.0)
    assert [the_call(copy, name).expires_at for name in "cd"] == [105.0, 105.0]


def test_a_tree_is_copied_as_a_whole() -> None:
    """Loops inside calls have copies; also where it failed, and where a limit ended it."""
    state = m.go(begin_with_calls("p", "q"), *ask("p", "a"), *at("p", ev.Started("a")), *at("q", ev.Requested()))
    copy = fork(state, "copy", 0.0)
    assert kinds(copy) == {"": "Waiting", "p": "Waiting", "q": "Ready"}
    assert {loop.setup.loop_id for loop in copy.loops.values()} == {"copy"}
    assert the_call(loop_inside(copy), "a").why is Why.UNCERTAIN
    assert the_call(copy, "p").status is Status.RUNNING
    failed = fork(m.go(begin_with_calls("p"), *at("p", *FAILS), ev.TurnEnded()), "copy", 0.0)
    assert (m.phase(failed), len(everywhere(failed))) == ("Failed", 2)
    calls = m.state_after(TWO, ev.Started("c"), ev.Ticked(seconds=9.0), ev.TurnEnded(), limits=Limits(timeout=5.0))
    onward = step(fork(calls, "copy", 0.0), ev.Changed(limits=Limits()))
    assert the_call(onward).why is Why.UNCERTAIN


def test_a_loop_that_a_limit_ended_keeps_what_is_inside_of_its_calls() -> None:
    """It is not in the driven tree; where the loop goes on, it is again, and a request is made again."""
    asking = m.go(m.state_after(limits=Limits(timeout=1.0)), *ask("", "p"))
    state = m.go(step(asking, m.child(asking, "p")), *at("p", ev.Requested()))
    ended = m.go(state, ev.Ticked(seconds=2.0), ev.TurnEnded())
    assert ([path for path, _ in driven(ended)], [path for path, _ in everywhere(ended)]) == ([()], [(), ("p",)])
    assert round_of(ended.root) is not None
    onward = step(ended, ev.Changed(limits=Limits()))
    assert outstanding(onward) == (SendRequest(("p",)),)
    edited = m.go(ended, ev.Changed(limits=Limits(timeout=0.0)), ev.TurnEnded())
    assert (m.phase(edited), set(edited.loops)) == ("Finished", {(), ("p",)})


# --- whose turn it is ------------------------------------------------------------------------------------------------

EXAMPLES: list[tuple[State, LoopStatus]] = [
    (m.state_after(), "runnable"),
    (m.state_after(ev.Requested()), "running"),
    (m.state_after(TWO), "runnable"),
    (m.state_after(TWO, m.asks("c")), "needs_decision"),
    (m.state_after(TWO, m.asks("c"), m.make_decided(c=m.APPROVE)), "needs_command"),
    (m.state_after(TWO, m.make_judged()), "runnable"),
    (m.state_after(TWO, m.make_judged(), ev.Started("c")), "running"),
    (m.state_after(TWO, m.asks("c"), ev.Continued(), ev.Started("d"), execution="ready"), "needs_decision"),
    (m.state_after(TWO, m.make_judged(c=m.DENY, d=m.DENY), ev.TurnEnded()), "needs_command"),
    (m.state_after(m.make_replied("pause_turn", m.text("half"))), "needs_command"),
    (m.state_after(m.make_replied("end_turn", m.text("bye"))), "ended"),
    (m.state_after(ev.RequestFailed(m.FAILURE)), "failed"),
    (m.state_after(ev.TurnEnded(), limits=Limits(max_depth=0)), "ended"),
    (m.go(begin_with_calls("p"), *waits("p")), "needs_decision"),
    (m.go(begin_with_calls("p"), *at("p", ev.Requested())), "running"),
    (begin_with_calls("p"), "runnable"),
]


@pytest.mark.parametrize(("state", "status"), EXAMPLES)
def test_a_status_says_whose_turn_it_is(state: State, status: LoopStatus) -> None:
    """A loop that waits for a person says so even if something else could go on meanwhile."""
    assert status_of(state) == status


def test_a_loop_that_is_not_handed_over_can_go_on() -> None:
    """And an empty conversation waits for the caller's first message."""
    waiting_for_a_command = m.state_after(TWO, m.make_judged(c=m.DENY, d=m.DENY), ev.TurnEnded())
    assert status_of(waiting_for_a_command, is_handed_over=False) == "runnable"
    empty = State({(): m.state_after().root._replace(messages=Chain())})
    assert status_of(empty, is_handed_over=False) == "needs_command"


# --- what came of a loop inside a call -------------------------------------------------------------------------------


def answer(*events: ev.Event, texts: Texts | None = None, **changes: Any) -> tuple[str, bool]:
    """The result that the call of a loop gets, and whether it is an error."""
    result = answer_of(m.state_after(*events, **changes).root, texts or Texts())
    assert result.outcome is (Outcome.FAILED if result.is_error else Outcome.RETURNED)
    return decode(result.content), result.is_error


SILENT = "The loop inside this call came to an end without an answer: "
CUT = "The loop inside this call was cut short: "
ROUND = (
    m.make_replied("tool_use", m.text("so far"), m.call("a", "pure")),
    ev.Started("a"),
    m.make_ended("a"),
    ev.TurnEnded(),
)


@pytest.mark.parametrize(
    ("events", "changes", "text", "is_error"),
    [
        ((m.make_replied("end_turn", m.text("one"), m.text(" "), m.text("two")),), {}, "one\ntwo", False),
        ((m.make_replied("end_turn", m.text("\ud800 found")),), {}, "\ufffd found", False),
        ((m.make_replied("end_turn"),), {}, f"{SILENT}it said nothing.", False),
        (
            (m.make_replied("tool_use", m.call("a")), ev.Judged(stop=True, reason="seen it")),
            {"callables": frozenset({"stop_when"})},
            f"{SILENT}stop condition (reason: seen it).",
            False,
        ),
        (
            (*ROUND, ev.Continued(), ev.TurnEnded()),
            {"limits": Limits(max_iterations=1)},
            f"{CUT}max iterations (limit: 1). Its last words were: so far",
            True,
        ),
        (
            (m.make_replied("refusal", m.text("no"), stop_details={"explanation": "not that"}),),
            {},
            f"{SILENT}refused (explanation: not that).",
            True,
        ),
        (
            (ev.RequestFailed(Failure("model", "no such model", status=404)),),
            {},
            f"{SILENT}its model request failed: no such model.",
            True,
        ),
        (
            (ev.TurnEnded(),),
            {"depth": 2, "limits": Limits(max_depth=2)},
            f"{SILENT}it is nested too deep: 2, and 2 is the limit.",
            True,
        ),
    ],
)
def test_the_answer_of_a_loop_is_its_last_text_or_why_there_is_none(
    events: tuple[ev.Event, ...], changes: dict[str, Any], text: str, *, is_error: bool
) -> None:
    """What a loop said before an end that it did not choose is not its answer."""
    assert answer(*events, **changes) == (text, is_error)


def test_the_texts_are_those_of_the_loop_above() -> None:
    """As all that the model gets."""
    own = Texts(no_answer="Nothing came of it: {reason}")
    assert answer(m.make_replied("end_turn"), texts=own) == ("Nothing came of it: it said nothing", False)
    told = m.go(begin_with_calls("p"), *finish("p"))
    assert answer_of(loop_inside(told), told.root.setup.texts) == Result(encode("found"))
