"""A caller who takes the history into their own hands: what of an open round goes on, and what is gone."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core import test_journal_laws, test_machine_laws, test_status
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.binding import all_messages
from toolloop.core.closing import answer_to
from toolloop.core.errors import IllegalCommand
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import outstanding, step
from toolloop.core.setup import LoopDetection
from toolloop.core.splicing import Splice
from toolloop.core.states import Deciding, Executed, Finished, Judging, Open, Paused, Proposed, Ready, Running, State
from toolloop.core.values import Outcome, Result, Status
from toolloop.stores.codec import dump, load
from toolloop.stores.events import decode_event, encode_event

shown = st.tuples(st.integers(0, 2**32), st.integers(0, 90)).map(
    lambda life: World(random.Random(life[0]), shown=True).live(life[1])
)
REPLY = m.replied("tool_use", m.call("a", "pure"), m.call("b", "pure"))
ASKED = encode({"role": "assistant", "content": [m.call("a", "pure"), m.call("b", "pure")]})
MINE = Result(encode("mine"), outcome=Outcome.ANSWERED)
LAWS: list[Any] = [
    test_machine_laws.test_only_a_cleared_call_starts,
    test_machine_laws.test_every_call_in_the_history_has_its_one_result,
    test_machine_laws.test_no_server_call_is_left_open_in_the_closed_history,
    test_machine_laws.test_only_results_answer_calls_of_code,
    test_machine_laws.test_a_system_message_follows_the_user,
    test_machine_laws.test_usage_adds_up,
    test_machine_laws.test_what_is_outstanding_follows_from_the_state_alone,
    test_machine_laws.test_a_driver_comes_to_an_end_with_each_turn,
    test_machine_laws.test_a_container_is_kept_only_while_the_turn_is_open,
    test_status.test_a_status_says_who_has_the_word,
    test_journal_laws.test_every_prefix_of_the_journal_replays,
    test_journal_laws.test_what_the_next_event_implies_may_be_left_out,
    test_journal_laws.test_a_refused_event_changes_nothing,
    test_journal_laws.test_time_never_runs_backwards,
]


def seen(*events: ev.Event, **changes: Any) -> State:
    """The state of a loop that shows its replies, after these events."""
    return m.after(*events, shows_replies=True, **changes)


def ran(*call_ids: str) -> tuple[ev.Event, ...]:
    """The caller goes on, and these calls run to their end."""
    return (ev.Continued(), m.judged(), *map(ev.Started, call_ids), *map(m.ended, call_ids), ev.TurnEnded())


def adopted(*answered: str, reply: str = ASKED, **more: Any) -> ev.RoundAdopted:
    return ev.RoundAdopted((), reply, tuple((call_id, MINE) for call_id in answered), **more)


def statuses(state: State) -> dict[str, str]:
    assert isinstance(state, Open)
    return {call.id: str(call.status) for call in state.round.calls}


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_what_holds_for_every_loop_holds_here_too(law: Any) -> None:
    """Whatever such a caller does."""
    given(shown)(law.hypothesis.inner_test)()


@given(shown)
def test_a_call_starts_anew_only_where_it_was_lost_left_out_or_asked_for_by_name(world: World) -> None:
    """What is still in the caller's history is not run twice."""
    for event, before, after in zip(world.journal[1:], world.states, world.states[1:], strict=False):
        if isinstance(before, Open) and isinstance(after, Open) and not event.path:
            for call in before.round.calls:
                now = after.round.find(call.id)
                if now is not None and now.attempts < call.attempts:
                    assert isinstance(event, ev.RoundAdopted)
                    assert (now.name, now.input) != (call.name, call.input)
        if isinstance(event, ev.Started) and not event.path:
            call = m.the_call(before, event.call_id)
            assert call.attempts < call.run or before.ledger.setup.repeatable(call.name) or call.ruling is not None


@given(shown)
def test_a_result_goes_only_by_name_or_with_its_call(world: World) -> None:
    """A settled call stays so, with the same result, until the caller answers otherwise or wants it run again."""
    for event, (before, after) in zip(world.journal[1:], pairwise(world.states), strict=True):
        if not isinstance(before, Open) or not isinstance(after, Open) or isinstance(event, ev.CallsReopened):
            continue
        for call in before.round.calls:
            now = after.round.find(call.id)
            if call.result is not None and now is not None and now.input == call.input:
                assert now.result in (call.result, *([MINE] if isinstance(event, ev.RoundAdopted) else []))


