"""Requests that the API refuses, one per rule, and tricky ones that it takes.

Shared by the tests of `toolloop.history.check` and of the fake API, which are written independently of each other: each
checks the other. Every body is fine but for the one thing its entry names.
"""

from __future__ import annotations

from tests.history.bad_parameters import BAD_COMPACTIONS, BAD_PARAMETERS
from tests.history.bad_results import BAD_RESULTS
from tests.history.bad_shapes import BAD_SHAPES
from tests.history.bodies import (
    BY_CODE,
    CODE,
    DOCUMENT,
    EPHEMERAL,
    HELLO,
    HI,
    MANUAL,
    NEXT,
    PNG,
    RUN_CODE,
    SEARCH_RESULT,
    SONNET_4_5,
    TOOL,
    WEB_SEARCH,
    BadRequest,
    answered,
    assistant,
    body,
    call,
    found,
    result,
    search,
    system,
    text,
    thinking,
    user,
    without,
)
from tests.history.good_requests import GOOD_REQUESTS, WARNED_REQUESTS

__all__ = ["BAD_REQUESTS", "GOOD_REQUESTS", "WARNED_REQUESTS", "BadRequest"]

ENVELOPE = [
    BadRequest("no-messages", 1, "no-messages", body()),
    BadRequest("messages-missing", 1, "no-messages", without(body(), "messages"), checked=None),
    BadRequest("messages-not-a-list", 3, "message-shape", body() | {"messages": "Hi"}),
    BadRequest("role-unknown", 2, "unknown-role", body(HI, {"role": "tool", "content": "x"}, NEXT)),
    BadRequest("role-missing", 3, "message-shape", body({"content": "Hi"})),
    BadRequest("content-missing", 3, "message-shape", body({"role": "user"})),
    BadRequest("content-a-number", 3, "message-shape", body({"role": "user", "content": 7})),
    BadRequest("content-an-object", 3, "message-shape", body({"role": "user", "content": text()})),
    BadRequest("message-a-string", 3, "message-shape", body("Hi")),
    BadRequest("block-a-string", 3, "block-shape", body(user("Hi"))),
    BadRequest("block-without-type", 3, "block-shape", body(user({"text": "Hi"}))),
    BadRequest("text-missing", 3, "block-fields", body(user({"type": "text"}))),
    BadRequest("text-a-number", 3, "block-fields", body(user(text(3)))),
    BadRequest(
        "signature-missing", 3, "block-fields", body(HI, assistant(without(thinking(), "signature"), text()), NEXT)
    ),
    BadRequest(
        "redacted-data-missing", 3, "block-fields", body(HI, assistant({"type": "redacted_thinking"}, text()), NEXT)
    ),
    BadRequest("block-type-unknown", 3, "unknown-block", body(user({"type": "hologram"})), checked="warning"),
    BadRequest("message-key-unknown", 4, "unknown-key", body(HI | {"name": "ana"})),
    BadRequest("message-id-kept", 4, "unknown-key", body(HI, HELLO | {"id": "msg_1"}, NEXT)),
    BadRequest("user-text-key-unknown", 4, "unknown-key", body(user(text(colour="red")))),
    BadRequest("parsed-output-kept", 4, "unknown-key", body(HI, assistant(text(parsed_output=None)), NEXT)),
    BadRequest("result-key-unknown", 4, "unknown-key", body(HI, assistant(call()), user(result(name="look")))),
    BadRequest("top-level-key-unknown", 4, "top-level keys", body(HI, colour="red"), checked=None),
    BadRequest("beta-key-without-beta", 4, "top-level keys", body(HI, context_management={"edits": []}), checked=None),
    BadRequest("max-tokens-missing", 5, "max_tokens", without(body(HI), "max_tokens"), checked=None),
    BadRequest("max-tokens-negative", 5, "max_tokens", body(HI, max_tokens=-1), checked=None),
    BadRequest("model-missing", 5, "model", without(body(HI), "model"), checked=None),
    BadRequest("model-unknown", 5, "model", body(HI, model="claude-x"), None, 404, "not_found_error"),
]

