"""Requests with a result that the API refuses, and with what may stand inside one: a part of the corpus.

Each stands beside the nearest one that is taken: these are in `NEAREST`.
"""

from __future__ import annotations

from typing import Any

from tests.history.bodies import (
    BY_CODE,
    DOCUMENT,
    EPHEMERAL,
    HI,
    NEXT,
    PNG,
    RUN_CODE,
    SEARCH_RESULT,
    SONNET_4_5,
    TOOL,
    BadRequest,
    answered,
    assistant,
    body,
    by_code,
    call,
    found,
    image,
    of_toolset,
    png,
    result,
    search,
    text,
    thinking,
    user,
    without,
)

REFERENCE = {"type": "tool_reference", "tool_name": "look"}
STATE = {"type": "browser_state", "tabs": []}
MOST = 5 * 1024 * 1024
LARGE = image("/9j/" + "A" * MOST, "image/jpeg")
LARGEST = image("/9j/" + "A" * (MOST - 4), "image/jpeg")
CITED = {"citations": {"enabled": True}}


def _fields(name: str, content: list[Any], rule: str = "block-fields") -> BadRequest:
    return BadRequest(f"{name}-inside-result", 303, rule, answered(content=content))


def _document(**source: Any) -> dict[str, Any]:
    return {"type": "document", "source": source}


SHAPE = [
    BadRequest("result-unknown-key", 301, "unknown-key", answered(name="look")),
    BadRequest("result-of-no-call", 301, "block-fields", body(HI, assistant(call()), user({"type": "tool_result"}))),
    BadRequest("result-id-pattern", 301, "block-fields", answered(call_id="toolu 1")),
    BadRequest("result-is-error-a-string", 301, "block-fields", answered(is_error="yes")),
    BadRequest("result-toolset-a-number", 301, "block-fields", answered(toolset_name=7)),
    BadRequest(
        "error-result-without-content",
        302,
        "empty-error-result",
        body(HI, assistant(call()), user(without(result(is_error=True), "content"))),
    ),
    BadRequest("error-result-empty-string", 302, "empty-error-result", answered(content="", is_error=True)),
    BadRequest("error-result-empty-list", 302, "empty-error-result", answered(content=[], is_error=True)),
    BadRequest("error-result-with-image", 302, "result-content", answered(content=[text(), PNG], is_error=True)),
    BadRequest("error-result-with-document", 302, "result-content", answered(content=[DOCUMENT], is_error=True)),
    BadRequest("empty-text-inside-result", 302, "blank-text", answered(content=[text("")])),
    BadRequest("blank-text-inside-result", 302, "blank-text", answered(content=[text(" \n"), text()])),
    BadRequest("blank-text-inside-error-result", 302, "blank-text", answered(content=[text(" ")], is_error=True)),
    BadRequest("result-content-a-number", 302, "result-content", answered(content=42)),
    BadRequest("result-content-an-object", 302, "result-content", answered(content={"a": 1})),
    BadRequest("result-content-list-of-strings", 302, "result-content", answered(content=["a"])),
]

KINDS = [
    BadRequest("call-inside-result", 303, "result-content", answered(content=[call("b")])),
    BadRequest("result-inside-result", 303, "result-content", answered(content=[result("b")])),
    BadRequest("thinking-inside-result", 303, "result-content", answered(content=[thinking()])),
    BadRequest("server-call-inside-result", 303, "result-content", answered(content=[search()])),
    BadRequest("server-result-inside-result", 303, "result-content", answered(content=[found()])),
    BadRequest(
        "unknown-block-inside-result", 303, "unknown-block", answered(content=[{"type": "video"}]), checked="warning"
    ),
    BadRequest("search-results-and-image", 303, "mixed-search-results", answered(content=[SEARCH_RESULT, PNG])),
    BadRequest("image-for-code", 303, "code-results-only", by_code(content=[PNG])),
    BadRequest("search-result-for-code", 303, "code-results-only", by_code(content=[SEARCH_RESULT])),
    BadRequest(
        "words-after-results-for-code",
        303,
        "code-results-only",
        body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result(), text()), container="container_1"),
    ),
    BadRequest("reference-outside-result", 303, "misplaced-block", body(user(REFERENCE))),
    BadRequest("browser-state-outside-result", 303, "misplaced-block", body(user(STATE))),
    BadRequest(
        "reference-to-unknown-tool",
        35,
        "tool-reference",
        answered(content=[REFERENCE, REFERENCE | {"tool_name": "fly"}]),
    ),
    BadRequest(
        "mixed-citations",
        33,
        "mixed-citations",
        answered(content=[SEARCH_RESULT | CITED, SEARCH_RESULT]),
    ),
]

