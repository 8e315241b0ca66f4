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

ASKS = reply("Order 7 came broken, I see.", calls=[("refund", {"order": 7})])


@contextmanager
def page(address: str, loop: str, said: dict[str, Any]) -> Iterator[Iterator[tuple[str, Any]]]:
    """What a page says, and the events that it sees."""
    with (
        httpx2.Client(timeout=SECONDS, trust_env=False) as client,
        client.stream("POST", f"{address}/loops/{loop}/", json=said) as response,
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
        with page(address, "seven", {"question": "Order 7?"}) as events:
            kind, text = next(events)
            assert kind == "TextDelta"
            assert ASKS["content"][0]["text"].startswith(text)
            assert not writes.released.is_set()
            writes.release()
            rest = list(events)
        assert text + "".join(more for kind, more in rest if kind == "TextDelta") == ASKS["content"][0]["text"]
        kind, view = rest[-1]
        assert (kind, view["state"], len(api.requests)) == ("view", "Waiting", 1)
        with page(address, "seven", {"calls": {view["pending"][0]["id"]: True}}) as events:
            seen = list(events)
        assert seen[0] == ("CallStarted", "refund")
        assert "".join(more for kind, more in seen if kind == "TextDelta") == "It is paid back."
        assert seen[-1][1]["state"] == "Finished"


def test_a_page_that_goes_away_ends_the_request_and_the_loop_can_go_on(tmp_path: Path) -> None:
    """The server hangs up on the model; nothing of the broken reply is kept; the page that comes back gets it anew."""
    writes = streamed(ASKS, hold=5)
    with FakeMessagesAPI([writes, ASKS]) as api, served("sse_app", api, tmp_path) as address:
        with page(address, "seven", {"question": "Order 7?"}) as events:
            next(events)
        stream = api.requests[0].stream
        assert stream
        assert stream.hung_up.wait(SECONDS)
        with page(address, "seven", {}) as events:
            assert [kind for kind, _ in events][-1] == "view"
        assert api.requests[0].json["messages"] == api.requests[1].json["messages"]
    with SqliteStore(tmp_path / "loops.db") as store:
        told = [json.loads(entry.body)["event"] for entry in store.load("seven").entries]
    told = [event for event in told if event != "Woken"]  # it is there if the page came back very quickly
    assert told == ["Opened", "Requested", "RequestFailed", "Requested", "Replied", "Judged"]
