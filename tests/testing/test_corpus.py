"""The corpus of requests, once over HTTP: what the API refuses is refused, and what it accepts is answered."""

from __future__ import annotations

from tests.kit.effort import some
from tests.messages.bad_requests import BAD_REQUESTS, GOOD_REQUESTS
from tests.testing.asking import Said, ask
from toolloop.testing import FakeMessagesAPI, reply


def test_a_request_is_judged_with_its_status_and_type() -> None:
    with FakeMessagesAPI(lambda _request: reply("fine"), verify_signatures=False) as api:
        client = api.client()
        for bad in some(BAD_REQUESTS, 3):  # without HTTP, each is judged in tests/messages
            said = ask(client, bad.body, **({"anthropic_beta": bad.beta} if bad.beta else {}))
            assert (said.status, said.type, bool(said.message)) == (bad.status, bad.error, True), bad.name
        for name, body in some(GOOD_REQUESTS, 3):
            assert ask(client, body) == Said(200), name
