"""Answers that stream to the request that asked for them: refusals before the first byte, reloads, approvals."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, DefaultHttpxClient
from attrs import define, field, frozen

from tests.docs.examples.bank import SECONDS, Bank, a_bank
from tests.docs.examples.programs import served
from toolloop import SqliteStore, Worker, tool
from toolloop.testing import FakeMessagesAPI, call, reply, streamed

Event = tuple[str, Any]
NOWHERE = "00000000-0000-0000-0000-000000000000"


@define
class Model:
    """Tells a story, which stops in the middle if the test holds it, or asks for the refund of an order."""

    held: list[Any] = field(factory=list)

    def __call__(self, body: dict[str, Any]) -> Any:
        content = body["messages"][-1]["content"]
        if not isinstance(content, str):
            return reply("It is paid.")
        if content.startswith("Order"):
            return reply("I ask.", calls=[call("refund", {"order": int(content.split()[1]), "euros": 5})])
        return self.held.pop() if self.held else reply("A long story.")


@frozen
class Site:
    """The service, and two persons who use it."""

    api: FakeMessagesAPI
    model: Model
    bank: Bank
    loops: str
    ana: httpx2.Client
    ben: httpx2.Client

    def begun(self, text: str) -> str:
        """The address of a chat that no request drives yet."""
        return f"/chats/{self.ana.post('/chats', json={'text': text}).raise_for_status().json()}"

    @contextmanager
    def reading(self, method: str, path: str, **sent: Any) -> Iterator[Iterator[Event]]:
        """The events of a stream: a view of the chat ("message"), or the text so far ("words")."""
        with self.ana.stream(method, path, **sent) as response:
            assert (response.status_code, response.headers["content-type"][:17]) == (200, "text/event-stream")
            yield _events(response)

    def until(self, events: Iterator[Event], status: str) -> tuple[list[str], dict[str, Any]]:
        """The texts up to a view of the chat with this status, and the view."""
        texts = []
        for kind, data in events:
            if kind == "words":
                texts.append(data)
            elif data["status"] == status:
                return texts, data
        raise AssertionError(f"the stream ended before {status}")


def _events(response: httpx2.Response) -> Iterator[Event]:
    kind = "message"
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)
            kind = "message"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, model = tmp_path_factory.mktemp("service"), Model()
    with (
        FakeMessagesAPI(model) as api,
        a_bank() as bank,
        served("chat_stream", api, folder, processes=1, BANK=bank.url) as address,
        ExitStack() as clients,
    ):
        bank.open.set()
        persons = [
            httpx2.Client(base_url=address, headers={"x-user": user}, timeout=SECONDS, trust_env=False, verify=False)
            for user in ("ana", "ben")
        ]
        for person in persons:
            clients.enter_context(person)
        yield Site(api, model, bank, str(folder / "loops.db"), *persons)


@pytest.fixture(params=["handlers", "worker"], autouse=True)
def drivers(request: pytest.FixtureRequest, site: Site) -> Iterator[str]:
    """The handlers drive alone, or a worker of another process runs beside them."""
    if request.param == "handlers":
        yield request.param
        return

    @tool(needs_approval=True)
    def refund(order: int, euros: int) -> str:
        """Pay money back."""
        site.bank.paid.append(order)
        return f"{euros} euros"

    stopped = threading.Event()
    http = DefaultHttpxClient(trust_env=False, verify=False)
    api = Anthropic(base_url=site.api.url, api_key="none", max_retries=0, http_client=http)
    with SqliteStore(site.loops) as store, api as client:
        worker = threading.Thread(target=Worker(store, client, [refund], live=0.05).run, args=(stopped,))
        worker.start()
        yield request.param
        stopped.set()
        worker.join(SECONDS)


def approval(chat: str, view: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Where to approve the one call that waits, and what to send."""
    (call,) = view["pending"]
    return f"{chat}/calls/{call['id']}", {"do": "approve", "digest": call["digest"]}


def waiting(site: Site, chat: str) -> tuple[str, dict[str, Any]]:
    with site.reading("GET", f"{chat}/events") as events:
        return approval(chat, site.until(events, "needs_decision")[1])


def ended(site: Site, chat: str) -> dict[str, Any]:
    with site.reading("GET", f"{chat}/events") as events:
        return site.until(events, "ended")[1]


