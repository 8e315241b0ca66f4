"""How a round closes, and what joins the history where a loop ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import making as m
from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import step
from toolloop.core.setup import Limits
from toolloop.core.states import Deciding, Executed, Finished, Paused, Ready, State
from toolloop.core.texts import Texts
from toolloop.core.values import Outcome, Result

HI = {"role": "user", "content": "hi"}
B = encode({"role": "assistant", "content": "b"})
D = encode({"role": "assistant", "content": [m.text("d")]})
EDIT = {"a": 2}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
FOUND = {"type": "search_result", "source": "s", "title": "t", "content": [m.text("x")]}
STOP_WHEN = frozenset({"stop_when"})


def note(call_id: str = "c") -> dict[str, Any]:
    return m.text(Texts().edited.format(id=call_id, name="once", input='{"a":2}'))


def edited(content: Any, *, make: Any = m.call) -> State:
    """A loop whose call `c` ran with another input and ended with this content."""
    return m.after(
        m.replied("tool_use", make("c")),
        m.asks("c"),
        m.decided(c=m.approve(EDIT)),
        ev.Continued(),
        m.judged(),
        ev.Started("c"),
        m.ended("c", content),
    )


def round_of(*call_ids: str, blocks: tuple[Any, ...] = (), make: Any = m.call) -> tuple[ev.Event, ...]:
    """A reply with calls that all run and end."""
    started = [event for call_id in call_ids for event in (ev.Started(call_id), m.ended(call_id))]
    return (m.replied("tool_use", *blocks, *map(make, call_ids)), m.judged(), *started)


# --- rounds ----------------------------------------------------------------------------------------------------------


def test_a_round_closes_in_one_user_message_in_the_models_order() -> None:
    """Whoever ends first: results stand in the order of the calls."""
    started = m.after(m.replied("tool_use", m.call("a"), m.call("b")), m.judged(), ev.Started("a"), ev.Started("b"))
    state = m.go(started, m.ended("b", "2"), m.ended("a", [m.text("1")]), ev.TurnEnded())
    assert isinstance(state, Executed)
    assert m.history(state) == [
        HI,
        {"role": "assistant", "content": [m.call("a"), m.call("b")]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": [m.text("1")]},
                {"type": "tool_result", "tool_use_id": "b", "content": "2"},
            ],
        },
    ]


def test_an_error_says_so() -> None:
    """`is_error` stands on errors, and on nothing else."""
    failed = ev.Ended("c", Result('"boom"', is_error=True, outcome=Outcome.FAILED))
    state = m.after(m.replied("tool_use", m.call("c")), m.judged(), ev.Started("c"), failed, ev.TurnEnded())
    block = m.history(state)[2]["content"][0]
    assert block == {"type": "tool_result", "tool_use_id": "c", "content": "boom", "is_error": True}


def test_a_result_names_the_toolset_of_its_call() -> None:
    """Also one of a call that did not run, and one with a note of an edit inside."""
    member = m.call("a", "once", toolset_name="browser")
    asked = m.after(m.replied("tool_use", member, m.call("b", "once")), m.asks("a", "b"))
    stopped = m.go(asked, ev.Stopped("enough"))
    assert [block.get("toolset_name") for block in m.history(stopped)[-1]["content"]] == ["browser", None]
    edited = m.go(asked, m.decided(a=m.approve({"a": 2}), b=m.DENY), ev.Continued(), m.judged(), ev.Started("a"))
    closed = m.go(edited, m.ended("a"), ev.TurnEnded())
    first, second = m.history(closed)[-1]["content"]
    assert (first["toolset_name"], len(first["content"]), "toolset_name" in second) == ("browser", 2, False)


def test_what_was_injected_during_a_round_joins_after_its_results() -> None:
    """In messages of their own, in order; a closed message never changes."""
    state = m.go(
        m.after(*round_of("c")), ev.Injected((m.user("one"),)), ev.Injected((m.user("two"), m.system())), ev.TurnEnded()
    )
    assert m.history(state)[3:] == [decode(m.user("one")), decode(m.user("two")), decode(m.system())]
    assert state.ledger.held == ()


def test_what_is_injected_after_a_round_is_a_message_of_its_own() -> None:
    """At `Executed` it joins at once, and the next request is due."""
    state = m.go(m.after(*round_of("c")), ev.TurnEnded(), ev.Injected((m.user("one"),)))
    assert isinstance(state, Ready)
    assert m.history(state)[3:] == [decode(m.user("one"))]


@pytest.mark.parametrize("only", ["a server call that is open", "calls of code"])
def test_a_round_that_only_a_resumption_may_follow_stays_beside_the_history(only: str) -> None:
    """And what is injected is held until the next legal place."""
    by_code = only == "calls of code"
    turn = round_of("c", blocks=() if by_code else (m.server_call("s"),), make=m.code_call if by_code else m.call)
    closed = m.go(m.after(*turn), ev.TurnEnded())
    assert isinstance(closed, Executed)
    assert m.history(closed) == [HI]
    assert [decode(message)["role"] for message in closed.tail] == ["assistant", "user"]
    ready = step(closed, ev.Injected((m.user("wait"),)))
    assert isinstance(ready, Ready)
    assert (ready.tail, ready.ledger.held) == (closed.tail, (m.user("wait"),))
    done = m.go(ready, m.replied("end_turn", *(() if by_code else (m.server_result("s"),)), m.text("bye")))
    assert isinstance(done, Ready)
    assert [message["role"] for message in m.history(done)] == ["user", "assistant", "user", "assistant", "user"]
    assert m.history(done)[-1] == decode(m.user("wait"))


MARK = {"cache_control": {"type": "ephemeral"}}
MARKED = [
    m.text("a") | MARK,
    FOUND | {"content": [m.text("x") | MARK]} | MARK,
    {"type": "document", "source": {"type": "content", "content": [m.text("y") | MARK]}},
    m.text('the "cache_control" of a text'),
    {"type": "browser_state", "tabs": [MARK]},
]


@pytest.mark.parametrize("beside", [True, False])
def test_results_that_stay_beside_the_history_carry_no_cache_marks(beside: bool) -> None:
    """They are hints, and nobody could take one out there; everything else stays. In the history all do."""
    reply = m.replied("tool_use", *([m.server_call("s")] if beside else []), m.call("c"))
    closed = m.go(m.after(reply), m.judged(), ev.Started("c"), m.ended("c", MARKED), ev.TurnEnded())
    assert isinstance(closed, Executed)
    (_, message) = map(decode, closed.tail or closed.ledger.messages[1:])
    told, found, document, quoted, state = m.results(message)["c"]
    assert [quoted, state] == MARKED[3:]
    if beside:
        assert [told, found] == [m.text("a"), FOUND]
        assert document["source"]["content"] == [m.text("y")]
    else:
        assert [told, found, document] == MARKED[:3]


def test_stopping_beside_the_history_drops_what_only_a_resumption_may_follow() -> None:
    """The open server call goes, the client's call and its result stay; calls of code go with their results."""
    stop = (ev.TurnEnded(), ev.Stopped())
    served = m.go(m.after(*round_of("c", blocks=(m.text("a"), m.server_call("s")))), *stop)
    assert m.history(served)[1] == {"role": "assistant", "content": [m.text("a"), m.call("c")]}
    assert m.results(m.history(served)[2]) == {"c": "done"}
    assert m.history(m.go(m.after(*round_of("c", make=m.code_call)), *stop)) == [HI]


