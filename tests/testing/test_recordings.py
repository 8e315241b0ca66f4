"""Recorded traffic: what the real API took, the fake one takes; what it refused, the fake one refuses in its words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.testing.asking import ask, judged
from toolloop.testing import FakeMessagesAPI, verbatim

SHARED = Path(os.environ.get("TOOLLOOP_SHARED", Path(__file__).parents[3] / "shared"))
RECORDINGS = sorted((SHARED / "recordings").glob("*.json"))

if not RECORDINGS:
    pytest.skip("the recordings are not here: set TOOLLOOP_SHARED to their folder's parent", allow_module_level=True)

# Recorded with the version before the present one.
VERSION = "2023-06-01"


def exchanges() -> list[Any]:
    found = []
    for path in RECORDINGS:
        for number, exchange in enumerate(json.loads(path.read_text())["exchanges"]):
            found.append(pytest.param(exchange, id=f"{path.stem}-{number}"))
    return found


@pytest.mark.parametrize("exchange", exchanges())
def test_a_recorded_request_is_judged_as_it_was(exchange: dict[str, Any]) -> None:
    request, response = exchange["request"], exchange["response"]
    betas = {"anthropic_beta": request["beta"]} if request["beta"] else {}
    said = judged(request["body"], anthropic_version=VERSION, **betas)
    assert said.status == response["status"]
    if said.status != 200:
        assert {"type": said.type, "message": said.message} == response["body"]["error"]


@pytest.mark.parametrize("exchange", exchanges())
def test_a_recorded_answer_can_be_served_as_it_was(exchange: dict[str, Any]) -> None:
    response = exchange["response"]
    served = response.get("sse") or json.dumps(response["body"])
    with FakeMessagesAPI([verbatim(response["status"], response["headers"], served)], enforce=False) as api:
        said = ask(api.client(), exchange["request"]["body"])
        assert said.status == response["status"] == api.requests[0].status
        assert api.requests[0].json == exchange["request"]["body"]
