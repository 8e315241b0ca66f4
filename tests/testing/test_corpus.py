"""The fake API against the corpus that was written for the other checker, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.bad_requests import BAD_REQUESTS, GOOD_REQUESTS, BadRequest
from tests.testing.asking import Said, judged


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=[bad.name for bad in BAD_REQUESTS])
def test_a_bad_request_is_refused_with_its_status_and_type(bad: BadRequest) -> None:
    said = judged(bad.body)
    assert (said.status, said.type) == (bad.status, bad.error)


@pytest.mark.parametrize("request_body", [body for _, body in GOOD_REQUESTS], ids=[name for name, _ in GOOD_REQUESTS])
def test_a_good_request_is_answered(request_body: dict[str, Any]) -> None:
    assert judged(request_body) == Said(200)
