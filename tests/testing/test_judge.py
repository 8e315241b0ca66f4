"""The judge itself: it has a word for every body there can be."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.history.bad_requests import BAD_REQUESTS, GOOD_REQUESTS
from toolloop.testing.refusals import Context
from toolloop.testing.rules import judge
from toolloop.testing.signing import Signer

BETAS = frozenset({"compact-2026-01-12", "compact-2026-09-04", "context-management-2025-06-27"})
SIGNER = Signer(b"k")
COMPACTED: dict[str, Any] = {
    **GOOD_REQUESTS[0][1],
    "messages": [
        {"role": "assistant", "content": [SIGNER.sign_summary({"type": "compaction", "content": "So far."})]},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "compaction", "content": None}, {"type": "text", "text": "Hm."}]},
    ],
    "compaction": {"type": "summarize", "instructions": "Short."},
}
MANAGED: dict[str, Any] = {
    **GOOD_REQUESTS[0][1],
    "context_management": {
        "edits": [
            {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}},
            {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 3}},
            {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}},
        ]
    },
}
BODIES = [COMPACTED, MANAGED] + [body for _, body in GOOD_REQUESTS] + [bad.body for bad in BAD_REQUESTS]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "user", "text", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "content", "role", "id", "tool", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a body with every key in it."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


@given(st.data(), st.booleans())
def test_whatever_stands_anywhere_is_judged(data: st.DataObject, counts: bool) -> None:
    body = copy.deepcopy(data.draw(st.sampled_from([COMPACTED, MANAGED]) | st.sampled_from(BODIES)))
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(body))
        container, key = found[data.draw(st.integers(0, len(found) - 1))]
        if data.draw(st.booleans()):
            container[key] = data.draw(JSON)
        else:
            del container[key]
    said = judge(body, Context(betas=BETAS), SIGNER, counts=counts)
    assert said is None or (said.status >= 400 and said.message)


@pytest.mark.parametrize("body", [COMPACTED, MANAGED], ids=["compacted", "managed"])
def test_what_needs_a_beta_is_judged_by_it(body: dict[str, Any]) -> None:
    assert judge(body, Context(betas=BETAS), SIGNER) is None
    assert judge(body, Context(), SIGNER) is not None


@given(JSON)
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    said = judge(body, Context(), None)
    assert said is not None
    assert said.status == 400


@pytest.mark.parametrize("body", [body for _, body in GOOD_REQUESTS], ids=[name for name, _ in GOOD_REQUESTS])
def test_a_good_request_can_be_asked_about_without_a_server(body: dict[str, Any]) -> None:
    assert judge(body, Context(), None) is None
