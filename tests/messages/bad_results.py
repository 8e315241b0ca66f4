"""Requests with a result that the API refuses, and with what may stand inside one: a part of the corpus.

Each stands beside the nearest one that is taken: these are in `NEAREST`.
"""

from __future__ import annotations

from typing import Any

from tests.messages.bodies import (
    DOCUMENT,
    EPHEMERAL,
    HI,
    NEXT,
    PNG,
    SEARCH_RESULT,
    TOOL,
    BadRequest,
    assistant,
    body,
    call,
    drop_keys,
    image,
    list_refused,
    make_answered,
    make_by_code,
    make_found,
    of_toolset,
    result,
    search,
    text,
    thinking,
    user,
)

REFERENCE = {"type": "tool_reference", "tool_name": "look"}
STATE = {"type": "browser_state", "tabs": []}
MOST = 5 * 1024 * 1024
LARGE = image("/9j/" + "A" * MOST, "image/jpeg")
LARGEST = image("/9j/" + "A" * (MOST - 4), "image/jpeg")


def _document(**source: Any) -> dict[str, Any]:
    return {"type": "document", "source": source}


BAD_RESULTS: list[BadRequest] = [
    *list_refused(
        {
            "unknown-key": {
                "result-unknown-key": make_answered(name="look"),
                "text-with-key-inside-result": make_answered(content=[text(title="t")]),
                "image-source-with-key-inside-result": make_answered(
                    content=[image(b"x") | {"source": {**PNG["source"], "name": "x"}}]
                ),
                "image-with-key-inside-result": make_answered(content=[PNG | {"alt": "x"}]),
                "reference-with-key-inside-result": make_answered(content=[REFERENCE | {"why": "x"}]),
                "cache-mark-with-key-inside-result": make_answered(
                    content=[text(cache_control=EPHEMERAL | {"name": "x"})]
                ),
            },
            "block-fields": {
                "result-of-no-call": body(HI, assistant(call()), user({"type": "tool_result"})),
                "result-id-pattern": make_answered(call_id="toolu 1"),
                "result-is-error-a-string": make_answered(is_error="yes"),
                "result-toolset-a-number": make_answered(toolset_name=7),
                "image-of-unknown-source-inside-result": make_answered(
                    content=[{"type": "image", "source": {"type": "text", "data": "x"}}]
                ),
                "image-of-data-url-inside-result": make_answered(content=[image("data:image/png;base64,iVBORw0KGgo=")]),
                "browser-state-without-tabs": of_toolset(content=[{"type": "browser_state"}], toolset_name="browser"),
                "cache-mark-of-result-a-string": make_answered(cache_control="ephemeral"),
                "bad-image-in-user-message": body(user(image("%"))),
                "bad-document-in-user-message": body(user(_document(type="url"))),
            },
            "empty-error-result": {
                "error-result-without-content": body(
                    HI, assistant(call()), user(drop_keys(result(is_error=True), "content"))
                ),
                "error-result-empty-string": make_answered(content="", is_error=True),
                "error-result-empty-list": make_answered(content=[], is_error=True),
            },
            "result-content": {
                "error-result-with-image": make_answered(content=[text(), PNG], is_error=True),
                "error-result-with-document": make_answered(content=[DOCUMENT], is_error=True),
                "result-content-a-number": make_answered(content=42),
                "result-content-an-object": make_answered(content={"a": 1}),
                "result-content-list-of-strings": make_answered(content=["a"]),
                "call-inside-result": make_answered(content=[call("b")]),
                "result-inside-result": make_answered(content=[result("b")]),
                "thinking-inside-result": make_answered(content=[thinking()]),
                "server-call-inside-result": make_answered(content=[search()]),
                "server-result-inside-result": make_answered(content=[make_found()]),
                "document-of-toolset": of_toolset(content=[text(), DOCUMENT], toolset_name="browser"),
                "search-result-of-toolset": of_toolset(content=[SEARCH_RESULT], toolset_name="browser"),
                "reference-of-toolset": of_toolset(content=[REFERENCE], toolset_name="browser"),
                "browser-state-of-no-toolset": make_answered(content=[STATE]),
                "two-browser-states": of_toolset(content=[STATE, STATE], toolset_name="browser"),
            },
            "blank-text": {
                "empty-text-inside-result": make_answered(content=[text("")]),
                "blank-text-inside-result": make_answered(content=[text(" \n"), text()]),
                "blank-text-inside-error-result": make_answered(content=[text(" ")], is_error=True),
                "document-of-empty-text-inside-result": make_answered(
                    content=[_document(type="content", content=[text("")])]
                ),
                "document-of-blank-text-inside-result": make_answered(
                    content=[_document(type="content", content=[text(" ")])]
                ),
                "search-result-of-empty-text-inside-result": make_answered(
                    content=[SEARCH_RESULT | {"content": [text("")]}]
                ),
            },
            "mixed-search-results": {"search-results-and-image": make_answered(content=[SEARCH_RESULT, PNG])},
            "code-results-only": {"search-result-for-code": make_by_code(content=[SEARCH_RESULT])},
            "misplaced-block": {
                "reference-outside-result": body(user(REFERENCE)),
                "browser-state-outside-result": body(user(STATE)),
            },
            "tool-reference": {
                "reference-to-unknown-tool": make_answered(content=[REFERENCE, REFERENCE | {"tool_name": "fly"}])
            },
            "toolset-name": {
                "toolset-not-named": of_toolset(),
                "another-toolset-named": of_toolset(toolset_name="computer"),
                "toolset-named-without-need": make_answered(toolset_name="browser"),
            },
            "image-limits": {"image-over-5-mb": make_answered(content=[LARGE])},
            "cache-marks": {
                "five-cache-marks-in-a-search-result": make_answered(
                    content=[SEARCH_RESULT | {"content": [text(cache_control=EPHEMERAL)] * 5}]
                ),
                "five-cache-marks-in-a-document": body(
                    user(
                        _document(type="content", content=[text(cache_control=EPHEMERAL)] * 4)
                        | {"cache_control": EPHEMERAL}
                    )
                ),
                "hour-mark-in-a-document-after-five-minutes": make_answered(
                    content=[
                        text(cache_control=EPHEMERAL),
                        _document(type="content", content=[text(cache_control=EPHEMERAL | {"ttl": "1h"})]),
                    ]
                ),
            },
        }
    ),
    *list_refused(
        {"unknown-block": {"unknown-block-inside-result": make_answered(content=[{"type": "video"}])}},
        checked="warning",
    ),
]

