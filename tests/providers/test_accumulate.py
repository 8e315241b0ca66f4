"""`accumulate`: the message of a stream equals the unstreamed one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.providers.events import START, STOP, block, call, end, streamed
from tests.providers.server import MESSAGE
from toolloop._usage import Usage
from toolloop.errors import ProtocolError
from toolloop.providers import accumulate

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
BLOCKS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text()),
    st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, st.text(), st.text()),
    st.builds(
        lambda value: {"type": "tool_use", "id": "toolu_1", "name": "f", "input": value, "caller": {"type": "direct"}},
        st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    ),
    st.builds(lambda value: {"type": "yet_unknown", "value": value}, JSON),
)


@given(st.lists(BLOCKS, max_size=4), st.integers(1, 7))
def test_any_message_comes_out_as_it_went_in(content: list[Any], size: int) -> None:
    """For any size of pieces: unknown blocks, key order and integers of any size are kept."""
    message = MESSAGE | {"content": content}
    assert repr(accumulate(streamed(message, size))) == repr(message)


def test_a_call_without_arguments_has_an_empty_object() -> None:
    """No delta, an empty one, or `{}` all mean the same."""
    cases: list[tuple[str, ...]] = [(), ("",), ("{}",), ("", " ", "{", "}")]
    for pieces in cases:
        message = accumulate([START, *call(*pieces), end("tool_use"), STOP])
        assert message["content"][0]["input"] == {}


def test_an_input_that_is_not_an_object_is_refused() -> None:
    """A call with such an input cannot run."""
    for text in ('{"a": 1, "b', '{"a": NaN}', "[1]", '"x"', "{}{}", "[" * 100_000):
        with pytest.raises(ProtocolError, match="toolu_1") as failed:
            accumulate([START, *call(text), end("tool_use"), STOP])
        assert failed.value.retryable


def test_an_input_that_was_cut_off_stays_empty() -> None:
    """No call runs with these stop reasons, so the input is not guessed; the block may lack its end."""
    for stop_reason in ("max_tokens", "model_context_window_exceeded", "refusal"):
        message = accumulate([START, *call('{"a": "b", "c": "d')[:-1], end(stop_reason), STOP])
        assert message["content"][0]["input"] == {}
        assert message["stop_reason"] == stop_reason


def test_citations_and_compaction_come_in_deltas() -> None:
    """Citations join a list that may be null; a compaction comes in one delta, and whole."""
    citation = {"type": "char_location", "cited_text": "x"}
    text = block(0, {"type": "text", "text": "", "citations": None}, {"type": "citations_delta", "citation": citation})
    whole = {"content": "Sum.", "encrypted_content": "e"}
    compaction = block(1, {"type": "compaction", "content": None}, {"type": "compaction_delta", **whole})
    message = accumulate([START, *text, *compaction, end("end_turn"), STOP])
    assert message["content"] == [
        {"type": "text", "text": "", "citations": [citation]},
        {"type": "compaction", **whole},
    ]


def test_unknown_events_are_skipped_and_unknown_fields_kept() -> None:
    """Unknown events and deltas change nothing; unknown fields beside a message delta are kept."""
    text = block(0, {"type": "text", "text": "a", "new": 1}, {"type": "new_delta"}, {"type": "text_delta", "text": "b"})
    last = end("end_turn") | {"context_management": {"applied_edits": []}, "new": 2}
    message = accumulate([START, {"type": "ping"}, *text, {"type": "new_event"}, last, STOP])
    assert message["content"] == [{"type": "text", "text": "ab", "new": 1}]
    assert message["context_management"] == {"applied_edits": []}
    assert message["new"] == 2


def test_another_model_that_takes_over_gives_its_name() -> None:
    """As in an unstreamed reply: the model is the one that served the end."""
    fallback = block(0, {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}})
    assert accumulate([START, *fallback, end("end_turn"), STOP])["model"] == "b"


WHOLE = [START, *call('{"a": 1}'), end("tool_use"), STOP]


def test_every_early_end_is_an_error() -> None:
    """The SDK does not report it. A reply needs its stop reason and its end."""
    for length in range(len(WHOLE)):
        with pytest.raises(ProtocolError, match="ended before") as failed:
            accumulate(WHOLE[:length])
        assert failed.value.retryable


def test_an_invalid_event_is_quoted() -> None:
    """The first invalid event is reported."""
    cases: list[Any] = [
        {"type": "content_block_start", "index": "0", "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "message_delta"},
        {"index": 0},
        ["message_stop"],
    ]
    for event in cases:
        with pytest.raises(ProtocolError, match="invalid event") as failed:
            accumulate([START, event, event, end("end_turn"), STOP])
        assert str(event) in str(failed.value)


KEYS = ["type", "index", "delta", "content_block", "message", "usage", "text", "partial_json", "input", "to"]
TYPES = [event["type"] for event in WHOLE] + ["text_delta", "input_json_delta", "citations_delta", "text", "fallback"]
NOISE = st.recursive(
    st.none() | st.integers(0, 1) | st.sampled_from(TYPES) | st.just("{"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(NOISE | st.sampled_from(WHOLE), max_size=6))
def test_noise_is_a_message_or_a_protocol_error(events: list[Any]) -> None:
    """No event raises another exception."""
    with suppress(ProtocolError):
        message = accumulate([START, *events, end("end_turn"), STOP])
        assert isinstance(message["content"], list)


# --- usage: the counts are totals, and absent counts keep their value ------------------------------------------------

SEARCHES = {"web_search_requests": 1, "web_fetch_requests": 2}
NAMES = ["input_tokens", "output_tokens", "cache_read_input_tokens"]


def counted(start: Any, *deltas: dict[str, Any]) -> Any:
    """Return the usage of a stream with these counts at its start and in its deltas."""
    message = MESSAGE | {"content": [], "stop_reason": None, "usage": start}
    ends = [end("end_turn") | {"usage": usage} for usage in deltas or [{}]]
    return accumulate([{"type": "message_start", "message": message}, *ends, STOP])["usage"]


def test_what_only_the_start_tells_stays() -> None:
    """The split of what was cached, and the labels."""
    start = {
        "input_tokens": 2479,
        "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 6},
        "cache_creation_input_tokens": 11,
        "service_tier": "standard",
        "output_tokens": 1,
    }
    delta = {"input_tokens": 404_500, "output_tokens": 644, "cache_creation_input_tokens": None}
    assert counted(start, delta) == start | {"input_tokens": 404_500, "output_tokens": 644}
    assert Usage.read(counted(start, delta)) == Usage(404_500, 644, 11, 0, 5, 6)


def test_objects_are_overwritten_count_by_count() -> None:
    """As for the other counts, null and absent values change nothing."""
    start = {"server_tool_use": SEARCHES, "output_tokens_details": None}
    later = {"server_tool_use": {"web_search_requests": 4}, "output_tokens_details": {"thinking_tokens": 7}}
    last = {"server_tool_use": {"web_search_requests": None, "web_fetch_requests": 3}, "output_tokens_details": None}
    assert counted(start, later, last) == {
        "server_tool_use": {"web_search_requests": 4, "web_fetch_requests": 3},
        "output_tokens_details": {"thinking_tokens": 7},
    }


def test_the_breakdown_is_the_last_one_sent() -> None:
    """Each list is complete; lists are never joined."""
    first, second = [{"type": "compaction", "input_tokens": 9}], [{"type": "message", "input_tokens": 1}]
    assert counted({"iterations": first}, {"iterations": [*first, *second]}) == {"iterations": [*first, *second]}
    assert counted({"iterations": first}, {"iterations": None}) == {"iterations": first}


TOLD = st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(0, 9))


@given(TOLD, st.lists(TOLD, max_size=4))
def test_each_count_is_the_last_one_sent(start: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
    """Never a sum, whatever the order."""
    last = {name: [told[name] for told in (start, *deltas) if told.get(name) is not None] for name in NAMES}
    assert Usage.read(counted(start, *deltas)) == Usage(**{name: told[-1] for name, told in last.items() if told})