def test_a_refusal_is_a_status_before_the_first_byte(site: Site) -> None:
    """A driver elsewhere, a chat of another person, one that does not exist, and a bad body."""
    story = streamed(reply("A story that is held."), hold=4)
    chat = site.begun("Tell me something")
    ended(site, chat)
    site.model.held.append(story)
    with site.reading("GET", f"{chat}/events") as driver:
        site.until(driver, "ended")  # as it is now: else the stream would be closed before the story is told
        assert site.ana.post(f"{chat}/words", json={"text": "And now?"}).status_code == 202
        assert story.arrived.wait(SECONDS)
        answers = [
            site.ana.post(f"{chat}/answer"),
            site.ben.post(f"{chat}/answer"),
            site.ana.post(f"/chats/{NOWHERE}/answer"),
            site.ana.post("/chats/loop/answer"),
            site.ana.post(f"{chat}/words", json={"text": ""}),
        ]
        story.release()
        assert site.until(driver, "ended")[1]["text"] == "A story that is held."
    assert [answer.status_code for answer in answers] == [409, 404, 404, 422, 422]
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert "is being driven by process" in answers[0].json()["detail"]


def test_an_answer_streams_to_its_request(site: Site, drivers: str) -> None:
    """Up to a call that waits; and after the approval, to the next request.

    If a worker was faster, that is a 409 while it drives, and then the chat as it is, without the words before.
    """
    site.bank.paid.clear()
    chat = site.begun("Order 3 came broken")
    with site.ana.stream("POST", f"{chat}/answer") as response:
        if response.status_code == 200:
            texts, view = site.until(_events(response), "needs_decision")
            assert view["text"] == "I ask."
            assert texts[-1:] == ["I ask."] or (drivers == "worker" and not texts)
        else:
            assert response.status_code == 409
    path, yes = waiting(site, chat)
    assert site.ana.post(path, json=yes).status_code == 202
    with site.ana.stream("POST", f"{chat}/answer") as response:
        assert response.status_code in (200, 409)
        response.read()
    assert (ended(site, chat)["text"], site.bank.paid.count(3)) == ("It is paid.", 1)


def test_a_reader_that_leaves_while_its_stream_is_full_leaves_the_chat_to_others(site: Site) -> None:
    """FastAPI does not close such a stream, so what it holds is closed with the request."""
    site.model.held.append(streamed(reply("A story without an end. " * 500)))
    chat = site.begun("Tell me something")
    with site.reading("GET", f"{chat}/events") as events:
        assert next(kind for kind, _ in events if kind == "words")
    assert ended(site, chat)["text"].startswith("A ")


def test_a_reload_of_the_page_resumes(site: Site) -> None:
    """In the middle of an answer: the next stream shows the whole answer, and so does the one after it."""
    story = streamed(reply("A story that is held."), hold=4)
    site.model.held.append(story)
    chat = site.begun("Tell me something")
    with site.reading("GET", f"{chat}/events") as events:
        assert next(events)[1]["status"] in ("runnable", "running")
        assert story.arrived.wait(SECONDS)
    story.release()
    first, again = ended(site, chat), ended(site, chat)
    assert first["text"] in ("A long story.", "A story that is held.")
    assert again["text"] == first["text"]
    assert [message["role"] for message in again["messages"]] == ["user", "assistant"]


def test_a_stream_goes_on_after_an_approval(site: Site) -> None:
    """The same stream shows the call, and the answer after it was approved; the tool ran once."""
    site.bank.paid.clear()
    chat = site.begun("Order 5 came broken")
    with site.reading("GET", f"{chat}/events") as events:
        _, view = site.until(events, "needs_decision")
        path, yes = approval(chat, view)
        assert site.ana.post(path, json=yes).status_code == 202
        _, view = site.until(events, "ended")
    assert (view["text"], site.bank.paid.count(5)) == ("It is paid.", 1)


def test_words_come_as_the_model_writes_them(site: Site) -> None:
    """While the model still writes, if a handler drives and if a worker does."""
    story = streamed(reply("A story that is held."), hold=4)
    site.model.held.append(story)
    chat = site.begun("Tell me something")
    with site.reading("GET", f"{chat}/events") as events:
        kind = text = ""
        while kind != "words":
            kind, text = next(events)
        assert "A story that is held.".startswith(text)
        story.release()
        assert site.until(events, "ended")[1]["text"] == "A story that is held."
