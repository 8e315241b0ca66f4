"""The pointer and the keyboard while everything changes: a click decides the call that was under it, or none.

The short walks run in `make test`: six clicks, three seconds of a busy worker, five decisions by keyboard. `deep` has
sixty clicks with other seeds and on a phone, ten minutes, eight tabs, and fifty decisions. The judge is the journal.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")

from playwright.sync_api import Page, expect

from tests.inbox.page.browser import Office
from tests.inbox.page.day import begin
from tests.kit.effort import IS_DEEP
from toolloop import Approve, Deny, Inbox
from toolloop.testing import call

Visit = Callable[..., Page]
CENTER = """(selector) => {
    const each = document.querySelector(selector), box = each && each.getBoundingClientRect();
    return box && box.width ? [box.x + box.width / 2, box.y + box.height / 2] : null;
}"""
# What is at a point: the key of the call that a press there would decide, and how.
UNDER = """([x, y]) => {
    const on = document.elementFromPoint(x, y)?.closest("button[name=kind]");
    return on ? [document.querySelector(".call").dataset.call, on.value] : null;
}"""
# The places of everything that a person may point at, and what a person has begun.
PLACES = """() => {
    const places = {};
    const pointed = ".row, .bar, .bar > .moves > *, .said, .top *, .views a, .input *, h2";
    for (const each of document.querySelectorAll(pointed)) {
        const box = each.getBoundingClientRect();
        if (!box.width || each.matches(".dot")) continue;
        const name = (each.dataset.calls || each.tagName + each.className + each.textContent.slice(0, 12)) + "#";
        let key = name;
        for (let n = 0; key in places; n++) key = name + n;
        places[key] = [box.x, box.y, box.width, box.height].map(Math.round).join();
    }
    return places;
}"""
BEGUN = """() => [scrollX, scrollY, document.querySelector(".queue").scrollTop, String(getSelection()),
    document.activeElement.id, [...document.querySelectorAll("textarea, input")].map((each) => each.value).join("|")]"""


def queue(here: Office, count: int) -> None:
    """Begin loops with a call each, whose inputs are of different lengths."""
    for number in range(count):
        command = "\n".join(f"echo {number} {line}" for line in range(1 + number * 7 % 60))
        begin(here, f"loop-{number:02}", "Go.", "I go.", call("shell", {"command": command}, id="c"), owner="bo")


def decided(here: Office) -> dict[str, str]:
    """Return what the journals say: for each loop the kind of the decision by ana."""
    found = {}
    for row in here.store.list(limit=1000):
        for entry in here.trail(row.loop_id):
            if entry.by == "ana":
                assert row.loop_id not in found, "one call was decided twice"
                found[row.loop_id] = entry.kind
    return found


@contextmanager
def world(here: Office, seed: int) -> Iterator[None]:
    """Let another person decide, a worker add loops, and loops end, while the block runs."""
    over, chance = threading.Event(), random.Random(seed)

    def go_on() -> None:
        added = 0
        while not over.wait(chance.uniform(0.02, 0.3)):
            waiting = Inbox(here.store).pending(limit=100)
            match chance.choice(("decide", "add", "end")):
                case "decide" if len(waiting) > 3:
                    item = chance.choice(waiting)
                    with_reason = Deny("no", by="bo") if chance.random() < 0.5 else Approve(by="bo")
                    try:
                        Inbox(here.store).decide(item.loop_id, {item: with_reason})
                    except Exception:  # noqa: BLE001 - ana was quicker
                        continue
                case "end" if len(waiting) > 3:
                    Inbox(here.store).stop(chance.choice(waiting).loop_id, by="bo")
                case _:
                    added += 1
                    begin(here, f"new-{seed}-{added}", "Go.", "I go.", call("shell", {"command": "ls"}, id="c"))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def click_blindly(here: Office, page: Page, seed: int, clicks: int) -> None:
    """Click at the place where Approve was, sooner or later, once or twice. Compare the journal with what was there."""
    chance, wanted = random.Random(seed), dict[str, str]()
    for _ in range(clicks):
        page.wait_for_timeout(chance.choice((0, 50, 300, 600)))
        if (at := page.evaluate(CENTER, ".bar > .moves > .approve")) is None:
            page.keyboard.press("j")
            page.wait_for_timeout(100)
            continue
        page.wait_for_timeout(chance.choice((0, 50, 200, 500)))
        for _ in range(chance.choice((1, 1, 2))):
            page.mouse.move(*at)
            if (under := page.evaluate(UNDER, at)) is not None:
                wanted[under[0].split(".")[0]] = under[1]
            page.mouse.click(*at)
            page.wait_for_timeout(chance.choice((0, 20, 120)))
    page.wait_for_timeout(600)
    for loop_id, kind in decided(here).items():
        assert wanted.get(loop_id) == kind, f"{loop_id} was decided, and was not under the pointer"


def test_a_click_decides_what_is_under_it_or_nothing(here: Office, visit: Visit) -> None:
    """While others decide, add and end. The place is where Approve stood before."""
    queue(here, 12)
    page = visit()
    with world(here, 1):
        click_blindly(here, page, 1, 6)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 8))
@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_many_clicks_decide_what_is_under_them_or_nothing(
    here: Office, visit: Visit, seed: int, size: tuple[int, int]
) -> None:
    """As above, with other seeds, also on a phone."""
    queue(here, 12)
    page = visit("/?call=loop-00..c", viewport={"width": size[0], "height": size[1]})
    with world(here, seed):
        click_blindly(here, page, seed, 60)


@pytest.mark.parametrize("with_script", [True, False], ids=["script", "no script"])
def test_a_double_click_decides_one_call(here: Office, visit: Visit, *, with_script: bool) -> None:
    """The next call stands under the pointer, and takes nothing in the first half second.

    The clock of the server stands still meanwhile: on a busy machine, the second click may come late. Without
    JavaScript it may also hit the page that it has just left; then the answer is that the call is decided already.
    """
    queue(here, 4)
    here.now = here.clock()
    page = visit(java_script_enabled=with_script)
    for number in range(2 if IS_DEEP else 1):
        page.wait_for_timeout(700)
        here.now += 0.6
        x, y = page.evaluate(CENTER, ".bar > .moves > .approve")
        page.mouse.dblclick(x, y, delay=10)
        this, following = (f"article[data-call='loop-{place:02}..c']" for place in (number, number + 1))
        expect(page.locator(f"{following}, body:has({this}) [role=alert]").first).to_be_attached()
        page.wait_for_timeout(700)
        assert len(decided(here)) == number + 1
        if page.locator(this).count():
            expect(page.get_by_role("alert")).to_contain_text("you approved this already")
            page.goto(f"{here.address}/?call=loop-{number + 1:02}..c")


def test_a_click_that_came_too_soon_is_reported(here: Office, visit: Visit) -> None:
    """The line above says that it was ignored."""
    queue(here, 3)
    page = visit()
    page.wait_for_timeout(600)
    page.locator(".moves > .approve").click()
    expect(page.locator("article")).to_have_attribute("data-call", "loop-01..c")
    page.evaluate("document.querySelector('.moves > .approve').click()")
    expect(page.locator("#said")).to_contain_text("came too soon")
    assert decided(here) == {"loop-00": "approve"}


@pytest.mark.parametrize("key", ["a", "Enter"])
def test_a_held_key_decides_one_call(here: Office, visit: Visit, key: str) -> None:
    """A key that repeats counts once."""
    queue(here, 6)
    page = visit("/?sort=deadline")
    page.wait_for_timeout(600)
    page.locator(".moves > .approve").focus()
    page.keyboard.down(key)
    for _ in range(20):
        page.wait_for_timeout(40)
        page.keyboard.down(key)  # held: each repeats
    page.keyboard.up(key)
    page.wait_for_timeout(300)
    assert len(decided(here)) == 1


def test_two_windows_decide_one_call_once(here: Office, visit: Visit) -> None:
    """The second person learns that the first had decided it."""
    queue(here, 1)
    one, two = visit(), visit()
    one.wait_for_timeout(600)
    two.route("**/changes*", lambda route: route.abort("internetdisconnected"))  # it does not learn of it
    one.locator(".moves > .approve").click()
    expect(one.locator("#heading")).to_have_text("Nothing waits for you")
    two.locator(".bar .deny").click()
    two.keyboard.press("Enter")
    expect(two.get_by_role("alert")).to_contain_text("Not sent: you approved this already")
    two.unroute("**/changes*")
    assert decided(here) == {"loop-00": "approve"}


def test_a_group_decides_the_calls_that_were_chosen(here: Office, visit: Visit) -> None:
    """While another person decides one of them: its box goes, nothing moves, and the button says how many."""
    refunds = [call("refund", {"order": f"A-{n}", "euros": 100.0 + n, "reason": "late"}, id=f"r{n}") for n in range(5)]
    begin(here, "refunds", "Refund.", "I do.", *refunds)
    page = visit("/group?of=refunds..r0&one=1")
    page.wait_for_timeout(600)
    at = page.evaluate(CENTER, ".bar .approve")
    page.get_by_label("A-1").uncheck()
    expect(page.locator(".bar .approve")).to_have_text("Approve 4 calls")
    here.decide("refunds", {"r3": Deny("no", by="bo")})
    expect(page.locator('tr[data-calls="refunds..r3"] .tag')).to_have_text("denied by bo")
    expect(page.locator(".bar .approve")).to_have_text("Approve 3 calls")
    expect(page.locator("[data-sum]")).to_have_text("306")
    assert page.evaluate(CENTER, ".bar .approve")[1] == at[1]
    page.mouse.dblclick(*at)
    expect(page.locator("main [role=status]").first).to_contain_text("3 of 3 approved.")
    approved = [entry.path[0] for entry in here.trail("refunds") if entry.by == "ana"]
    assert approved == ["r0", "r2", "r4"]


# --- nothing moves ---------------------------------------------------------------------------------------------------


def watch_a_busy_worker(here: Office, page: Page, seconds: int) -> None:
    """Compare places, scroll, selection, text and focus, second by second."""
    page.wait_for_timeout(600)
    page.keyboard.press("d")
    page.keyboard.type("half a sentence")
    page.evaluate("document.querySelector('.queue').scrollTop = 90")
    page.evaluate("document.querySelector('#reason').setSelectionRange(3, 7)")
    places, begun = page.evaluate(PLACES), page.evaluate(BEGUN)
    with world(here, 7):
        for _ in range(seconds):
            page.wait_for_timeout(1000)
            now = page.evaluate(PLACES)
            assert {name: at for name, at in now.items() if name in places and places[name] != at} == {}
            assert page.evaluate(BEGUN) == begun
    assert page.locator(".row.over").count() > 0


def test_nothing_moves_while_a_worker_is_busy(here: Office, visit: Visit) -> None:
    """Rows are marked in place. What a person has begun stays."""
    queue(here, 25)
    watch_a_busy_worker(here, visit(), 3)


@pytest.mark.deep
def test_nothing_moves_for_ten_minutes(here: Office, visit: Visit) -> None:
    """As above, for longer."""
    queue(here, 60)
    watch_a_busy_worker(here, visit(), 600)


@pytest.mark.deep
def test_eight_tabs_load_decide_and_update(here: Office, visit: Visit) -> None:
    """Each tab decides one call, and all show all decisions."""
    queue(here, 9)
    first = visit("/?call=loop-00..c")
    pages = [first]
    for number in range(1, 8):
        pages.append(first.context.new_page())
        pages[-1].goto(f"{here.address}/?call=loop-{number:02}..c")
    for page in pages:
        page.bring_to_front()
        page.wait_for_timeout(600)
        page.keyboard.press("End")
        page.locator(".moves > .approve").click()
        expect(page.locator("#said")).to_contain_text("✓ Approved")
    assert len(decided(here)) == 8
    for page in pages:
        page.bring_to_front()
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator(".row.over")).to_have_count(8)


# --- fifty decisions by keyboard -------------------------------------------------------------------------------------

# Records which lines of the input have been in the window, seen by the browser and not by the page.
WATCH = """() => {
    window.lines = new Map();
    const note = () => {
        const key = document.querySelector(".call")?.dataset.call;
        if (!key) return;
        const top = document.querySelector(".said").getBoundingClientRect().bottom;
        const seen = window.lines.get(key) || window.lines.set(key, new Set()).get(key);
        [...document.querySelectorAll(".input .text > span, .input dd")].forEach((line, at) => {
            const box = line.getBoundingClientRect();
            if (box.top < innerHeight && box.bottom > top) seen.add(at);
        });
        window.whole = document.querySelectorAll(".input .text > span, .input dd").length;
    };
    addEventListener("scroll", note, { passive: true });
    new MutationObserver(note).observe(document.querySelector("#reader"), { childList: true, subtree: true });
    document.addEventListener("submit", (event) => {
        const key = document.querySelector(".call").dataset.call, button = event.submitter.getBoundingClientRect();
        window.sent = window.sent || [];
        window.sent.push([key, event.submitter.value, button.top >= 0 && button.bottom <= innerHeight + 1,
            window.lines.get(key)?.size === window.whole]);
    }, true);
    note();
}"""


def decide_by_keyboard(here: Office, page: Page, seed: int, each: int) -> None:
    """Decide calls with keys alone, as a list says, while a worker adds some and another person decides some."""
    kinds = [kind for kind in ("approve", "deny", "edit", "answer", "skip") for _ in range(each)]
    chance = random.Random(seed)
    chance.shuffle(kinds)
    queue(here, len(kinds))
    plan = {f"loop-{number:02}": kind for number, kind in enumerate(kinds)}
    others = [name for name, kind in plan.items() if kind == "skip"][: max(1, each // 2)]
    page.goto(here.address)
    page.evaluate(WATCH)
    page.wait_for_timeout(600)
    for number, (name, kind) in enumerate(plan.items()):
        assert page.locator("article").get_attribute("data-call") == f"{name}..c"
        if number % 5 == 2:
            begin(here, f"new-{number}", "Go.", "I go.", call("shell", {"command": "ls"}, id="c"))
        if others and number % 3 == 1:
            here.decide(others[0], {"c": Deny("not this one", by="bo")})
            others = others[1:]
        press(page, kind, name)
        if number + 1 < len(plan):
            following = f"{list(plan)[number + 1]}..c"
            if page.locator("article").get_attribute("data-call") != following:
                expect(page.locator("article")).not_to_have_attribute("data-call", f"{name}..c")
            for _ in plan:  # the page skips what bo has decided, and begins again after the last call
                if (shown := str(page.locator("article").get_attribute("data-call"))) == following:
                    break
                page.keyboard.press("k" if shown > following else "j")
                page.wait_for_timeout(150)
            page.wait_for_timeout(520)
    expect(page.locator("#said")).not_to_have_text("Deciding…")
    for name, kind in plan.items():
        by_ana = [(entry.kind, entry.reason, entry.content) for entry in here.trail(name) if entry.by == "ana"]
        assert by_ana == wanted(kind, name), name
    sent = page.evaluate("window.sent")
    assert [entry[0] for entry in sent if entry[1] == "approve" and not (entry[2] and entry[3])] == []


def wanted(kind: str, name: str) -> list[tuple[str, Any, Any]]:
    """Return what the journal says after such a decision."""
    match kind:
        case "skip":
            return []
        case "edit":
            return [("approve", None, {"command": f"echo {name}"})]
        case "deny":
            return [("deny", f"not {name}", None)]
        case "answer":
            return [("answer", None, f"done {name}")]
    return [("approve", None, None)]


def press(page: Page, kind: str, name: str) -> None:
    """Do with keys what the list says of a call."""
    match kind:
        case "approve":
            for _ in range(40):
                page.keyboard.press("a")
                if page.locator("#said").inner_text().startswith("Not yet"):
                    page.keyboard.press("Space")
                    page.wait_for_timeout(60)
                else:
                    return
        case "deny":
            page.keyboard.press("d")
            page.keyboard.type(f"not {name}")
            page.keyboard.press("Enter")
        case "edit":
            page.keyboard.press("e")
            expect(page.locator("#field-1")).to_be_focused()
            page.keyboard.press("Control+a")
            page.keyboard.type(f"echo {name}")
            page.keyboard.press("Control+Enter")
            expect(page.locator("#change")).to_be_focused()
            page.wait_for_timeout(520)
            page.keyboard.press("Control+Enter")
        case "answer":
            page.keyboard.press("w")
            page.keyboard.type(f"done {name}")
            page.keyboard.press("Control+Enter")
        case "skip":
            page.keyboard.press("j")


def test_five_decisions_by_keyboard(here: Office, visit: Visit) -> None:
    """One of each kind: the journal says what the list says, and nothing was approved unread."""
    decide_by_keyboard(here, visit(), 3, 1)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
def test_fifty_decisions_by_keyboard(here: Office, visit: Visit, seed: int) -> None:
    """Ten of each kind."""
    decide_by_keyboard(here, visit(), seed, 10)


def test_a_key_approves_nothing_unread(here: Office, visit: Visit) -> None:
    """A jump over the middle: `a` says so, and approves once that was on the screen, too."""
    begin(here, "long", "Go.", "I go.", call("shell", {"command": "\n".join(map(str, range(80)))}, id="c"))
    page = visit()
    page.wait_for_timeout(600)
    page.keyboard.press("a")
    expect(page.locator("#said")).to_contain_text("there is more below")
    page.evaluate("scrollTo({ top: 1e6, behavior: 'instant' })")  # End may scroll smoothly, over all of it
    page.wait_for_timeout(100)
    page.keyboard.press("a")
    expect(page.locator("#said")).to_contain_text("has not been on the screen")
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    for _ in range(6):
        page.keyboard.press("Space")
        page.wait_for_timeout(150)  # the browser scrolls smoothly
    assert decided(here) == {}
    page.keyboard.press("a")
    expect(page.locator("#said")).to_contain_text("✓ Approved")
