"""The browser, and the office whose page it visits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.inbox.browser import Office

DESK = {"viewport": {"width": 1280, "height": 800}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each file: while it is open, no other test of the process may run an event loop."""
    pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")
    from tests.inbox.browser import CHROMIUM, chromium  # noqa: PLC0415 - only where there is playwright

    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    from playwright.sync_api import expect  # noqa: PLC0415 - likewise

    expect.set_options(timeout=20_000)  # two cores may be shared with many other tests
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def served(browser: Browser) -> Iterator[Office]:
    from tests.inbox.browser import office  # noqa: PLC0415 - only where there is playwright

    with office() as opened:
        yield opened


@pytest.fixture
def here(served: Office) -> Iterator[Office]:
    """The office, without the loops of earlier tests."""
    yield served
    for loop in served.store.list(limit=1000):
        served.store.delete(loop.loop_id)
    served.ran.clear()
    served.now = None


@pytest.fixture
def visit(browser: Browser, here: Office) -> Iterator[Callable[..., Page]]:
    """Opens the page as a person. Whatever the console complains about fails the test."""
    contexts, complaints = [], []

    def open_(path: str = "/", by: str = "ana", **more: Any) -> Page:
        context = browser.new_context(**{**DESK, **more}, extra_http_headers={"x-user": by})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.goto(here.address + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    known = ("409", "422", "ERR_INTERNET_DISCONNECTED")  # Chromium logs each answer that refuses something
    assert [each for each in complaints if not any(part in each for part in known)] == []
