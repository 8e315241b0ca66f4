"""How a round closes and what joins the history: results, notes of edits, ends, user turns, repetitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.machine import making as m
from toolloop.machine.queries import outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import Judge
from toolloop.machine.record.loop import State
from toolloop.machine.rules.joining import make_answer
from toolloop.machine.rules.replying import detect_repetition
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Outcome, Result
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Limits, LoopDetection, Texts
from toolloop.machine.values.splicing import Splice
from toolloop.terminations import LoopDetected, NaturalEnd

HI = {"role": "user", "content": "hi"}
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [m.text("x")]}
STOP_WHEN = frozenset({"stop_when"})


def run_calls(*call_ids: str, blocks: tuple[Any, ...] = (), make: Any = m.call) -> tuple[ev.Event, ...]:
    """A reply with calls that all run and end."""
    started = [event for call_id in call_ids for event in (ev.Started(call_id), m.make_ended(call_id))]
    return (m.make_replied("tool_use", *blocks, *map(make, call_ids)), m.make_judged(), *started)


# --- rounds ----------------------------------------------------------------------------------------------------------


def test_a_round_closes_in_one_user_message_in_the_models_order() -> None:
    """Whichever ends first; `is_error` stands on errors and on nothing else, and a member names its toolset."""
    calls = [m.call("a"), m.call("b", toolset_name="browser")]
    started = m.state_after(m.make_replied("tool_use", *calls), m.make_judged(), ev.Started("a"), ev.Started("b"))
    failed = ev.Ended("b", Result('"boom"', is_error=True, outcome=Outcome.FAILED))
    state = m.go(started, failed, m.make_ended("a", [m.text("1")]), ev.TurnEnded())
    assert m.phase(state) == "tools_executed"
    assert m.history(state)[1] == {"role": "assistant", "content": calls}
    assert m.history(state)[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": [m.text("1")]},
        {"type": "tool_result", "tool_use_id": "b", "content": "boom", "is_error": True, "toolset_name": "browser"},
    ]
    settled = m.go(started, failed, m.make_ended("a", [m.text("1")])).root
    assert settled.round is not None
    assert make_answer(settled, settled.round) == state.root.messages[-1]


@pytest.mark.parametrize("by_code", [False, True])
def test_a_round_that_only_a_resumption_may_follow_stays_beside_the_history(*, by_code: bool) -> None:
    """A server call is open, or code made its calls: what is injected is queued until the next legal place."""
    turn = run_calls("c", blocks=() if by_code else (m.server_call("s"),), make=m.code_call if by_code else m.call)
    closed = m.go(m.state_after(*turn), ev.TurnEnded())
    assert (m.phase(closed), m.history(closed)) == ("tools_executed", [HI])
    assert [decode(message)["role"] for message in closed.root.unjoined] == ["assistant", "user"]
    ready = step(closed, ev.Continued((m.user("wait"),)))
    assert (ready.root.unjoined, ready.root.queued) == (closed.root.unjoined, (m.user("wait"),))
    done = m.go(ready, m.make_replied("end_turn", *(() if by_code else (m.server_result("s"),)), m.text("bye")))
    assert [message["role"] for message in m.history(done)] == ["user", "assistant", "user", "assistant", "user"]
    assert m.history(done)[-1] == decode(m.user("wait"))


def test_stopping_beside_the_history_drops_what_only_a_resumption_may_follow() -> None:
    """The open server call goes, the client's call and its result stay; calls of code go with their results."""
    stop = (ev.TurnEnded(), ev.Stopped())
    served = m.go(m.state_after(*run_calls("c", blocks=(m.text("a"), m.server_call("s")))), *stop)
    assert m.history(served)[1] == {"role": "assistant", "content": [m.text("a"), m.call("c")]}
    assert m.results(m.history(served)[2]) == {"c": "done"}
    assert m.history(m.go(m.state_after(*run_calls("c", make=m.code_call)), *stop)) == [HI]
    closed = m.go(m.state_after(*run_calls("c", make=m.code_call)), ev.TurnEnded(), ev.Continued((m.user("wait"),)))
    assert m.history(m.go(closed, m.make_replied("end_turn", m.server_call("s")))) == [HI, decode(m.user("wait"))]


