"""The approval page in a real Chromium: as a person meets it, at a desk and on a phone.

`make test` runs all of it at a desk, `make deep` its longest walk on a phone, too. The clocks of the page and of the
server are put forward over the half second in which a call takes no decision. The pointer, for which that half second
is real, fifty decisions, and the pictures of each state have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")

from playwright.sync_api import Browser, Page, expect

from tests.inbox.page.browser import BILLS, TYPO, Office
from tests.inbox.support import desk
from tests.inbox.test_serving import serving
from toolloop import Approve, Deny
from toolloop.testing import call, reply

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
MARKUP = "<img src=x onerror='document.title=1'></pre><script>document.title=2</script>"
ARMED = 550  # milliseconds after which a call takes a decision

expect.set_options(timeout=5_000)
Visit = Callable[..., Page]


@pytest.fixture
def visit(visit: Visit) -> Visit:
    """Opens the page with a clock that can be put forward, and puts that of the server forward, too."""
    return lambda *given, **more: visit(*given, has_clock=more.get("java_script_enabled", True), **more)


def armed(page: Page, here: Office) -> Page:
    """Put the clocks forward, until the call in focus takes a decision."""
    here.ahead += ARMED / 1000
    page.clock.fast_forward(ARMED)
    return page


@pytest.mark.parametrize("size", [{}, pytest.param(PHONE, marks=pytest.mark.deep)], ids=["desk", "phone"])
def test_a_loop_is_decided_from_the_first_call_to_the_last(here: Office, visit: Visit, size: dict[str, Any]) -> None:
    """New calls join when the person asks for them; approve, edit by the form, deny with a reason."""
    page = visit(**size)
    here.drive("rent", BILLS, "Pay.")
    page.get_by_role("button", name="2 new: show").click()
    row = page.locator('.row[data-calls="rent..t1"]')
    row.tap() if size else row.click()
    expect(page.locator("#heading")).to_contain_text("transfer")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    armed(page, here).get_by_role("link", name="Edit…").click()
    page.get_by_label("euros").fill("900")
    page.get_by_label("urgent").select_option("true")
    page.get_by_role("button", name="Show my changes").click()
    expect(page.locator(".diff .add").first).to_contain_text("900")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    armed(page, here).get_by_role("button", name="Approve with your changes").click()
    expect(page.locator("#said")).to_contain_text("✓ Approved transfer in rent")
    expect(page.locator("article")).to_have_attribute("data-call", "rent..t2")
    armed(page, here).get_by_role("link", name="Deny…").click()
    page.get_by_label("Reason (the model").fill("paid already")
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.locator("#heading")).to_have_text("Nothing waits for you")
    here.drive("rent", BILLS)
    page.goto(f"{here.address}/loop?id=rent")
    expect(page.get_by_text("Both are settled.")).to_be_visible()
    expect(page.get_by_text("paid already").first).to_be_visible()
    assert here.ran == [("Bo Lindqvist", 900, True, "Rent\nMarch")]


def test_a_call_is_answered_and_an_uncertain_one_is_run_again(here: Office, visit: Visit) -> None:
    """An answer is the result; the uncertain one says that it may have had effects, and asks before it runs again."""
    here.drive("rent", BILLS, "Pay.")
    page = armed(visit("/?call=rent..t2"), here)
    page.keyboard.press("w")
    page.keyboard.type("paid at the counter")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#said")).to_contain_text("✓ Answered")
    armed(page, here).keyboard.press("e")
    page.get_by_label("to text", exact=True).fill("nobody")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#change")).to_be_focused()
    armed(page, here).keyboard.press("Control+Enter")
    expect(page.locator("#said")).to_contain_text("✓ Approved")
    with pytest.raises(KeyboardInterrupt):
        here.drive("rent", BILLS)
    page.goto(f"{here.address}/")
    expect(page.get_by_text("This call may have run.")).to_be_visible()
    armed(page, here).keyboard.press("r")
    page.get_by_role("button", name="Run it again").click()
    expect(page.locator("#said")).to_contain_text("✓ Started again")
    with pytest.raises(KeyboardInterrupt):
        here.drive("rent", BILLS)
    assert [each[0] for each in here.ran] == ["nobody", "nobody"]


def test_tab_reaches_all_and_the_skip_link_shortens_the_way(here: Office, visit: Visit) -> None:
    """Six steps to Approve from the top of the page, and each shows where it is."""
    here.drive("rent", BILLS, "Pay.")
    page = armed(visit(), here)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the call"
    page.keyboard.press("Enter")
    steps = 2
    while not page.evaluate("document.activeElement.matches('.approve')"):
        page.keyboard.press("Tab")
        steps += 1
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert steps <= 6
    page.keyboard.press("Enter")
    expect(page.locator("#said")).to_contain_text("✓ Approved")
    assert page.evaluate("document.activeElement.id") == "heading"
    assert page.evaluate("document.querySelectorAll('.row:not([tabindex=\"-1\"])').length") == 1


def test_the_list_is_reached_with_arrows_and_single_keys_can_be_turned_off(here: Office, visit: Visit) -> None:
    """WCAG 2.1.4: with the switch off, no single key does anything; arrows and Enter do."""
    here.drive("rent", BILLS, "Pay.")
    page = armed(visit(), here)
    page.keyboard.press("?")
    page.get_by_label("Use single keys").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("a")
    page.keyboard.press("j")
    assert page.locator("article").get_attribute("data-call") == "rent..t1"
    page.locator(".row").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("article")).to_have_attribute("data-call", "rent..t2")
    assert here.trail("rent") == ()


@pytest.mark.deep
def test_a_second_browser_shows_who_decided(here: Office, visit: Visit) -> None:
    """Its page was open all the time and does not update itself: without JavaScript. What was typed is still there."""
    here.drive("readme-typo", TYPO, "Correct the typo.")
    late = visit("/?call=readme-typo..w1", by="bo", java_script_enabled=False)
    late.get_by_role("link", name="Deny…").click()
    late.get_by_label("Reason (the model").fill("not today")
    page = armed(visit(), here)
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("#heading")).to_have_text("Nothing waits for you")
    late.get_by_role("button", name="Deny", exact=True).click()
    expect(late.get_by_role("alert")).to_contain_text("Not sent: ana approved this already")
    expect(late.get_by_label("What you typed")).to_have_value("not today")
    assert late.evaluate("document.activeElement.id") == "problem"


def test_what_a_person_types_outlives_an_update(here: Office, visit: Visit) -> None:
    """Also if the call is decided meanwhile: row and line say so, the form stays, its refusal has what was typed."""
    here.drive("rent", BILLS, "Pay.")
    page = armed(visit(), here)
    page.keyboard.press("d")
    page.keyboard.type("half a sen")
    here.drive("readme-typo", TYPO, "Correct the typo.")
    expect(page.get_by_role("button", name="1 new: show")).to_be_visible()
    field = page.get_by_label("Reason (the model").and_(page.locator("input:focus"))
    expect(field).to_have_value("half a sen")
    here.decide("rent", {"t1": Approve(by="bo")})
    expect(page.locator("#said")).to_contain_text("approved by bo")
    expect(page.locator('.row[data-calls="rent..t1"] .tag')).to_have_text("approved by bo")
    expect(field).to_have_value("half a sen")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Not sent: bo approved this already")
    expect(page.get_by_label("What you typed")).to_have_value("half a sen")


def test_a_form_that_is_closed_keeps_its_text(here: Office, visit: Visit) -> None:
    """Esc closes it, and the focus is on the call; opened again, it has the text."""
    here.drive("rent", BILLS, "Pay.")
    page = armed(visit(), here)
    page.keyboard.press("d")
    page.keyboard.type("too much")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "heading"
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    page.keyboard.press("d")
    expect(page.get_by_label("Reason (the model")).to_have_value("too much")


def test_a_refused_edit_is_corrected_while_the_page_changes(here: Office, visit: Visit) -> None:
    """The error is a link to its field. An update in between changes nothing of the form."""
    here.drive("rent", BILLS, "Pay.")
    page = armed(visit(), here)
    page.keyboard.press("e")
    page.get_by_label("euros").fill("six")
    page.get_by_role("button", name="Show my changes").click()
    expect(page.get_by_role("alert")).to_contain_text("expected a number")
    assert page.evaluate("document.activeElement.id") == "problem"
    page.get_by_role("alert").get_by_role("link").click()
    assert page.evaluate("document.activeElement.id") == "field-2"
    page.get_by_label("euros").fill("600")
    here.decide("rent", {"t2": Deny("no", by="bo")})
    expect(page.locator('.row[data-calls="rent..t2"] .tag')).to_have_text("denied by bo")
    armed(page, here).get_by_role("button", name="Show my changes").click()
    expect(page.locator("#change")).to_be_focused()
    armed(page, here).get_by_role("button", name="Approve with your changes").click()
    expect(page.locator("#heading")).to_have_text("Nothing waits for you")
    assert next(each.content for each in here.trail("rent") if each.kind == "approve")["euros"] == 600


@pytest.mark.deep
def test_an_edit_of_more_than_a_megabyte_comes_back_after_a_refusal(here: Office, visit: Visit) -> None:
    """All of it, to the last character."""
    here.drive("rent", BILLS, "Pay.")
    page = armed(visit(), here)
    page.keyboard.press("e")
    long = "x" * 1_400_000
    page.evaluate("(text) => { document.getElementById('field-4').value = text; }", long)
    page.get_by_label("euros").fill("six")
    page.get_by_role("button", name="Show my changes").click()
    expect(page.get_by_role("alert")).to_contain_text("expected a number")
    assert page.evaluate("document.getElementById('field-4').value") == long


def test_a_link_in_a_web_terminal_signs_in(browser: Browser, tmp_path: Path) -> None:
    """It comes from another site. Without JavaScript, too; no other port of the machine gets the cookie."""
    found = desk("sqlite", tmp_path)
    found.drive()
    with serving(tmp_path) as (link, _):
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        terminal = f'<a href="{link}">Approve at</a>'
        page.route("http://terminal.example/", lambda route: route.fulfill(body=terminal, content_type="text/html"))
        page.goto("http://terminal.example/")
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Waiting for you")).to_be_attached()
        assert "token" not in page.url
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(page.locator("#said")).to_contain_text("Approved pay in loop")
        page.go_back()
        page.go_back()
        assert page.url == "http://terminal.example/"  # the address with the token is not in the history
        (cookie,) = context.cookies()
        assert (cookie.get("sameSite"), cookie.get("httpOnly")) == ("Strict", True)
        assert context.cookies("http://127.0.0.1:1/") == []
        page.goto(link.partition("?")[0])
        page.get_by_label("Link or token").fill(link)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Waiting for you")).to_be_attached()
        context.close()
    assert [(each.kind, each.by) for each in found.inbox.trail("loop")] == [("approve", "ana")]


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
    page.get_by_role("button", name="1 new: show").click()
    page.locator(".row").click()
    expect(page.locator("article")).to_be_visible()
    armed(page, here).keyboard.press("e")
    expect(page.locator("#edit")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("End")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#said")).to_contain_text("✓ Approved")
    here.drive(MARKUP, script)
    page.locator("#said a").click()
    expect(page.locator("h1")).to_contain_text("ended")
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.title().startswith("<img src=x")
    names = ("page.css", "input.css", "page.js", "icon.svg")
    known = {"/", "/loop", "/changes", "/decide", *(f"/static/{name}" for name in names)}
    assert {url.removeprefix(here.address).partition("?")[0] for url in asked} <= known


def test_the_page_says_when_it_is_not_up_to_date(here: Office, visit: Visit) -> None:
    """Offline and back: the header and a line say so, and the marks follow."""
    here.drive("rent", BILLS, "Pay.")
    page = visit()
    expect(page.locator("#line")).to_have_text("Live")
    page.context.set_offline(True)
    expect(page.locator("#line")).to_have_text("Offline")
    expect(page.locator("#news")).to_contain_text("Not up to date since")
    here.decide("rent", {"t1": Approve(by="bo")})
    page.context.set_offline(False)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # else it asks again in five seconds
    expect(page.locator("#line")).to_have_text("Live")
    expect(page.locator("#stands")).to_contain_text("approved by bo just now.")


def test_a_call_expires_in_front_of_a_person(here: Office, visit: Visit) -> None:
    """At the deadline the controls go, by the server's clock; the row says the same."""
    here.drive("readme-typo", TYPO, "Correct the typo.")
    (waits,) = here.store.head("readme-typo").pending
    here.now = (waits.expires_at or 0.0) - 1.5
    page = visit()
    expect(page.locator(".call .facts time")).to_have_text("1 s left")
    here.now += 2
    expect(page.locator("#stands")).to_contain_text("expired just now. It did not run.")
    expect(page.locator(".row .tag")).to_have_text("expired")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)


