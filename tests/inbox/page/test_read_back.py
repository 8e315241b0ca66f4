# ruff: noqa: RUF001 - letters that look like others are what this is about
"""What a real Chromium shows of an input gives exactly the input back, and inputs that differ look different.

`reader.py` reads by rectangles and visible text; here it reads a small page around the macro of `value.html`. In
`make test`: a few generated inputs, the chosen ones at two widths, two large ones, and 60 pairs of pictures. In
`make deep`: many more generated inputs, three widths, all neighbours of the chosen ones, and every large input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright: pip install --group test")

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from hypothesis import example, given
from playwright.sync_api import Browser, Page

from tests.inbox.page.browser import CHROMIUM, chromium
from tests.inbox.page.inputs import INPUTS, inputs, some_neighbours
from tests.inbox.page.reader import Hidden, Number, exact, meaning, read
from tests.inbox.page.value_page import page_of
from tests.kit.effort import IS_DEEP, examples, some
from toolloop.inbox.shown.values import LONGEST, MOST_LINES, MOST_MARKS, MOST_VALUES, shown_input

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
WIDTHS = (1280, 320, 390) if IS_DEEP else (1280, 320)
DEEP: Any = {"text": "one line of many\n" * 3, "long": "word " * 20 + ".", "key": "v" * 40, "to": [1, 2]}
for _level in range(13):
    DEEP = {"k": DEEP, "n": _level}
ALL = {"deep": DEEP} | {f"{key}{number}": item for number, value in enumerate(INPUTS) for key, item in value.items()}


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(browser: Browser) -> dict[int, Page]:
    return {width: browser.new_page(viewport={"width": width, "height": 700}) for width in WIDTHS}


def read_back(page: Page, value: Any, **facts: Any) -> list[Any]:
    """The input that a reader takes from a page of it."""
    page.set_content(page_of(shown_input(text_of(value), **facts)), timeout=300_000)
    rows = read(page)
    assert rows is not None
    return meaning(rows)


@given(inputs())
@example({"א": "\n"})  # its row begins with "1 line", whose 1 belongs to no name
@examples(15)
def test_the_visible_text_gives_the_input_back(pages: dict[int, Page], value: dict[str, Any]) -> None:
    """At the width of a desk: each key and value, type by type, in order."""
    if value:
        assert read_back(pages[1280], value) == exact(text_of(value))


@pytest.mark.parametrize("width", WIDTHS)
def test_it_does_at_each_width(pages: dict[int, Page], width: int) -> None:
    """Each kind of row, wrapped in a narrow window, too."""
    assert read_back(pages[width], ALL) == exact(text_of(ALL))


DIFF = {"path": "a.py", "old": "def f():\n    return 1\n\nx = 2\n", "new": "def f():\n    log()\n    return 3\n\nx = 2"}


@pytest.mark.parametrize("width", WIDTHS)
def test_a_diff_gives_both_texts_back(pages: dict[int, Page], width: int) -> None:
    """All lines of both, in a narrow window with one column of numbers."""
    assert read_back(pages[width], DIFF, diff=("old", "new"), path="path") == exact(text_of(DIFF))


def test_prose_gives_the_text_back(pages: dict[int, Page]) -> None:
    """What a language needs is as written."""
    value = {"body": "Vraiment\u00a0? Cafe\u0301 noir\nمی\u200cخواهم 12 words\n👩\u200d👧 ❤\ufe0f"}
    schema = {"properties": {"body": {"format": "markdown"}}}
    assert read_back(pages[1280], value, schema=schema) == exact(text_of(value))


def test_a_secret_is_listed_by_its_name(pages: dict[int, Page]) -> None:
    found = read_back(pages[1280], {"a": 1, "token": "s3cr9f"}, secret={"token": "hidden, 6 characters"})
    assert found == [("object", ["a", "token"]), Number("1"), Hidden("hidden, 6 characters")]
    assert "s3cr9f" not in pages[1280].content()


def test_it_does_in_the_dark(browser: Browser) -> None:
    """The contrast of each text is enough in the dark scheme, too."""
    page = browser.new_page(color_scheme="dark")
    assert read_back(page, ALL) == exact(text_of(ALL))
    assert read_back(page, DIFF, diff=("old", "new")) == exact(text_of(DIFF))


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_in_an_input_clips_or_scrolls(pages: dict[int, Page], width: int) -> None:
    """No element is larger inside than outside, and none reaches out of the window."""
    for value in (ALL | DIFF, {"x": _nested(40), "k" * 90: "v" * 90, "rows": [{"k" * 60: "v" * 60, "n": 1}]}):
        pages[width].set_content(page_of(shown_input(text_of(value))))
        assert pages[width].evaluate("""[...document.querySelectorAll(".input, .input *")].filter((each) =>
            each.getBoundingClientRect().right > innerWidth || (getComputedStyle(each).display !== "inline"
            && (each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1)))
            .map((each) => each.outerHTML)""") == []  # fmt: skip


def test_a_copy_of_a_text_is_the_text(pages: dict[int, Page]) -> None:
    """Numbers, signs and chips of white space are not copied; the white space is, but for a line feed at the end."""
    text = "\nset -e\n\tmake  all  \n\n  done -- \n"
    pages[1280].set_content(page_of(shown_input({"t": text})))
    copy = "(getSelection().selectAllChildren(document.querySelector('code')), getSelection().toString())"
    assert pages[1280].evaluate(copy) == text.removesuffix("\n")


def test_an_input_is_accessible(pages: dict[int, Page]) -> None:
    pages[1280].set_content(page_of(shown_input(text_of(ALL | DIFF), diff=("old", "new"))))
    found = Axe().run(pages[1280], context="main", options={"runOnly": ["wcag2a", "wcag2aa", "wcag22aa"]})
    assert found.violations_count == 0, found.generate_report()


def _nested(levels: int) -> Any:
    """Objects in objects, some of them with a second value."""
    found: Any = "leaf"
    for level in range(levels):
        found = {"k": found} if level % 5 else {"k": found, "n": level}
    return found


def _grown(fragment: str) -> str:
    """A text of lines up to the longest that is shown."""
    count = LONGEST // len(fragment.encode()) - 1
    return (fragment * count)[:-1] + "."


LARGE: dict[str, Callable[[], Any]] = {
    "a text of 2 MB in one line": lambda: {"t": _grown("word ")},
    "20,000 lines": lambda: {"t": "\n".join(f"line {number} of many" for number in range(MOST_LINES))},
    "20,000 keys": lambda: {f"key{number}": number for number in range(MOST_VALUES)},
    "500 levels": lambda: {"x": _nested(490)},
    "20,000 values in an outline": lambda: {"x": {f"k{n}": {"a": str(n), "b": n} for n in range(MOST_VALUES // 2)}},
    "2 MB without a space": lambda: {"t": "x" * (LONGEST - 1)},
    "150,000 invisible characters": lambda: {"t": "a\u200bb\u202e" * (MOST_MARKS // 2)},
    "140,000 marks in 20,000 lines": lambda: {"t": "\n".join(["a\u200b\tb\u202e\t\u3164c\t\u200bd"] * MOST_LINES)},
    "2 MB in many scripts": lambda: {"t": _grown("Привет 日本語の文 हिन्दी العربية 12\n" + "ไทย ქართული " * 12)},
}
_QUICK = ("a text of 2 MB in one line", "500 levels")


@pytest.mark.parametrize(
    "name", [name if name in _QUICK else pytest.param(name, marks=pytest.mark.deep) for name in LARGE]
)
def test_a_large_input_is_shown_whole(pages: dict[int, Page], name: str) -> None:
    """Up to each limit."""
    value = LARGE[name]()
    assert read_back(pages[1280], value) == exact(text_of(value))


def test_nothing_approves_above_a_limit(pages: dict[int, Page]) -> None:
    """The page says so, with the size, and has no control that approves."""
    too_long: tuple[Any, ...] = (
        {"t": "\n" * (MOST_LINES + 1)},
        {"t": "x" * (LONGEST + 1)},
        {"t": "é" * (LONGEST // 2) + "x"},
        {"t": [1] * (MOST_VALUES + 1)},
        {"t": "a\u200b" * (MOST_MARKS + 1)},
    )
    for value in some(too_long, 5):
        page = pages[1280]
        page.set_content(page_of(shown_input(text_of(value))))
        assert read(page) is None
        assert "It cannot be approved here." in page.inner_text("body")


# --- pictures ---

_REPLACE = """html => { const other = new DOMParser().parseFromString(html, "text/html");
    document.querySelector("main").replaceWith(other.querySelector("main")); }"""
_VALUES_ALONE = "small, .legend, button { visibility: hidden; }"


@pytest.fixture(scope="module")
def picture(browser: Browser) -> Callable[..., str]:
    """Takes a picture of the values alone, without their sizes and legends."""
    page = browser.new_page(viewport={"width": 560, "height": 640})
    page.set_content(page_of(shown_input("{}")))
    page.add_style_tag(content=_VALUES_ALONE)
    chrome = page.context.new_cdp_session(page)  # a tenth of the time of `page.screenshot`

    def take(value: Any, width: int = 560, **facts: Any) -> str:
        page.set_viewport_size({"width": width, "height": 640})
        page.evaluate(_REPLACE, page_of(shown_input(text_of(value), **facts)))
        return str(chrome.send("Page.captureScreenshot", {"optimizeForSpeed": True})["data"])

    return take


@pytest.mark.parametrize("value", INPUTS, ids=lambda value: next(iter(value)))
def test_neighbours_look_different(picture: Callable[..., str], value: dict[str, Any]) -> None:
    """Inputs that are one edit away have other rows, and other pixels of the values alone."""
    here = picture(value)
    for name, other in some_neighbours(value, 10_000 if IS_DEEP else 6):
        assert picture(other) != here, (name, other)


WRAPPED = (
    "run --all-the-things - now ? (yes) [no] {maybe} <perhaps> a-b-c/d?e=f - g: (h) /i/ j -- k! (l) m",
    "Il a dit : « oui » — puis « non » … 日本語 テスト ไทย ไทย, Привет мир/ это/ все",
)


@pytest.mark.parametrize("width", range(240, 560, 7) if IS_DEEP else (250,))
def test_a_wrapped_line_hides_no_space(picture: Callable[..., str], width: int) -> None:
    """A space more or less is seen at each place of a line, also where the line is wrapped."""
    for text in WRAPPED:
        here = picture({"t": text}, width)
        for place in range(1, len(text), 1 if IS_DEEP else 9):
            more = text[:place] + " " + text[place:]
            assert picture({"t": more}, width) != here, more


# --- the reader itself ---

SPOILED = {
    "folded": "x => { const d = document.createElement('details'); x.replaceWith(d); d.append(x); }",
    "hidden": "x => { x.style.display = 'none'; }",
    "covered": """x => { const cover = document.createElement('div'); document.body.append(cover);
        Object.assign(cover.style, {position: 'absolute', inset: '0', background: 'Canvas'}); }""",
    "not seen": "x => { x.style.visibility = 'hidden'; }",
    "clear": "x => { x.style.opacity = '0.01'; }",
    "pale": "x => { for (const e of x.querySelectorAll('*')) e.style.color = '#fafafa'; }",
    "small": "x => { x.style.fontSize = '9px'; }",
    "overflow: hidden": "x => { x.style.overflow = 'hidden'; x.style.height = '40px'; }",
    "overflow: auto": "x => { x.style.overflow = 'auto'; x.style.maxHeight = '40px'; }",
    "one pixel": """x => {
        Object.assign(x.style, {position: 'absolute', width: '1px', height: '1px', overflow: 'hidden'}); }""",
    "a size of one pixel": "x => { x.style.fontSize = '1px'; }",
    "clipped": "x => { x.style.clipPath = 'inset(50%)'; }",
    "out of the window": "x => { x.style.position = 'absolute'; x.style.left = '-9999px'; }",
    "cut at the side": "x => { for (const e of x.querySelectorAll('*')) e.style.whiteSpace = 'pre'; }",
    "not for screen readers": "x => { x.ariaHidden = 'true'; }",
    "after the control": "x => { document.querySelector('button').after(x); }",
    "without its last line": "x => { x.querySelector('code span:last-child').remove(); }",
    "without a chip": "x => { x.querySelector('mark').remove(); }",
}
SPOILED_QUICK = ("hidden", "pale", "overflow: hidden", "one pixel", "cut at the side", "without a chip")


@pytest.mark.parametrize("how", SPOILED if IS_DEEP else SPOILED_QUICK)
def test_the_reader_sees_only_what_is_visible(pages: dict[int, Page], how: str) -> None:
    """A copy that is folded, hidden, clipped, pale or tiny does not give the input back."""
    value = {"text": "one\ntwo\u200b\nthree" + " and more" * 30, "n": 1}
    page = pages[1280]
    assert read_back(page, value) == exact(text_of(value))
    page.evaluate(f"({SPOILED[how]})(document.querySelector('.input'))")
    try:
        rows = read(page)
        found = None if rows is None else meaning(rows)
    except (AssertionError, IndexError):
        found = None
    assert found != exact(text_of(value))