MARK = {"cache_control": {"type": "ephemeral"}}
MARKED = [
    m.text("a") | MARK,
    FOUND | {"content": [m.text("x") | MARK]} | MARK,
    {"type": "document", "source": {"type": "content", "content": [m.text("y") | MARK]}},
    m.text('the "cache_control" of a text'),
    {"type": "browser_state", "tabs": [MARK]},
]


NOTE = m.text('c ran as once with {"a":2}')
OWN_WORDS = Texts(edited="{id} ran as {name} with {input}")
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


def run_edited(content: Any, make: Any = m.call, **more: Any) -> State:
    """A round of two calls, of which the first ran as a person edited it, and had this result."""
    decided = m.make_decided(c=m.approve({"a": 2}))
    ran = (ev.Started("c"), ev.Ended("c", Result(encode(content), **more)), ev.Started("d"), m.make_ended("d"))
    asked = m.state_after(m.make_replied("tool_use", make("c"), make("d")), m.asks("c"), texts=OWN_WORDS)
    return m.go(asked, decided, ev.Continued(), m.make_judged(), *ran, ev.TurnEnded())


@pytest.mark.parametrize(
    ("content", "inside", "behind"),
    [
        ("done", [m.text("done"), NOTE], []),
        (" ", [NOTE], []),
        ([IMAGE, m.text(""), m.text("done")], [IMAGE, m.text("done"), NOTE], []),
        ([FOUND], [FOUND], [NOTE]),
    ],
    ids=["text", "nothing", "an image", "what takes no text beside it"],
)
def test_the_model_gets_a_note_of_an_edit(content: Any, inside: list[Any], behind: list[Any]) -> None:
    """In the result, or behind the results; before the blocks that a tool adds there."""
    for after in ([], [m.text("and more")]):
        answer = m.history(run_edited(content, after=encode(after)))[-1]["content"]
        assert [block.get("content") for block in answer[:2]] == [inside, "done"]
        assert answer[2:] == [*behind, *after]


def test_beside_the_history_the_note_of_an_edit_is_queued() -> None:
    """Only results may follow a call that code made, so the note joins the history later."""
    state = run_edited([FOUND], make=m.code_call)
    assert [block["type"] for block in decode(state.root.unjoined[-1])["content"]] == ["tool_result"] * 2
    assert [decode(text) for text in state.root.queued] == [{"role": "user", "content": [NOTE]}]
    assert run_edited("done", make=m.code_call).root.queued == ()


@pytest.mark.parametrize("beside", [True, False])
def test_results_that_stay_beside_the_history_carry_no_cache_marks(*, beside: bool) -> None:
    """They are hints, and could not be removed there; everything else stays. In the history all do."""
    reply = m.make_replied("tool_use", *([m.server_call("s")] if beside else []), m.call("c"))
    settled = m.state_after(reply, ev.Started("c"), m.make_ended("c", MARKED))
    closed = step(settled, ev.TurnEnded()).root
    (_, message) = map(decode, closed.unjoined or closed.messages[1:])
    assert settled.root.round is not None
    assert decode(make_answer(settled.root, settled.root.round)) == message
    told, found, document, *others = m.results(message)["c"]
    assert others == MARKED[3:]
    if beside:
        assert [told, found, document["source"]["content"]] == [m.text("a"), FOUND, [m.text("y")]]
    else:
        assert [told, found, document] == MARKED[:3]


