"""A web handler, for real: worker processes, one SQLite file, browsers that click at once."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from attrs import define, field

from tests.effort import IS_DEEP
from tests.examples.web_service import SECONDS, Answer, Bank, Browser, Service, a_bank, served
from toolloop import SqliteStore
from toolloop.testing import FakeMessagesAPI, reply
from toolloop.testing.replies import Delayed

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
ORDERS = count(1)
NOWHERE = "00000000-0000-0000-0000-000000000000"


@define(eq=False)
class Town:
    """All there is: the API, the bank, the file of the loops, services over it, browsers in front of them."""

    api: FakeMessagesAPI
    bank: Bank
    loops: Path
    services: list[Service]
    browsers: list[Browser]
    held: list[Delayed] = field(factory=list)

    def started(self, *orders: int) -> dict[str, Any]:
        """A loop that waits for a word on the refund of each order, as the first browser shows it."""
        answer = self.browsers[0].post("/loops", {"question": f"Refund {json.dumps(orders)}"})
        assert (answer.status, len(answer.body["pending"])) == (201, len(orders)), answer
        return dict(answer.body)

    def at_once(self, *clicks: tuple[str, Any]) -> list[Answer]:
        """The browsers click at the same moment, each one thing."""
        for browser, (path, body) in zip(self.browsers, clicks, strict=True):
            browser.ask("POST", path, body)
        return [browser.answer() for browser in self.browsers]

    def told(self, loop: dict[str, Any]) -> list[str]:
        """The results that the model was told in a loop."""
        calls = {call["id"] for call in loop["pending"]}
        sent = [request.json["messages"][-1]["content"] for request in self.api.requests]
        blocks = [block for content in sent if isinstance(content, list) for block in content]
        return [str(block["content"]) for block in blocks if block.get("tool_use_id") in calls]


@contextmanager
def town(folder: Path, *, workers: tuple[int, ...] = (1, 1), windows: int = 2) -> Iterator[Town]:
    """Services of so many workers each; the windows of one person go to one after the other."""

    def model(request: dict[str, Any]) -> Any:
        asked = request["messages"][0]["content"]
        orders = json.loads(asked.removeprefix("Refund "))
        if len(request["messages"]) > 1:
            return here.held.pop(0) if here.held else reply("That is done.")
        # Call ids are the same in each loop that asks for as many, as they may well be.
        return reply(calls=[("refund", {"order": order, "euros": 5}) for order in orders])

    with ExitStack() as stack:
        api, bank = stack.enter_context(FakeMessagesAPI(model)), stack.enter_context(a_bank())
        loops = folder / "loops.db"
        services = [stack.enter_context(served(loops, api.url, bank, "--workers", str(many))) for many in workers]
        browsers = [Browser(services[at % len(services)].url, "ana") for at in range(windows)]
        for browser in browsers:
            stack.callback(browser.close)
        here = Town(api, bank, loops, services, browsers)
        yield here
        assert api.refused == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town")) as made:
        yield made


def click(loop: dict[str, Any], at: int = 0, *, ok: bool = True, why: str = "no") -> tuple[str, dict[str, Any]]:
    """What a page sends for a call that it shows."""
    call = loop["pending"][at]
    return f"{of_loop(loop)}/calls/{call['id']}", {"approve": ok, "reason": why, "digest": call["digest"]}


def of_loop(loop: dict[str, Any]) -> str:
    """The address of a loop; its id begins with its owner."""
    return f"/loops/{loop['loop_id'].rpartition('/')[2]}"


def sources(name: str) -> dict[str, str]:
    """The source of each function and class of an example."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {
        node.name: ast.get_source_segment(text, node) or "" for node in ast.parse(text).body if isinstance(node, named)
    }


def test_the_handler_is_seven_lines() -> None:
    """Reading the body, opening, deciding, going on, answering; and a docstring."""
    assert len(sources("web_app")["decide"].splitlines()) <= 8


def test_the_page_shows_the_lines_that_run() -> None:
    """The how-to shows the handler and the guard to the letter."""
    page = (ROOT / "docs" / "howto" / "web-handler.md").read_text(encoding="utf-8")
    shown = {"decide": sources("web_app")["decide"], **sources("web_guard")}
    assert [name for name, source in shown.items() if source not in page] == []