@given(shown)
def test_thinking_is_bound_only_to_what_was_there(world: World) -> None:
    """After another history, all thinking behind the first message that is another is unbound."""
    for event, (before, after) in zip(world.journal[1:], pairwise(world.states), strict=True):
        if isinstance(event, ev.ReplyDiscarded | ev.RoundAdopted):
            old, new = all_messages(before), all_messages(after)
            same = sum(all(old[each] == new[each] for each in range(at + 1)) for at in range(min(len(old), len(new))))
            for at, text in enumerate(new):
                is_unbound = any(start <= at < stop for start, stop in after.ledger.unbound)
                was_unbound = any(start <= at < stop for start, stop in before.ledger.unbound)
                if '"thinking"' in text:
                    assert is_unbound == (was_unbound if at < same else True)


@given(shown)
def test_what_is_stored_is_read_as_it_was(world: World) -> None:
    """Every event and every state, also of these."""
    for event in world.journal:
        assert decode_event(encode_event(event)) == event
    assert load(dump(world.state)) == world.state


def test_a_reply_is_shown_before_anything_is_judged_and_once_more_with_its_results() -> None:
    """Then the round closes with the next word."""
    state = seen(REPLY)
    assert isinstance(state, Proposed)
    assert outstanding(state) == ()
    state = m.go(state, *ran("a", "b"))
    assert isinstance(state, Proposed)
    assert statuses(state) == {"a": "settled", "b": "settled"}
    state = step(state, ev.Continued())
    assert isinstance(state, Ready)
    assert [message["role"] for message in m.history(state)] == ["user", "assistant", "user"]


@pytest.mark.parametrize(("stop", "kind"), [("end_turn", Finished), ("max_tokens", Finished), ("pause_turn", Paused)])
def test_a_reply_without_calls_to_run_is_none_to_be_shown_so(stop: str, kind: type[State]) -> None:
    """Nothing of it is judged anyhow."""
    assert isinstance(seen(m.replied(stop, m.text("so"))), kind)


def test_a_round_of_a_loop_that_shows_nothing_closes_as_ever() -> None:
    """Also where it was adopted."""
    state = m.go(m.after(), adopted(), *ran("a", "b"))
    assert isinstance(state, Executed)


def test_a_discarded_reply_is_gone_with_its_calls() -> None:
    """The history is what the caller says, and what the reply cost is not forgotten."""
    state = m.go(seen(REPLY), ev.ReplyDiscarded((Splice(1, 1, (m.user("no, that"),)),)))
    assert isinstance(state, Ready)
    assert [message["content"] for message in m.history(state)] == ["hi", "no, that"]
    assert state.ledger.iterations == 1
    assert state.ledger.edited_at == 1


@pytest.mark.parametrize(
    ("history", "runs", "counts"),
    [
        ((ASKED, m.user("results")), ("a", "b"), True),
        ((ASKED, m.user("results"), m.user("and more")), ("a", "b"), True),
        ((ASKED, m.user("results")), (), False),
        ((ASKED, m.user("results"), encode({"role": "assistant", "content": "so"})), ("a", "b"), False),
        ((m.user("no, that"),), ("a", "b"), False),
        ((), ("a", "b"), False),
    ],
)
def test_a_round_that_the_caller_put_into_the_history_counts_where_repetitions_do(
    history: tuple[str, ...], runs: tuple[str, ...], counts: bool
) -> None:
    """Only if it is the last one there, and all its calls had their results; then the warning about it stays, too."""
    warned = LoopDetection(threshold=2, action="inject_warning")
    first = m.go(seen(REPLY, loop_detection=warned), *ran("a", "b"), ev.Continued(), REPLY, ev.Continued(), m.judged())
    assert first.ledger.held
    state = m.go(first, *ran(*runs)[2:]) if runs else first
    state = m.go(state, ev.ReplyDiscarded((Splice(3, 3, history),)))
    assert len(state.ledger.trail.rounds) == 1 + counts
    said = [message["content"] for message in m.history(state)]
    assert any("2 times" in str(content) for content in said) is counts


@pytest.mark.parametrize("keeps", [False, True])
def test_what_waited_before_a_discarded_reply_stays_if_the_caller_kept_it(keeps: bool) -> None:
    """The paused reply before it, and not the one that is left out; with the container of its code."""
    pause = m.replied("pause_turn", m.server_call("s"), container={"id": "box"})
    for reply in (pause, REPLY):
        state = m.go(seen(pause), ev.Continued(), reply, ev.ReplyDiscarded(keeps_tail=keeps))
        assert isinstance(state, Ready)
        assert len(state.tail) == keeps
        assert state.ledger.container == ("box" if keeps else None)


