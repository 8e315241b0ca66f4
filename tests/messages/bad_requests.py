"""Requests that the API refuses, one per rule, and tricky ones that it takes.

Shared by the tests of `toolloop._messages.check` and of the fake API, which are written independently of each
other: each checks the other. Every body is fine but for the one thing its entry names.
"""

from __future__ import annotations

from tests.messages.bad_parameters import BAD_COMPACTIONS, BAD_PARAMETERS
from tests.messages.bad_results import BAD_RESULTS
from tests.messages.bad_shapes import BAD_SHAPES
from tests.messages.bodies import (
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
    assistant,
    body,
    call,
    drop_keys,
    list_refused,
    make_answered,
    make_found,
    result,
    search,
    system,
    text,
    thinking,
    user,
)
from tests.messages.good_requests import GOOD_REQUESTS, WARNED_REQUESTS

__all__ = ["BAD_REQUESTS", "GOOD_REQUESTS", "WARNED_REQUESTS", "BadRequest"]


_CITATION = {
    "type": "char_location",
    "cited_text": "x",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 1,
}


BAD_REQUESTS: list[BadRequest] = [
    *list_refused(
        {
            "no-messages": {"no-messages": body()},
            "message-shape": {
                "messages-not-a-list": body() | {"messages": "Hi"},
                "role-missing": body({"content": "Hi"}),
                "content-missing": body({"role": "user"}),
                "content-a-number": body({"role": "user", "content": 7}),
                "content-an-object": body({"role": "user", "content": text()}),
                "message-a-string": body("Hi"),
            },
            "unknown-role": {"role-unknown": body(HI, {"role": "tool", "content": "x"}, NEXT)},
            "block-shape": {"block-a-string": body(user("Hi")), "block-without-type": body(user({"text": "Hi"}))},
            "block-fields": {
                "text-missing": body(user({"type": "text"})),
                "text-a-number": body(user(text(3))),
                "signature-missing": body(HI, assistant(drop_keys(thinking(), "signature"), text()), NEXT),
                "redacted-data-missing": body(HI, assistant({"type": "redacted_thinking"}, text()), NEXT),
                "call-without-id": body(HI, assistant(text(), drop_keys(call(), "id")), NEXT),
                "call-without-name": body(HI, assistant(drop_keys(call(), "name")), user(result())),
                "call-without-input": body(HI, assistant(drop_keys(call(), "input")), user(result())),
                "call-input-a-string": body(HI, assistant(call(input="{}")), user(result())),
                "call-input-a-list": body(HI, assistant(call(input=[])), user(result())),
                "call-id-with-a-space": body(HI, assistant(call("a b")), user(result("a b"))),
                "call-id-a-number": body(HI, assistant(call(7)), NEXT),
                "call-id-empty": body(HI, assistant(call("")), user(result(""))),
                "call-id-ends-in-newline": body(HI, assistant(call("a\n")), user(result("a\n"))),
                "server-call-id-foreign": body(HI, assistant(search("toolu_9"), make_found("toolu_9"), text()), NEXT),
                "result-without-id": body(HI, assistant(call()), user(result(), drop_keys(result(), "tool_use_id"))),
                "cache-mark-of-unknown-block": body(user({"type": "hologram", "cache_control": 1})),
            },
            "unknown-key": {
                "message-key-unknown": body(HI | {"name": "ana"}),
                "message-id-kept": body(HI, HELLO | {"id": "msg_1"}, NEXT),
                "user-text-key-unknown": body(user(text(colour="red"))),
                "parsed-output-kept": body(HI, assistant(text(parsed_output=None)), NEXT),
                "result-key-unknown": body(HI, assistant(call()), user(result(name="look"))),
                "cache-mark-on-thinking": body(HI, assistant(thinking(cache_control=EPHEMERAL), text()), NEXT),
            },
            "prefill": {
                "prefill-on-new-model": body(HI, HELLO),
                "prefill-on-opus-4-6": body(HI, HELLO, model="claude-opus-4-6"),
                "prefill-with-thinking": body(HI, assistant(thinking(), text()), model=SONNET_4_5, thinking=MANUAL),
            },
            "trailing-whitespace": {"prefill-ends-in-space": body(HI, assistant(text("It is ")), model=SONNET_4_5)},
            "thinking-last": {
                "thinking-last": body(HI, assistant(text(), thinking()), model=SONNET_4_5),
                "thinking-last-in-the-middle": body(HI, assistant(text(), thinking()), NEXT),
            },
            "empty-content": {
                "user-empty": body(HI, HELLO, user()),
                "user-run-empty": body(HI, HELLO, user(), user()),
                "assistant-empty-in-the-middle": body(HI, assistant(), NEXT),
                "user-empty-in-a-full-run": body(user(), HI),
                "user-empty-before-results": body(HI, assistant(call()), user(), user(result())),
                "assistant-empty-beside-another": body(HI, HELLO, assistant(), NEXT),
            },
            "blank-text": {
                "user-empty-string": body({"role": "user", "content": ""}),
                "user-blank-string": body({"role": "user", "content": " \n"}),
                "text-empty": body(user(text(""), text())),
                "text-blank": body(HI, assistant(text(), text("\n\n")), NEXT),
                "text-empty-beside-call": body(HI, assistant(text(""), call()), user(result())),
                "text-empty-and-cached": body(user(text(), text("", cache_control=EPHEMERAL))),
                "system-blank": body(HI, system(text(" "))),
            },
            "unanswered-call": {
                "call-never-answered": body(HI, assistant(call()), NEXT),
                "call-last": body(HI, assistant(call()), model=SONNET_4_5),
                "one-of-two-answered": body(HI, assistant(call("a"), call("b")), user(result("a"))),
                "system-before-result": body(HI, assistant(call()), system(text()), user(result())),
            },
            "results-first": {
                "text-before-result": body(HI, assistant(call()), user(text(), result())),
                "text-between-results": body(
                    HI, assistant(call("a"), call("b")), user(result("a"), text(), result("b"))
                ),
                "user-message-before-result": body(HI, assistant(call()), NEXT, user(result())),
            },
            "orphan-result": {
                "result-without-call": body(HI, user(result())),
                "result-late": body(HI, assistant(call()), user(result()), HELLO, user(result(), text())),
                "result-of-no-call-beside-one": body(HI, assistant(call()), user(result(), result("toolu_2"))),
                "result-for-server-call": body(
                    HI, assistant(search(), make_found(), text()), user(result("srvtoolu_1"), text())
                ),
            },
            "repeated-result": {
                "result-twice": body(HI, assistant(call()), user(result(), result())),
                "result-twice-over-two-messages": body(HI, assistant(call()), user(result()), user(result())),
            },
            "duplicate-call": {
                "call-id-twice": body(HI, assistant(call(), call()), user(result())),
                "call-id-twice-over-two-messages": body(HI, assistant(call()), assistant(call()), user(result())),
            },
            "misplaced-block": {
                "call-by-user": body(user(text(), call())),
                "result-by-assistant": body(HI, assistant(text(), result()), NEXT),
                "document-by-assistant": body(HI, assistant(DOCUMENT, text()), NEXT),
                "image-by-assistant": body(HI, assistant(PNG, text()), NEXT),
                "search-result-by-assistant": body(HI, assistant(SEARCH_RESULT, text()), NEXT),
            },
            "system-model": {
                "system-on-old-model": body(HI, system(text()), model=SONNET_4_5),
                "system-on-sonnet-5": body(HI, system(text()), model="claude-sonnet-5"),
            },
            "system-place": {
                "system-first": body(system(text()), HI),
                "system-after-assistant": body(HI, HELLO, system(text())),
                "system-before-user": body(HI, system(text()), NEXT),
                "system-run-before-user": body(HI, system(text()), system(text()), NEXT),
            },
            "system-content": {"system-empty": body(HI, system()), "system-with-image": body(HI, system(PNG))},
            "open-server-call": {
                "server-call-open-in-closed-turn": body(HI, assistant(search(), text()), NEXT),
                "server-call-open-before-text": body(HI, assistant(search(), call()), user(result(), text())),
                "server-call-open-two-turns-back": body(HI, assistant(search(), text()), NEXT, HELLO, NEXT),
            },
            "orphan-server-result": {
                "server-result-without-call": body(HI, assistant(make_found(), text()), NEXT),
                "server-result-before-its-call": body(
                    HI, assistant(make_found(), search(), make_found(), text()), NEXT
                ),
                "server-result-of-another-call": body(
                    HI, assistant(search(), make_found(), make_found("srvtoolu_2"), text()), NEXT
                ),
            },
            "server-tool-gone": {
                "tool-of-open-server-call-gone": body(HI, assistant(text(), search()), tools=[TOOL, CODE]),
                "all-tools-gone": body(HI, assistant(search()), tools=[]),
                "tool-of-open-code-gone": body(
                    HI, assistant(RUN_CODE, call(**BY_CODE)), user(result()), container="container_1", tools=[TOOL]
                ),
            },
            "code-results-only": {
                "text-after-results-of-code": body(
                    HI, assistant(RUN_CODE, call(**BY_CODE)), user(result(), text()), container="container_1"
                ),
                "image-in-result-of-code": body(
                    HI, assistant(RUN_CODE, call(**BY_CODE)), user(result(content=[PNG])), container="container_1"
                ),
            },
            "thinking-first": {
                "manual-thinking-without-thinking-first": body(
                    HI, assistant(call()), user(result()), model=SONNET_4_5, thinking=MANUAL
                )
            },
            "empty-thinking": {"thinking-empty": body(HI, assistant(thinking("", ""), text()), NEXT)},
            "mixed-search-results": {"search-result-beside-text": make_answered(content=[SEARCH_RESULT, text()])},
            "cache-marks": {
                "five-cache-marks": body(user(*[text(cache_control=EPHEMERAL)] * 5)),
                "five-cache-marks-with-tools": body(
                    user(*[text(cache_control=EPHEMERAL)] * 4), tools=[TOOL | {"cache_control": EPHEMERAL}]
                ),
                "five-cache-marks-inside-results": make_answered(
                    content=[text(cache_control=EPHEMERAL)] * 4, cache_control=EPHEMERAL
                ),
                "hour-mark-after-five-minutes": body(
                    user(text(cache_control=EPHEMERAL | {"ttl": "5m"}), text(cache_control=EPHEMERAL | {"ttl": "1h"}))
                ),
            },
        }
    ),
    *list_refused(
        {
            "no-messages": {"messages-missing": drop_keys(body(), "messages")},
            "top-level keys": {
                "top-level-key-unknown": body(HI, colour="red"),
                "beta-key-without-beta": body(HI, context_management={"edits": []}),
            },
            "max_tokens": {
                "max-tokens-missing": drop_keys(body(HI), "max_tokens"),
                "max-tokens-negative": body(HI, max_tokens=-1),
            },
            "model": {"model-missing": drop_keys(body(HI), "model")},
            "container": {"container-missing": body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result()))},
            "sampling": {"temperature": body(HI, temperature=0.5)},
        },
        checked=None,
    ),
    *list_refused(
        {
            "unknown-block": {"block-type-unknown": body(user({"type": "hologram"}))},
            "server-tool-gone": {
                "tool-of-open-code-gone-beside-a-search": body(HI, assistant(RUN_CODE), tools=[TOOL, WEB_SEARCH]),
                "tool-of-unknown-server-call-gone": body(HI, assistant(search(name="web_swim"))),
            },
            "user-citations": {"citations-by-user": body(user(text(citations=[_CITATION])))},
        },
        checked="warning",
    ),
    *list_refused(
        {"model": {"model-unknown": body(HI, model="claude-x")}}, checked=None, error="not_found_error", status=404
    ),
    *BAD_PARAMETERS,
    *BAD_COMPACTIONS,
    *BAD_RESULTS,
    *BAD_SHAPES,
]
