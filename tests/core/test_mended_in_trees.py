"""What went wrong once in trees of loops, as the machine alone shows it: ids that come again, names, who is asked."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.core import making as m
from tests.core.making import the_call
from tests.core.nested import asked, at, begun, inside, kinds, over, waits
from toolloop.core import events as ev
from toolloop.core.errors import CallerError, DecisionConflict, IllegalCommand, UnknownCall
from toolloop.core.jsontext import encode
from toolloop.core.machine import fold, implied, outstanding, step
from toolloop.core.policy import digest_of
from toolloop.core.states import Deciding, Executed, Failed, Running, State
from toolloop.core.tree import answer_of
from toolloop.core.values import Result, Ruling, Status, Wait, Why

FAILS = (ev.Requested(), ev.RequestFailed(m.FAILURE))


def end(call_id: str, *above: tuple[int, int], path: str = "") -> ev.Ended:
    """The end of the first run of a call of a first round, somewhere."""
    (ended,) = at(path, ev.Ended(call_id, Result(encode("done")), iteration=1, attempt=1, above=above))
    assert isinstance(ended, ev.Ended)
    return ended


def second_round() -> State:
    """A loop whose second round has a call of the same id as its first, with the same call running inside."""
    state = m.go(begun("k"), *asked("k", "c"), *at("k", ev.Judged(), ev.Started("c"), m.ended("c"), ev.TurnEnded()))
    state = m.go(state, *over("k"), m.ended("k"), ev.TurnEnded(), ev.Continued(), *asked("", "k"))
    return running(step(state, m.child(state, "k")))


def second_run(call: str = "k") -> State:
    """A loop whose one call was lost and runs again, with the same call running inside."""
    state = m.go(m.after(), ev.Requested(), m.replied("tool_use", m.call(call, "once")), ev.Judged())
    state = running(step(state, m.child(state, call)))
    state = m.go(state, ev.Cancelled(call), ev.TurnEnded(), m.decided(**{call: m.RERUN}), ev.Continued())
    return running(step(state, m.child(state, call)))


def running(state: State) -> State:
    return m.go(state, *asked("k", "c"), *at("k", ev.Judged(), ev.Started("c")))


# --- ids that come again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "earlier", "this"), [(second_round(), (1, 1), (2, 1)), (second_run(), (1, 1), (1, 2))]
)
def test_a_late_end_inside_an_earlier_run_of_the_call_above_is_none(
    state: State, earlier: tuple[int, int], this: tuple[int, int]
) -> None:
    """It says which run of which call was above it; that of the one that runs is the result."""
    assert step(state, end("c", earlier, path="k")) == state
    settled = step(state, end("c", this, path="k"))
    assert the_call(inside(settled, "k"), "c").status is Status.SETTLED


def test_a_late_end_is_compared_with_every_call_above() -> None:
    """Also with those between; and with each of them by its own number."""
    state = begun("p", inside=("p/b",))
    state = m.go(state, *asked("p/b", "c"), *at("p/b", ev.Judged(), ev.Started("c")))
    for above in (((1, 1), (1, 2)), ((1, 1), (2, 1)), ((2, 1), (1, 1))):
        assert step(state, end("c", *above, path="p/b")) == state
    settled = step(state, end("c", (1, 1), (1, 1), path="p/b"))
    assert the_call(inside(settled, "p/b"), "c").status is Status.SETTLED


def test_a_decision_about_a_call_of_a_lost_loop_is_none_about_the_next() -> None:
    """The second loop in the same call may ask for the very same; the digest is another one all the same."""

    def waiting(state: State) -> State:
        return m.go(state, *waits("k"))

    def shown(state: State) -> str:
        loop = inside(state, "k")
        return digest_of(loop.ledger.setup, loop.round.iteration, the_call(loop, "a"))

    first = m.go(m.after(), ev.Requested(), m.replied("tool_use", m.call("k", "once")), ev.Judged())
    first = waiting(step(first, m.child(first, "k")))
    second = m.go(first, ev.Cancelled("k"), ev.TurnEnded(), m.decided(k=m.RERUN), ev.Continued())
    second = waiting(step(second, m.child(second, "k")))
    assert inside(second, "k").ledger.setup.within == ((1, "k", 2),)
    with pytest.raises(DecisionConflict, match="'k/a' was made for another call") as refused:
        step(second, ev.Decided((("k/a", Ruling("approve", digest=shown(first))),)))
    assert refused.value.call == "k/a"
    decided = step(second, ev.Decided((("k/a", Ruling("approve", digest=shown(second))),)))
    assert the_call(inside(decided, "k"), "a").status is Status.DECIDED


# --- who is asked, and who is told -----------------------------------------------------------------------------------


def test_who_waits_is_asked_before_a_failure_is_told() -> None:
    """An outage in one loop hides no question of another; to go on is to try again, too."""
    state = m.go(begun("one", "two"), *at("one", *FAILS), *waits("two"), ev.TurnEnded())
    assert isinstance(state, Deciding)
    onward = m.go(state, ev.Decided((("two/a", m.DENY),)), ev.Continued())
    assert kinds(onward) == {"": "Running", "one": "Ready", "two": "Running"}


def test_a_failure_is_told_with_its_path_once_nobody_is_to_be_asked() -> None:
    """Of the loop whose request failed, however deep that is."""
    state = m.go(begun("one", inside=("one/deep",)), *at("one/deep", *FAILS), *at("one", ev.TurnEnded()))
    failed = step(state, ev.TurnEnded())
    assert isinstance(failed, Failed)
    assert failed.failure == evolve(m.FAILURE, path=("one", "deep"))


def test_a_call_that_waits_deep_inside_goes_before_a_failure_of_its_neighbour() -> None:
    """At each level of the tree by itself."""
    state = m.go(begun("one", inside=("one/deep",)), *waits("one/deep"), *at("one", ev.TurnEnded()), ev.TurnEnded())
    assert kinds(state) == {"": "Deciding", "one": "Deciding", "one/deep": "Deciding"}
    state = m.go(begun("one", "two", inside=("one/deep",)), *waits("one/deep"), *at("two", *FAILS))
    state = m.go(state, *at("one", ev.TurnEnded()), ev.TurnEnded())
    assert kinds(state) == {"": "Deciding", "one": "Deciding", "one/deep": "Deciding", "two": "Failed"}


# --- how calls are named ---------------------------------------------------------------------------------------------


def test_an_id_with_a_slash_is_a_name_like_any_other() -> None:
    """In the outermost loop, where it may even begin like the path of another call, and in a loop inside a call."""
    state = m.go(m.after(), *asked("", "a/b"), m.asks("a/b"))
    assert the_call(step(state, ev.Decided((("a/b", m.APPROVE),))), "a/b").status is Status.DECIDED
    beside = m.go(m.after(execution="ready"), *asked("", "p", "p/x"), m.asks("p/x"), ev.Continued())
    beside = m.go(step(beside, m.child(beside, "p")), ev.Decided((("p/x", m.APPROVE),)))
    assert the_call(beside, "p/x").status is Status.DECIDED
    nested = m.go(begun("p"), *asked("p", "a/b"), *at("p", m.asks("a/b")), ev.TurnEnded())
    nested = step(nested, ev.Decided((("p/a/b", m.DENY),)))
    assert the_call(inside(nested), "a/b").status is Status.SETTLED


@pytest.mark.parametrize("name", ["p//a", "//a", "/p/a", "p/a/", "p/", "/", ""])
def test_a_slash_too_many_names_nothing(name: str) -> None:
    """It is not taken for the call that it nearly names."""
    asking = m.go(begun("p"), *waits("p"), ev.TurnEnded())
    with pytest.raises(UnknownCall):
        step(asking, ev.Decided(((name, m.APPROVE),)))


def decided_before(*rulings: tuple[str, Ruling]) -> State:
    return m.go(begun("p"), *asked("p", "a", "b"), *at("p", m.asks("a", "b")), ev.TurnEnded(), ev.Decided(rulings))


def expired() -> State:
    asking = begun("p")
    verdict = ev.Judged((("a", Wait(Why.APPROVAL, expires_in=5.0)),))
    asking = m.go(asking, *asked("p", "a"), *at("p", verdict), ev.TurnEnded())
    return step(asking, ev.Ticked(at=asking.ledger.now + 6.0))


@pytest.mark.parametrize(
    ("state", "name", "ruling", "kind"),
    [
        (decided_before(), "p/nix", m.APPROVE, UnknownCall),
        (decided_before(), "p/a", Ruling("approve", digest="of another"), DecisionConflict),
        (decided_before(), "p/a", m.RERUN, IllegalCommand),
        (decided_before(("p/a", m.APPROVE)), "p/a", m.DENY, DecisionConflict),
        (expired(), "p/a", m.APPROVE, UnknownCall),
        (m.go(begun("p"), *asked("p", "a"), *at("p", ev.Judged(), ev.Started("a"))), "p/a", m.DENY, IllegalCommand),
        (
            m.go(begun("p"), *asked("p", "a", "b"), *at("p", ev.Judged(), ev.Started("a"), m.ended("a"))),
            "p/a",
            m.DENY,
            UnknownCall,
        ),
    ],
    ids=["no such call", "other digest", "other kind", "decided otherwise", "expired", "running", "settled"],
)
def test_an_error_about_a_call_inside_names_it_by_its_path(
    state: State, name: str, ruling: Ruling, kind: type[CallerError]
) -> None:
    """In its text and in its attributes: ids may come again in a tree, and what is named can be said back."""
    with pytest.raises(kind) as refused:
        step(state, ev.Decided(((name, ruling),)))
    assert repr(name) in str(refused.value)
    if not isinstance(refused.value, IllegalCommand):
        assert getattr(refused.value, "call", None) == name
    if name == "p/nix":
        assert getattr(refused.value, "known", None) == ("p/a", "p/b")


# --- what is written, and what is said -------------------------------------------------------------------------------


def test_a_judgement_that_lets_all_run_is_implied_by_the_loop_that_begins_after_it() -> None:
    """As by the start of another tool, at any depth: a journal without it folds to the same."""
    first = m.opened()
    journal: list[ev.Event] = [first, *asked("", "p")]
    journal += [ev.Judged(), m.child(fold([*journal, ev.Judged()]), "p"), *asked("p", "b"), *at("p", ev.Judged())]
    journal += [m.child(fold(journal), "p", "b"), *over("p/b")]
    left_out = {place for place, each in enumerate(journal[1:]) if implied(journal[place], each)}
    assert [type(journal[place]) for place in left_out] == [ev.Judged, ev.Judged]
    assert fold(each for place, each in enumerate(journal) if place not in left_out) == fold(journal)


def test_only_the_judgement_of_the_round_in_which_it_begins_is_implied() -> None:
    """That of another loop, one that took time, and one that says something stay."""
    state = m.go(m.after(), *asked("", "p"))
    child = m.child(state, "p")
    assert implied(ev.Judged(), child)
    (elsewhere,) = at("p", ev.Judged())
    for other in (elsewhere, ev.Judged(seconds=1.0), ev.Judged(stop=True), m.asks("p"), ev.Judged(at=child.at + 1)):
        assert not implied(other, child)


def test_what_a_loop_says_is_sendable_as_a_result_whatever_the_model_made_of_it() -> None:
    """A lone surrogate is none that the API takes back."""
    state = m.go(begun("p"), *over("p", "\ud800 found"))
    assert isinstance(state, Running)
    assert answer_of(inside(state), state.ledger.setup.texts) == Result(encode("\ufffd found"))
    assert outstanding(m.go(state, m.ended("p")))[0].path == ()
    assert isinstance(m.go(state, m.ended("p"), ev.TurnEnded()), Executed)