def test_nothing_waited_before_a_pause_of_which_nothing_may_be_sent_back() -> None:
    """Then there is no reply to be left out of what waits."""
    state = m.go(seen(m.replied("pause_turn", m.text(" "))), ev.ReplyDiscarded(keeps_tail=True))
    assert state == Ready(state.ledger)


def test_an_adopted_round_keeps_what_is_known_of_its_calls() -> None:
    """What ran stays run, what the caller answered is answered, and another input is another call."""
    state = m.go(seen(REPLY), *ran("a", "b"))
    changed = {**m.call("b", "pure"), "input": {"a": 2}}
    reply = encode({"role": "assistant", "content": [m.call("a", "pure"), changed, m.call("c", "pure")]})
    state = m.go(state, adopted("c", reply=reply))
    assert statuses(state) == {"a": "settled", "b": "proposed", "c": "settled"}
    assert m.the_call(state, "c").result == MINE
    state = m.go(state, ev.Continued(), m.judged(), ev.Started("b"), m.ended("b"), ev.TurnEnded(), ev.Continued())
    assert m.results(m.history(state)[-1]) == {"a": "done", "b": "done", "c": "mine"}


@pytest.mark.parametrize(("more", "kind"), [((), Running), ((m.call("c", "pure"),), Judging)])
def test_what_runs_goes_on_in_an_adopted_round(more: tuple[Any, ...], kind: type[State]) -> None:
    """Its end counts, and nothing starts beside it; what the caller answered, or took out, ends unheard."""
    state = m.go(seen(REPLY), ev.Continued(), m.judged(), ev.Started("a"), ev.Started("b"))
    reply = encode({"role": "assistant", "content": [m.call("a", "pure"), m.call("b", "pure"), *more]})
    taken = m.go(state, adopted(reply=reply), adopted("b", reply=reply))
    assert isinstance(taken, kind)
    assert {type(taken), type(m.go(taken, adopted(reply=reply)))} == {kind}
    assert statuses(taken) == {"a": "running", "b": "settled"} | ({"c": "proposed"} if more else {})
    late = [ev.Ended(name, Result(encode("late")), iteration=1, attempt=1) for name in "ab"]
    ended = m.go(taken, *late)
    assert m.the_call(ended, "a").result == late[0].result
    assert m.the_call(ended, "b").result == MINE
    alone = encode({"role": "assistant", "content": [m.call("z", "pure")]})
    assert isinstance(m.go(state, adopted(reply=alone), *late), Proposed)


def test_the_container_stays_with_a_round_of_which_something_is_left() -> None:
    """A round of which nothing is left, or none that was known, is no open turn of the model's."""
    reply = m.replied("tool_use", m.call("a", "pure"), container={"id": "box"})
    assert m.go(seen(reply), adopted()).ledger.container == "box"
    other = encode({"role": "assistant", "content": [m.call("z", "pure")]})
    assert m.go(seen(reply), adopted(reply=other)).ledger.container is None


def test_what_follows_the_results_comes_after_them() -> None:
    """Also where calls of code let nothing but results follow: then it waits."""
    after = (m.user("and be quick"),)
    state = m.go(seen(), adopted("a", after=after), ev.Continued(), m.judged(b=m.DENY), ev.TurnEnded(), ev.Continued())
    assert m.history(state)[-1]["content"] == "and be quick"
    code = encode({"role": "assistant", "content": [m.server_call("srv"), m.code_call("a", "pure")]})
    state = m.go(seen(), adopted("a", reply=code, after=after), ev.Continued())
    assert isinstance(state, Ready)
    assert len(state.tail) == 2
    assert state.ledger.held == after
    stopped = m.go(seen(), adopted("a", after=after), ev.Stopped())
    assert m.history(stopped)[-1]["content"] == "and be quick"


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (adopted(reply=m.user()), "no assistant message with calls"),
        (adopted(reply=encode({"role": "assistant", "content": "so"})), "no assistant message with calls"),
        (adopted(reply=encode({"role": "assistant", "content": [m.text("so")]})), "no assistant message with calls"),
        (adopted("z"), "a result is of 'z'"),
    ],
)
def test_what_is_no_round_is_not_adopted(event: ev.RoundAdopted, why: str) -> None:
    """A message without calls, or a result of another call."""
    with pytest.raises(IllegalCommand, match=why):
        step(seen(REPLY), event)


