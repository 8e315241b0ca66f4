"""Whatever happens to a body, it is refused by name, or it is read as a sound event: nothing is taken half."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from attrs import evolve, fields
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.worlds import World
from tests.stores.edited_stories import EDITED
from tests.stores.journals import a_journal
from tests.stores.nested_stories import NESTED
from tests.stores.test_events import FULL
from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.machine import fold
from toolloop.errors import UnreadableSnapshot
from toolloop.stores import dump, load
from toolloop.stores.events import EVENTS, decode_event, encode_event, read_journal
from toolloop.stores.shapes import MESSAGES, TEXTS

LIVED = tuple(entry.body for entry in a_journal())
WORLDS = tuple(
    tuple(encode_event(event) for event in World(random.Random(seed)).live(40).journal) for seed in range(12)
)
TREES = tuple(tuple(encode_event(event) for event in story) for story in (*NESTED.values(), *EDITED.values()))
JOURNALS = (LIVED, *WORLDS, *TREES)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, 10**30, 1e308, 10**400, "", "x", "null", "[]", "{}", "5", "\ud800"),
    *([], {}, [None], [[]], {"a": 1}, [{"type": "text"}], [{"type": 5}], ["x"], {"role": "user", "content": 5}),
    *('{"role":"user","content":[5]}', '["x"]', '{"a":1e999}'),
)
NAMES = sorted({item.name for kind in (*EVENTS.values(), *MESSAGES, *TEXTS) for item in fields(kind)})
TWICE: tuple[Any, ...] = ("the same", None, 5, {}, [], "x")
# Where an editor or another program puts white space.
LAYOUTS: tuple[dict[str, Any], ...] = ({"separators": (",", ":")}, {}, {"indent": 1}, {"separators": (" , ", " : ")})


def objects(value: Any) -> Iterator[Any]:
    """Every object and list in a value, the value first."""
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from objects(item)


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a value: what it is in, and its key there."""
    return [(at, key) for at in objects(value) for key in (at if isinstance(at, dict) else range(len(at)))]


class Twice(str):
    """A key that is there once more."""

    __slots__ = ()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    __ne__ = object.__ne__


@st.composite
def damaged(draw: st.DrawFn) -> tuple[list[str], int]:
    """A good journal of which one body was changed, and which one."""
    journal = list(draw(st.sampled_from(JOURNALS)))
    number = draw(st.integers(0, len(journal) - 1))
    how = draw(st.sampled_from([bent, flipped]))
    journal[number] = draw(how(journal[number]))
    return journal, number


@st.composite
def bent(draw: st.DrawFn, body: str) -> str:
    """Still JSON: members dropped, doubled, nulled or swapped, other values, white space."""
    whole = json.loads(body)
    for _ in range(draw(st.integers(0, 2))):
        places = spots(whole)
        if not places:
            break
        at, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["put", "drop", "double", "swap", "add"])):
            case "put":
                at[key] = deepcopy(draw(st.sampled_from(VALUES)))
            case "drop":
                del at[key]
            case "double" if isinstance(at, dict):
                at[Twice(key)] = deepcopy(draw(st.sampled_from([at[key], *VALUES])))
            case "swap":
                other, name = draw(st.sampled_from(places))
                other[name], at[key] = deepcopy((at[key], other[name]))
            case "add" if isinstance(at, dict):
                at[draw(st.sampled_from(["digest", "reason", "by", "took", "content", "message", "format"]))] = None
    text = json.dumps(whole, ensure_ascii=draw(st.booleans()), **draw(st.sampled_from(LAYOUTS)))
    return draw(st.sampled_from(["", "", " ", "\ufeff"])) + text + draw(st.sampled_from(["", "", "\n", "}", "\0"]))