#: The nearest ones that are taken: name and body.
NEAREST: list[tuple[str, dict[str, Any]]] = [
    ("result-with-null-for-absent", make_answered(content=None, toolset_name=None, cache_control=None)),
    ("error-result-of-texts", make_answered(content=[text(), text()], is_error=True)),
    ("no-error-with-image", make_answered(content=[text(), PNG], is_error=False)),
    ("texts-for-code", make_by_code(content=[text(), text()])),
    ("error-for-code", make_by_code(content="no", is_error=True)),
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
        make_answered(content=[REFERENCE | {"tool_name": "fly"}])
        | {"tools": [TOOL, TOOL | {"name": "fly", "defer_loading": True}]},
    ),
    ("image-of-5-mb", make_answered(content=[LARGEST])),
    (
        "pdf-behind-something-else",
        make_answered(content=[_document(type="base64", media_type="application/pdf", data="CgolUERGLTEuNw==")]),
    ),
    (
        "four-cache-marks-in-a-search-result",
        make_answered(content=[SEARCH_RESULT | {"content": [text(cache_control=EPHEMERAL)] * 4}]),
    ),
    (
        "image-of-url-and-file",
        make_answered(
            content=[
                {"type": "image", "source": {"type": "url", "url": "https://e.x/i.png"}},
                {"type": "image", "source": {"type": "file", "file_id": "file_1"}, "transformations": {}},
            ]
        ),
    ),
    (
        "documents-of-all-sources",
        make_answered(
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
        make_answered(content=[text(cache_control=EPHEMERAL | {"ttl": "1h"})], cache_control=EPHEMERAL),
    ),
    (
        "mark-of-a-result-stands-behind-those-inside",
        make_answered(
            content=[PNG | {"cache_control": EPHEMERAL | {"ttl": "1h"}}, text(cache_control=EPHEMERAL)],
            cache_control=EPHEMERAL,
        ),
    ),
    ("bytes-after-results", body(HI, assistant(call()), user(result(), PNG, DOCUMENT, SEARCH_RESULT), NEXT)),
]