@pytest.mark.deep
def test_one_process_starts_and_the_other_decides(place: Town) -> None:
    """A loop is in the file, not in a worker: any of them goes on with it, and says who approved."""
    order = next(ORDERS)
    loop = place.started(order)
    assert of_loop(loop) in place.browsers[1].get("/loops").body
    answer = place.browsers[1].post(*click(loop))
    assert (answer.status, answer.body["state"], answer.body["text"]) == (200, "Finished", "That is done.")
    assert place.bank.paid.count(order) == 1
    assert of_loop(loop) not in place.browsers[0].get("/loops").body
    with SqliteStore(place.loops) as store:
        decided = [entry.body for entry in store.load(loop["loop_id"]).entries if '"Decided"' in entry.body]
    assert [json.loads(body)["decisions"][0][1]["by"] for body in decided] == ["ana"]


def test_two_browsers_approve_the_same_call_at_once(place: Town) -> None:
    """The tool runs once. One of them is answered with the result, the other with it too, or with the truth."""
    for _ in range(20 if IS_DEEP else 3):
        order = next(ORDERS)
        loop = place.started(order)
        answers = place.at_once(click(loop), click(loop))
        assert place.bank.paid.count(order) == 1
        statuses = sorted(answer.status for answer in answers)
        assert statuses in ([200, 200], [200, 404], [200, 409])
        assert all(answer.body["state"] == "Finished" for answer in answers if answer.status == 200)
        assert place.browsers[0].get(of_loop(loop)).body["state"] == "Finished"


def test_a_call_or_loop_that_is_not_there_is_404(place: Town) -> None:
    """An unknown call and an unknown loop are named, and nothing happens."""
    loop = place.started(next(ORDERS))
    _, body = click(loop)
    unknown = place.browsers[1].post(f"{of_loop(loop)}/calls/toolu_nobody", body)
    assert (unknown.status, "toolu_nobody" in unknown.body["error"]) == (404, True)
    nowhere = place.browsers[1].post(f"/loops/{NOWHERE}/calls/toolu_nobody", body)
    assert (nowhere.status, NOWHERE in nowhere.body["error"]) == (404, True)
    assert place.browsers[0].get(of_loop(loop)).body["pending"] == loop["pending"]


def test_who_comes_while_the_tool_runs_may_look_and_is_told_who_drives(place: Town) -> None:
    """A slow worker is not a dead one: the other may read, and gets 409 for driving."""
    order = next(ORDERS)
    loop = place.started(order)
    with holding(place.bank):
        place.browsers[0].ask("POST", *click(loop))
        assert place.bank.asked.get(timeout=SECONDS) == order
        assert place.browsers[1].get(of_loop(loop)).body["state"] == "Running"
        again = place.browsers[1].post(*click(loop))
        assert (again.status, "is being driven by process" in again.body["error"]) == (409, True)
    assert place.browsers[0].answer().body["state"] == "Finished"
    assert place.bank.paid.count(order) == 1


@contextmanager
def holding(bank: Bank) -> Iterator[None]:
    """The bank does not answer meanwhile."""
    while not bank.asked.empty():
        bank.asked.get()
    bank.open.clear()
    try:
        yield
    finally:
        bank.open.set()


def test_a_worker_is_killed_in_the_tool_and_the_other_one_says_so(tmp_path: Path) -> None:
    """Nobody knows whether the bank paid, so nobody asks it again: the call is uncertain, and waits for a person."""
    with town(tmp_path) as here:
        order = next(ORDERS)
        loop = here.started(order)
        with holding(here.bank):
            here.browsers[0].ask("POST", *click(loop))
            assert here.bank.asked.get(timeout=SECONDS) == order
            here.services[0].process.kill()
            assert here.browsers[0].answer().status == 0
        page = here.browsers[1].get(of_loop(loop)).body
        assert [(call["id"], call["why"]) for call in page["pending"]] == [(loop["pending"][0]["id"], "uncertain")]
        assert here.browsers[1].post(*click(page)).status == 409  # approving is never running a second time
        answer = here.browsers[1].post(*click(page, ok=False, why="look at the bank's list"))
        assert (answer.status, answer.body["state"]) == (200, "Finished")
        assert here.bank.paid == [order]
        (told,) = here.told(loop)
        assert told.startswith("This call was started, and nobody saw it end.")


# --- attacks ----------------------------------------------------------------------------------------------------------


