"""The chat service, for real: two processes of uvicorn, pages that read events and click, a bank, a faulty model."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest
from attrs import define, frozen

from tests.docs.examples.bank import SECONDS, Bank, a_bank
from tests.docs.examples.programs import EXAMPLES, served
from toolloop import SqliteStore
from toolloop.testing import FakeMessagesAPI, call, fault, reply

FAILING = 9  # the order at which the model fails
ORDERS = (1, 2, 3, 4, FAILING)
USERS = ("ana", "ben", "")
NOWHERE = "00000000-0000-0000-0000-000000000000"


@define
class Model:
    """Asks for the refund of the order that a person names, and then tells what came of it."""

    faults: int = 3  # the client sends a request at most three times

    def __call__(self, body: dict[str, Any]) -> Any:
        content = body["messages"][-1]["content"]
        if not isinstance(content, str):
            return reply(json.dumps(content))
        order = int(content.split()[1])
        if order == FAILING and self.faults:
            self.faults -= 1
            return fault(500, retry_after=0)
        return reply(f"Order {order}?", calls=[call("refund", {"order": order, "euros": 5})])


@frozen
class Page:
    """What a person's browser does."""

    http: httpx2.Client

    def post(self, path: str, body: Any = None, **headers: str) -> int:
        """Send something as JSON (bytes as they are); the status of the answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"content-type": "application/json", **{name.replace("_", "-"): of for name, of in headers.items()}}
        return self.http.post(path, content=content, headers=named).status_code

    def begun(self, text: str) -> str:
        """The address of a new chat."""
        answer = self.http.post("/chats", json={"text": text})
        assert answer.status_code == 201, answer.text
        return f"/chats/{answer.json()}"

    @contextmanager
    def events(self, chat: str, last_event_id: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
        """The ids of events, and the chat as each shows it."""
        with self.http.stream("GET", f"{chat}/events", headers={"last-event-id": last_event_id}) as response:
            assert (response.status_code, response.headers["content-type"][:17]) == (200, "text/event-stream")
            lines = (line.partition(": ")[2] for line in response.iter_lines() if line.startswith(("id: ", "data: ")))
            read = ((next(lines), json.loads(data)) for data in lines)
            yield ((name, view) for name, view in read if isinstance(view, dict))  # the others are words that come

    def awaited(self, chat: str, status: str, last_event_id: str = "") -> tuple[str, dict[str, Any]]:
        """The first event that shows the chat with this status: its id, and the chat."""
        with self.events(chat, last_event_id) as events:
            return next((name, view) for name, view in events if view["status"] == status)

    def asked(self, chat: str, last_event_id: str = "") -> tuple[str, dict[str, Any]]:
        """The address of the one call that waits, and the call."""
        _, view = self.awaited(chat, "needs_decision", last_event_id)
        (waiting,) = view["pending"]
        return f"{chat}/calls/{waiting['id']}", waiting


@frozen
class Site:
    """The service, who uses it, and what it needs. All tests share one, for its start takes seconds.

    Attributes:
        chats: the addresses of chats that ana has begun, by the order in question.
        failure: the chat whose request failed, as it was then.

    """

    chats: Mapping[int, str]
    failure: Mapping[str, Any]
    api: FakeMessagesAPI
    bank: Bank
    loops: str
    ana: Page
    ben: Page
    nobody: Page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("service")
    loops = str(folder / "loops.db")
    with (
        FakeMessagesAPI(Model()) as api,
        a_bank() as bank,
        served("chat_service", api, folder, processes=2, LOOPS=loops, BANK=bank.url) as address,
        ExitStack() as clients,
    ):
        ana, *others = (Page(clients.enter_context(browser(address, user))) for user in USERS)
        chats = {order: ana.begun(f"Order {order} came broken") for order in ORDERS}
        _, failure = ana.awaited(chats[FAILING], "failed")
        yield Site(chats, failure, api, bank, loops, ana, *others)


def browser(address: str, user: str) -> httpx2.Client:
    """A client that opens a connection for each request, so it does not notice that a process dies."""
    headers = {"x-user": user, "connection": "close"}
    return httpx2.Client(base_url=address, headers=headers, timeout=SECONDS, trust_env=False, verify=False)


def click(waiting: Mapping[str, Any], do: str = "approve", **more: Any) -> dict[str, Any]:
    """What a page sends for a call that it shows."""
    return {"do": do, "digest": waiting["digest"], **more}


def test_the_program_is_at_most_150_lines() -> None:
    assert len((EXAMPLES / "chat_service.py").read_text(encoding="utf-8").splitlines()) <= 150


def test_a_chat_has_several_turns(site: Site) -> None:
    """Approved with an edit, then stopped; a page that comes back sees only what is new to it."""
    page, chat = site.ana, site.chats[1]
    path, waiting = page.asked(chat)
    seen, _ = page.awaited(chat, "needs_decision")
    assert page.post(path, click(waiting, input={"order": 1, "euros": 4})) == 202
    seen, view = page.awaited(chat, "ended", seen)
    assert "order 1 is paid" in view["text"]
    assert page.post(f"{chat}/words", {"text": "Order 5 never came"}) == 202
    page.asked(chat, seen)
    seen, _ = page.awaited(chat, "needs_decision", seen)
    assert page.post(f"{chat}/stop") == 202
    with page.events(chat, seen) as events:
        _, view = next(events)
    assert (view["status"], view["termination"]) == ("ended", "stop_condition")
    assert (site.bank.paid.count(1), site.bank.paid.count(5), site.api.refused) == (1, 0, [])
    shown = {"chat": chat.rpartition("/")[2], "title": "Order 1 came broken", "status": "ended"}
    assert shown in page.http.get("/chats").json()


WRONG: dict[str, list[Any]] = {
    "do": ["no", True, None, [], "Approve"],
    "digest": [None, "", 7, ["a" * 64], "A" * 64, "a" * 63, "a" * 64 + "\n"],
    "text": [None, 5, "", "x" * 10_001],
    "input": ["{}", []],
    "by": ["ben"],
    "remember": [True],
}
RAW = [b"", b"{", b"[]", b"null", b'"yes"']
STRANGERS = [
    {"sec_fetch_site": "cross-site"},
    {"sec_fetch_site": "same-site"},
    *({"origin": origin} for origin in ("https://evil.example", "null", "http://127.0.0.1", "http://")),
]


def test_attacks_are_refused_and_decide_nothing(site: Site) -> None:
    """Wrong bodies, digests of other calls, chats of other users, pages of other sites, and unknown names of loops."""
    page, ben = site.ana, site.ben
    chat = site.chats[2]
    (path, waiting), (_, other_call) = page.asked(chat), page.asked(site.chats[3])
    body = click(waiting)
    _, view = page.awaited(chat, "needs_decision")
    for name, values in WRONG.items():
        for wrong in values:
            assert page.post(path, body | {name: wrong}) == 422, (name, wrong)
    assert page.post(path, {"do": "approve"}) == 422
    for raw in RAW:
        assert page.post(path, raw) == 422, raw
        assert page.post(f"{chat}/words", raw) == 422, raw
    assert page.post(path, b"\xff") == 400
    assert page.post(path, body, content_type="text/plain") == 422
    for text in (None, "", 5, ["x"], "x" * 10_001):
        assert page.post("/chats", {"text": text}) == 422, text
    assert page.post(path, click(other_call)) == 409
    assert page.post(path, body | {"digest": "0" * 64}) == 409
    assert page.post(path, click(waiting, "rerun")) == 409
    assert page.post(path, click(waiting, input={"order": "all"})) == 409
    assert page.post(f"{chat}/retry") == 409
    assert page.post(f"{chat}/calls/toolu_nobody", body) == 404
    assert page.post(f"/chats/{NOWHERE}/calls/{waiting['id']}", body) == 404
    assert page.post("/chats/loop/stop") == 422
    assert page.post(f"{chat}/delete") == 422
    for what, sent in ((path, body), (f"{chat}/words", {"text": "hi"}), (f"{chat}/stop", None)):
        assert ben.post(what, sent) == 404
        assert site.nobody.post(what, sent) == 403
        for stranger in STRANGERS:
            assert page.post(what, sent, **stranger) == 403, stranger
        assert page.http.get(what).status_code in {404, 405}, "nothing is decided by GET"
    assert ben.http.get(f"{chat}/events").status_code == 404
    assert ben.http.get("/chats").json() == []
    assert page.awaited(chat, "needs_decision")[1] == view
    assert site.bank.paid.count(2) == 0
    assert page.post(path, body, sec_fetch_site="same-origin", origin="null") == 202


def test_a_process_is_killed_in_a_tool_and_a_person_says_what_happened(site: Site) -> None:
    """The other process shows the call as uncertain, and only a person can ask the bank again."""
    page, bank, chat = site.ana, site.bank, site.chats[4]
    path, waiting = page.asked(chat)
    seen, _ = page.awaited(chat, "needs_decision")
    bank.open.clear()
    assert page.post(path, click(waiting)) == 202
    while bank.asked.get(timeout=SECONDS) != 4:
        pass  # earlier ones
    with SqliteStore(site.loops) as store:
        lease = store.head(chat.rpartition("/")[2]).lease
    assert lease
    os.kill(json.loads(lease.owner.rpartition(" ")[0])["pid"], signal.SIGKILL)
    bank.open.set()
    path, waiting = page.asked(chat, seen)
    assert (waiting["why"], bank.paid.count(4)) == ("uncertain", 1)
    assert page.post(path, click(waiting)) == 409  # approving is never running a second time
    assert page.post(path, click(waiting, "rerun")) == 202
    _, view = page.awaited(chat, "ended", seen)
    assert "order 4 is paid" in view["text"]
    assert bank.paid.count(4) == 2


def test_a_worker_repeats_a_request_that_failed(site: Site) -> None:
    """A page sees the failure, and when the request is made again."""
    _, waiting = site.ana.asked(site.chats[FAILING])
    assert waiting["input"]["order"] == FAILING
    assert "500" in site.failure["error"]
    assert site.failure["retry_at"] >= time.time() - SECONDS
