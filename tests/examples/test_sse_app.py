"""Server-sent events, for real: uvicorn, pages that read and leave, a model whose stream is held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.examples.programs import SECONDS, served
from toolloop import SqliteStore
from toolloop.testing import FakeMessagesAPI, reply, streamed

SEVEN = "00000000-0000-0000-0000-000000000007"
ASKS = reply("Order 7 came broken, I see.", calls=[("refund", {"order": 7})])


@contextmanager
def page(address: str, loop: str, said: dict[str, Any]) -> Iterator[Iterator[tuple[str, Any]]]:
    """What a page says, and the events that it sees."""
    with (
        httpx2.Client(timeout=SECONDS, trust_env=False) as client,
        client.stream("POST", f"{address}/loops/{loop}/", json=said, headers={"x-user": "ana"}) as response,
    ):
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")

        def events() -> Iterator[tuple[str, Any]]:
            lines = response.iter_lines()
            for line in lines:
                if line:
                    yield line.removeprefix("event: "), json.loads(next(lines).removeprefix("data: "))

        yield events()


def test_a_page_sees_the_text_before_the_reply_is_complete_and_a_decision_goes_on(tmp_path: Path) -> None:
    """The first pieces are there while the model still writes; then a call waits; a word later it runs."""
    writes = streamed(ASKS, hold=5)
    with FakeMessagesAPI([writes, reply("It is paid back.")]) as api, served("sse_app", api, tmp_path) as address:
        with page(address, SEVEN, {"question": "Order 7?"}) as events:
            kind, text = next(events)
            assert kind == "TextDelta"
            assert ASKS["content"][0]["text"].startswith(text)
            assert not writes.released.is_set()
            writes.release()
            rest = list(events)
        assert text + "".join(more for kind, more in rest if kind == "TextDelta") == ASKS["content"][0]["text"]
        kind, view = rest[-1]
        assert (kind, view["state"], len(api.requests)) == ("view", "Waiting", 1)
        call = view["pending"][0]
        click = {"approve": True, "digest": call["digest"]}
        with page(address, SEVEN, {"calls": {call["id"]: click}}) as events:
            seen = list(events)
        assert seen[0] == ("CallStarted", "refund")
        assert "".join(more for kind, more in seen if kind == "TextDelta") == "It is paid back."
        assert seen[-1][1]["state"] == "Finished"


def test_a_page_that_goes_away_ends_the_request_and_the_loop_can_go_on(tmp_path: Path) -> None:
    """The server hangs up on the model; nothing of the broken reply is kept; the page that comes back gets it anew."""
    writes = streamed(ASKS, hold=5)
    with FakeMessagesAPI([writes, ASKS]) as api, served("sse_app", api, tmp_path) as address:
        with page(address, SEVEN, {"question": "Order 7?"}) as events:
            next(events)
        stream = api.requests[0].stream
        assert stream
        assert stream.hung_up.wait(SECONDS)
        with page(address, SEVEN, {}) as events:
            assert [kind for kind, _ in events][-1] == "view"
        assert api.requests[0].json["messages"] == api.requests[1].json["messages"]
    with SqliteStore(tmp_path / "loops.db") as store:
        told = [json.loads(entry.body)["event"] for entry in store.load(f"ana/{SEVEN}").entries]
    told = [event for event in told if event != "Woken"]  # it is there if the page came back very quickly
    assert told == ["Opened", "Requested", "RequestFailed", "Requested", "Replied", "Judged"]


def test_attacks_are_refused_before_the_stream_begins(tmp_path: Path) -> None:
    """Wrong bodies, stale digests, loops of somebody else, pages of other sites; none of them reaches the model."""
    with FakeMessagesAPI([ASKS]) as api, served("sse_app", api, tmp_path) as address:
        with page(address, SEVEN, {"question": "Order 7?"}) as events:
            call = list(events)[-1][1]["pending"][0]
        click = {"approve": True, "digest": call["digest"]}
        no_clicks: list[Any] = [True, "no", {}, click | {"approve": "no"}]
        no_bodies: list[Any] = [None, [], {"question": 5}, {"more": 1}]
        bodies: list[tuple[Any, int]] = [
            *(({"calls": {call["id"]: wrong}}, 422) for wrong in no_clicks),
            *(({"calls": {call["id"]: click | {"digest": wrong}}}, 422) for wrong in (None, "")),
            *((wrong, 422) for wrong in no_bodies),
            ({"calls": {call["id"]: click | {"digest": "0" * 64}}}, 409),
            ({"calls": {"toolu_nobody": click}}, 404),
        ]
        decides = {"calls": {call["id"]: click}}
        requests = [
            *(({"x-user": "ana"}, body, status) for body, status in bodies),
            ({"x-user": "ben"}, decides, 404),
            ({}, decides, 403),
            ({"x-user": "ana", "sec-fetch-site": "cross-site"}, decides, 403),
            ({"x-user": "ana", "origin": "null"}, decides, 403),
        ]
        with httpx2.Client(timeout=SECONDS, trust_env=False) as client:
            for headers, body, status in requests:
                answer = client.post(f"{address}/loops/{SEVEN}/", json=body, headers=headers)
                assert answer.status_code == status, (headers, body, answer.text)
        assert len(api.requests) == 1
        with page(address, SEVEN, {}) as events:  # nothing was decided
            assert [view["pending"][0] for _, view in events] == [call]
