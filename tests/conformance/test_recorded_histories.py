"""`check` agrees with the API about the requests that were recorded."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from tests.conformance.recordings import load, names, needs_recordings
from toolloop.history import check, repair, rounds

pytestmark = needs_recordings


@pytest.mark.parametrize("name", names())
def test_what_the_api_took_is_valid(name: str) -> None:
    """A request that was answered with 200 has no error, needs no repair, and parts into rounds without loss."""
    for exchange in load(name):
        if exchange.status != HTTPStatus.OK:
            continue
        body = exchange.request
        found = check(body["messages"], model=body["model"], tools=body.get("tools"), thinking=body.get("thinking"))
        assert [problem for problem in found if problem.level == "error"] == []
        assert repair(body["messages"]).changes == ()
        assert body["messages"] == [message for part in rounds(body["messages"]) for message in part]


def test_the_refused_orphan_is_found() -> None:
    """The request that was refused for its orphan result has that one error, at the client's own index."""
    refused = load("sdk_400_orphan_result")[-1]
    assert refused.status == HTTPStatus.BAD_REQUEST
    found = check(refused.request["messages"], model=refused.request["model"])
    assert [(p.path, p.rule, p.level) for p in found] == [("messages[1].content[0]", "orphan-result", "error")]


def test_a_paused_reply_may_be_sent_back() -> None:
    """The recorded resume of a pause ends in an assistant message with an open server call."""
    resumed = load("pause_turn_web_search")[1].request["messages"]
    assert resumed[-1]["role"] == "assistant"
    assert check(resumed, model="claude-sonnet-4-5", thinking={"type": "enabled", "budget_tokens": 4096}) == []