@st.composite
def flipped(draw: st.DrawFn, body: str) -> str:
    """A few characters are others, more, or not there."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        put = draw(
            st.sampled_from(["", "", " ", "\n", '"', "\\", ",", ":", "}", "{", "]", "[", "0", "9", "e9", "e999"])
        )
        body = body[:at] + put + body[at + draw(st.integers(0, 2)) :]
    return body


def sound(event: ev.Event) -> None:
    """It can be written and read again, the same each time; and what should be JSON is."""
    text = encode_event(event)
    again = decode_event(text)
    assert again == event
    assert repr(again) == repr(event)
    assert encode_event(again) == text
    if isinstance(event, ev.Replied):
        assert decode(event.reply.text)["content"] == event.reply.blocks
    if isinstance(event, ev.Ended):
        assert isinstance(decode(event.result.content), str | list)


def entry_of(error: UnreadableSnapshot) -> int:
    number: int = error.entry  # type: ignore[attr-defined]  # errors keep their parts
    return number


def refused_or_sound(body: str) -> bool:
    """Whether it is refused; if not, it is a sound event."""
    try:
        event = decode_event(body)
    except UnreadableSnapshot:
        return True
    sound(event)
    return False


def texts_of(whole: Any) -> Iterator[str]:
    """The same JSON, as the writer writes it and as others do."""
    for layout in LAYOUTS:
        yield json.dumps(whole, **layout)


kinds = pytest.mark.parametrize("event", FULL, ids=lambda event: type(event).__name__)


@kinds
def test_no_value_is_taken_where_it_does_not_belong(event: ev.Event) -> None:
    """Any value in any place."""
    body = encode_event(event)
    for number in range(len(spots(json.loads(body)))):
        for value in VALUES:
            whole = json.loads(body)
            at, key = spots(whole)[number]
            at[key] = value
            refused_or_sound(json.dumps(whole, separators=(",", ":")))


@kinds
def test_no_null_is_taken_where_it_does_not_belong(event: ev.Event) -> None:
    """Also not for a field that was left out."""
    body = encode_event(event)
    for number in range(len(list(objects(json.loads(body))))):
        for name in NAMES:
            whole = json.loads(body)
            at = list(objects(whole))[number]
            if isinstance(at, dict):
                at.setdefault(name)
                refused_or_sound(json.dumps(whole, separators=(",", ":")))


@kinds
def test_a_member_that_is_there_twice_is_refused(event: ev.Event) -> None:
    """For readers differ in which of the two they take. What the model said stays as it is."""
    body = encode_event(event)
    for number, (_, key) in enumerate(spots(json.loads(body))):
        for again in TWICE:
            whole = json.loads(body)
            at, _ = spots(whole)[number]
            if not isinstance(at, dict):
                continue
            at[Twice(key)] = deepcopy(at[key]) if again == "the same" else again
            inside = isinstance(event, ev.Replied | ev.Ended) and not any(at is it for it in ours(whole))
            for text in texts_of(whole):
                assert refused_or_sound(text) or inside


def ours(whole: Any) -> list[Any]:
    """The objects of an event with a long text that are not inside of that text."""
    return [whole, whole.get("reply", whole.get("result"))]


@kinds
def test_white_space_changes_nothing(event: ev.Event) -> None:
    """Wherever an editor puts it."""
    for text in texts_of(json.loads(encode_event(event))):
        for padded in (text, f" {text}", f"{text}\n"):
            back = decode_event(padded)
            assert what(back) == what(event)
            sound(back)


def what(event: ev.Event) -> Any:
    """An event, but for the layout of the long text in it."""
    match event:
        case ev.Replied(reply=reply):
            return (event.at, event.seconds, decode(reply.text), reply.request_id)
        case ev.Ended(result=result):
            return evolve(event, result=evolve(result, content=encode(decode(result.content))))
    return event


@pytest.mark.parametrize("number", ["1.0", "true", "1e0", "10", '"1"', "01", "-1", "null", "[1]"])
@kinds
def test_the_format_is_one_integer(event: ev.Event, number: str) -> None:
    """Nothing that is equal to it."""
    assert refused_or_sound(encode_event(event).replace('"format":1,', f'"format":{number},', 1))


@pytest.mark.parametrize(
    "result",
    [
        *('{"content":5}', '{"content":null}', '{"content":{"a":1}}', '{"content":["x"]}', '{"content":[{"type":5}]}'),
        *('{"content":[{"type":"text"}]}', '{"content":[{"a":1}]}', '{"content":NaN}', '{"content":"a"}x', "{}"),
        *('{"content":[{"type":"x","n":1e999}]}', '{"content":[{"type":"x","n":{"m":[-1e999]}}]}'),
        *('{"content":"a","content":"b"}', '{"content":"a"},"result":{"content":"b"}', '{"content":"\ud800"}'),
        *('{"outcome":null,"content":"a"}', '{"is_error":null,"content":"a"}', '{"content":"a"},"took":1e999'),
        *('{"content":"a"},"call_id":"b"', '{"content" :"a"},"call_id":"b"', '{"content":"a"},"seconds":1e300'),
    ],
)
def test_a_damaged_result_is_refused_and_its_entry_named(result: str) -> None:
    """It would be sent to the model else."""
    good = [encode_event(event) for event in (m.opened(), ev.Requested(), m.replied("tool_use", m.call("a")))]
    body = f'{{"format":1,"event":"Ended","call_id":"a","result":{result}}}'
    with pytest.raises(UnreadableSnapshot, match=r"^entry 5 of") as refused:
        read_journal([*good, encode_event(ev.Started("a")), body])
    assert entry_of(refused.value) == 5


@pytest.mark.parametrize(
    "reply",
    [
        *('{"message":M},"reply":{"message":M}', '{"message":M,"message":M}', '{"message":M},"seconds":1e999'),
        *('{"message":{"content":[],"n":1e999}}', '{"message":{"content":[],"n":[{"m":-1e999}]}}'),
        *('{"message":{"content":[],"n":Infinity}}', '{"request_id":"a","request_id":"a","message":M}'),
        *('{"message":{"content":[],"n":"\ud800"}}', '{"message":M,"request_id":5}', '{"message":M}}{'),
    ],
)
def test_a_damaged_reply_is_refused(reply: str) -> None:
    """Its text would be no JSON else."""
    message = '{"content":[],"stop_reason":"end_turn"}'
    assert refused_or_sound(f'{{"format":1,"event":"Replied","reply":{reply.replace("M", message)}}}')
    assert not refused_or_sound(f'{{"format":1,"event":"Replied","reply":{{"message":{message}}}}}')


def test_what_no_sum_could_hold_is_not_written() -> None:
    """As it would not be read."""
    with pytest.raises(ValueError, match=r"no event takes 1e\+300 seconds"):
        encode_event(ev.Requested(seconds=1e300))


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(damaged())
def test_a_damaged_entry_is_refused_or_read_as_a_sound_one(found: tuple[list[str], int]) -> None:
    """And the loop that it leads to can be kept: its snapshot is read as the same state."""
    journal, number = found
    try:
        event = decode_event(journal[number])
    except UnreadableSnapshot:
        with pytest.raises(UnreadableSnapshot) as refused:
            read_journal(journal)
        assert entry_of(refused.value) == number + 1
        return
    sound(event)
    try:
        state = read_journal(journal)
    except UnreadableSnapshot as error:
        if entry_of(error) > number:  # the damaged one, or one that does not follow from it
            return
        raise
    assert state == fold([decode_event(body) for body in journal])
    assert load(json.loads(json.dumps(dump(state)))) == state
