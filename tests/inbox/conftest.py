"""The browser, and the office whose page it visits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.inbox.page.browser import Office

DESK = {"viewport": {"width": 1280, "height": 800}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for each file: while it is open, no other test of the process may run an event loop."""
    pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")
    from tests.inbox.page.browser import CHROMIUM, chromium  # noqa: PLC0415 - only where there is playwright

    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    from playwright.sync_api import expect  # noqa: PLC0415 - likewise

    expect.set_options(timeout=60_000)  # two cores may be shared with many other tests
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def served(browser: Browser) -> Iterator[Office]:
    from tests.inbox.page.browser import office  # noqa: PLC0415 - only where there is playwright

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


@pytest.fixture(scope="module")
def pages(browser: Browser) -> dict[str, list[Page]]:
    """Pages that no test uses, by the options of their contexts: to start a renderer takes longer than most tests."""
    return {}


@pytest.fixture
def visit(browser: Browser, here: Office, pages: dict[str, list[Page]]) -> Iterator[Callable[..., Page]]:
    """Opens the page as a person. Whatever the console complains about fails the test."""
    opened, complaints = [], []

    def tell(error: Any) -> None:
        complaints.append(str(error))

    def hear(line: Any) -> None:
        if line.type == "error":
            complaints.append(line.text)

    def open_(path: str = "/", by: str = "ana", *, has_clock: bool = False, **more: Any) -> Page:
        options = {**DESK, **more}
        free = pages.setdefault(repr((has_clock, options)), [])
        page = free.pop() if free else browser.new_context(**options).new_page()
        opened.append((page, free))
        if has_clock:  # a test can put the clock of the page forward
            page.clock.install()
        page.context.set_extra_http_headers({"x-user": by})
        page.set_default_timeout(60_000)
        page.on("pageerror", tell)
        page.on("console", hear)
        page.goto(here.address + path)
        return page

    yield open_
    for page, free in opened:
        page.remove_listener("pageerror", tell)
        page.remove_listener("console", hear)
        _reset(page, to=free)
    known = (
        "404",
        "409",
        "410",
        "422",
        "ERR_INTERNET_DISCONNECTED",
    )  # Chromium logs each refusal
    assert [each for each in complaints if not any(part in each for part in known)] == []


def _reset(page: Page, to: list[Page]) -> None:
    """Keep a page for the next test, as if it was new."""
    for other in page.context.pages:
        if other is not page:
            other.close()
    page.context.set_offline(False)
    page.context.clear_cookies()
    page.evaluate("localStorage.clear()")
    page.goto("about:blank")
    to.append(page)
