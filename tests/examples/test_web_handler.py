"""The nine lines of a web handler, for real: worker processes, one SQLite file, browsers that click at once."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from tests.effort import IS_DEEP
from tests.examples.web_service import SECONDS, Answer, Bank, Browser, Service, a_bank, served
from toolloop import SqliteStore
from toolloop.testing import FakeMessagesAPI, reply
from toolloop.testing.replies import Delayed

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "docs" / "examples" / "web_app.py"
ORDERS = count(1)


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
def town(folder: Path, *, workers: tuple[int, ...] = (1, 1), people: int = 2) -> Iterator[Town]:
    """Services of so many workers each; the people go to one after the other."""

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
        names = [*("ana", "ben", "cleo", "dan")[:people]]
        browsers = [Browser(services[at % len(services)].url, name) for at, name in enumerate(names)]
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
    return f"/loops/{loop['loop_id']}/calls/{call['id']}", {"ok": ok, "why": why, "digest": call["digest"]}


def of_loop(loop: dict[str, Any]) -> str:
    return f"/loops/{loop['loop_id']}"


def functions() -> dict[str, tuple[str, int]]:
    """The source of each function of the app, and how many lines of code it has; its docstring is none."""
    text = APP.read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in ("decide", "refuse"):
            doc = node.body[0].end_lineno
            assert ast.get_docstring(node)
            assert doc
            lines = text.splitlines()[node.lineno - 1 : doc - 1] + text.splitlines()[doc : node.end_lineno]
            found[node.name] = "\n".join(lines), len([line for line in lines if line.strip()])
    return found


def test_the_handler_and_its_errors_are_nine_lines() -> None:
    """Opening, deciding, going on, answering, and telling what is not allowed: at most nine lines, all counted."""
    assert sum(lines for _, lines in functions().values()) <= 9


def test_the_page_shows_the_lines_that_run() -> None:
    """The how-to shows the handler of the app, to the letter."""
    page = (ROOT / "docs" / "howto" / "web-handler.md").read_text(encoding="utf-8")
    for source, _ in functions().values():
        assert source in page


@pytest.mark.deep
def test_one_process_starts_and_the_other_decides(place: Town) -> None:
    """A loop is in the file, not in a worker: any of them goes on with it, and says who approved."""
    order = next(ORDERS)
    loop = place.started(order)
    assert loop["loop_id"] in place.browsers[1].get("/loops").body
    answer = place.browsers[1].post(*click(loop))
    assert (answer.status, answer.body["state"], answer.body["text"]) == (200, "Finished", "That is done.")
    assert place.bank.paid.count(order) == 1
    assert loop["loop_id"] not in place.browsers[0].get("/loops").body
    with SqliteStore(place.loops) as store:
        decided = [entry.body for entry in store.load(loop["loop_id"]).entries if '"Decided"' in entry.body]
    assert [json.loads(body)["rulings"][0][1]["by"] for body in decided] == ["ben"]


def test_two_people_approve_the_same_call_at_once(place: Town) -> None:
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


def test_what_is_not_there_is_404(place: Town) -> None:
    """An unknown call and an unknown loop are named, and nothing happens."""
    loop = place.started(next(ORDERS))
    _, body = click(loop)
    unknown = place.browsers[1].post(f"{of_loop(loop)}/calls/toolu_nobody", body)
    assert (unknown.status, "toolu_nobody" in unknown.body["error"]) == (404, True)
    nowhere = place.browsers[1].post("/loops/nowhere/calls/toolu_nobody", body)
    assert (nowhere.status, "nowhere" in nowhere.body["error"]) == (404, True)
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
