"""The refund desk, for real: its page under uvicorn, its worker as a process, a bank and a chat room."""

from __future__ import annotations

import html
import json
import queue
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.docs.examples.programs import EXAMPLES, environment, imported, press
from tests.inbox.page.browser import serving
from tests.kit.warm_python import Program
from toolloop import Inbox
from toolloop.inbox import export_trail, verify_trail
from toolloop.rules import Rules
from toolloop.stores import Store
from toolloop.testing import FakeMessagesAPI, call, reply

SECONDS = 60.0  # a deadline, not a wait
RULES = EXAMPLES / "approvals.toml"
REFUNDS = {"17": (620, "FR76"), "18": (20, "FR76"), "19": (30, "xx12")}


def model(body: dict[str, Any]) -> Any:
    """Asks for the refund of the order that the clerk names, and then says what came of it."""
    content = body["messages"][-1]["content"]
    if not isinstance(content, str):
        return reply(json.dumps(content))
    order = content.split()[1]
    euros, account = REFUNDS[order]
    given = {"order": int(order), "euros": euros, "account": account}
    return reply("I refund it.", calls=[call("refund", given, id=f"c{order}")])


@contextmanager
def receiver() -> Iterator[tuple[str, queue.Queue[Any]]]:
    """A service that takes JSON: its address, and what it got."""
    got: queue.Queue[Any] = queue.Queue()

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"done")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def running(around: dict[str, str], folder: Path) -> Iterator[None]:
    """The worker of the desk as a process."""
    with Program([str(EXAMPLES / "refund_desk.py")], env=around, cwd=folder) as worker:
        yield
        worker.terminate()
        assert worker.wait() == 0


def test_two_of_finance_decide_a_large_refund(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one is paid, a blocked account is denied, a large one waits for two; and the auditor sees it all."""
    loops, rules = str(tmp_path / "loops.db"), tmp_path / "approvals.toml"  # which reminds sooner
    with FakeMessagesAPI(model) as api, receiver() as (bank, paid), receiver() as (chat, posted), ExitStack() as stack:
        rules.write_text(RULES.read_text(encoding="utf-8").replace("[3600]", "[0.1]"), encoding="utf-8")
        around = environment(api, LOOPS=loops, BANK=bank, CHAT=chat, RULES=str(rules))
        for name, value in around.items():
            monkeypatch.setenv(name, value)
        desk = imported("refund_desk")
        case = {order: desk.begin("sue", f"Order {order} came broken") for order in REFUNDS}
        with running(around, tmp_path), serving(desk.app) as address:
            assert paid.get(timeout=SECONDS) == {"order": 18, "euros": 20, "account": "FR76"}
            told = [posted.get(timeout=SECONDS)]
            while not told[-1]["text"].startswith("Reminder 1: "):  # on a slow machine, it comes first
                told.append(posted.get(timeout=SECONDS))
            for each in told:
                text = each["text"].removeprefix("Reminder 1: ")
                assert text.startswith("sue's case: refund 17 · 620 · FR76. 0 of 3; ")
            assert len({each["id"] for each in told}) == len(told) <= 2

            def visit(name: str, groups: str) -> httpx2.Client:
                who = {"x-person": name, "x-groups": groups}
                options: dict[str, Any] = {"base_url": address, "trust_env": False, "follow_redirects": True}
                return stack.enter_context(httpx2.Client(headers=who, **options))

            sue, fay, fred = (visit(*each) for each in (("sue", "support"), ("fay", "finance"), ("fred", "finance")))
            of_call = f"/?call={case['17']}..c17"
            assert "excluded from approving this call." in text_of(sue.get(of_call))
            assert "Rule large refunds: Refunds above 500 €" in text_of(fay.get(of_call))
            for browser in (fay, fred):
                page = browser.get(of_call)
                assert 'class="approve"' in page.text
                assert "done=" in str(press(browser, page, "approve").url)
            assert paid.get(timeout=SECONDS) == {"order": 17, "euros": 620, "account": "FR76"}
            for order in ("17", "19"):
                Inbox(desk.STORE).wait(case[order], "ended", timeout=SECONDS)
    check_trails(desk.STORE, case, sha256(rules.read_bytes()).hexdigest())


def text_of(page: httpx2.Response) -> str:
    """What a person reads there."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page.text)).split())


def check_trails(store: Store, case: dict[str, str], digest: str) -> None:
    """What the auditor reads."""
    trails = {order: [json.loads(line) for line in export_trail(store, case[order]).splitlines()] for order in case}
    small, blocked = trails["18"][1], trails["19"][1]
    assert (small["by"], small["rule_digest"], small["outcome"]) == ("rule: small refunds", digest, "returned")
    assert (blocked["by"], blocked["rule_digest"], blocked["kind"]) == ("rule: blocked accounts", digest, "deny")
    large = [entry for entry in trails["17"] if entry["kind"] == "approve"]
    assert [(entry["by"], entry["groups"], entry["via"]) for entry in large] == [
        ("fay", ["finance"], "page"),
        ("fred", ["finance"], "page"),
    ]
    demands = [(each["rule"], each["rule_digest"], each["not_by"]) for each in large[1]["demands"]]
    assert demands == [("refunds", digest, ["sue"]), ("large refunds", digest, ["sue"])]
    assert store.head(case["17"]).metadata == {"owner": "sue", "desk": "support"}
    assert verify_trail(export_trail(store, case["17"]).encode()) is None


def test_the_rules_are_those_of_the_page() -> None:
    """As the page says: who must approve which refund."""
    rules = Rules.load(RULES)
    schema: dict[str, Any] = {"properties": {name: {} for name in ("order", "euros", "account")}}
    for euros, account, expected in (
        (20, "FR76", ["small refunds"]),
        (-5, "FR76", []),
        (51, "FR76", ["refunds"]),
        (501, "FR76", ["refunds", "large refunds"]),
        ("501", "FR76", ["refunds", "large refunds"]),
        (20, "Xx 12", ["blocked accounts"]),
    ):
        results = rules.explain("refund", {"order": 1, "euros": euros, "account": account}, schema=schema)
        assert [each.rule for each in results if each.decides] == expected