def test_calls_of_code_go_too_if_the_reply_to_them_left_nothing() -> None:
    """An end of which only an open server call was left: the results would be followed by another user message."""
    closed = m.go(m.after(*round_of("c", make=m.code_call)), ev.TurnEnded(), ev.Injected((m.user("wait"),)))
    assert m.history(m.go(closed, m.replied("end_turn", m.server_call("s")))) == [HI, decode(m.user("wait"))]


# --- notes of edits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "inside"),
    [
        ("done", [m.text("done"), note()]),
        ("", [note()]),
        (" \n", [note()]),
        ([], [note()]),
        ([m.text("a"), PNG], [m.text("a"), PNG, note()]),
        ([m.text(""), PNG], [PNG, note()]),
    ],
)
def test_a_note_stands_inside_a_result_of_text_or_images(content: Any, inside: list[Any]) -> None:
    """The model is told which input really ran, in a block of its own; the words of the history stay its own."""
    state = step(edited(content), ev.TurnEnded())
    assert m.history(state)[1]["content"] == [m.call("c")]
    assert m.history(state)[2]["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": inside}]


def test_a_note_stands_after_results_of_another_kind() -> None:
    """Search results want to be among their own."""
    state = step(edited([FOUND]), ev.TurnEnded())
    result = {"type": "tool_result", "tool_use_id": "c", "content": [FOUND]}
    assert m.history(state)[2]["content"] == [result, note()]


