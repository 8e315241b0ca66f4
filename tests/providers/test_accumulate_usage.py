"""Usage in a stream: the counts are totals, and absent counts keep their value."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.providers.events import STOP, end
from tests.providers.server import MESSAGE
from toolloop.machine.usage import Usage
from toolloop.providers import accumulate

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


def test_the_breakdown_is_the_last_that_was_told() -> None:
    """Each list is complete; lists are never joined."""
    first, second = [{"type": "compaction", "input_tokens": 9}], [{"type": "message", "input_tokens": 1}]
    assert counted({"iterations": first}, {"iterations": [*first, *second]}) == {"iterations": [*first, *second]}
    assert counted({"iterations": first}, {"iterations": None}) == {"iterations": first}


TOLD = st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(0, 9))


@given(TOLD, st.lists(TOLD, max_size=4))
def test_each_count_is_the_last_that_was_told(start: dict[str, Any], deltas: list[dict[str, Any]]) -> None:
    """Never a sum, whatever the order."""
    last = {name: [told[name] for told in (start, *deltas) if told.get(name) is not None] for name in NAMES}
    assert Usage.read(counted(start, *deltas)) == Usage(**{name: told[-1] for name, told in last.items() if told})