# --- ends and user turns ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        (ev.Stopped(),),
        (m.make_replied("refusal"),),
        (m.make_replied("end_turn"),),
        (m.make_replied("end_turn"), ev.Judged()),
    ],
)
def test_a_system_message_never_ends_a_history(end: tuple[ev.Event, ...]) -> None:
    """The next user turn could not follow it: it is queued, and stands after that turn."""
    injected = ev.Continued((m.user("a"), m.system("b"), m.system("c")))
    state = m.state_after(injected, *end, callables=STOP_WHEN if len(end) == 2 else frozenset())
    assert m.history(state) == [HI, decode(m.user("a"))]
    assert state.root.queued == (m.system("b"), m.system("c"))
    onward = step(state, ev.FollowedUp((m.user("d"),)))
    assert list(onward.root.messages)[2:] == [m.user("d"), m.system("b"), m.system("c")]
    assert onward.root.queued == ()


B, D = encode({"role": "assistant", "content": "b"}), m.make_said(m.text("d"))
RESULTS = encode({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]})


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ((m.user("a"),), 0),
        ((m.user("a"), B, m.user("c"), m.user("d"), m.system("e")), 2),
        ((m.user("a"), B, m.user("c"), D), 2),
        ((m.user("a"), m.make_said(m.call("c")), RESULTS, B), 0),
    ],
)
def test_the_last_user_turn_can_be_replaced(messages: tuple[str, ...], kept: int) -> None:
    """All of it, with what the model said to it; counters start again, and what compactions left is forgotten."""
    state = m.state_after(m.make_replied("end_turn", m.text("so")), ev.HistoryEdited((Splice(0, 2, messages),)))
    counted: dict[str, Any] = {"active": 3.0, "pauses": 2, "compacted": (("drop_rounds", 5),)}
    state = State({(): state.root._replace(**counted)})
    again = step(state, ev.FollowedUp((m.user("new"),), replace_last=True))
    assert list(again.root.messages) == [*messages[:kept], m.user("new")]
    assert (again.root.iterations, again.root.turn_iterations, again.root.active) == (1, 0, 0.0)
    assert (again.root.pauses, again.root.compacted) == (0, ())
    further = step(state, ev.FollowedUp((m.user("new"),))).root
    assert list(further.messages) == [*messages, m.user("new")]
    assert (further.pauses, further.active, further.compacted) == (0, 0.0, counted["compacted"])


# --- repetitions -----------------------------------------------------------------------------------------------------

UNLIMITED = Limits(max_iterations=None)
A, ALSO_A, OTHER = ("pure", 1, "x"), ("pure", 1, "y"), ("keyed", 1, "x")


def begin_looking(threshold: int = 3, action: Any = "warn", **changes: Any) -> State:
    return m.state_after(limits=UNLIMITED, loop_detection=LoopDetection(threshold, action), **changes)


def ask(round_: list[Any], iteration: int, call: Any = m.call) -> ev.Replied:
    """The reply that asks for a round: of each call its tool, its input, and what comes of it."""
    blocks = [call(f"c{iteration}_{n}", name) | {"input": {"a": given}} for n, (name, given, _) in enumerate(round_)]
    return m.make_replied("tool_use", *blocks)


def rest_of(round_: list[Any], iteration: int) -> list[ev.Event]:
    """What happens in a round that was judged."""
    ids = [f"c{iteration}_{n}" for n in range(len(round_))]
    ends = [m.make_ended(call_id, result) for call_id, (_, _, result) in zip(ids, round_, strict=True)]
    return [*map(ev.Started, ids), *ends, ev.TurnEnded(), ev.Continued()]


def play_rounds(state: State, *rounds: list[Any], call: Any = m.call) -> State:
    """The loop after these rounds, where the last one is to be judged."""
    for round_ in rounds[:-1]:
        number = state.root.iterations + 1
        state = m.go(state, ask(round_, number), *rest_of(round_, number))
    return m.go(state, ask(rounds[-1], state.root.iterations + 1, call))


