"""A state as JSON, and back: any state, and nothing but a state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.kit.machine import making as m
from tests.kit.machine.worlds import World
from tests.stores.journals import lives
from toolloop.errors import UnreadableSnapshot
from toolloop.machine.record import journal_events as ev
from toolloop.stores import FORMAT, dump, load
from toolloop.stores.codec import digest_snapshot


@given(lives(90))
def test_any_state_comes_back_as_it_was(world: World) -> None:
    """Through real JSON, which knows no tuples, no enums and no classes."""
    assert load(json.loads(json.dumps(dump(world.state)))) == world.state


@given(lives(90))
def test_a_snapshot_says_its_format_first(world: World) -> None:
    """So a reader can refuse what it does not know before it reads anything else."""
    assert next(iter(dump(world.state).items())) == ("format", FORMAT)


def test_a_snapshot_survives_a_json_with_one_kind_of_number() -> None:
    """Much of the world's JSON writes 60.0 as 60, or 1 as 1.0."""
    state = m.state_after(
        ev.Requested(at=60.0, seconds=2.0), m.make_replied("tool_use", m.call("a"), usage={"input_tokens": 7})
    )
    text = json.dumps(dump(state))
    fewer = text.replace("60.0", "60").replace("2.0", "2")
    more = text.replace('"input_tokens": 7', '"input_tokens": 7.0').replace('"iterations": 1', '"iterations": 1.0')
    assert fewer != text != more
    assert load(json.loads(fewer)) == load(json.loads(more)) == state


def test_integers_of_any_size_and_lone_surrogates_stay_what_they_are() -> None:
    """They are inside texts; where no text can carry them, an escape does."""
    state = m.state_after(ev.Requested(), m.make_replied("tool_use", m.call("a", input={"n": 10**60, "s": "\ud800"})))
    assert load(json.loads(json.dumps(dump(state)))) == state
    assert json.dumps(dump(state), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"format": FORMAT + 1},
            f"format {FORMAT + 1}, but this version of toolloop reads formats 1 to {FORMAT}.*newer",
        ),
        ({"format": 0}, "has format 0"),
        ({"format": -1}, "has format -1"),
        ({"format": True}, "has format True"),
        ({"format": "1"}, "has format '1'"),
        ({"loops": []}, "damaged"),
        ({"extra": 1}, "damaged"),
        ({"digest": "0"}, "damaged"),
        ({"extra": float("nan")}, "damaged"),
        ({"extra": {1, 2}}, "damaged"),
    ],
)
def test_a_value_that_is_not_a_snapshot_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    """Nothing of it is guessed."""
    with pytest.raises(UnreadableSnapshot, match=says):
        load(dump(m.state_after()) | change)


@pytest.mark.parametrize("thing", [None, [], "{}", 1, {}, {"digest": "0"}])
def test_a_value_without_a_format_is_not_a_snapshot(thing: Any) -> None:
    """Any value without a format."""
    with pytest.raises(UnreadableSnapshot, match="`format` is missing"):
        load(thing)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"phase": {"name": "Dreaming"}}, "'name' is 'Dreaming'; it may be Ready"),
        ({"phase": {"name": ["Ready"]}}, "it may be Ready"),
        ({"phase": "Ready"}, "expected an object, got str"),
        ({"unjoined": "text"}, "expected a list, got str @ .*unjoined"),
        ({"unjoined": [1]}, r"expected a string, got int @ .*unjoined\[0\]"),
        ({"unjoined": ["{"]}, "'unjoined' holds a text that is not the expected JSON"),
        ({"unjoined": ['["role"]']}, "'unjoined' holds a text that is not the expected JSON"),
        ({"unjoined": ['{"role":"user"}']}, "'unjoined' holds a text that is not the expected JSON"),
        ({"messages": ["nothing"]}, "'messages' holds a text"),
        ({"response": "nothing"}, "'response' holds a text"),
        ({"more": 1}, r"extra fields found \(more\)"),
        ({"setup": None}, "setup"),
        ({"usage_log": [{}]}, r"required field missing @ .*usage_log\[0\].iteration"),
        ({"phase": {"name": "Finished", "termination": {"kind": "odd"}}}, "'kind' is 'odd'; it may be complete, stop_"),
        ({"phase": {"name": "Finished", "termination": "odd"}}, "expected an object, got str"),
        (
            {"phase": {"name": "Finished", "termination": {"kind": "timeout", "limit": "5"}}},
            "expected a finite number, got str",
        ),
        ({"phase": {"name": "Judging", "action": "LAUGH"}}, "'LAUGH' is not an action; it may be RUN, END"),
        ({"phase": {"name": "Waiting", "reason": "tea"}}, "reason"),
    ],
)
def test_a_sound_digest_is_not_enough(change: dict[str, Any], says: str) -> None:
    """A value that does not fit its class is refused with its place, from any writer."""
    body = fields()
    body["loops"][0] |= change
    refuse(body, says)


def fields() -> Any:
    """The members of a snapshot but its format and digest, to be changed."""
    return {key: value for key, value in dump(m.state_after()).items() if key not in ("format", "digest")}


def refuse(body: Any, says: str) -> None:
    with pytest.raises(UnreadableSnapshot, match=says):
        load({"format": FORMAT, "digest": digest_snapshot(body), **body})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"params": "{"}, "'params' holds a text that is not the expected JSON|Expecting|Unterminated"),
        ({"loop_id": 5}, "expected a string, got int @ .*setup.loop_id"),
        ({"limits": {"timeout": True}}, "expected a finite number, got bool"),
        ({"limits": {"max_pauses": 1.5}}, "expected an integer, got float"),
        ({"limits": {"max_pauses": False}}, "expected an integer, got bool"),
        ({"execution": "sometimes"}, "setup.execution"),
    ],
)
def test_what_is_wrong_inside_is_named_with_its_place(change: dict[str, Any], says: str) -> None:
    """However deep it is."""
    body = fields()
    body["loops"][0]["setup"] |= change
    refuse(body, says)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"loops": []}, "'loops' is empty"),
        ({"loops": {}}, "expected a list, got dict"),
        ({"loops": [5]}, r"loops\[0\] is not an object with a path"),
        ({"loops": [{}]}, r"loops\[0\] is not an object with a path"),
        ({"loops": [{"path": "p"}]}, "expected a list, got str"),
        ({"loops": [{"path": ["p"]}]}, r"loops\[0\] is out of order"),
        ({"mood": "good"}, "expected an object with loops, got dict"),
    ],
)
def test_a_value_that_is_not_a_list_of_loops_is_refused(change: dict[str, Any], says: str) -> None:
    """The outermost comes first."""
    refuse(fields() | change, says)


@pytest.mark.parametrize("path", [[], ["p", "q"]])
def test_each_loop_comes_once_and_after_the_one_above(path: list[str]) -> None:
    """Else it would be lost, or stand nowhere."""
    body = fields()
    body["loops"].append({**body["loops"][0], "path": path})
    refuse(body, r"loops\[1\] is out of order: each loop appears once, after the loop that contains it")
