"""A model that goes in circles is noticed: exactly then, once, and before anything of the round runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.detection import detected
from toolloop.core.effects import Judge
from toolloop.core.errors import IllegalCommand
from toolloop.core.folding import stride
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import fold, outstanding, step
from toolloop.core.setup import Limits, LoopDetection
from toolloop.core.states import Deciding, Executed, Finished, Judging, Ready, Running, State
from toolloop.core.terminations import LoopDetected, MaxIterations, NaturalEnd, StopCondition
from toolloop.core.texts import Texts
from toolloop.core.values import Result
from toolloop.stores.codec import dump, load

# A call is (tool, input, result, is it an error); a round is a list of them.
A, B = [("pure", 1, "x", False)], [("keyed", 1, "x", False)]
UNLIMITED = Limits(max_iterations=None)
NO_ANSWER = ev.Judged(stop=True, reason="enough")


def looking(threshold: int = 3, action: Any = "warn", **changes: Any) -> State:
    """A loop that looks for circles."""
    return m.after(limits=UNLIMITED, loop_detection=LoopDetection(threshold, action), **changes)


def asked(round_: list[Any], iteration: int, call: Any = m.call) -> ev.Replied:
    """The reply that asks for a round."""
    blocks = [call(f"c{iteration}_{n}", name) | {"input": {"a": given}} for n, (name, given, _, _) in enumerate(round_)]
    return m.replied("tool_use", *blocks)


def rest_of(round_: list[Any], iteration: int) -> list[ev.Event]:
    """What happens in a round that was judged."""
    ids = [f"c{iteration}_{n}" for n in range(len(round_))]
    ends = [
        ev.Ended(call_id, Result(encode(result), is_error))
        for call_id, (_, _, result, is_error) in zip(ids, round_, strict=True)
    ]
    return [*(ev.Started(call_id) for call_id in ids), *ends, ev.TurnEnded(), ev.Continued()]


def turn_of(round_: list[Any], iteration: int) -> list[ev.Event]:
    return [ev.Requested(), asked(round_, iteration), *rest_of(round_, iteration)]


def judging(state: State, *rounds: list[Any], call: Any = m.call) -> Judging:
    """The loop after these rounds, where the last one is to be judged."""
    for round_ in rounds[:-1]:
        state = m.go(state, *turn_of(round_, state.ledger.iterations + 1))
    state = m.go(state, asked(rounds[-1], state.ledger.iterations + 1, call))
    assert isinstance(state, Judging)
    return state


def circles(state: State, rounds: list[Any]) -> list[tuple[str, int] | None]:
    """What is found at each round."""
    found = []
    for round_ in rounds:
        state = judging(state, round_)
        circle = detected(state)
        found.append(None if circle is None else (circle.tool_name, circle.count))
        state = m.go(state, ev.Judged(), *rest_of(round_, state.ledger.iterations))
        assert isinstance(state, Ready)
    return found


# --- against a model that looks at everything ------------------------------------------------------------------------

calls = st.tuples(st.sampled_from(["pure", "keyed"]), st.sampled_from([1, 2]), st.sampled_from("xxxy"), st.booleans())
a_round = st.lists(calls, min_size=1, max_size=2)
a_cycle = st.tuples(st.lists(a_round, min_size=1, max_size=5), st.integers(1, 7)).map(lambda drawn: drawn[0] * drawn[1])
lives = st.lists(a_cycle, min_size=1, max_size=3).map(lambda drawn: [round_ for cycle in drawn for round_ in cycle])


def expected(rounds: list[Any], threshold: int) -> tuple[str, int] | None:
    """The circle that the last of these rounds closes: all of them are looked at, and nothing was counted before."""
    newest = len(rounds) - 1
    asks = [sorted((name, given) for name, given, _, _ in round_) for round_ in rounds]

    def alike(one: int, other: int) -> bool:
        return asks[one] == asks[other] and (newest in (one, other) or sorted(rounds[one]) == sorted(rounds[other]))

    for length in range(1, 5):
        run = 1
        while run <= newest and all(alike(at, at - length) for at in range(newest - run + length, newest + 1)):
            run += 1
        cycle = asks[-length:]
        in_parts = any(cycle == cycle[:part] * (length // part) for part in range(1, length) if length % part == 0)
        if run % (length * threshold) == 0 and not in_parts:
            names = dict.fromkeys(name for round_ in rounds[-length:] for name, *_ in round_)
            return "+".join(names), run // length
    return None


@given(lives, st.integers(1, 4))
def test_a_circle_is_found_exactly_where_there_is_one(rounds: list[Any], threshold: int) -> None:
    """Over rounds of all kinds, repeated and not, with results that change and calls in another order."""
    prefixes = [rounds[: length + 1] for length in range(len(rounds))]
    assert circles(looking(threshold), rounds) == [expected(prefix, threshold) for prefix in prefixes]


@given(lives, st.integers(1, 4), st.sampled_from(["warn", "inject_warning"]))
def test_a_stride_looks_as_the_steps_do(rounds: list[Any], threshold: int, action: Any) -> None:
    """The same state to the last field; and no stride over a circle."""
    state = looking(threshold, action)
    for round_ in rounds:
        turn = turn_of(round_, state.ledger.iterations + 1)
        is_circle = detected(judging(state, round_)) is not None
        then = stride(state, turn)
        state = m.go(state, *turn)
        assert then == (None if is_circle else state)


# --- what a circle is ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "rounds", "counts"),
    [
        (1, 3, [1, 2, 3]),
        (2, 6, [None, 2, None, 4, None, 6]),
        (3, 9, [None, None, 3, None, None, 6, None, None, 9]),
        (4, 8, [None, None, None, 4, None, None, None, 8]),
    ],
)
def test_it_is_told_at_the_threshold_and_at_each_multiple(threshold: int, rounds: int, counts: list[Any]) -> None:
    """Also a threshold of one, which every round reaches."""
    assert circles(looking(threshold), [A] * rounds) == [count and ("pure", count) for count in counts]


def test_a_threshold_of_one_is_reached_by_every_round() -> None:
    """By the very first one too, and whatever came before."""
    assert circles(looking(1), [A, B, B]) == [("pure", 1), ("keyed", 1), ("keyed", 2)]


def test_a_cycle_of_rounds_is_found_when_it_closes() -> None:
    """A-B-A-B: its tools are all named, and it is told of once for each multiple, not once for each shift."""
    found = circles(looking(2), [A, B] * 4 + [A])
    assert found == [None, None, None, ("pure+keyed", 2), None, None, None, ("pure+keyed", 4), None]


def test_a_cycle_has_at_most_four_rounds() -> None:
    """Of five different rounds again and again nothing is known."""
    rounds = [[("pure", number, "x", False)] for number in range(5)]
    assert circles(looking(2), rounds[:4] * 2)[-1] == ("pure", 2)
    assert set(circles(looking(2), rounds * 4)) == {None}


def test_results_that_change_are_no_circle() -> None:
    """A tool that is asked again and again, and has something new to say, makes progress; also an error does."""
    news = [[("pure", 1, f"{number} %", False)] for number in range(9)]
    assert set(circles(looking(2), [*news[:1], *news[2:]])) == {None, ("pure", 2)}
    assert set(circles(looking(3), news)) == {None}
    failing = [[("pure", 1, "x", number % 2 == 1)] for number in range(9)]
    assert set(circles(looking(3), failing)) == {None}


def test_parallel_calls_in_another_order_are_the_same_round() -> None:
    """And so is an input whose keys come in another order. How often a call is made counts."""
    one, other = [*A, *B], [*B, *A]
    assert circles(looking(3), [one, other, one])[-1] == ("pure+keyed", 3)
    assert circles(looking(2), [A, [*A, *A]]) == [None, None]
    keys = [[("pure", {"a": 1, "b": 2}, "x", False)], [("pure", {"b": 2, "a": 1}, "x", False)]]
    assert circles(looking(2), keys)[-1] == ("pure", 2)


@pytest.mark.parametrize(
    ("round_", "names"),
    [(A, "pure"), ([*A, *B], "pure+keyed"), ([*B, *A, *B], "keyed+pure")],
    ids=["single", "multiple", "twice"],
)
def test_compute_tool_calls_signature(round_: list[Any], names: str) -> None:
    """Each tool once, in the order of the calls."""
    assert detected(judging(looking(1), round_)) == LoopDetected(names, 1)


def test_compute_tool_calls_signature_empty() -> None:
    """A reply that ends without a round is none, even if a call stands in it: it is not looked at."""
    state = m.go(looking(1, callables=frozenset({"stop_when"})), *turn_of(A, 1)[:2])
    assert detected(_judging(state)) is not None
    for reply in (m.text("so"), m.call("c1_0", "pure")):
        state = m.go(looking(1, callables=frozenset({"stop_when"})), m.replied("end_turn", reply))
        assert detected(_judging(state)) is None
        assert m.go(state, ev.Judged()).ledger.trail == state.ledger.trail


# --- once, and in its place ------------------------------------------------------------------------------------------


def test_loop_detection_state_reset() -> None:
    """A further user turn starts anew."""
    state = m.go(judging(looking(), A, A), ev.Judged(), *rest_of(A, 2), m.replied("end_turn", m.text("so")))
    assert circles(m.go(state, ev.FollowedUp((m.user(),))), [A, A, A]) == [None, None, ("pure", 3)]


def test_what_judges_once_more_counts_nothing_once_more() -> None:
    """A loop that woke up, and a call that the caller edited, are judged again; the round was looked at."""
    state = m.go(judging(looking(2, "inject_warning"), A, A), m.asks("c2_0"))
    assert isinstance(state, Deciding)
    state = m.go(state, ev.Woken(), m.decided(c2_0=m.approve({"a": 9})), ev.Continued())
    assert isinstance(state, Judging)
    assert detected(state) is None
    state = m.go(state, ev.Judged(), *rest_of(A, 2))
    assert [message["content"] for message in m.history(state)[1:] if isinstance(message["content"], str)] == [
        warning("pure", 2)
    ]
    assert circles(state, [A]) == [None]


def test_a_loop_that_wakes_up_before_it_judged_looks_then() -> None:
    """Nobody has heard of the circle yet."""
    assert detected(_judging(m.go(judging(looking(), A, A, A), ev.Woken()))) == LoopDetected("pure", 3)


def _judging(state: State) -> Judging:
    assert isinstance(state, Judging)
    return state


def test_looking_may_begin_and_end_while_a_loop_sleeps() -> None:
    """What came before it began does not count, nor what came before it ended."""
    on, off = (m.setup(limits=UNLIMITED, loop_detection=each) for each in (LoopDetection(2), None))
    state = m.go(m.after(limits=UNLIMITED), *turn_of(A, 1), ev.Woken(on))
    assert circles(state, [A, A]) == [None, ("pure", 2)]
    state = m.go(state, *turn_of(A, 2), ev.Woken(off), *turn_of(A, 3), ev.Woken(on))
    assert circles(state, [A, A]) == [None, ("pure", 2)]


def test_without_it_nothing_is_kept() -> None:
    """Such a loop writes what it always wrote."""
    state = m.go(m.after(limits=UNLIMITED), *turn_of(A, 1), *turn_of(A, 2))
    assert detected(judging(m.after(limits=UNLIMITED), A, A, A)) is None
    text = encode(dump(state))
    assert "trail" not in text
    assert "loop_detection" not in text


@given(lives, st.integers(1, 3))
def test_a_journal_and_a_snapshot_keep_the_count(rounds: list[Any], threshold: int) -> None:
    """The fold of all events, with and without the judgement that a journal leaves out, and the snapshot agree."""
    opened = m.opened(limits=UNLIMITED, loop_detection=LoopDetection(threshold, "inject_warning"))
    journal: list[ev.Event] = [opened]
    for number, round_ in enumerate(rounds, 1):
        journal += turn_of(round_, number)
    told = [each for event in journal for each in ([event, ev.Judged()] if isinstance(event, ev.Replied) else [event])]
    state = fold(journal)
    assert state == fold(told)
    assert load(dump(state)) == state
    assert len(state.ledger.trail.rounds) <= 4


# --- what is done about it -------------------------------------------------------------------------------------------


def warning(name: str, count: int) -> str:
    return Texts().loop_warning.format(name=name, count=count)


def test_stop_ends_the_loop_before_a_policy_is_asked() -> None:
    """Nothing of the round runs, and its calls have results that say so."""
    state = judging(looking(3, "stop"), A, A, A)
    assert outstanding(state) == (Judge(calls=()),)
    with pytest.raises(IllegalCommand):
        step(state, ev.Started("c3_0"))
    ended = step(state, ev.Judged())
    assert isinstance(ended, Finished)
    assert ended.termination == LoopDetected("pure", 3)
    assert m.results(m.history(ended)[-1]) == {"c3_0": Texts().not_run}
    assert outstanding(judging(looking(3, "stop"), A, A)) == (Judge(calls=("c2_0",)),)


def test_stop_when_comes_first() -> None:
    """It is asked, and if it ends the loop, that is how the loop ended."""
    state = judging(looking(2, "stop", callables=frozenset({"stop_when"})), A, A)
    assert outstanding(state) == (Judge(calls=(), stop_when=True),)
    ended = step(state, NO_ANSWER)
    assert isinstance(ended, Finished)
    assert ended.termination == StopCondition("enough")


def test_extend_does_not_go_on_after_a_circle_and_follow_up_does() -> None:
    """It is no limit."""
    ended = step(judging(looking(2, "stop"), A, A), ev.Judged())
    extended = step(ended, ev.Extended(Limits(max_iterations=99)))
    assert isinstance(extended, Finished)
    assert extended.termination == LoopDetected("pure", 2)
    assert isinstance(step(extended, ev.FollowedUp((m.user(),))), Ready)


def test_warn_does_nothing_to_the_loop() -> None:
    """The policies are asked as ever."""
    state = judging(looking(2), A, A)
    assert outstanding(state) == (Judge(calls=("c2_0",)),)
    judged = step(state, ev.Judged())
    assert isinstance(judged, Running)
    assert judged.ledger == state.ledger


def test_a_warning_comes_after_the_results_of_the_round() -> None:
    """As a message of its own; what the caller said meanwhile comes after it, a system message last."""
    circling = judging(looking(2, "inject_warning"), A, A)
    state = m.go(circling, ev.Injected((m.user("look here"), m.system())), ev.Judged(), *rest_of(A, 2))
    assert isinstance(state, Ready)
    results, *said = m.history(state)[-4:]
    assert list(m.results(results)) == ["c2_0"]
    assert [message["role"] for message in said] == ["user", "user", "system"]
    assert [message["content"] for message in said[:2]] == [warning("pure", 2), "look here"]


def test_a_warning_can_be_worded_otherwise() -> None:
    """Where a wording cannot be filled in, the usual one is said."""
    for text, told in (("{name}: {count}!", "pure: 1!"), ("{nobody}", warning("pure", 1))):
        state = judging(looking(1, "inject_warning", texts=Texts(loop_warning=text)), A)
        (held,) = step(state, ev.Judged()).ledger.held
        assert decode(held) == {"role": "user", "content": told}


def by_code(threshold: int = 1) -> State:
    """A round made by code, judged and run, after which only its results may follow."""
    state = judging(looking(threshold, "inject_warning"), A, call=m.code_call)
    return m.go(state, ev.Judged(), *rest_of(A, 1))


def test_a_warning_waits_while_only_results_may_follow() -> None:
    """The round goes out without it; it joins at the next place where it may."""
    state = by_code()
    assert isinstance(state, Ready)
    assert (len(state.tail), [decode(text)["content"] for text in state.ledger.held]) == (2, [warning("pure", 1)])
    state = m.go(state, asked(B, 2), ev.Judged(), *rest_of(B, 2))
    assert [message["content"] for message in m.history(state)[-1:]] == [warning("keyed", 1)]
    assert [message["content"] for message in m.history(state)].count(warning("pure", 1)) == 0


def test_a_warning_that_waits_is_not_for_a_model_that_found_its_way_out() -> None:
    """The loop ends where the model ends it; what the caller said is answered all the same."""
    end = m.replied("end_turn", m.text("so"))
    ended = m.go(by_code(), end)
    assert isinstance(ended, Finished)
    assert ended.termination == NaturalEnd()
    assert m.history(ended)[-1]["role"] == "assistant"
    unheard = m.go(by_code(), ev.Injected((m.user("and now?"),)), end)
    assert isinstance(unheard, Ready)
    assert m.history(unheard)[-1]["content"] == "and now?"


def test_a_limit_that_ends_the_loop_in_the_round_keeps_the_warning_and_the_count() -> None:
    """Where it goes on, the round is closed once, and counts once."""
    state = m.after(limits=Limits(timeout=5), loop_detection=LoopDetection(2, "inject_warning"))
    state = m.go(judging(state, A, A), ev.Judged(seconds=9), ev.TurnEnded())
    assert isinstance(state, Finished)
    state = m.go(state, ev.Extended(UNLIMITED), *rest_of(A, 2)[:-1])
    assert isinstance(state, Executed)
    assert [m.history(state)[-1]["content"], state.ledger.held] == [warning("pure", 2), ()]
    assert circles(m.go(state, ev.Continued()), [A, A]) == [None, ("pure", 4)]


def test_a_limit_between_rounds_keeps_the_count() -> None:
    """`extend` goes on in the same user turn."""
    state = m.after(limits=Limits(max_iterations=2), loop_detection=LoopDetection(3))
    state = m.go(state, *turn_of(A, 1), *turn_of(A, 2), ev.TurnEnded())
    assert isinstance(state, Finished)
    assert state.termination == MaxIterations(2)
    assert circles(m.go(state, ev.Extended(UNLIMITED)), [A]) == [("pure", 3)]
