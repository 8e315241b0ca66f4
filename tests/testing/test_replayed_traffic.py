"""The fake API accepts what the real one accepted, and refuses the rest with the same status and type."""

from __future__ import annotations

import json

from tests.recorded.conformance.traffic import Traffic, with_traffic
from tests.testing.asking import ask, judged
from toolloop.testing import FakeMessagesAPI, verbatim

# The traffic is older than the present version of the API.
VERSION = "2023-06-01"


@with_traffic()
def test_a_request_is_judged_as_the_real_api_judged_it(traffic: Traffic) -> None:
    for exchange in traffic.exchanges:
        betas = {"anthropic_beta": exchange.beta} if exchange.beta else {}
        said = judged(exchange.request, anthropic_version=VERSION, **betas)
        assert said.status == exchange.status
        if said.status != 200:
            assert said.type == exchange.reply["error"]["type"]


@with_traffic()
def test_an_answer_can_be_served_as_it_was(traffic: Traffic) -> None:
    answers = [verbatim(each.status, each.headers, each.sse or json.dumps(each.reply)) for each in traffic.exchanges]
    with FakeMessagesAPI(answers, enforce=False) as api:
        said = [ask(api.client(), exchange.request) for exchange in traffic.exchanges]
    statuses = [exchange.status for exchange in traffic.exchanges]
    assert [each.status for each in said] == statuses == [request.status for request in api.requests]
    assert [exchange.request for exchange in traffic.exchanges] == [request.json for request in api.requests]