ORDER = [
    BadRequest("prefill-on-new-model", 10, "prefill", body(HI, HELLO)),
    BadRequest("prefill-on-opus-4-6", 10, "prefill", body(HI, HELLO, model="claude-opus-4-6")),
    BadRequest(
        "prefill-with-thinking",
        10,
        "prefill",
        body(HI, assistant(thinking(), text()), model=SONNET_4_5, thinking=MANUAL),
    ),
    BadRequest(
        "prefill-ends-in-space", 11, "trailing-whitespace", body(HI, assistant(text("It is ")), model=SONNET_4_5)
    ),
    BadRequest("thinking-last", 12, "thinking-last", body(HI, assistant(text(), thinking()), model=SONNET_4_5)),
    BadRequest("thinking-last-in-the-middle", 12, "thinking-last", body(HI, assistant(text(), thinking()), NEXT)),
    BadRequest("user-empty", 13, "empty-content", body(HI, HELLO, user())),
    BadRequest("user-run-empty", 13, "empty-content", body(HI, HELLO, user(), user())),
    BadRequest("assistant-empty-in-the-middle", 13, "empty-content", body(HI, assistant(), NEXT)),
    BadRequest("user-empty-string", 14, "blank-text", body({"role": "user", "content": ""})),
    BadRequest("user-blank-string", 14, "blank-text", body({"role": "user", "content": " \n"})),
    BadRequest("text-empty", 14, "blank-text", body(user(text(""), text()))),
    BadRequest("text-blank", 14, "blank-text", body(HI, assistant(text(), text("\n\n")), NEXT)),
    BadRequest("text-empty-beside-call", 14, "blank-text", body(HI, assistant(text(""), call()), user(result()))),
    BadRequest("text-empty-and-cached", 14, "blank-text", body(user(text(), text("", cache_control=EPHEMERAL)))),
]

PAIRING = [
    BadRequest("call-never-answered", 15, "unanswered-call", body(HI, assistant(call()), NEXT)),
    BadRequest("call-last", 15, "unanswered-call", body(HI, assistant(call()), model=SONNET_4_5)),
    BadRequest(
        "one-of-two-answered", 15, "unanswered-call", body(HI, assistant(call("a"), call("b")), user(result("a")))
    ),
    BadRequest("text-before-result", 15, "results-first", body(HI, assistant(call()), user(text(), result()))),
    BadRequest(
        "text-between-results",
        15,
        "results-first",
        body(HI, assistant(call("a"), call("b")), user(result("a"), text(), result("b"))),
    ),
    BadRequest("user-message-before-result", 15, "results-first", body(HI, assistant(call()), NEXT, user(result()))),
    BadRequest(
        "system-before-result", 15, "unanswered-call", body(HI, assistant(call()), system(text()), user(result()))
    ),
    BadRequest("result-without-call", 16, "orphan-result", body(HI, user(result()))),
    BadRequest(
        "result-late", 16, "orphan-result", body(HI, assistant(call()), user(result()), HELLO, user(result(), text()))
    ),
    BadRequest(
        "result-of-no-call-beside-one",
        16,
        "orphan-result",
        body(HI, assistant(call()), user(result(), result("toolu_2"))),
    ),
    BadRequest("result-twice", 17, "repeated-result", body(HI, assistant(call()), user(result(), result()))),
    BadRequest(
        "result-twice-over-two-messages",
        17,
        "repeated-result",
        body(HI, assistant(call()), user(result()), user(result())),
    ),
    BadRequest("call-id-twice", 18, "duplicate-call", body(HI, assistant(call(), call()), user(result()))),
    BadRequest(
        "call-id-twice-over-two-messages",
        18,
        "duplicate-call",
        body(HI, assistant(call()), assistant(call()), user(result())),
    ),
    BadRequest("call-by-user", 20, "misplaced-block", body(user(text(), call()))),
    BadRequest("result-by-assistant", 20, "misplaced-block", body(HI, assistant(text(), result()), NEXT)),
    BadRequest("call-without-id", 20, "block-fields", body(HI, assistant(text(), without(call(), "id")), NEXT)),
    BadRequest("call-without-name", 20, "block-fields", body(HI, assistant(without(call(), "name")), user(result()))),
    BadRequest("call-without-input", 20, "block-fields", body(HI, assistant(without(call(), "input")), user(result()))),
    BadRequest("call-input-a-string", 20, "block-fields", body(HI, assistant(call(input="{}")), user(result()))),
    BadRequest("call-input-a-list", 20, "block-fields", body(HI, assistant(call(input=[])), user(result()))),
    BadRequest("call-id-with-a-space", 20, "block-fields", body(HI, assistant(call("a b")), user(result("a b")))),
    BadRequest("call-id-empty", 20, "block-fields", body(HI, assistant(call("")), user(result("")))),
    BadRequest("call-id-ends-in-newline", 20, "block-fields", body(HI, assistant(call("a\n")), user(result("a\n")))),
    BadRequest(
        "server-call-id-foreign",
        20,
        "block-fields",
        body(HI, assistant(search("toolu_9"), found("toolu_9"), text()), NEXT),
    ),
    BadRequest(
        "result-without-id",
        20,
        "block-fields",
        body(HI, assistant(call()), user(result(), without(result(), "tool_use_id"))),
    ),
]

SYSTEM = [
    BadRequest("system-on-old-model", 21, "system-model", body(HI, system(text()), model=SONNET_4_5)),
    BadRequest("system-on-sonnet-5", 21, "system-model", body(HI, system(text()), model="claude-sonnet-5")),
    BadRequest("system-first", 21, "system-place", body(system(text()), HI)),
    BadRequest("system-after-assistant", 21, "system-place", body(HI, HELLO, system(text()))),
    BadRequest("system-before-user", 21, "system-place", body(HI, system(text()), NEXT)),
    BadRequest("system-run-before-user", 21, "system-place", body(HI, system(text()), system(text()), NEXT)),
    BadRequest("system-empty", 21, "system-content", body(HI, system())),
    BadRequest("system-with-image", 21, "system-content", body(HI, system(PNG))),
    BadRequest("system-blank", 21, "blank-text", body(HI, system(text(" ")))),
]