TOOLSETS = [
    BadRequest("toolset-not-named", 301, "toolset-name", of_toolset()),
    BadRequest("another-toolset-named", 301, "toolset-name", of_toolset(toolset_name="computer")),
    BadRequest("toolset-named-without-need", 301, "toolset-name", answered(toolset_name="browser")),
    BadRequest(
        "document-of-toolset", 303, "result-content", of_toolset(content=[text(), DOCUMENT], toolset_name="browser")
    ),
    BadRequest(
        "search-result-of-toolset", 303, "result-content", of_toolset(content=[SEARCH_RESULT], toolset_name="browser")
    ),
    BadRequest("reference-of-toolset", 303, "result-content", of_toolset(content=[REFERENCE], toolset_name="browser")),
    BadRequest("browser-state-of-no-toolset", 303, "result-content", answered(content=[STATE])),
    BadRequest("two-browser-states", 303, "result-content", of_toolset(content=[STATE, STATE], toolset_name="browser")),
]

INSIDE = [
    _fields("text-without-text", [{"type": "text"}]),
    _fields("text-a-number", [text(7)]),
    _fields("text-with-key", [text(title="t")], "unknown-key"),
    _fields("image-without-source", [{"type": "image"}]),
    _fields("image-of-unknown-source", [{"type": "image", "source": {"type": "text", "data": "x"}}]),
    _fields("image-of-unknown-type", [image(b"BM", "image/bmp")]),
    _fields("image-of-pdf-type", [image(b"%PDF-1.7", "application/pdf")]),
    _fields("image-without-data", [image("")]),
    _fields("image-of-no-base64", [image("iVBORw0KGgo")]),
    _fields("image-of-data-url", [image("data:image/png;base64,iVBORw0KGgo=")]),
    _fields("image-of-another-type", [image(b"\xff\xd8\xff\xe0")]),
    _fields("image-of-no-known-type", [image(b"picture")]),
    _fields("document-of-no-known-type", [_document(type="base64", media_type="application/pdf", data="eA==")]),
    _fields("image-source-with-key", [image(b"x") | {"source": {**PNG["source"], "name": "x"}}], "unknown-key"),
    _fields("image-with-key", [PNG | {"alt": "x"}], "unknown-key"),
    _fields("document-of-unknown-type", [_document(type="base64", media_type="text/plain", data="eA==")]),
    _fields("document-of-an-image", [_document(type="base64", media_type="application/pdf", data="iVBORw0KGgo=")]),
    _fields("document-of-html", [_document(type="text", media_type="text/html", data="<p>")]),
    _fields("document-with-number-as-title", [DOCUMENT | {"title": 7}]),
    _fields("document-of-document", [_document(type="content", content=[DOCUMENT])]),
    _fields("document-of-empty-text", [_document(type="content", content=[text("")])]),
    _fields("document-of-blank-text", [_document(type="content", content=[text(" ")])]),
    _fields("search-result-without-title", [without(SEARCH_RESULT, "title")]),
    _fields("search-result-of-string", [SEARCH_RESULT | {"content": "found"}]),
    _fields("search-result-of-image", [SEARCH_RESULT | {"content": [PNG]}]),
    _fields("search-result-of-empty-text", [SEARCH_RESULT | {"content": [text("")]}]),
    _fields("reference-without-name", [{"type": "tool_reference"}]),
    _fields("reference-with-key", [REFERENCE | {"why": "x"}], "unknown-key"),
    BadRequest(
        "browser-state-without-tabs",
        303,
        "block-fields",
        of_toolset(content=[{"type": "browser_state"}], toolset_name="browser"),
    ),
    _fields("cache-mark-of-unknown-type", [text(cache_control={"type": "lasting"})]),
    _fields("cache-mark-of-a-day", [text(cache_control=EPHEMERAL | {"ttl": "1d"})]),
    _fields("cache-mark-with-key", [text(cache_control=EPHEMERAL | {"name": "x"})], "unknown-key"),
    BadRequest("cache-mark-of-result-a-string", 307, "block-fields", answered(cache_control="ephemeral")),
    BadRequest("bad-image-in-user-message", 33, "block-fields", body(user(image("%")))),
    BadRequest("bad-document-in-user-message", 33, "block-fields", body(user(_document(type="url")))),
]

IMAGES = [
    BadRequest("image-over-5-mb", 303, "image-limits", answered(content=[LARGE])),
    BadRequest("image-too-wide", 303, "image-limits", answered(content=[png(8001, 1)])),
    BadRequest("image-too-high-in-user-message", 303, "image-limits", body(user(png(1, 8001)))),
    BadRequest("one-of-many-images-too-wide", 303, "image-limits", answered(content=[PNG] * 20 + [png(2001, 1)])),
    BadRequest(
        "101-images-of-a-small-context",
        303,
        "image-limits",
        answered(content=[PNG] * 100 + [_document(type="content", content=[PNG])]) | {"model": SONNET_4_5},
    ),
    BadRequest("601-images", 303, "image-limits", answered(content=[PNG] * 601)),
    BadRequest(
        "601-images-of-an-unknown-model",
        303,
        "image-limits",
        answered(content=[PNG] * 601) | {"model": "claude-saga-7"},
    ),
]

