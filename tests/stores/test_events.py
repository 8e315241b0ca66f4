"""An event as JSON text, and back: any event, and nothing but an event."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve, fields
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.core import making as m
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.replies import read_reply
from toolloop.core.setup import Budget, Limits
from toolloop.core.splicing import Splice
from toolloop.core.states import Failure
from toolloop.core.usage import Billed, IterationUsage, Usage
from toolloop.core.values import Outcome, Reject, Result, Ruling, Terms, Wait, Why
from toolloop.errors import UnreadableSnapshot
from toolloop.stores import FORMAT, dump
from toolloop.stores.events import EVENTS, decode_event, encode_event

TERMS = Terms("once", '{"a":1}', uses=2, expires_at=9.5)
RULING = Ruling("approve", '{"a":2}', by="ana", reason="why", digest="d", at=5.0, remember=TERMS)
USAGE = Usage(*range(1, len(fields(Usage)) + 1))
BILLED = Billed("message", "m", USAGE)
# One of each class, with every field set.
FULL: tuple[ev.Event, ...] = (
    m.opened(m.user("é"), limits=Limits(timeout=5.0, budget=Budget(requests=3)), gone=frozenset({"x"})),
    ev.Adopted(m.after(ev.Requested(), m.replied("tool_use", m.call("a")), m.asks("a"))),
    ev.Requested(summary=True),
    ev.Replied(read_reply({"content": [m.call("a")], "stop_reason": "tool_use", "usage": {"input_tokens": 3}})),
    ev.RequestFailed(Failure("model", "overloaded", 529, "overloaded_error", True, 7.5, "req_1", ("a",))),
    ev.RequestCancelled(),
    ev.Judged(
        (
            ("a", Wait(Why.APPROVAL, "r", fresh=True, expires_in=5.0)),
            ("b", Reject(Outcome.INVALID_INPUT, "t")),
            ("c", RULING),
        ),
        stop=True,
        reason="enough",
    ),
    ev.Decided((("a", RULING), ("b", Ruling("answer", '[{"type":"x"}]', is_error=True, by_policy=True, grant="1/a")))),
    ev.Started("a", "d" * 64),
    ev.Ended("a", Result('[{"type":"text","text":"x"}]', True, Outcome.FAILED), took=2.5, iteration=3, attempt=2),
    ev.Spent(
        "a",
        IterationUsage(
            2, "m", "tool_use", "req_1", USAGE, 1.5, ("b",), "standard", "fast", "eu", "redeemed", (BILLED,), 9
        ),
    ),
    ev.Cancelled("a"),
    ev.Ticked(),
    ev.TurnEnded(),
    ev.Continued(),
    ev.Injected((m.user(), m.system())),
    ev.Stopped("enough"),
    ev.HistoryEdited((m.user("other"),), (Splice(0, 2, (m.user("é"), m.system())), Splice(3, 4))),
    ev.Compacted(
        "mask_results",
        (Splice(1, 2, (m.user("short"),)),),
        before=900,
        after=80,
        summary=IterationUsage(2, "m", usage=USAGE, kind="summary"),
        problem="why not",
        by_hand=True,
    ),
    ev.ParamsChanged('{"model":"m"}', ("model",)),
    ev.GrantRevoked("1/a", by="ana"),
    ev.FollowedUp((m.user("more"),), replace_last=True),
    ev.Extended(Limits(max_iterations=None)),
    ev.Retried(),
    ev.Woken(m.setup(tool_timeout=3.0), driver="somebody"),
    ev.Forked("another"),
    ev.ReplyDiscarded((Splice(1, 2, (m.user(),)),), keeps_tail=True),
    ev.RoundAdopted((Splice(1, 2),), m.TAKEN, (("a", Result('"x"', is_error=True)),), (m.user(),), keeps_tail=True),
    ev.CallsReopened(("a", "b")),
)


def test_every_class_of_event_is_tried() -> None:
    """A new one fails here until it is."""
    assert {type(event).__name__ for event in FULL} == EVENTS.keys()


@pytest.mark.parametrize("event", FULL, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize(
    "common", [{}, {"at": 1.5, "seconds": 0.25}, {"at": 60.0, "seconds": 1.0, "path": ("p/1", '"content":', "é")}]
)
def test_an_event_comes_back_as_it_was(event: ev.Event, common: dict[str, Any]) -> None:
    """Every field of it, those too by which events are not compared, as the very same type."""
    event = evolve(event, **common)
    text = encode_event(event)
    back = decode_event(text)
    assert back == event
    assert repr(back) == repr(event)
    assert encode_event(back) == text
    assert list(json.loads(text))[:2] == ["format", "event"]
    assert "\n" not in text


@pytest.mark.parametrize("event", FULL, ids=lambda event: type(event).__name__)
def test_a_json_with_one_kind_of_number_does_no_harm(event: ev.Event) -> None:
    """60.0 may come back as 60, and 1 as 1.0."""
    whole = evolve(event, at=60.0, seconds=2.0)
    text = encode_event(whole)
    assert decode_event(text.replace('"at":60.0', '"at":60').replace('"seconds":2.0', '"seconds":2')) == whole
    assert decode_event(text.replace('"iteration":3,', '"iteration":3.0,')) == whole


@given(lives)
def test_any_journal_comes_back_as_it_was(world: World) -> None:
    """Event by event."""
    assert [decode_event(encode_event(event)) for event in world.journal] == world.journal


words = st.text() | st.sampled_from(['"message":', '"content":', "}}", "\ud800", "\x00", "\u2028", '\\"', "\\"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
contents = words | st.lists(st.fixed_dictionaries({"type": words.filter("text".__ne__), "v": json_values}), max_size=3)
layouts = st.sampled_from([{"separators": (",", ":")}, {}, {"indent": 1}])


@given(json_values, words, layouts, st.booleans())
def test_a_reply_keeps_its_very_text(value: Any, words: str, layout: dict[str, Any], escape: bool) -> None:
    """White space, order of keys, sizes of numbers, escapes: whatever the API sent."""
    body = {"content": [m.call("a", input={"v": value})], "stop_reason": "tool_use", "id": words, "n": 10**40}
    text = json.dumps(body, ensure_ascii=escape, **layout)
    assume(escape or "\\ud800" not in json.dumps(body))  # no reply comes with one that is not escaped
    event = ev.Replied(read_reply(json.loads(text), text=text, request_id=words), at=1.5)
    back = decode_event(encode_event(event))
    assert back == event
    assert isinstance(back, ev.Replied)
    assert back.reply.text == text
    assert back.reply.blocks == event.reply.blocks


@given(contents, words, layouts)
def test_a_result_keeps_its_very_text(value: Any, words: str, layout: dict[str, Any]) -> None:
    """Whatever stands around it."""
    content = json.dumps(value, **layout)
    event = ev.Ended(words, Result(content, outcome=Outcome.FAILED), at=1.5)
    text = encode_event(event)
    assert decode_event(text) == event
    assert text.encode().count(b"\0") == 0


@given(contents)
def test_both_readers_of_json_read_the_same(value: Any) -> None:
    """What the quick one reads, the careful one reads too, to the type of each number and the order of keys."""
    event = ev.Ended("a", Result(encode(value)), at=0.1, took=1e-7)
    padded = f" {encode_event(event)} \n"  # the quick one does not read that
    assert decode_event(padded) == decode_event(encode_event(event)) == event


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_times_come_back_to_the_last_bit(at: float) -> None:
    """A time is a float, and JSON has all of its digits."""
    back = decode_event(encode_event(ev.Requested(at=at)))
    assert (back.at, type(back.at)) == (at, float)


def test_half_a_surrogate_pair_does_not_spoil_a_journal() -> None:
    """Where a text cannot be kept as it is, it is kept as what it says: stores take UTF-8."""
    text = '{"content":[{"type":"text","text":"\ud800"}],"stop_reason":"end_turn"}'
    event = ev.Replied(read_reply(json.loads(text), text=text))
    body = encode_event(event)
    assert body.encode()
    back = decode_event(body)
    assert isinstance(back, ev.Replied)
    assert decode(back.reply.text) == decode(text)
    lone = ev.Stopped("\udc00")
    assert encode_event(lone).isascii()
    assert decode_event(encode_event(lone)) == lone


def test_another_order_of_members_is_read_too() -> None:
    """A store that keeps JSON its own way changes the text, not what it says."""
    event = FULL[3]
    assert isinstance(event, ev.Replied)
    moved = dict(sorted(json.loads(encode_event(event)).items()))
    back = decode_event(json.dumps(moved))
    assert isinstance(back, ev.Replied)
    assert back.reply.blocks == event.reply.blocks
    ended = dict(sorted(json.loads(encode_event(FULL[9])).items()))
    assert decode_event(json.dumps(ended, indent=2)) == FULL[9]


@pytest.mark.parametrize(
    "event",
    [ev.Ended("a", Result("no JSON")), ev.Ended("a", Result("")), ev.Requested(at=float("nan"))],
)
def test_what_could_not_be_read_again_is_not_written(event: ev.Event) -> None:
    """One such event would make the whole journal unreadable."""
    with pytest.raises(ValueError, match=r"."):
        encode_event(event)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "it is no JSON"),
        ("{", "it is no JSON"),
        ('{"format":1,"event":"Requested"}{}', "it is no JSON"),
        ('{"format":1,"event":"Requested","at":NaN}', "it is no JSON: NaN"),
        ('{"format":1,"event":"Requested","at":1e999}', "it is no JSON: 1e999 is too large"),
        ('{"format":1,"event":"Requested","at":"' + "[" * 9, "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[]", "it is no JSON: no object, but list"),
        ("null", "it is no JSON: no object, but NoneType"),
        ("{}", "format None"),
        ('{"format":2,"event":"Requested"}', "format 2; this version of toolloop reads format 1. Read it with .*newer"),
        ('{"format":true,"event":"Requested"}', "format True"),
        ('{"format":1}', "the event None is none that toolloop knows"),
        ('{"format":1,"event":"Dreamed"}', "the event 'Dreamed' is none that toolloop knows"),
        ('{"format":1,"event":["Started"]}', r"the event \['Started'\] is none"),
        ('{"format":1,"event":"Event"}', "the event 'Event' is none"),
        ('{"format":1,"event":"Started"}', "Started cannot be read: required field missing @ Started.call_id"),
        ('{"format":1,"event":"Started","call_id":5}', "expected a text, not int @ Started.call_id"),
        ('{"format":1,"event":"Started","call_id":null}', "expected a text, not NoneType @ Started.call_id"),
        ('{"format":1,"event":"Started","call_id":"a","more":1}', r"extra fields found \(more\) @ Started"),
        ('{"format":1,"event":"Requested","at":"now"}', "expected a number, not str @ Requested.at"),
        ('{"format":1,"event":"Requested","at":true}', "expected a number, not bool @ Requested.at"),
        ('{"format":1,"event":"Injected","messages":"hi"}', "expected a list, not str @ Injected.messages"),
        ('{"format":1,"event":"Injected","messages":["hi"]}', "'messages' holds a text that is no message @ Injected"),
        ('{"format":1,"event":"ParamsChanged","params":"{"}', "'params' is no JSON text of an object @ ParamsChanged"),
        ('{"format":1,"event":"Judged","stop":1}', "expected true or false, not int @ Judged.stop"),
        ('{"format":1,"event":"Judged","verdicts":[["a"]]}', r"expected 2 items, not 1 @ Judged.verdicts\[0\]"),
        ('{"format":1,"event":"Judged","verdicts":[["a",{"verdict":"No"}]]}', "'verdict' is 'No'; it may be Wait, "),
        (
            '{"format":1,"event":"Judged","verdicts":[["a",{"verdict":"Wait","why":"x"}]]}',
            "expected Why @ Judged.verdicts",
        ),
        ('{"format":1,"event":"Decided","rulings":[["a",{"kind":"deny","content":"{"}]]}', "'content' is no JSON text"),
        (
            '{"format":1,"event":"Extended","limits":{"max_depth":"3"}}',
            "expected an integer, not str @ Extended.limits",
        ),
        ('{"format":1,"event":"Ended","call_id":"a"}', "the event Ended cannot be read: KeyError: 'result'"),
        ('{"format":1,"event":"Ended","call_id":"a","result":[]}', "the event Ended cannot be read: TypeError"),
        (
            '{"format":1,"event":"Ended","call_id":"a","result":{}}',
            "the event Ended cannot be read: KeyError: 'content'",
        ),
        ('{"format":1,"event":"Replied","reply":{"message":{}}}', "the reply has no list of content blocks"),
        ('{"format":1,"event":"Replied","reply":{"message":1}}', "the reply has no list of content blocks"),
        ('{"format":1,"event":"Replied","reply":{"more":1,"message":{"content":[]}}}', "a reply has"),
        ('{"format":1,"event":"Replied","reply":{"request_id":1,"message":{"content":[]}}}', "a reply has"),
        ('{"format":1,"event":"Adopted"}', "this is no snapshot of toolloop"),
        ('{"format":1,"event":"Adopted","state":{"format":3}}', "the snapshot has format 3"),
    ],
)
def test_what_is_no_event_is_refused_by_name(body: str, says: str) -> None:
    """Nothing of it is guessed, and no traceback from below comes up."""
    with pytest.raises(UnreadableSnapshot, match=says):
        decode_event(body)


@pytest.mark.parametrize("body", [None, b"{}", 5, {"format": FORMAT}])
def test_what_is_no_text_is_refused_too(body: Any) -> None:
    """Whatever a store returned."""
    with pytest.raises(UnreadableSnapshot, match=r"it is no JSON|format None"):
        decode_event(body)


@pytest.mark.parametrize("event", FULL, ids=lambda event: type(event).__name__)
def test_a_text_that_was_cut_anywhere_is_refused(event: ev.Event) -> None:
    """No beginning of an event is an event."""
    text = encode_event(event)
    for end in range(len(text)):
        with pytest.raises(UnreadableSnapshot):
            decode_event(text[:end])


def test_what_an_adopted_event_holds_is_told() -> None:
    """It is written by hand; a new field of it would be forgotten."""
    assert [item.name for item in fields(ev.Adopted)] == ["at", "seconds", "path", "state"]
    event = ev.Adopted(m.after(), at=2.5)
    assert decode(encode_event(event)) == {"format": 1, "event": "Adopted", "at": 2.5, "state": dump(m.after())}


def test_what_has_no_order_is_written_in_one() -> None:
    """So the same event has the same text, in every process."""
    text = encode_event(m.opened(gone=frozenset("badc"), callables=frozenset({"stop_when", "on_tool_call"})))
    assert json.loads(text)["setup"]["gone"] == ["a", "b", "c", "d"]
    assert json.loads(text)["setup"]["callables"] == ["on_tool_call", "stop_when"]
