"""`fork`: an independent copy in which every started call is uncertain and every open call asks again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loop.support import results_in, scene, user, yielded
from tests.loop.test_members import STATES, standing
from toolloop import Approve, Budget, Deny, Texts, tool
from toolloop.errors import DecisionConflict
from toolloop.testing import call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
OTHER = call("write", {"path": "c", "text": "d"}, id="toolu_o")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")


@pytest.mark.parametrize("state", [state for state in STATES if state not in ("Judging", "TooDeep")])
def test_a_fork_stands_where_its_original_stands(state: str) -> None:
    """Same state, history, usage and limits; an id of its own; the original is untouched."""
    with standing(state) as at:
        before = at.handle.snapshot()
        copy = at.handle.fork()
        assert at.handle.snapshot() == before
        assert (type(copy.state), copy.messages, copy.usage_log) == (
            type(at.handle.state),
            at.handle.messages,
            at.handle.usage_log,
        )
        assert copy.loop_id != at.handle.loop_id
        assert at.handle.fork("mine").loop_id == "mine"


def test_two_copies_go_their_own_ways() -> None:
    """What one does, the other does not see."""
    with scene([reply(calls=[WRITE]), reply("one"), reply("two")]) as at:
        turn = at.turn()
        copy = at.handle.fork()
        turn.deny("toolu_w", "no")
        assert [call.status for call in copy.pending] == ["waiting"]
        assert at.handle.run().unwrap().text == "one"
        copied = yielded(copy.pending_turn)
        copied.approve_all()
        assert copy.run().unwrap().text == "two"
        assert results_in(at.sent(1)[-1])[0]["is_error"] is True
        assert "is_error" not in results_in(at.sent(2)[-1])[0]


def test_every_open_call_asks_again_in_a_copy() -> None:
    """What was approved, edited, or needed nobody asks anew; what is settled stays settled."""
    with scene([reply(calls=[WRITE, OTHER, ADD])]) as at:
        turn = at.turn()
        turn.approve("toolu_w", {"path": "z", "text": "y"})
        turn.deny("toolu_o", "no")
        copy = at.handle.fork()
        assert [(call.id, call.why) for call in copy.pending] == [("toolu_w", "approval"), ("toolu_a", "approval")]
        assert copy.pending[0].effective_input == {"path": "a", "text": "b"}


def test_a_started_call_is_uncertain_in_a_copy() -> None:
    """Forked while a tool runs: the copy cannot know how it ends, and runs it only if told so by name."""
    copies: list[Any] = []

    @tool
    def forks() -> str:
        """Fork the loop of this very call, the first time."""
        if not copies:
            copies.append(handles[0].fork())
        return "done"

    handles: list[Any] = []
    with scene([reply(calls=[call("forks", id="toolu_f")]), reply("fine"), reply("copied")], tools=[forks]) as at:
        handles.append(at.handle)
        assert at.handle.run().unwrap().text == "fine"
        (copy,) = copies
        turn = yielded(copy.pending_turn)
        assert [(call.id, call.why) for call in turn.pending] == [("toolu_f", "uncertain")]
        turn.deny("toolu_f", "who knows")
        assert copy.run().unwrap().text == "copied"
        assert results_in(at.sent(2)[-1])[0]["content"] == Texts().uncertain.format(reason="who knows")


def test_a_decision_for_the_original_does_not_fit_the_copy() -> None:
    """The digest covers the loop: what was shown there was not shown here."""
    with scene([reply(calls=[WRITE])]) as at:
        (shown,) = at.turn().pending
        copy = at.handle.fork()
        with pytest.raises(DecisionConflict):
            copy.decide({shown: Approve()})
        copy.decide({"toolu_w": Deny("no")})


def test_a_copy_of_an_ended_loop_takes_a_follow_up() -> None:
    """From one point two questions can be asked."""
    with scene([reply("end"), reply("one"), reply("two")]) as at:
        at.done()
        copy = at.handle.fork()
        at.handle.follow_up([user("first")])
        copy.follow_up([user("second")])
        assert (at.handle.run().unwrap().text, copy.run().unwrap().text) == ("one", "two")
        assert at.sent(1)[:2] == at.sent(2)[:2]
        assert (at.sent(1)[2], at.sent(2)[2]) == (user("first"), user("second"))


def test_a_copy_of_a_loop_that_a_limit_ended_asks_about_what_had_not_run() -> None:
    """After `extend` the open call of the copy waits; the one that ran keeps its result."""
    calls = [call("add", {"a": number, "b": 0}, id=f"toolu_{number}") for number in range(2)]
    with scene([reply(calls=calls), reply("fine")], budget=Budget(tool_calls=1)) as at:
        at.handle.run()
        copy = at.handle.fork()
        copy.extend(budget=Budget(tool_calls=5))
        turn = yielded(copy.next_turn())
        assert [(call.id, call.why) for call in turn.pending] == [("toolu_1", "approval")]
        turn.approve_all()
        assert copy.run().unwrap().text == "fine"
        assert [block["content"] for block in results_in(at.sent()[-1])] == ["0", "1"]
        assert at.ran == [("add", 0, 0), ("add", 1, 0)]


def test_headers_of_one_copy_do_not_change_with_the_other() -> None:
    """Parameters of each are its own, the secret ones too."""
    with scene([reply("one"), reply("two")]) as at:
        copy = at.handle.fork()
        copy.update_params(extra_headers={"x-mine": "copy"}, max_tokens=9)
        at.handle.run()
        copy.run()
        assert ["x-mine" in request.headers for request in at.api.requests] == [False, True]
        assert [request.json["max_tokens"] for request in at.api.requests] == [256, 9]