MARKS = [
    BadRequest(
        "five-cache-marks-in-a-search-result",
        307,
        "cache-marks",
        answered(content=[SEARCH_RESULT | {"content": [text(cache_control=EPHEMERAL)] * 5}]),
    ),
    BadRequest(
        "five-cache-marks-in-a-document",
        307,
        "cache-marks",
        body(
            user(_document(type="content", content=[text(cache_control=EPHEMERAL)] * 4) | {"cache_control": EPHEMERAL})
        ),
    ),
    BadRequest(
        "hour-mark-in-a-document-after-five-minutes",
        307,
        "cache-marks",
        answered(
            content=[
                text(cache_control=EPHEMERAL),
                _document(type="content", content=[text(cache_control=EPHEMERAL | {"ttl": "1h"})]),
            ]
        ),
    ),
]

BAD_RESULTS: list[BadRequest] = [*SHAPE, *KINDS, *TOOLSETS, *INSIDE, *IMAGES, *MARKS]

#: The nearest ones that are taken: name and body.
NEAREST: list[tuple[str, dict[str, Any]]] = [
    ("result-with-null-for-absent", answered(content=None, toolset_name=None, cache_control=None)),
    ("error-result-of-texts", answered(content=[text(), text()], is_error=True)),
    ("no-error-with-image", answered(content=[text(), PNG], is_error=False)),
    ("texts-for-code", by_code(content=[text(), text()])),
    ("error-for-code", by_code(content="no", is_error=True)),
    ("search-results-cited-alike", answered(content=[SEARCH_RESULT | CITED, SEARCH_RESULT | CITED])),
    ("toolset-named", of_toolset(content=[text(), PNG, STATE], toolset_name="browser")),
    ("error-of-toolset", of_toolset(content="no", is_error=True, toolset_name="browser")),
    (
        "two-toolsets-beside-a-plain-call",
        body(
            HI,
            assistant(call("a", toolset_name="browser"), call("b", toolset_name="computer"), call("c")),
            user(result("b", toolset_name="computer"), result("c"), result("a", toolset_name="browser")),
        ),
    ),
    (
        "reference-to-deferred-tool",
        answered(content=[REFERENCE | {"tool_name": "fly"}])
        | {"tools": [TOOL, TOOL | {"name": "fly", "defer_loading": True}]},
    ),
    ("image-of-5-mb", answered(content=[LARGEST])),
    ("image-of-8000-pixels", answered(content=[png(8000, 8000)])),
    ("many-images-of-2000-pixels", answered(content=[PNG] * 20 + [png(2000, 2000)])),
    ("hundred-images-of-a-small-context", answered(content=[PNG] * 100) | {"model": SONNET_4_5}),
    ("600-images", answered(content=[PNG] * 600)),
    (
        "pdf-behind-something-else",
        answered(content=[_document(type="base64", media_type="application/pdf", data="CgolUERGLTEuNw==")]),
    ),
    (
        "four-cache-marks-in-a-search-result",
        answered(content=[SEARCH_RESULT | {"content": [text(cache_control=EPHEMERAL)] * 4}]),
    ),
    (
        "image-of-url-and-file",
        answered(
            content=[
                {"type": "image", "source": {"type": "url", "url": "https://e.x/i.png"}},
                {"type": "image", "source": {"type": "file", "file_id": "file_1"}, "transformations": {}},
            ]
        ),
    ),
    (
        "documents-of-all-sources",
        answered(
            content=[
                _document(type="base64", media_type="application/pdf", data="JVBERi0xLjc="),
                _document(type="content", content=[text(), PNG]),
                _document(type="content", content="words") | {"title": "t", "context": "c"},
                _document(type="url", url="https://e.x/d.pdf"),
                _document(type="file", file_id="file_2"),
            ]
        ),
    ),
    (
        "cache-mark-of-an-hour-inside",
        answered(content=[text(cache_control=EPHEMERAL | {"ttl": "1h"})], cache_control=EPHEMERAL),
    ),
    (
        "mark-of-a-result-stands-behind-those-inside",
        answered(
            content=[PNG | {"cache_control": EPHEMERAL | {"ttl": "1h"}}, text(cache_control=EPHEMERAL)],
            cache_control=EPHEMERAL,
        ),
    ),
    ("bytes-after-results", body(HI, assistant(call()), user(result(), PNG, DOCUMENT, SEARCH_RESULT), NEXT)),
]