def test_a_message_is_kept_and_withdrawn(here: Office, visit: Visit) -> None:
    """While calls wait; two clicks on the button send it once."""
    here.drive("rent", BILLS, "Pay.")
    page = visit("/loop?id=rent", **PHONE)
    page.get_by_label("Message to the model").fill("Pay him in cash, please; he has no account. " * 3)
    page.get_by_role("button", name="Keep for the next request").dblclick(no_wait_after=True)
    expect(page.get_by_text("Kept for the next request")).to_be_visible()
    expect(page.get_by_role("button", name="Withdraw")).to_have_count(1)
    assert [entry.kind for entry in here.trail("rent")] == ["say"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_label("Message to the model").fill("By card.")
    page.get_by_role("button", name="Keep for the next request").click()
    expect(page.get_by_role("button", name="Withdraw")).to_have_count(2)
    page.get_by_role("button", name="Withdraw").first.click()
    expect(page.get_by_role("button", name="Withdraw")).to_have_count(1)
    expect(page.locator(".tag", has_text="withdrawn")).to_be_visible()
    here.decide("rent", {name: Deny("no", by="bo") for name in ("t1", "t2")})
    here.drive("rent", BILLS)
    page.reload()
    expect(page.get_by_text("By card.")).to_be_visible()
    expect(page.get_by_role("button", name="Withdraw")).to_have_count(0)