def test_a_reopened_call_runs_once_more_and_counts_then() -> None:
    """The late end of an earlier run is no result any more."""
    state = m.go(seen(REPLY), *ran("a", "b"), ev.CallsReopened(("b",)))
    assert statuses(state) == {"a": "settled", "b": "cleared"}
    assert m.the_call(state, "b").run == 2
    late = ev.Ended("b", Result(encode("late")), iteration=1, attempt=1)
    assert m.the_call(step(state, late), "b").result is None
    state = m.go(state, ev.Continued(), ev.Started("b"), late, m.ended("b", "again"), ev.TurnEnded())
    assert statuses(state) == {"a": "settled", "b": "settled"}
    state = step(state, ev.Continued())
    assert m.results(m.history(state)[-1]) == {"a": "done", "b": "again"}


@pytest.mark.parametrize(
    ("events", "call_id", "why"),
    [
        ((), "a", "has no result yet"),
        ((), "z", "no call of the open round"),
        ((ev.Continued(), m.judged(a=m.DENY, b=m.DENY), ev.TurnEnded()), "a", "never ran: its result is denied"),
    ],
)
def test_only_what_ran_is_run_again(events: tuple[ev.Event, ...], call_id: str, why: str) -> None:
    """And the error says why not."""
    with pytest.raises(IllegalCommand, match=why):
        step(m.go(seen(REPLY), *events), ev.CallsReopened((call_id,)))


def test_a_copy_asks_again_only_about_what_was_looked_at() -> None:
    """A reply that is only shown is shown in the copy, too."""
    assert isinstance(m.go(seen(REPLY), ev.Forked("copy")), Proposed)
    copy = m.go(seen(REPLY), *ran("a", "b"), ev.CallsReopened(("b",)), ev.Forked("copy"))
    assert isinstance(copy, Deciding)
    assert statuses(copy) == {"a": "settled", "b": "waiting"}


def test_a_judged_round_goes_on_where_the_caller_left_it() -> None:
    """Adopted while a call waits, it waits still; under the barrier nothing goes on until it is decided."""
    state = m.go(seen(REPLY), ev.Continued(), m.asks("a"), adopted())
    assert isinstance(state, Deciding)
    assert statuses(state) == {"a": "waiting", "b": "cleared"}
    with pytest.raises(Exception, match="calls wait for a decision: a"):
        step(state, ev.Continued())
    state = m.go(state, m.decided(a=m.APPROVE), ev.Continued())
    assert isinstance(state, Running | Judging)
    assert {call.status for call in state.round.calls} == {Status.CLEARED}


@pytest.mark.parametrize("call", [m.call("a", "pure"), m.code_call("a", "pure")])
def test_what_will_answer_a_round_is_known_before_it_closes(call: Any) -> None:
    """To the byte, with what is told of an edited input; also where nothing but results may be in it."""
    cited = [{"type": "document", "source": {"type": "text", "data": "x"}, "cache_control": {"type": "ephemeral"}}]
    state = m.go(
        seen(m.replied("tool_use", m.server_call("s"), m.server_result("s"), call)),
        *(ev.Continued(), m.asks("a"), m.decided(a=m.approve({"a": 2})), ev.Continued(), m.judged(), ev.Started("a")),
        *(m.ended("a", cited), ev.TurnEnded()),
    )
    assert isinstance(state, Proposed)
    answer = answer_to(state.round, state.ledger.setup.texts)
    then = step(state, ev.Continued())
    assert isinstance(then, Ready)
    assert answer == (then.tail or tuple(then.ledger.messages))[-1]


def test_a_shown_reply_is_no_stride() -> None:
    """Its journal has the caller's word in the middle, and one that has not is none of such a loop."""
    from toolloop.core.folding import stride  # noqa: PLC0415 - only here

    turn = (ev.Requested(), REPLY, *map(ev.Started, "ab"), *map(m.ended, "ab"), ev.TurnEnded(), ev.Continued())
    assert stride(m.after(), turn) is not None
    assert stride(seen(), turn) is None


def test_what_a_caller_of_such_a_loop_says_is_readable() -> None:
    """The texts of an adopted round are JSON, and a message stays one."""
    event = adopted("a", after=(m.user(),))
    assert decode(encode_event(event))["reply"] == ASKED