def test_a_note_is_held_where_only_results_may_stand() -> None:
    """It joins at the next legal place, before what was injected later."""
    closed = m.go(edited([FOUND], make=m.code_call), ev.Injected((m.user("later"),)), ev.TurnEnded())
    assert isinstance(closed, Executed)
    assert closed.ledger.held == (encode({"role": "user", "content": [note()]}), m.user("later"))
    done = m.go(closed, ev.Continued(), m.replied("end_turn", m.text("bye")))
    assert m.history(done)[-2:] == [{"role": "user", "content": [note()]}, decode(m.user("later"))]


def test_no_note_of_an_edit_that_did_not_run() -> None:
    """A denial by the policy after the edit: nothing ran, and nothing is told of the edit."""
    state = m.after(
        m.replied("tool_use", m.call("c")),
        m.asks("c"),
        m.decided(c=m.approve(EDIT)),
        ev.Continued(),
        m.judged(c=m.DENY),
        ev.TurnEnded(),
    )
    assert m.results(m.history(state)[2]) == {"c": Texts().denied.format(reason="no")}


@pytest.mark.parametrize("ruling", [m.answer("it was done"), m.DENY])
def test_a_note_of_an_edit_that_ran_and_was_lost(ruling: Any) -> None:
    """Whoever says how it ended: it ran with the edited input."""
    lost = m.after(
        m.replied("tool_use", m.call("c")),
        m.asks("c"),
        m.decided(c=m.approve(EDIT)),
        ev.Continued(),
        m.judged(),
        ev.Started("c"),
        ev.Woken(),
    )
    state = m.go(lost, m.decided(c=ruling), ev.TurnEnded())
    assert m.results(m.history(state)[2])["c"][-1] == note()


# --- ends ------------------------------------------------------------------------------------------------------------


def test_a_stop_answers_every_open_call_truly() -> None:
    """Waiting: not run. Running: cancelled, it may have had effects. Lost: uncertain. Ended: its own result."""
    texts = Texts()
    calls = [m.call(name, "pure" if name == "lost" else "once") for name in ("ended", "running", "waiting")]
    state = m.after(
        m.replied("tool_use", *calls),
        m.asks("waiting"),
        ev.Continued(),
        ev.Started("ended"),
        m.ended("ended"),
        ev.Started("running"),
        ev.Stopped("enough"),
        execution="ready",
    )
    assert m.results(m.history(state)[2]) == {
        "ended": "done",
        "running": texts.cancelled,
        "waiting": texts.not_run,
    }


@pytest.mark.parametrize("tool", ["once", "pure"])
def test_a_stop_says_of_a_lost_call_that_nobody_knows(tool: str) -> None:
    """Repeatable or not: it was started, and may have had effects."""
    state = m.after(
        m.replied("tool_use", m.call("c", tool)), m.judged(), ev.Started("c"), ev.Woken(), ev.Stopped("enough")
    )
    assert m.results(m.history(state)[2]) == {"c": Texts().uncertain.format(reason="the loop stopped")}