SERVER_TOOLS = [
    BadRequest("server-call-open-in-closed-turn", 23, "open-server-call", body(HI, assistant(search(), text()), NEXT)),
    BadRequest(
        "server-call-open-before-text",
        23,
        "open-server-call",
        body(HI, assistant(search(), call()), user(result(), text())),
    ),
    BadRequest(
        "server-call-open-two-turns-back",
        23,
        "open-server-call",
        body(HI, assistant(search(), text()), NEXT, HELLO, NEXT),
    ),
    BadRequest(
        "tool-of-open-server-call-gone",
        23,
        "server-tool-gone",
        body(HI, assistant(text(), search()), tools=[TOOL, CODE]),
    ),
    BadRequest("all-tools-gone", 23, "server-tool-gone", body(HI, assistant(search()), tools=[])),
    BadRequest(
        "tool-of-open-code-gone",
        23,
        "server-tool-gone",
        body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result()), container="container_1", tools=[TOOL]),
    ),
    BadRequest(
        "tool-of-open-code-gone-beside-a-search",
        23,
        "server-tool-gone",
        body(HI, assistant(RUN_CODE), tools=[TOOL, WEB_SEARCH]),
        checked="warning",
    ),
    BadRequest(
        "tool-of-unknown-server-call-gone",
        23,
        "server-tool-gone",
        body(HI, assistant(search(name="web_swim"))),
        checked="warning",
    ),
    BadRequest(
        "result-for-server-call",
        24,
        "orphan-result",
        body(HI, assistant(search(), found(), text()), user(result("srvtoolu_1"), text())),
    ),
    BadRequest(
        "text-after-results-of-code",
        25,
        "code-results-only",
        body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result(), text()), container="container_1"),
    ),
    BadRequest(
        "image-in-result-of-code",
        25,
        "code-results-only",
        body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result(content=[PNG])), container="container_1"),
    ),
    BadRequest(
        "container-missing",
        25,
        "container",
        body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result())),
        checked=None,
    ),
]

THINKING = [
    BadRequest(
        "manual-thinking-without-thinking-first",
        27,
        "thinking-first",
        body(HI, assistant(call()), user(result()), model=SONNET_4_5, thinking=MANUAL),
    ),
    BadRequest("thinking-empty", 28, "empty-thinking", body(HI, assistant(thinking("", ""), text()), NEXT)),
]

_CITATION = {
    "type": "char_location",
    "cited_text": "x",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}

OTHER = [
    BadRequest("document-by-assistant", 32, "misplaced-block", body(HI, assistant(DOCUMENT, text()), NEXT)),
    BadRequest("citations-by-user", 32, "user-citations", body(user(text(citations=[_CITATION]))), checked="warning"),
    BadRequest("temperature", 32, "sampling", body(HI, temperature=0.5), checked=None),
    BadRequest("image-by-assistant", 33, "misplaced-block", body(HI, assistant(PNG, text()), NEXT)),
    BadRequest("search-result-by-assistant", 33, "misplaced-block", body(HI, assistant(SEARCH_RESULT, text()), NEXT)),
    BadRequest(
        "search-result-beside-text",
        33,
        "mixed-search-results",
        answered(content=[SEARCH_RESULT, text()]),
    ),
    BadRequest("five-cache-marks", 34, "cache-marks", body(user(*[text(cache_control=EPHEMERAL)] * 5))),
    BadRequest(
        "five-cache-marks-with-tools",
        34,
        "cache-marks",
        body(user(*[text(cache_control=EPHEMERAL)] * 4), tools=[TOOL | {"cache_control": EPHEMERAL}]),
    ),
    BadRequest(
        "five-cache-marks-inside-results",
        34,
        "cache-marks",
        answered(content=[text(cache_control=EPHEMERAL)] * 4, cache_control=EPHEMERAL),
    ),
    BadRequest(
        "cache-mark-on-thinking",
        34,
        "unknown-key",
        body(HI, assistant(thinking(cache_control=EPHEMERAL), text()), NEXT),
    ),
    BadRequest(
        "hour-mark-after-five-minutes",
        34,
        "cache-marks",
        body(user(text(cache_control=EPHEMERAL | {"ttl": "5m"}), text(cache_control=EPHEMERAL | {"ttl": "1h"}))),
    ),
]

BAD_REQUESTS: list[BadRequest] = [
    *ENVELOPE,
    *ORDER,
    *PAIRING,
    *SYSTEM,
    *SERVER_TOOLS,
    *THINKING,
    *OTHER,
    *BAD_PARAMETERS,
    *BAD_COMPACTIONS,
    *BAD_RESULTS,
    *BAD_SHAPES,
]
