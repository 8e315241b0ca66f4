"""An event as an entry of a journal, and back."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from attrs import evolve
from hypothesis import assume, given, strategies as st

from tests.kit.machine import making as m
from toolloop._usage import Cost, IterationUsage, Usage
from toolloop.errors import UnreadableSnapshot
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failure, Thread
from toolloop.machine.record.replies import read_reply
from toolloop.machine.values.calls import DecisionRecord, GrantSpec, Outcome, Reject, Result, Wait, Why
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Budget, Limits
from toolloop.machine.values.splicing import Splice
from toolloop.stores import Entry
from toolloop.stores.codec import decode_event, encode_event

GRANT = GrantSpec("once", '{"a":1}', uses=2, expires_at=9.5)
DECISION = DecisionRecord("approve", '{"a":2}', by="ana", reason="why", digest="d", at=5.0, remember=GRANT)
ANSWER = DecisionRecord("answer", '[{"type":"x"}]', is_error=True, by_policy=True, grant="1/a")
ASKED = encode({"role": "assistant", "content": [m.call("a")]})
USAGE = evolve(Usage(*range(1, 10)), cost=Cost(Decimal("0.0123"), is_partial=True, unpriced=("m",)))
# One of each class, with every field set.
FULL: tuple[ev.Event, ...] = (
    m.make_opened(m.user("é"), limits=Limits(timeout=5.0, budget=Budget(requests=3)), gone=frozenset({"x"})),
    ev.Adopted(m.state_after(ev.Requested(), m.make_replied("tool_use", m.call("a")), m.asks("a"))),
    ev.Requested(),
    ev.Replied(read_reply({"content": [m.call("a")], "stop_reason": "tool_use", "usage": {"input_tokens": 3}})),
    ev.Replied(read_reply({"content": [], "stop_reason": "end_turn"}), 2.5, Thread("msg_1", 3, "f")),
    ev.RequestFailed(Failure("model", "overloaded", 529, "overloaded_error", True, 7.5, "req_1", ("a",))),
    ev.RequestFailed(),
    ev.RequestFailed(thread=Thread(None, 0, "f", "thread_not_found")),
    ev.Judged(
        (
            ("a", Wait(Why.APPROVAL, "r", fresh=True, expires_in=5.0)),
            ("b", Reject(Outcome.INVALID_INPUT, "t")),
            ("c", DECISION),
        ),
        stop=True,
        reason="enough",
    ),
    ev.Decided((("a", DECISION), ("b", ANSWER))),
    ev.Started("a", "d" * 64),
    ev.Ended(
        "a",
        Result('[{"type":"text","text":"x"}]', True, Outcome.FAILED),
        took=2.5,
        iteration=3,
        attempt=2,
        above=((1, 2), (3, 4)),
        spent=(IterationUsage(2, "m", "tool_use", "req_1", USAGE, 1.5, ("b",)),),
    ),
    ev.Ended("a", None),
    ev.Ticked(),
    ev.TurnEnded(),
    ev.Continued((m.user(), m.system())),
    ev.Stopped("enough"),
    ev.HistoryEdited(
        (Splice(0, 2, (m.user("é"), m.system())), Splice(3, 4)),
        "mask_results",
        before=900,
        after=80,
        spent=IterationUsage(2, "m", usage=USAGE, kind="summary"),
        problem="why not",
    ),
    ev.Changed('{"model":"m"}', ("model",), Limits(max_iterations=None)),
    ev.GrantRevoked("1/a", by="ana"),
    ev.LinksRevoked("p/a", by="ana", via="inbox"),
    ev.MetadataChanged((("title", None, "é"), ("draft", "yes", None)), by="ana", via="inbox"),
    ev.FollowedUp((m.user("more"),), replace_last=True),
    ev.Woken(m.setup(tool_timeout=3.0), driver="somebody"),
    ev.HistoryTaken((Splice(1, 2),), ASKED, keeps_unjoined=True, rerun=("a", "b")),
)


COMMON: tuple[dict[str, Any], ...] = (
    {},
    {"at": 1.5, "seconds": 0.25},
    {"at": 60.0, "seconds": 1.0, "path": ("p/1", '"content":', "é")},
)


def test_an_event_comes_back_as_it_was() -> None:
    """Every field, also those by which events are not compared, has the same value and type."""
    for event in (evolve(each, **common) for each in FULL for common in COMMON):
        entry = encode_event("1", event)
        back = decode_event(entry)
        assert back == event
        assert repr(back) == repr(event)
        assert encode_event("1", back) == entry
        assert list(json.loads(entry.body))[:2] == ["format", "event"]
        assert "\n" not in entry.body
        is_long = isinstance(event, ev.Replied) or (isinstance(event, ev.Ended) and event.result is not None)
        assert (entry.text is not None) == is_long


def test_a_store_may_keep_json_in_its_own_way() -> None:
    """With one kind of number, other white space, or another order of members: the content is the same."""
    for event in FULL:
        whole = evolve(event, at=60.0, seconds=2.0)
        entry = encode_event("1", whole)
        moved = json.dumps(dict(sorted(json.loads(entry.body).items())), indent=2)
        for body in (
            entry.body.replace('"at":60.0', '"at":60').replace('"seconds":2.0', '"seconds":2'),
            entry.body.replace('"iteration":3,', '"iteration":3.0,'),
            f" {moved}\n",
        ):
            assert decode_event(evolve(entry, body=body)) == whole


words = st.text() | st.sampled_from(['"message":', '"content":', "}}", "\ud800", "\x00", "\u2028", '\\"', "\\"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
contents = words | st.lists(st.fixed_dictionaries({"type": words.filter("text".__ne__), "v": json_values}), max_size=3)
layouts = st.sampled_from([{"separators": (",", ":")}, {}, {"indent": 1}])


@given(json_values, words, layouts, st.booleans())
def test_a_reply_keeps_its_text(value: Any, words: str, layout: dict[str, Any], escape: bool) -> None:
    """White space, order of keys, sizes of numbers and escapes stay as the API sent them."""
    body = {"content": [m.call("a", input={"v": value})], "stop_reason": "tool_use", "id": words, "n": 10**40}
    text = json.dumps(body, ensure_ascii=escape, **layout)
    assume(escape or "\\ud800" not in json.dumps(body))  # the API escapes a lone surrogate
    event = ev.Replied(read_reply(json.loads(text), text=text, request_id=words), at=1.5)
    back = decode_event(encode_event("1", event))
    assert back == event
    assert isinstance(back, ev.Replied)
    assert back.reply.text == text
    assert back.reply.blocks == event.reply.blocks


@given(contents, words, layouts)
def test_a_result_keeps_its_text(value: Any, words: str, layout: dict[str, Any]) -> None:
    """Whatever the other fields hold."""
    content = json.dumps(value, **layout)
    event = ev.Ended(words, Result(content, outcome=Outcome.FAILED), at=1.5)
    entry = encode_event("1", event)
    assert entry.text == content
    assert decode_event(entry) == event


def test_a_lone_surrogate_does_not_spoil_a_journal() -> None:
    """It is stored as an escape, because stores keep UTF-8."""
    text = '{"content":[{"type":"text","text":"\ud800"}],"stop_reason":"end_turn"}'
    event = ev.Replied(read_reply(json.loads(text), text=text))
    back = decode_event(encode_event("1", event))
    assert isinstance(back, ev.Replied)
    assert decode(back.reply.text) == decode(text)
    lone = ev.Stopped("\udc00")
    assert encode_event("1", lone).body.isascii()
    assert decode_event(encode_event("1", lone)) == lone


def test_a_time_that_json_cannot_hold_is_not_written() -> None:
    """One such event would make the whole journal unreadable."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_event("1", ev.Requested(at=float("nan")))