@pytest.mark.parametrize(
    "end",
    [
        (ev.Stopped(),),
        (m.replied("refusal"),),
        (m.replied("end_turn"),),
        (m.replied("max_tokens"),),
        (m.replied("end_turn"), ev.Judged()),
    ],
)
def test_a_system_message_never_ends_a_history(end: tuple[ev.Event, ...]) -> None:
    """The next user turn could not follow it: it waits, and stands after that turn."""
    callables = STOP_WHEN if len(end) == 2 else frozenset()
    state = m.after(ev.Injected((m.user("a"), m.system("b"), m.system("c"))), *end, callables=callables)
    assert isinstance(state, Finished)
    assert m.history(state) == [HI, decode(m.user("a"))]
    assert state.ledger.held == (m.system("b"), m.system("c"))
    next_turn = step(state, ev.FollowedUp((m.user("d"),)))
    assert list(map(decode, [m.user("d"), m.system("b"), m.system("c")])) == m.history(next_turn)[2:]
    assert next_turn.ledger.held == ()


def test_a_waiting_system_message_survives_an_edit_and_an_extension() -> None:
    """Neither takes back what the caller said."""
    state = m.after(ev.Injected((m.system(),)), ev.TurnEnded(), limits=Limits(max_iterations=0))
    onward = m.go(state, ev.HistoryEdited((m.user("short"),)), ev.Extended(Limits()))
    assert isinstance(onward, Ready)
    assert list(onward.ledger.messages) == [m.user("short"), m.system()]
    assert onward.ledger.held == ()


def test_what_is_held_joins_as_soon_as_it_may() -> None:
    """Held during a request that failed, with nothing beside the history: it goes out with the next one."""
    state = m.after(ev.Requested(), ev.Injected((m.user("one"),)), ev.RequestFailed(m.FAILURE), ev.Retried())
    assert isinstance(state, Ready)
    assert m.history(state) == [HI, decode(m.user("one"))]


def test_what_is_injected_at_an_empty_pause_follows_what_was_held() -> None:
    """A pause without a word has no tail: what was held and what is injected join at once, in order."""
    paused = m.after(m.replied("pause_turn"), ev.Injected((m.user("one"),)), ev.Judged(), callables=STOP_WHEN)
    assert isinstance(paused, Paused)
    ready = step(paused, ev.Injected((m.user("two"),)))
    assert isinstance(ready, Ready)
    assert m.history(ready)[1:] == [decode(m.user("one")), decode(m.user("two"))]
    assert ready.ledger.held == ()


# --- further turns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ((m.user("a"),), 0),
        ((m.user("a"), B, m.user("c"), m.user("d"), m.system("e")), 2),
        (
            (
                m.user("a"),
                B,
                m.user("c"),
                D,
            ),
            2,
        ),
    ],
)
def test_the_last_user_turn_can_be_replaced(messages: tuple[str, ...], kept: int) -> None:
    """All of it, with what the model said to it; what came before stays."""
    state = m.go(m.after(ev.Stopped()), ev.HistoryEdited(messages), ev.FollowedUp((m.user("new"),), replace_last=True))
    assert list(state.ledger.messages) == [*messages[:kept], m.user("new")]


def test_results_are_no_user_turn() -> None:
    """Replacing the last user turn reaches back behind the rounds it led to."""
    done = m.go(m.after(*round_of("c")), ev.TurnEnded(), ev.Continued(), m.replied("end_turn", m.text("bye")))
    state = step(done, ev.FollowedUp((m.user("new"),), replace_last=True))
    assert m.history(state) == [decode(m.user("new"))]


def test_an_edit_replaces_the_closed_history_and_nothing_else() -> None:
    """The open round, with its decisions, stands beside it as it was."""
    asking = m.after(m.replied("tool_use", m.call("c")), m.asks("c"))
    state = step(asking, ev.HistoryEdited((m.user("short"),)))
    assert m.history(state) == [decode(m.user("short"))]
    assert isinstance(asking, Deciding)
    assert isinstance(state, Deciding)
    assert state.round == asking.round
