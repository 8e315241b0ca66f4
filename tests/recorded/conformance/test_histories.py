"""`check` agrees with the API about the requests of the traffic."""

from __future__ import annotations

from http import HTTPStatus

from tests.recorded.conformance.traffic import Traffic, with_traffic
from toolloop.history import check, repair, rounds


@with_traffic()
def test_an_accepted_request_is_valid(traffic: Traffic) -> None:
    """A request that was answered with 200 has no error, needs no repair, and splits into rounds without loss."""
    for exchange in traffic.answered:
        body = exchange.request
        found = check(body["messages"], model=body["model"], tools=body.get("tools"), thinking=body.get("thinking"))
        assert [problem for problem in found if problem.level == "error"] == []
        assert repair(body["messages"]).changes == ()
        assert body["messages"] == [message for part in rounds(body["messages"]) for message in part]


@with_traffic("sdk_400_orphan_result")
def test_the_refused_orphan_is_found(traffic: Traffic) -> None:
    """The request that was refused for its orphan result has that one error, at the client's own index."""
    refused = traffic.exchanges[-1]
    assert refused.status == HTTPStatus.BAD_REQUEST
    found = check(refused.request["messages"], model=refused.request["model"])
    assert [(p.path, p.rule, p.level) for p in found] == [("messages[1].content[0]", "orphan-result", "error")]


@with_traffic("pause_turn_web_search")
def test_a_paused_reply_may_be_sent_back(traffic: Traffic) -> None:
    """A request that resumes a pause may end in an assistant message with an open server call."""
    resumed = traffic.exchanges[1].request
    assert resumed["messages"][-1]["role"] == "assistant"
    assert check(resumed["messages"], model=resumed["model"], thinking=resumed["thinking"]) == []
