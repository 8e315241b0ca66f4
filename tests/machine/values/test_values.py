"""Values of the machine that others hold: the calls of a round, the text of a result, an empty conversation."""

from __future__ import annotations

import copy
import pickle

import pytest
from attrs import evolve

from tests.kit.machine import making as m
from toolloop.machine.queries import is_empty
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.values.calls import Call, Result
from toolloop.machine.values.jsontext import encode
from toolloop.machine.values.setup import Setup, ToolAnnotations, ToolFacts, keep_annotations
from toolloop.machine.values.splicing import Splice

ONE, TWO = Call("a", "look", "{}"), Call("b", "look", "{}")


def test_the_calls_of_a_round_are_a_value() -> None:
    """Equal, hashed, shown, copied and pickled by the calls."""
    calls = RoundCalls((ONE, TWO))
    for twin in (RoundCalls([ONE, TWO]), copy.copy(calls), pickle.loads(pickle.dumps(calls))):
        assert twin == calls
        assert hash(twin) == hash(calls)
        assert repr(twin) == repr(calls)
        assert twin.find("b") == TWO
    assert calls != RoundCalls((TWO, ONE))
    assert repr(calls) == f"RoundCalls({[ONE, TWO]})"


def test_two_calls_of_a_round_have_two_ids() -> None:
    with pytest.raises(ValueError, match="two calls of a round have the same id"):
        RoundCalls((ONE, ONE))


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Result(encode("found")), "found"),
        (Result(encode([m.text("one"), {"type": "image"}, m.text("two")])), "one\n[image]\ntwo"),
        (Result(encode("found"), plain="as said"), "as said"),
    ],
)
def test_the_plain_text_of_a_result_names_the_blocks_that_are_not_text(result: Result, text: str) -> None:
    """Unless the tool gave a text of its own."""
    assert result.plain_text == text


def test_a_conversation_is_empty_until_the_first_message() -> None:
    empty = m.go(m.state_after(), ev.HistoryTaken((Splice(0, 1),)))
    assert is_empty(empty.root)
    assert not is_empty(m.state_after().root)
    assert not is_empty(m.go(empty, ev.Continued((m.user(),))).root)


def test_the_secrets_of_a_tool_stay_known_when_it_is_gone() -> None:
    """Those of the tool that is there come first, and a tool without any has none."""
    setup = evolve(
        m.state_after().root.setup,
        tools=(
            ToolFacts("mail", "once", "never", "d1", secret=("password",)),
            ToolFacts("look", "pure", "never", "d2"),
        ),
        gone_secrets=(("mail", ("token",)), ("pay", ("pin",))),
    )
    assert [setup.secrets_of(name) for name in ("mail", "pay", "look", "walk")] == [("password",), ("pin",), (), ()]


def test_of_each_hint_the_stricter_counts() -> None:
    """Also for a tool that is back. A new tool has its own; one that had none has the strictest, if it has any now."""
    quiet, loud = ToolAnnotations(read_only_hint=True), ToolAnnotations()
    plain = ToolFacts("new", "once", "never", "d")
    old = Setup(
        "l",
        "{}",
        tools=(
            evolve(plain, name="read", annotations=quiet),
            evolve(plain, name="kept", annotations=quiet),
            evolve(plain, name="own", annotations=loud),
            evolve(plain, name="old"),
        ),
        gone_tools=(evolve(plain, name="back", annotations=quiet),),
    )
    now = [evolve(plain, name=name, annotations=loud) for name in ("read", "back", "new")]
    now += [evolve(plain, name=name, annotations=quiet) for name in ("kept", "old")]
    kept = keep_annotations(old, (*now, evolve(plain, name="own")))
    assert [facts.annotations for facts in kept] == [loud, loud, loud, quiet, loud, None]
