"""The working list of `messages_mut()`: one for each wait, whose edits are in the history at once."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.each import each
from tests.machine import making as m
from toolloop.errors import IllegalCommand
from toolloop.loop.message_edits import MessageEdits, landing, outgoing
from toolloop.machine import events as ev
from toolloop.machine.chain import Chain
from toolloop.machine.jsontext import decode, encode
from toolloop.machine.loop import Loop
from toolloop.machine.setup import Limits
from toolloop.machine.splicing import spliced, splices_between


def loop_of(*messages: Any) -> Loop:
    """A loop with this history, which waits for nothing."""
    return evolve(m.after().root, messages=Chain(map(encode, messages)))


def user(words: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": words}


def executed() -> Loop:
    """A loop that waits after a round."""
    asked = m.after(m.replied("tool_use", m.call("c", "pure")), m.judged(), ev.Started("c"), m.ended("c"))
    return m.go(asked, ev.TurnEnded()).root


# --- one list for each wait ------------------------------------------------------------------------------------------

messages = st.lists(st.builds(user, st.text(max_size=3)), max_size=6)


@given(messages, messages)
def test_an_edit_is_shown_at_once_and_taken_as_it_is_shown(before: list[Any], after: list[Any]) -> None:
    """Whatever it is: what reads show is what the history becomes."""
    loop, edits = loop_of(*before), MessageEdits()
    working = edits.working(loop, is_driven=False)
    assert working == before
    working[:] = copy.deepcopy(after)
    assert edits.working(loop, is_driven=False) is working
    assert list(edits.shown(loop)) == after
    edit = edits.edit(loop)
    assert (edit is None) == (before == after)
    if edit is not None:
        assert edit.base == loop.messages
        taken = spliced(list(loop.messages), splices_between(list(loop.messages), edit.messages))
        assert list(map(decode, taken)) == after


def test_what_is_shown_is_a_copy() -> None:
    """Changing it changes neither the list nor the history."""
    loop, edits = loop_of(user()), MessageEdits()
    for _ in range(2):
        edits.shown(loop)[0]["content"] = "changed"
        assert edits.shown(loop) == (user(),)
        assert edits.edit(loop) is None
        edits.working(loop, is_driven=False)


def test_the_models_own_words_stay_the_same_bytes() -> None:
    """Order of keys and sizes of numbers too, so an edit beside them leaves them alone."""
    odd = '{"role":"assistant","content":[{"type":"x","b":12345678901234567890123,"a":1.5}]}'
    loop, edits = evolve(loop_of(), messages=Chain([m.user(), odd])), MessageEdits()
    edits.working(loop, is_driven=False)[0] = user("edited")
    edit = edits.edit(loop)
    assert edit is not None
    assert edit.messages == (encode(user("edited")), odd)


def test_a_list_goes_on_after_it_was_taken_over_in_the_same_wait() -> None:
    """A snapshot takes the edit over, and ends no wait."""
    loop, edits = executed(), MessageEdits()
    working = edits.working(loop, is_driven=False)
    working[0] = user("edited")
    edit = edits.edit(loop)
    assert edit is not None
    then = evolve(loop, messages=Chain(edit.messages))
    edits.settle(then, edit)
    assert edits.edit(then) is None
    assert edits.working(then, is_driven=False) is working
    working[0] = user("edited again")
    assert edits.shown(then)[0] == user("edited again")
    assert edits.edit(then) is not None


def test_a_refused_edit_stays_to_be_mended_and_a_lost_one_is_given_up() -> None:
    """It depends on whether the history is the one that the list was made of."""
    loop, edits = loop_of(user()), MessageEdits()
    working = edits.working(loop, is_driven=False)
    working[0] = user("edited")
    edit = edits.edit(loop)
    assert edit is not None
    edits.settle(loop, edit)
    assert edits.working(loop, is_driven=False) is working
    later = loop_of(user(), user("from elsewhere"))
    edits.settle(later, edit)
    assert edits.edit(later) is None
    with pytest.raises(IllegalCommand, match="earlier wait"):
        working.clear()


CHANGES: dict[str, Callable[[list[Any]], Any]] = {
    "append": lambda working: working.append(user()),
    "extend": lambda working: working.extend([user()]),
    "insert": lambda working: working.insert(0, user()),
    "pop": lambda working: working.pop(),
    "remove": lambda working: working.remove(user()),
    "clear": lambda working: working.clear(),
    "reverse": lambda working: working.reverse(),
    "sort": lambda working: working.sort(key=str),
    "set": lambda working: working.__setitem__(0, user()),
    "del": lambda working: working.__delitem__(0),
    "+=": lambda working: working.__iadd__([user()]),
    "*=": lambda working: working.__imul__(2),
}


@each("change", CHANGES)
def test_a_list_of_an_earlier_wait_refuses_every_change(change: str) -> None:
    """It would change nothing, so it says so; it can be read and copied, and the next wait has one of its own."""
    loop, edits = loop_of(user()), MessageEdits()
    CHANGES[change](edits.working(loop_of(user()), is_driven=False))
    edits.taken()
    old = edits.working(loop, is_driven=False)
    edits.taken()
    with pytest.raises(IllegalCommand, match=r"earlier wait.*call messages_mut\(\) again"):
        CHANGES[change](old)
    assert old == [user()]
    assert type(copy.copy(old)) is type(pickle.loads(pickle.dumps(old))) is list
    assert edits.working(loop, is_driven=False) is not old
    edits.taken()
    assert edits.edit(loop) is None


def test_an_edit_of_a_history_that_somebody_else_changed_is_told_once() -> None:
    """It is lost, and that is said; what comes next is not held up by it."""
    loop, edits = loop_of(user()), MessageEdits()
    working = edits.working(loop, is_driven=False)
    working[0] = user("edited")
    later = loop_of(user(), user("from elsewhere"))
    assert edits.shown(later) == (user(), user("from elsewhere"))
    with pytest.raises(IllegalCommand, match=r"somebody else drove the loop on.*messages_mut\(\) again"):
        edits.edit(later)
    assert edits.edit(later) is None
    with pytest.raises(IllegalCommand, match="earlier wait"):
        working.clear()
    assert edits.working(later, is_driven=False) == [user(), user("from elsewhere")]


def test_a_list_that_nobody_changed_is_given_up_in_silence() -> None:
    """Nothing is lost with it."""
    edits = MessageEdits()
    old = edits.working(loop_of(user()), is_driven=False)
    assert edits.edit(loop_of(user(), user("from elsewhere"))) is None
    with pytest.raises(IllegalCommand, match="earlier wait"):
        old.clear()


def test_a_request_of_another_driver_carries_the_history_as_it_is() -> None:
    """Its history is the same, and no edit of it is possible any more."""
    state, edits = m.after(), MessageEdits()
    edits.working(state.root, is_driven=False)[0] = user("edited")
    requesting = m.go(state, ev.Requested()).root
    assert edits.shown(requesting) == (decode(m.user()),)
    with pytest.raises(IllegalCommand, match="somebody else drove the loop on"):
        edits.edit(requesting)


def test_nobody_edits_while_it_is_not_their_turn() -> None:
    """While this handle drives, or another one asks the model; and where the loop may not run at all."""
    edits = MessageEdits()
    for loop, is_driven in ((m.after().root, True), (m.after(ev.Requested()).root, False)):
        with pytest.raises(
            IllegalCommand, match=r"messages_mut\(\): it is not the caller's turn: a turn is in"
        ) as caught:
            edits.working(loop, is_driven=is_driven)
        assert caught.value.asked == "messages_mut()"
    too_deep = m.after(ev.TurnEnded(), depth=3, limits=Limits(max_depth=3)).root
    with pytest.raises(IllegalCommand, match="this loop may not run at all"):
        edits.working(too_deep, is_driven=False)


def test_what_is_no_json_is_told_where_it_is_read() -> None:
    """The list stays to be mended."""
    loop, edits = loop_of(user()), MessageEdits()
    working = edits.working(loop, is_driven=False)
    working.append({"role": "user", "content": {1, 2}})
    for read in (edits.edit, edits.shown):
        with pytest.raises(TypeError, match=r"messages\[1\]"):
            read(loop)
    working.pop()
    assert edits.edit(loop) is None


# --- what goes out next ----------------------------------------------------------------------------------------------

ANY = user("-")
MORE = m.user("more")


def roles(texts: list[str]) -> list[str]:
    return [decode(text)["role"] for text in texts]


def paused(*blocks: Any) -> Loop:
    return m.after(m.replied("pause_turn", *blocks)).root


def test_what_goes_out_next_depends_on_what_is_open() -> None:
    """Open calls count as answered; after an end somebody says something; a paused reply may be last."""
    ready, asked = m.after().root, m.after(m.replied("tool_use", m.call("c")), m.asks("c"))
    assert roles(outgoing(ready, list(ready.messages))) == ["user"]
    assert roles(outgoing(asked.root, list(asked.root.messages))) == ["user", "assistant", "user"]
    queued = m.go(asked, m.decided(c=m.DENY), ev.Continued((MORE,)))
    assert outgoing(queued.root, list(queued.root.messages), [m.user("!")])[-2:] == [MORE, m.user("!")]
    over = m.after(m.replied("end_turn", m.text("so"))).root
    assert decode(outgoing(over, list(over.messages))[-1]) == ANY
    assert outgoing(over, list(over.messages), [MORE])[-1] == MORE


def test_only_a_resumption_follows_a_pause() -> None:
    """What is injected waits; a paused reply that no server call ends is not what a check can judge."""
    open_call = paused(m.text("so far"), m.server_call("srvtoolu_1"))
    assert roles(outgoing(open_call, list(open_call.messages), [MORE])) == ["user", "assistant"]
    words = paused(m.text("so far"))
    assert roles(outgoing(words, list(words.messages), [MORE])) == ["user"]
    for loop in (open_call, words):
        assert landing(loop, [MORE])[-1] == MORE
        assert roles(landing(loop, [MORE])) == ["user", "assistant", "user"]


def test_calls_of_code_take_their_results_and_nothing_else() -> None:
    """So what is injected meanwhile is no part of what goes out next."""
    code = m.server_call("srvtoolu_1") | {"name": "code_execution", "input": {"code": "x"}}
    state = m.after(m.replied("tool_use", code, m.code_call("c")), m.asks("c"))
    assert roles(outgoing(state.root, list(state.root.messages), [MORE])) == ["user", "assistant", "user"]
    assert MORE not in outgoing(state.root, list(state.root.messages), [MORE])


def test_a_reply_without_calls_is_over_or_pauses() -> None:
    """While `stop_when` is asked about it."""
    state = m.after(m.replied("end_turn", m.text("so")), callables=frozenset({"stop_when"}))
    assert roles(outgoing(state.root, list(state.root.messages))) == ["user", "assistant", "user"]


def test_injected_messages_are_checked_by_what_they_follow() -> None:
    """Whatever the length of the history: by the last reply, and what came after it."""
    loop = executed()
    assert roles(landing(loop, [MORE])) == ["assistant", "user", "user"]
    over = m.after(m.replied("end_turn", m.text("so"))).root
    assert roles(landing(over, [MORE])) == ["assistant", "user"]
    assert roles(landing(m.after().root, [MORE])) == ["user", "user"]
    asked = m.after(m.replied("tool_use", m.call("c")), m.asks("c")).root
    assert roles(landing(asked, [MORE])) == ["assistant", "user", "user"]
