"""What the model is told of a call that has no result of its own: distinct, true, and the caller's to word."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve, fields

from tests.each import each
from tests.loop.support import TOOLS, add, results_in, scene
from toolloop import Approve, LoopConfig, Texts, ToolLoopHandle
from toolloop.testing import call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
NAMES = [field.name for field in fields(Texts)]
# A place in braces that each text has none of.
FOREIGN = {
    "denied": "{name}",
    "not_run": "{id}",
    "expired": "{reason}",
    "cancelled": "{name}",
    "uncertain": "{input}",
    "unknown_tool": "{reason}",
    "tool_gone": "{known}",
    "invalid_input": "{reason}",
    "timed_out": "{name}",
    "left_behind": "{id}",
    "failed": "{name}",
    "edited": "{reason}",
    "loop_warning": "{input}",
    "no_answer": "{text}",
    "cut_short": "{name}",
}


@each("name", NAMES)
def test_a_text_that_could_not_be_said_is_refused_at_once(name: str) -> None:
    """A place of another text would raise in the middle of a loop; the error names the field."""
    text: Any
    for text in (FOREIGN[name], " ", 5):
        with pytest.raises(ValueError, match=rf"texts\.{name}\b"):
            LoopConfig(texts=evolve(Texts(), **{name: text}))


def test_every_text_may_do_without_its_places() -> None:
    """Other words are the caller's affair."""
    for name in NAMES:
        assert getattr(LoopConfig(texts=evolve(Texts(), **{name: "Other words."})).texts, name) == "Other words."


def test_the_texts_are_distinct() -> None:
    """A model can tell one fate from another."""
    assert len({getattr(Texts(), name) for name in NAMES}) == len(NAMES)


def test_what_a_tool_raised_can_be_worded() -> None:
    """The error is one place in the text."""
    with scene([reply(calls=[("broken", {})]), reply("fine")], texts=Texts(failed="Sorry: {error}.")) as at:
        assert at.handle.run().unwrap().text == "fine"
        (result,) = results_in(at.sent()[-1])
        assert (result["content"], result["is_error"]) == ("Sorry: OSError: the disk is gone.", True)


def test_what_is_told_of_a_tool_that_is_gone_can_be_worded() -> None:
    """It is another fate than that of a tool that never was."""
    texts = Texts(tool_gone="{name} was retired.")
    with scene([reply(calls=[WRITE, call("nothing")]), reply("fine")], texts=texts) as at:
        at.turn().approve_all()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=[add], on_drift="accept")
        assert copy.run().unwrap().text == "fine"
        gone, unknown = results_in(at.sent()[-1])
        assert (gone["content"], gone["is_error"]) == ("write was retired.", True)
        assert "no tool named 'nothing'" in unknown["content"]


@each("braces", ["{", "}", "{0}", "{name}", "{reason}"])
def test_braces_in_what_is_filled_in_are_only_text(braces: str) -> None:
    """A reason, an input and an error may say anything."""
    edited = {"path": braces, "text": braces}
    with scene([reply(calls=[WRITE, {**WRITE, "id": "toolu_2"}]), reply("fine")]) as at:
        turn = at.turn()
        turn.approve("toolu_w", edited)
        turn.deny("toolu_2", braces)
        assert at.handle.run().unwrap().text == "fine"
        ran, denied = results_in(at.sent()[-1])
        assert f'{{"path":"{braces}","text":"{braces}"}}' in str(ran["content"])
        assert denied["content"].endswith(braces)


def test_an_edit_by_a_policy_is_not_called_a_persons() -> None:
    """The note says what ran, and nothing that is not so."""
    with scene([reply(calls=[ADD]), reply("fine")], on_tool_call=lambda c, v: Approve({"a": 5, "b": 5})) as at:
        assert at.handle.run().unwrap().text == "fine"
        (result,) = results_in(at.sent()[-1])
        assert '{"a":5,"b":5}' in str(result["content"])
        assert "person" not in str(result["content"])
        assert at.ran == [("add", 5, 5)]


def test_texts_are_part_of_a_snapshot() -> None:
    """A loop that wakes up without a configuration says what it said before."""
    with scene([reply(calls=[WRITE]), reply("fine")], texts=Texts(denied="Not allowed: {reason}")) as at:
        at.turn()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS)
        assert copy.pending_turn is not None
        copy.pending_turn.deny("toolu_w", "no")
        assert copy.run().unwrap().text == "fine"
        assert results_in(at.sent()[-1])[0]["content"] == "Not allowed: no"
