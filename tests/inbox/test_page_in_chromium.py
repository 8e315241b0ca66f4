"""The approval page in a real Chromium: as a person meets it, at a desk and on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from tests.inbox.browser import BILLS, CHROMIUM, TYPO, Office, chromium, office, picture
from tests.inbox.support import desk
from tests.inbox.test_serving import serving
from toolloop import Deny
from toolloop.testing import call, reply

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "page.png"
DESK = {"viewport": {"width": 1100, "height": 800}}
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
MARKUP = "<img src=x onerror='document.title=1'></pre><script>document.title=2</script>"

expect.set_options(timeout=5_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def served() -> Iterator[Office]:
    with office() as opened:
        yield opened


@pytest.fixture
def here(served: Office) -> Iterator[Office]:
    """The office of this file, without the loops of earlier tests."""
    yield served
    for loop in served.store.list(limit=1000):
        served.store.delete(loop.loop_id)
    served.ran.clear()


@pytest.fixture
def visit(browser: Browser, here: Office) -> Iterator[Callable[..., Page]]:
    """Opens the page as a person. Whatever the console complains about fails the test."""
    contexts, complaints = [], []

    def open_(path: str = "/", by: str = "ana", **more: Any) -> Page:
        context = browser.new_context(**{**DESK, **more}, extra_http_headers={"x-user": by})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
        page.goto(here.address + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [each for each in complaints if "409" not in each and "422" not in each] == []


Visit = Callable[..., Page]


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_loop_is_decided_from_the_first_call_to_the_last(here: Office, visit: Visit, size: dict[str, Any]) -> None:
    """It appears without a reload; approve, edit by the form, deny with a reason; the page follows by itself."""
    page = visit(**size)
    expect(page.get_by_text("No calls are waiting")).to_be_visible()
    here.drive("readme-typo", TYPO, "Correct the typo.")
    expect(page.get_by_role("heading", name="write_file")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    approve = page.get_by_role("button", name="Approve")
    approve.tap() if size is PHONE else approve.click()
    expect(page.get_by_text("No calls are waiting")).to_be_visible()
    here.drive("readme-typo", TYPO)
    here.drive("rent", BILLS, "Pay.")
    expect(page.locator(".card")).to_have_count(2)  # the list is complete, so no update moves the link
    page.get_by_role("link", name="rent").first.click()
    expect(page.get_by_text("Edit…").first).to_be_visible()
    expect(page.locator(".card")).to_have_count(2)
    first = page.locator(".card").first
    first.get_by_text("Edit…").click()
    first.get_by_label("euros").fill("900")
    first.get_by_label("urgent").select_option("true")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    first.get_by_role("button", name="Approve with these changes").click()
    expect(page.locator(".card")).to_have_count(1)
    expect(page.get_by_text("approved by ana")).to_be_visible()
    page.get_by_text("Deny…").click()
    page.get_by_label("Reason (the model").fill("paid already")
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.locator(".card")).to_have_count(0)
    here.drive("rent", BILLS)
    expect(page.get_by_text("Both are settled.")).to_be_visible()
    expect(page.locator("h1")).to_contain_text("ended")
    assert here.ran == [("Bo Lindqvist", 900, True, "Rent\nMarch")]


def test_a_call_is_answered_and_an_uncertain_one_is_run_again(here: Office, visit: Visit) -> None:
    """An answer is the result; the uncertain one says that it may have had effects."""
    here.drive("rent", BILLS, "Pay.")
    page = visit("/loop?id=rent")
    card = page.locator(".card").nth(1)
    card.get_by_text("Answer…").click()
    card.get_by_label("Result (the call does not run)").fill("paid at the counter\non Monday")
    card.get_by_role("button", name="Answer", exact=True).click()
    expect(page.get_by_text("paid at the counter")).to_be_visible()
    page.get_by_text("Edit…").click()
    page.get_by_label("to", exact=True).fill("nobody")
    page.get_by_role("button", name="Approve with these changes").click()
    with pytest.raises(KeyboardInterrupt):
        here.drive("rent", BILLS)
    expect(page.get_by_text("may already have had effects")).to_be_visible()
    page.get_by_role("button", name="Run it again").click()
    expect(page.locator(".card")).to_have_count(0)
    with pytest.raises(KeyboardInterrupt):
        here.drive("rent", BILLS)
    assert [each[0] for each in here.ran] == ["nobody", "nobody"]


def test_the_keyboard_alone_decides(here: Office, visit: Visit) -> None:
    """Tab, Enter and Space reach everything, and one sees where one is."""
    here.drive("rent", BILLS, "Pay.")
    page = visit("/loop?id=rent")
    focused: list[str] = []
    for _ in range(12):
        page.keyboard.press("Tab")
        focused.append(page.evaluate("document.activeElement.textContent.trim()"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if focused[-1] == "Deny…":
            break
    assert focused[0] == "Skip to the content"
    assert "Approve" in focused
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("not today")
    page.keyboard.press("Enter")
    expect(page.get_by_text("not today")).to_be_visible()
    assert [(each.kind, each.by) for each in here.trail("rent")] == [("deny", "ana")]


def test_a_second_browser_is_told_who_decided(here: Office, visit: Visit) -> None:
    """Its page was open all the time and does not update itself: without JavaScript."""
    here.drive("readme-typo", TYPO, "Correct the typo.")
    late = visit(by="bo", java_script_enabled=False)
    page = visit()
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("No calls are waiting")).to_be_visible()
    late.get_by_text("Deny…").click()
    late.get_by_role("button", name="Deny", exact=True).click()
    expect(late.get_by_role("alert")).to_contain_text("approve by ana")
    late.get_by_role("link", name="Back to the loop").click()
    expect(late.get_by_text("approved by ana")).to_be_visible()


def test_a_stale_page_is_refused(here: Office, visit: Visit) -> None:
    """It shows a call that was decided meanwhile, and the loop has gone on since. The page says so; nothing runs."""
    here.drive("rent", BILLS, "Pay.")
    stale = visit("/loop?id=rent", java_script_enabled=False)
    here.decide("rent", {"t1": Deny("no", by="bo"), "t2": Deny("no", by="bo")})
    here.drive("rent", BILLS)
    stale.get_by_role("button", name="Approve", exact=True).first.click()
    expect(stale.get_by_role("alert")).to_contain_text("deny by bo")
    assert here.ran == []


def test_many_tabs_of_one_browser_work(here: Office, visit: Visit) -> None:
    """A browser has six connections to a server, and none of these tabs holds one."""
    here.drive("rent", BILLS, "Pay.")
    pages = [visit()]
    for _ in range(7):
        pages.append(pages[0].context.new_page())
        pages[-1].goto(f"{here.address}/loop?id=rent", timeout=5_000)
    pages[-1].get_by_role("button", name="Approve", exact=True).first.click()
    expect(pages[-1].locator(".card")).to_have_count(1)
    expect(pages[0].locator(".card")).to_have_count(1)


def test_a_link_in_a_web_terminal_signs_in(browser: Browser, tmp_path: Path) -> None:
    """It comes from another site. Without JavaScript, too; no other port of the machine gets the cookie."""
    found = desk("sqlite", tmp_path)
    found.drive()
    with serving(tmp_path, "--by", "ana") as (link, _):
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        terminal = f'<a href="{link}">Approve at</a>'
        page.route("http://terminal.example/", lambda route: route.fulfill(body=terminal, content_type="text/html"))
        page.goto("http://terminal.example/")
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Waiting for you")).to_be_visible()
        assert "token" not in page.url
        page.get_by_role("button", name="Approve", exact=True).first.click()
        expect(page.locator(".card")).to_have_count(1)
        page.go_back()
        page.go_back()
        assert page.url == "http://terminal.example/"  # the address with the token is not in the history
        (cookie,) = context.cookies()
        assert (cookie.get("sameSite"), cookie.get("httpOnly")) == ("Strict", True)
        assert context.cookies("http://127.0.0.1:1/") == []
        page.goto(link.partition("?")[0])
        page.get_by_label("Link or token").fill(link)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Waiting for you")).to_be_visible()
        context.close()
    assert [(each.kind, each.by) for each in found.inbox.trail("loop")] == [("approve", "ana")]


def test_what_a_person_types_outlives_an_update(here: Office, visit: Visit) -> None:
    """A card that has not changed stays as it is; one that is decided meanwhile goes, and that is said."""
    here.drive("rent", BILLS, "Pay.")
    page = visit()
    first = page.locator(".card").first
    first.get_by_text("Deny…").click()
    first.get_by_label("Reason (the model").fill("half a sen")
    here.drive("readme-typo", TYPO, "Correct the typo.")
    expect(page.get_by_role("heading", name="write_file")).to_be_visible()
    field = page.get_by_label("Reason (the model").and_(page.locator("input:focus"))
    expect(field).to_have_value("half a sen")
    here.decide("rent", {"t1": Deny("no", by="bo")})
    expect(page.get_by_role("status")).to_contain_text("was decided")
    expect(page.locator(".card")).to_have_count(2)


def test_a_refused_edit_is_corrected_while_the_page_changes(here: Office, visit: Visit) -> None:
    """The refusal is at the address of the form, which takes no `GET`: the update comes from that of the loop."""
    here.drive("rent", BILLS, "Pay.")
    page = visit("/loop?id=rent")
    page.get_by_text("Edit…").first.click()
    page.get_by_label("euros").first.fill("six")
    page.get_by_role("button", name="Approve with these changes").first.click()
    expect(page.get_by_role("alert")).to_contain_text("expected a number")
    page.get_by_label("euros").first.fill("600")
    here.decide("rent", {"t2": Deny("no", by="bo")})
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_role("button", name="Approve with these changes").click()
    expect(page.locator(".card")).to_have_count(0)
    assert next(each.content for each in here.trail("rent") if each.kind == "approve")["euros"] == 600


def test_markup_of_a_model_does_nothing(here: Office, visit: Visit) -> None:
    """No script of it runs and no address of it is asked for, also after an update of the page."""
    script = (
        reply(MARKUP, calls=[call("transfer", {"to": MARKUP, "euros": 1.0, "note": MARKUP * 90}, id="m1")]),
        reply(MARKUP),
    )
    asked: list[str] = []
    page = visit()
    page.on("request", lambda request: asked.append(request.url))
    here.drive(MARKUP, script, MARKUP)
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_role("link", name="Show the whole call").click()
    page.get_by_text("Edit…").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    here.drive(MARKUP, script)
    expect(page.locator("h1")).to_contain_text("ended")
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.title().startswith("<img src=x")
    known = {"/", "/loop", "/changes", "/decide", *(f"/static/{name}" for name in ("page.css", "live.js", "icon.svg"))}
    assert {url.removeprefix(here.address).partition("?")[0] for url in asked} <= known


def test_axe_finds_nothing(here: Office, visit: Visit) -> None:
    """On the first page and on that of a loop with all forms open, in both colours."""
    here.drive("rent", BILLS, "Pay.")
    here.drive("readme-typo", TYPO, "Correct the typo.")
    page = visit(bypass_csp=True)  # the policy of the page forbids such a program
    for path, scheme in (("/", "light"), ("/loop?id=readme-typo", "dark"), ("/loop?id=readme-typo", "light")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(here.address + path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        found = Axe().run(page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


def test_the_picture_of_the_docs_is_small_and_can_be_made_again(browser: Browser, tmp_path: Path) -> None:
    """It is a PNG of this page."""
    picture(browser, tmp_path / "page.png")
    for path in (tmp_path / "page.png", PICTURE):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert 30_000 < path.stat().st_size < 150_000