def find_repetitions(state: State, rounds: list[Any]) -> list[int | None]:
    """How many repetitions are reported at each round."""
    counts = []
    for round_ in rounds:
        state = play_rounds(state, round_)
        repeated = detect_repetition(state.root)
        counts.append(repeated.count if repeated else None)
        state = m.go(state, ev.Judged(), *rest_of(round_, state.root.iterations))
    return counts


calls = st.tuples(st.sampled_from(["pure", "keyed"]), st.sampled_from([1, 2]), st.sampled_from("xxxy"))
rounds = st.lists(st.tuples(st.lists(calls, min_size=1, max_size=2), st.integers(1, 5)), min_size=1, max_size=3)


@given(rounds.map(lambda drawn: [each for each, times in drawn for _ in range(times)]), st.integers(1, 4))
def test_a_repetition_is_found_exactly_where_there_is_one(given_: list[Any], threshold: int) -> None:
    """The same calls in any order, with the same results as far as there are any; at each multiple of the threshold."""

    def count(newest: int) -> int | None:
        asks = [sorted(each[:2] for each in round_) for round_ in given_]
        ends = [sorted(round_) for round_ in given_]
        number = 1
        while number <= newest and asks[newest - number] == asks[newest] and ends[newest - number] == ends[newest - 1]:
            number += 1
        return None if number % threshold else number

    assert find_repetitions(begin_looking(threshold), given_) == [count(newest) for newest in range(len(given_))]


def test_what_a_repetition_is() -> None:
    """Not rounds that take turns, nor one with new results; each tool is named once. A new turn counts again."""
    assert set(find_repetitions(begin_looking(2), [[A], [OTHER]] * 4)) == {None}
    assert set(find_repetitions(begin_looking(3), [[A], [ALSO_A]] * 4)) == {None}
    assert find_repetitions(begin_looking(2), [[A, OTHER], [OTHER, A]]) == [None, 2]
    assert detect_repetition(play_rounds(begin_looking(1), [OTHER, A, OTHER]).root) == LoopDetected("keyed+pure", 1)
    assert detect_repetition(play_rounds(m.state_after(limits=UNLIMITED), [A], [A], [A]).root) is None
    state = m.go(
        play_rounds(begin_looking(), [A], [A]), ev.Judged(), *rest_of([A], 2), m.make_replied("end_turn", m.text("so"))
    )
    assert find_repetitions(m.go(state, ev.FollowedUp((m.user(),))), [[A], [A], [A]]) == [None, None, 3]
    assert detect_repetition(m.go(play_rounds(begin_looking(1), [A]), ev.Judged()).root) is None  # it was judged
    reply = m.make_replied("end_turn", m.call("c1_0", "pure"))
    assert detect_repetition(m.go(begin_looking(1, callables=STOP_WHEN), reply).root) is None


def test_a_repetition_ends_the_loop_if_it_is_to() -> None:
    """Before a policy is asked about its calls, and none of them runs."""
    state = play_rounds(begin_looking(2, "stop"), [A], [A])
    assert outstanding(state) == (Judge(()),)
    ended = step(state, ev.Judged())
    assert m.termination(ended) == LoopDetected("pure", 2)
    assert m.results(m.history(ended)[-1]) == {"c2_0": Texts().not_run}
    first, warned = play_rounds(begin_looking(2, "stop"), [A]), play_rounds(begin_looking(2), [A], [A])
    assert (outstanding(first), outstanding(warned)) == ((Judge(("c1_0",)),), (Judge(("c2_0",)),))


def test_a_model_that_stops_repeating_itself_is_not_warned() -> None:
    """A warning that had to wait for a legal place is dropped with the reason for it."""
    state = begin_looking(2, "inject_warning")
    for number in (1, 2):
        state = m.go(state, ask([A], number, m.code_call), ev.Judged(), *rest_of([A], number))
    assert "2 times" in state.root.queued[0]
    ended = m.go(state, m.make_replied("end_turn", m.text("so")))
    assert (m.termination(ended), m.history(ended)[-1]["content"]) == (NaturalEnd(), [m.text("so")])