def sent(place: Town, path: str, body: Any = None, *, method: str = "POST", **headers: str) -> int:
    """The status that a request is answered with; `ana` is logged in unless `headers` (`_` for `-`) say otherwise."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_of_them = {"x-user": "ana", **{name.replace("_", "-"): value for name, value in headers.items()}}
    with httpx2.Client(base_url=place.services[0].url, timeout=SECONDS, trust_env=False) as client:
        return client.request(method, path, content=content, headers=all_of_them).status_code


@contextmanager
def unharmed(place: Town) -> Iterator[tuple[str, dict[str, Any]]]:
    """A click that is possible, and still is after the attacks: none of them decided anything, or ran anything."""
    order = next(ORDERS)
    loop = place.started(order)
    path, body = click(loop)
    yield path, body
    assert place.browsers[0].get(of_loop(loop)).body == loop
    assert place.bank.paid.count(order) == 0
    assert sent(place, path, body) == 200
    assert place.bank.paid.count(order) == 1


NO_BOOLEANS: list[Any] = ["no", "true", 1, 0, None, [], {}]
WRONG: list[dict[str, Any]] = [
    *({"approve": wrong} for wrong in NO_BOOLEANS),
    *({"digest": wrong} for wrong in (None, "", "x", 7, ["a" * 64], "A" * 64, "a" * 63, "a" * 64 + "\n")),
    *({"reason": wrong} for wrong in (None, 5, "x" * 1001)),
    *({extra: True} for extra in ("by", "input", "remember", "Approve")),
]


def test_a_body_of_another_shape_is_422(place: Town) -> None:
    """Wrong types, missing and unknown fields, no JSON at all; a word such as "no" is no boolean."""
    with unharmed(place) as (path, body):
        for wrong in WRONG:
            assert sent(place, path, body | wrong) == 422, wrong
        for missing in ("approve", "digest"):
            assert sent(place, path, {name: value for name, value in body.items() if name != missing}) == 422, missing
        for raw in (b"", b"{", b"\xff", b"[]", b"null", b'"yes"', json.dumps([body]).encode()):
            assert sent(place, path, raw) == 422, raw
        for question in (None, "", 5, ["x"], "x" * 10_001):
            assert sent(place, "/loops", {"question": question}) == 422, question


def test_a_digest_of_another_call_is_409(place: Town) -> None:
    """Made up, or of the same call id in another loop."""
    other = click(place.started(next(ORDERS)))[1]["digest"]
    with unharmed(place) as (path, body):
        assert [sent(place, path, body | {"digest": digest}) for digest in ("0" * 64, other)] == [409, 409]


def test_a_loop_of_somebody_else_is_404(place: Town) -> None:
    """To look at, to decide, and to drive, however it is named; and it is in no list of others."""
    with unharmed(place) as (path, body):
        home = path.partition("/calls")[0]
        owned = home.replace("/loops/", "/loops/ana%2F")
        for user in ("ben", "Ana", "ana%20", "anna", "ana/..", "../ana"):
            assert sent(place, path, body, x_user=user) == 404, user
            assert sent(place, home, x_user=user) == 404, user
            assert sent(place, home, method="GET", x_user=user) == 404, user
            assert sent(place, owned, method="GET", x_user=user) == 404, user
        with httpx2.Client(base_url=place.services[0].url, timeout=SECONDS, trust_env=False) as client:
            assert client.get("/loops", headers={"x-user": "ben"}).json() == []
            assert home in client.get("/loops", headers={"x-user": "ana"}).json()
            assert client.get(home).status_code == 403
            assert client.post(path, json=body, headers={"x-user": ""}).status_code == 403


def test_a_request_from_another_site_is_403(place: Town) -> None:
    """By the browser's word on where it comes from; without that, by its origin."""
    strangers = [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "origin": place.services[0].url},
        *({"origin": origin} for origin in ("https://evil.example", "null", "http://127.0.0.1", "http://")),
    ]
    with unharmed(place) as (path, body):
        for stranger in strangers:
            assert sent(place, path, body, **stranger) == 403, stranger
            assert sent(place, "/loops", {"question": "Refund [1]"}, **stranger) == 403, stranger
            assert sent(place, path.partition("/calls")[0], **stranger) == 403, stranger


@pytest.mark.parametrize("own", [{"sec_fetch_site": "same-origin", "origin": "null"}, {"origin": "own"}, {}])
def test_a_request_from_the_own_site_counts(place: Town, own: dict[str, str]) -> None:
    path, body = click(place.started(next(ORDERS)))
    headers = {name: place.services[0].url if value == "own" else value for name, value in own.items()}
    assert sent(place, path, body, **headers) == 200
