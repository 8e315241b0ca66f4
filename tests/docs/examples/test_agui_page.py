"""The page of the AG-UI example in a real Chromium, and the server behind it, which is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")

from playwright.sync_api import Browser, Page, expect

from tests.docs.examples.programs import served
from tests.inbox.page.browser import CHROMIUM, chromium
from toolloop.testing import FakeMessagesAPI, call, reply

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
REFUND = call("refund", {"order": 902, "euros": 180.0, "note": "<b>Sorry</b>"}, id="r1")


def answer(request: Any) -> Any:
    """Look an order up, then ask to pay; ask the page where it is."""
    content = request["messages"][-1]["content"]
    if isinstance(content, str):
        if "where" in content:
            return reply(calls=[call("get_time_zone", id="z1")])
        return reply("I look it up.", calls=[call("find_order", {"order": 902}, id="f1")])
    (result,) = [block for block in content if block["type"] == "tool_result"]
    if result["tool_use_id"] == "f1":
        return reply("Two chairs were lost on the way. I would pay 180 euros back.", calls=[REFUND])
    told = result["content"]
    return reply(f"The tool says: {told if isinstance(told, str) else told[0]['text']}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def say(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.get_by_role("button", name="Send").click()


def test_a_person_decides_after_a_reload_in_another_browser_and_after_a_kill(browser: Browser, tmp_path: Path) -> None:
    """The question stays. Then a tool of the page answers."""
    loops = str(tmp_path / "agui.db")
    with FakeMessagesAPI(answer) as api:
        with served("agui.server", api, tmp_path, processes=1, LOOPS=loops) as address:
            page = browser.new_context(viewport={"width": 900, "height": 960}).new_page()
            page.goto(address)
            say(page, "The chairs of order 902 never came.")
            expect(page.get_by_role("heading", name="Run refund?")).to_be_visible(timeout=60_000)
            if "PICTURES" in os.environ:
                page.screenshot(path=Path(os.environ["PICTURES"]) / "agui.png")
            page.reload()
            expect(page.get_by_label("The input of refund")).to_have_value(
                '{\n  "order": 902,\n  "euros": 180,\n  "note": "<b>Sorry</b>"\n}'
            )
            thread = page.url.partition("#")[2]
        with served("agui.server", api, tmp_path, processes=1, LOOPS=loops) as address:
            page = browser.new_context().new_page()
            page.goto(f"{address}/#{thread}")
            page.get_by_label("The input of refund").fill('{"order": 902, "euros": 90}')
            page.get_by_role("button", name="Approve").click()
            told = page.get_by_text("The tool says: 90.00 euros for order 902 are on their way.")
            expect(told).to_be_visible(timeout=60_000)
            say(page, "And where am I?")
            zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
            expect(page.get_by_text(f"The tool says: {zone}")).to_be_visible(timeout=60_000)
            assert page.locator("li.user").count() == 2
