"""Tricky requests that the API takes, and requests that it may take though `check` warns."""

from __future__ import annotations

from typing import Any

from tests.messages.bad_results import NEAREST
from tests.messages.bad_shapes import NEAREST_SHAPES
from tests.messages.bodies import (
    BY_CODE,
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
    assistant,
    body,
    call,
    compaction,
    drop_keys,
    make_answered,
    make_bare,
    make_found,
    result,
    search,
    system,
    text,
    thinking,
    user,
)

#: Name and body: each is answered with 200.
GOOD_REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("one-string", body(HI)),
    ("without-tools", make_bare(HI, HELLO, NEXT)),
    ("strings-and-arrays", body(HI, assistant(text()), NEXT, HELLO, user(text()))),
    ("users-in-a-row", body(HI, NEXT, user(text()))),
    ("assistants-in-a-row", body(HI, HELLO, assistant(text()), NEXT)),
    ("unicode-space-around-words", body({"role": "user", "content": "\u00a0 Hi \n"})),
    ("prefill-on-old-model", body(HI, HELLO, model=SONNET_4_5)),
    ("prefill-on-dated-old-model", body(HI, HELLO, model="claude-haiku-4-5-20251001")),
    ("call-and-result", body(HI, assistant(text(), call()), user(result()))),
    ("calls-in-any-order-of-results", body(HI, assistant(call("a"), call("b")), user(result("b"), result("a")))),
    (
        "results-over-two-messages",
        body(HI, assistant(call("a"), call("b")), user(result("a")), user(result("b"), text())),
    ),
    ("calls-over-two-messages", body(HI, assistant(call("a")), assistant(call("b")), user(result("a"), result("b")))),
    ("text-image-and-document-after-results", body(HI, assistant(call()), user(result(), text(), PNG, DOCUMENT))),
    ("user-message-after-results", body(HI, assistant(call()), user(result()), NEXT)),
    ("two-rounds", body(HI, assistant(call("a")), user(result("a")), assistant(call("b")), user(result("b")))),
    ("foreign-ids", body(HI, assistant(call("call_0"), call("0usajhl5")), user(result("call_0"), result("0usajhl5")))),
    ("name-not-among-tools", body(HI, assistant(call(name="gone")), user(result()))),
    ("call-with-caller", body(HI, assistant(call(caller={"type": "direct"})), user(result()))),
    ("result-without-content", body(HI, assistant(call()), user(drop_keys(result(), "content")))),
    ("result-empty-string", make_answered(content="")),
    ("result-empty-list", make_answered(content=[], is_error=False)),
    ("result-is-an-error", make_answered(content="no", is_error=True)),
    ("result-of-many-blocks", make_answered(content=[text(), PNG, DOCUMENT])),
    ("result-of-search-results", make_answered(content=[SEARCH_RESULT, SEARCH_RESULT])),
    ("result-of-references", make_answered(content=[{"type": "tool_reference", "tool_name": "look"}])),
    ("cached-result-and-inner-block", make_answered(content=[text(cache_control=EPHEMERAL)], cache_control=EPHEMERAL)),
    (
        "hour-mark-before-five-minutes",
        body(user(text(cache_control=EPHEMERAL | {"ttl": "1h"}), text(cache_control=EPHEMERAL))),
    ),
    ("server-call-and-result", body(HI, assistant(search(), make_found(), text()), NEXT)),
    (
        "server-results-out-of-order",
        body(HI, assistant(search(), search("srvtoolu_2"), make_found("srvtoolu_2"), make_found(), text()), NEXT),
    ),
    ("pause-resumed", body(HI, assistant(text(), search()))),
    ("pause-resumed-on-old-model", body(HI, assistant(text(), search()), model=SONNET_4_5)),
    (
        "pause-resumed-with-thinking",
        body(HI, assistant(thinking(), text(), search()), model=SONNET_4_5, thinking=MANUAL),
    ),
    ("pause-ended-in-a-later-message", body(HI, assistant(text(), search()), assistant(make_found(), text()), NEXT)),
    (
        "open-call-of-code-under-another-name",
        body(HI, assistant(RUN_CODE | {"name": "bash_code_execution"}, call(**BY_CODE)), user(result()))
        | {"container": "container_1"},
    ),
    (
        "open-server-call-of-an-mcp-server",
        body(HI, assistant(search() | {"type": "mcp_tool_use", "id": "mcptoolu_1", "server_name": "s"})),
    ),
    ("open-server-call-then-results-only", body(HI, assistant(search(), call()), user(result()))),
    (
        "open-server-call-over-two-rounds-of-results",
        body(HI, assistant(search(), call("a")), user(result("a")), assistant(call("b")), user(result("b"))),
    ),
    (
        "open-server-call-answered-after-results",
        body(HI, assistant(search(), call()), user(result()), assistant(make_found(), text()), NEXT),
    ),
    ("calls-by-code", body(HI, assistant(RUN_CODE, call(**BY_CODE)), user(result()), container="container_1")),
    ("thinking-kept", body(HI, assistant(thinking(), call()), user(result()), model=SONNET_4_5, thinking=MANUAL)),
    ("thinking-display-omitted", body(HI, assistant(thinking(words=""), text()), NEXT)),
    ("thinking-redacted", body(HI, assistant({"type": "redacted_thinking", "data": "ZGF0YQ=="}, text()), NEXT)),
    (
        "thinking-only-in-the-first-reply-of-a-turn",
        body(
            HI,
            assistant(thinking(), call("a")),
            user(result("a")),
            assistant(call("b")),
            user(result("b")),
            model=SONNET_4_5,
            thinking=MANUAL,
        ),
    ),
    ("thinking-on-after-plain-turns", body(HI, HELLO, NEXT, model=SONNET_4_5, thinking=MANUAL)),
    ("adaptive-thinking-not-first", body(HI, assistant(call()), user(result()), thinking={"type": "adaptive"})),
    ("system-last", body(HI, system(text()))),
    ("system-as-string", body(HI, {"role": "system", "content": "Be brief."})),
    ("systems-in-a-row", body(HI, system(text()), system(text()), HELLO, NEXT)),
    ("system-after-results", body(HI, assistant(call()), user(result()), system(text()))),
    ("system-between-turns", body(HI, system(text()), HELLO, NEXT, system(text()))),
    ("compaction-first", body(assistant(compaction()), NEXT)),
    ("compaction-first-by-the-user", body(user(compaction()), HELLO, NEXT)),
    ("compaction-of-tool-changes", body(HI, assistant(compaction(tool_changes=[]), text()), NEXT)),
    ("compaction-signed", body(assistant(compaction(signature="c2ln")), NEXT)),
    ("compaction-last", body(HI, assistant(compaction()))),
    (
        "compactions-in-many-replies",
        body(HI, assistant(compaction(), text()), NEXT, assistant(compaction(), text()), NEXT),
    ),
    ("compaction-failed", body(HI, assistant(compaction(None), text()), NEXT)),
    ("compaction-failed-with-a-call", body(HI, assistant(compaction(None), call()), user(result()))),
    ("compaction-signed-without-content", body(HI, assistant(compaction(None, signature="c2ln"), text()), NEXT)),
    (
        "calls-before-a-compaction",
        body(HI, assistant(call("a"), search()), NEXT, assistant(compaction(), text()), NEXT),
    ),
    (
        "thinking-after-a-compaction",
        body(HI, assistant(compaction(), thinking(), call()), user(result()), model=SONNET_4_5, thinking=MANUAL),
    ),
    ("thinking-off", body(HI, thinking={"type": "disabled"})),
    ("thinking-adaptive-on-4-6", body(HI, model="claude-opus-4-6", thinking={"type": "adaptive"})),
    ("thinking-manual-on-4-6", body(HI, model="claude-sonnet-4-6", thinking=MANUAL)),
    *NEAREST,
    *NEAREST_SHAPES,
]

#: Name, rule and body: the API may take these, and `check` warns.
WARNED_REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("assistant-first", "assistant-first", body(HELLO, NEXT)),
    ("assistant-first-with-call", "assistant-first", body(assistant(call()), user(result()))),
    ("text-after-call", "text-after-call", body(HI, assistant(call(), text()), user(result()))),
    ("id-used-again", "reused-call", body(HI, assistant(call()), user(result()), assistant(call()), user(result()))),
    ("calls-without-tools", "no-tools", make_bare(HI, assistant(call()), user(result()), tools=[])),
    ("new-key-in-a-reply", "unknown-key", body(HI, assistant(call(mood="calm")), user(result()), tools=[TOOL])),
]
