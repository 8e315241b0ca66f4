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

BODIES = [body for _, body in GOOD_REQUESTS] + [bad.body for bad in BAD_REQUESTS]
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


@given(st.data())
def test_whatever_stands_anywhere_is_judged(data: st.DataObject) -> None:
    body = copy.deepcopy(data.draw(st.sampled_from(BODIES)))
    for _ in range(data.draw(st.integers(1, 3))):
        found = list(places(body))
        container, key = found[data.draw(st.integers(0, len(found) - 1))]
        if data.draw(st.booleans()):
            container[key] = data.draw(JSON)
        else:
            del container[key]
    said = judge(body, Context(), Signer(b"k"))
    assert said is None or (said.status >= 400 and said.message)


@given(JSON)
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    said = judge(body, Context(), None)
    assert said is not None
    assert said.status == 400


@pytest.mark.parametrize("body", [body for _, body in GOOD_REQUESTS], ids=[name for name, _ in GOOD_REQUESTS])
def test_a_good_request_can_be_asked_about_without_a_server(body: dict[str, Any]) -> None:
    assert judge(body, Context(), None) is None