ENDED = '{"format":1,"event":"Ended","call_id":"a","result":{}}'
REPLIED = '{"format":1,"event":"Replied","reply":{"request_id":null}}'


def test_a_damaged_entry_is_refused() -> None:
    """By name: nothing is guessed, and no other error comes up."""
    cases: list[tuple[str, str | None, str]] = [
        ("", None, "is not JSON"),
        ("{", None, "is not JSON"),
        ('{"format":1,"event":"Requested"}{}', None, "is not JSON"),
        ('{"format":1,"event":"Requested","at":NaN}', None, "is not JSON: NaN"),
        ('{"format":1,"event":"Requested","at":1e999}', None, "is not JSON: the number 1e999 is too large"),
        ("[" * 100_000, None, "is not JSON"),
        ("[]", None, "not a JSON object: got list"),
        ("{}", None, "format None"),
        ('{"format":4,"event":"Requested"}', None, "format 4, but this version of toolloop reads formats 1 to 3. Use"),
        ('{"format":0,"event":"Requested"}', None, "format 0"),
        ('{"format":true,"event":"Requested"}', None, "format True"),
        ('{"format":1.0,"event":"Requested"}', None, "format 1.0"),
        ('{"format":1}', None, "the event None is unknown"),
        ('{"format":1,"event":"Dreamed"}', None, "the event 'Dreamed' is unknown"),
        ('{"format":1,"event":["Started"]}', None, r"the event \['Started'\] is unknown"),
        ('{"format":1,"event":"Event"}', None, "the event 'Event' is unknown"),
        ('{"format":1,"event":"Started"}', None, "Started cannot be read: required field missing @ Started.call_id"),
        ('{"format":1,"event":"Started","call_id":5}', None, "expected a string, got int @ Started.call_id"),
        ('{"format":1,"event":"Started","call_id":null}', None, "expected a string, got NoneType @ Started.call_id"),
        ('{"format":1,"event":"Started","call_id":"a","more":1}', None, r"extra fields found \(more\) @ Started"),
        ('{"format":1,"event":"Requested","at":"now"}', None, "expected a finite number, got str @ Requested.at"),
        ('{"format":1,"event":"Requested","path":"p"}', None, "expected a list, got str @ Requested.path"),
        ('{"format":1,"event":"Continued","messages":["hi"]}', None, "'messages' holds a text that is not the"),
        ('{"format":1,"event":"Changed","params":"{"}', None, "'params' holds a text that is not the expected JSON"),
        ('{"format":1,"event":"Judged","stop":1}', None, "expected true or false, got int @ Judged.stop"),
        ('{"format":1,"event":"Judged","results":[["a"]]}', None, "expected a list of 2 items"),
        (
            '{"format":1,"event":"Judged","results":[["a",{"result":"No"}]]}',
            None,
            "'result' is 'No'; it may be Wait",
        ),
        (
            '{"format":1,"event":"Judged","results":[["a",{"result":"Wait","why":"x"}]]}',
            None,
            "expected Why @ Judged",
        ),
        ('{"format":1,"event":"Decided","decisions":[["a",{"kind":"deny","content":"{"}]]}', None, "'content' holds a"),
        ('{"format":1,"event":"Adopted"}', None, "required field missing @ Adopted.state"),
        ('{"format":1,"event":"Adopted","state":{"loops":{}}}', None, "expected a list, got dict @ Adopted.state"),
        ('{"format":1,"event":"Requested"}', "{}", "its text is unexpected"),
        (ENDED, None, "its text is missing"),
        ('{"format":1,"event":"Ended","call_id":"a"}', '"x"', "its text is unexpected"),
        ('{"format":1,"event":"Ended","call_id":"a"}', None, "required field missing @ Ended.result"),
        ('{"format":1,"event":"Ended","call_id":"a","result":null}', '"x"', "its text is unexpected"),
        (ENDED, "5", "'content' holds a text that is not the expected JSON"),
        (ENDED, '{"a":1}', "'content' holds a text that is not the expected JSON"),
        (ENDED, '[{"type":"text"}]', "'content' holds a text that is not the expected JSON"),
        (ENDED, '[{"type":"x","n":1e999}]', "'content' holds a text that is not the expected JSON"),
        (REPLIED, None, "its text is missing"),
        (REPLIED, "{}", "no list of content blocks"),
        (REPLIED, '{"content":[],"n":Infinity}', "Replied cannot be read"),
        ('{"format":1,"event":"Replied","reply":{"request_id":1}}', '{"content":[]}', "expected a string, got int"),
        ('{"format":1,"event":"Replied","reply":{"more":1}}', '{"content":[]}', "expected a reply"),
    ]
    for body, text, says in cases:
        with pytest.raises(UnreadableSnapshot, match=says):
            decode_event(Entry("1", body, text))


def test_sets_are_written_in_order() -> None:
    """So the same event has the same text in every process."""
    entry = encode_event("1", m.make_opened(gone=frozenset("badc"), callables=frozenset({"stop_when", "on_tool_call"})))
    assert json.loads(entry.body)["setup"]["gone"] == ["a", "b", "c", "d"]
    assert json.loads(entry.body)["setup"]["callables"] == ["on_tool_call", "stop_when"]
