"""Each state of the page, at each width: nothing that axe finds, nothing scrolls sideways, nothing in an input is cut.

`make test` looks at six states, at a desk in the light scheme or on a phone in the dark one; at the place of Approve;
and at a link. `make deep` makes a picture of the docs, and looks at each state at 1280, 768, 390 and 320 px, light,
dark, with forced colours, at 200 % zoom and without JavaScript. A picture of each goes into the folder
`TOOLLOOP_PICTURES`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page

from tests.inbox.page.browser import Office
from tests.inbox.page.day import SPEC, begin, fill
from tests.inbox.page.pictures import PICTURES, take
from tests.kit.effort import IS_DEEP, some
from toolloop import Inbox, LoopConfig
from toolloop.prices import Price
from toolloop.testing import call, reply

PHONE = {"has_touch": True, "is_mobile": True}
IMAGES = Path(__file__).parents[3] / "docs" / "images"
Visit = Callable[..., Page]
# A name of each state, the address, and what is typed or pressed before one looks.
STATES: dict[str, tuple[str, tuple[str, ...]]] = {
    "queue": ("/", ()),
    "call": ("/?call=deploy-01..i1", ()),
    "one-line": ("/?call=deploy-06..b1", ()),
    "diff": ("/?call=migrate-handlers-0..c1", ()),
    "outline": ("/?call=k8s-0..e1", ()),
    "odd": ("/?call=invoice-123..d1", ()),
    "too-long": ("/?call=big-mail..f1", ()),
    "two-persons": ("/?call=supplier-204..g1", ()),
    "one-of-two": ("/?view=others&call=supplier-205..g2", ()),
    "may-have-run": ("/?call=uncertain-charge..a1", ()),
    "external": ("/?call=rollout-plan..h1", ()),
    "deny": ("/?call=deploy-01..i1&do=deny", ()),
    "answer": ("/?call=deploy-06..b1&do=answer", ()),
    "edit": ("/?call=deploy-01..i1&do=edit", ()),
    "edit-refused": ("/?call=deploy-01..i1&do=edit", ("#field-2=5 min", "edit")),
    "edit-shown": ("/?call=deploy-01..i1&do=edit", ("#field-2=600", "edit")),
    "grant": ("/?call=deploy-06..b1&do=grant", ()),
    "rerun": ("/?call=uncertain-charge..a1&do=rerun", ()),
    "decided": ("/?call=cleanup..j1&done=cleanup..j1", ()),
    "expired": ("/?call=expired-1..k1", ()),
    "none": ("/?q=nothing-fits", ()),
    "failed": ("/?view=failed", ()),
    "group": ("/group?of=monthly-refunds..r0&one=1", ()),
    "group-deny": ("/group?of=monthly-refunds..r0&one=1&do=deny", ()),
    "group-done": ("/group?of=monthly-refunds..r0&one=1&done=cleanup..j1+expired-1..k1", ()),
    "loops": ("/loops", ()),
    "loop": ("/loop?id=monthly-refunds", ()),
    "loop-decided": ("/loop?id=cleanup", ()),
    "loop-failed": ("/loop?id=failed-0", ()),
    "statistics": ("/statistics?days=", ()),
    "link": ("/link/{link}", ()),
    "link-refused": ("/link/{link}", ("#number=1", "approve")),
    "link-used": ("/link/{used}", ()),
    "link-expired": ("/link/{expired}", ()),
    "link-late": ("/link/{late}", ()),
    "link-bad": ("/link/none", ()),
    "not-found": ("/loop?id=none", ()),
}
# Elements of an input that are cut or have a scroll bar of their own.
CUT = """() => [...document.querySelectorAll(".input, .input *")].filter((each) => {
    if (getComputedStyle(each).display === "inline") return false;
    const style = getComputedStyle(each);
    return each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1
        || each.getBoundingClientRect().right > innerWidth + 1 || /auto|scroll|hidden/.test(style.overflow);
}).map((each) => each.outerHTML.slice(0, 80))"""
SIDEWAYS = "document.documentElement.scrollWidth > window.innerWidth"


@pytest.fixture(scope="module")
def here(served: Office) -> Office:
    """An office with a call for each state. Its clock stands still, and no test decides any of these calls."""
    fill(served, time.time())
    priced = LoopConfig(prices={"*": Price(input=4, output=20)})
    served.drive("priced", (reply("Done.", usage={"input_tokens": 9_000, "output_tokens": -1}),), config=priced)
    return served


def show(visit: Visit, here: Office, state: str, **more: Any) -> Page:
    """Open a state. Whether the page has scripts or not, forms are sent as a browser sends them."""
    path, acts = STATES[state]
    page = visit(
        path.format(link=here.link, **here.dead), bypass_csp=True, **more
    )  # the policy forbids a program such as axe
    page.wait_for_timeout(600 if acts else 50)
    for act in acts:
        at, _, text = act.partition("=")
        if text:
            page.fill(at, text)
        else:
            page.evaluate("document.querySelectorAll('[pattern]').forEach((each) => each.removeAttribute('pattern'))")
            page.locator(f"button[value={act}]:visible").click()
            page.locator("[role=alert], #change").first.wait_for()
    return page


def check(page: Page, state: str, *, with_axe: bool = True) -> None:
    """Look at a state."""
    assert not page.evaluate(SIDEWAYS), f"{state} scrolls sideways"
    assert page.evaluate(CUT) == [], state
    if with_axe:
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(state, each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found] == []


def who(state: str) -> str:
    """Return who looks; a link is for a person who is not signed in."""
    return "" if state.startswith("link") else "ana"


SETTINGS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "1280-light": ((1280, 800), {}),
    "1280-dark": ((1280, 800), {"color_scheme": "dark"}),
    "768-light": ((768, 1024), {}),
    "390-light": ((390, 844), PHONE),
    "390-dark": ((390, 844), {**PHONE, "color_scheme": "dark"}),
    "320-light": ((320, 640), PHONE),
    "1280-forced": ((1280, 800), {"forced_colors": "active"}),
    "640-zoom": ((640, 400), {"device_scale_factor": 2}),  # 1280 x 800 at 200 %
    "1280-no-script": ((1280, 800), {"java_script_enabled": False}),
}
# Together, these have all parts of the page.
QUICK = {
    "1280-light": ("odd", "edit-refused", "group", "statistics"),
    "390-dark": ("loop-failed", "link"),
}


@pytest.mark.parametrize(
    ("name", "state"),
    [
        pytest.param(name, state, marks=[] if state in QUICK.get(name, ()) else pytest.mark.deep)
        for name in SETTINGS
        for state in STATES
    ],
)
def test_each_state(here: Office, visit: Visit, name: str, state: str) -> None:
    """At each width, in each scheme, and without JavaScript: axe finds nothing, and nothing is cut."""
    (width, height), more = SETTINGS[name]
    page = show(visit, here, state, viewport={"width": width, "height": height}, by=who(state), **more)
    if folder := os.environ.get("TOOLLOOP_PICTURES"):
        page.screenshot(path=Path(folder) / f"{state}-{name}.png", full_page=True)
    check(page, f"{state} {name}", with_axe=more.get("java_script_enabled", True))


def test_the_place_of_approve_is_the_same_for_every_call(here: Office, visit: Visit) -> None:
    """At the end of a call, whatever its length: at 1280, 768 and 390 px."""
    sizes, places = ((1280, 800), (768, 1024), (390, 844)), set[tuple[int, int, int]]()
    page = visit(viewport={"width": 1280, "height": 800}, bypass_csp=True)
    # Long, wide, short, an outline.
    for key in some(("deploy-01..i1", "deploy-06..b1", "supplier-204..g1", "k8s-0..e1"), 2):
        page.goto(f"{here.address}/?call={key}")
        for width, height in sizes:
            page.set_viewport_size({"width": width, "height": height})
            page.evaluate("scrollTo({ top: 1e7, behavior: 'instant' })")
            approve = page.locator(".moves > .approve")
            if approve.count() and (box := approve.bounding_box()):
                places.add((width, round(box["x"]), round(box["y"] / 3)))  # within two pixels
    page.set_viewport_size({"width": 1280, "height": 800})
    assert sorted(width for width, *_ in places) == [390, 768, 1280], places


def test_a_link_approves_after_the_number(here: Office, visit: Visit) -> None:
    """A person who is not signed in reads the whole call, types the number, and approves."""
    begin(here, "k8s-1", "Deploy.", "I deploy.", call("deploy", {"environment": "test", "spec": SPEC}, id="e1"))
    link = Inbox(here.store, clock=here.clock).link("k8s-1", "e1")
    page = visit(f"/link/{link}", by="", viewport={"width": 1280, "height": 800}, bypass_csp=True)
    page.wait_for_timeout(600)
    (number,) = re.findall(r"Type (\d\d) to decide", page.inner_text("main"))[:1]
    page.locator("#number").fill(number)
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_role("heading", name="Approved").wait_for()
    assert [entry.kind for entry in Inbox(here.store).trail("k8s-1")] == ["approve"]


def test_the_pictures_of_the_docs_are_small_and_can_be_made_again(
    here: Office, browser: Browser, tmp_path: Path
) -> None:
    """Each is a small PNG of this page; `make deep` makes one."""
    paths = [IMAGES / f"{name}.png" for name in PICTURES]
    made = [take(browser, here, "page", tmp_path)] if IS_DEEP else []
    for path in (*made, *paths):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert 30_000 < path.stat().st_size < 250_000
