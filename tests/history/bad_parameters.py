"""Requests that are refused for what goes with the messages, or for what a compaction or a change of tools left there.

A part of the corpus: see `bad_requests`.
"""

from __future__ import annotations

from typing import Any

from tests.history.bodies import (
    HELLO,
    HI,
    MANUAL,
    NEXT,
    SONNET_4_5,
    TOOL,
    WEB_SEARCH,
    BadRequest,
    answered,
    assistant,
    bare,
    body,
    call,
    compaction,
    reference,
    result,
    system,
    text,
    thinking,
    tool_change,
    user,
    without,
)

_BETA: dict[str, Any] = {"beta": "mid-conversation-tool-changes-2026-07-01"}
_ADAPTIVE = {"type": "adaptive"}
_OFF = {"type": "disabled"}

_THINKING = [
    BadRequest("manual-thinking-on-new-model", 31, "thinking-config", body(HI, thinking=MANUAL)),
    BadRequest(
        "manual-thinking-on-opus-4-7", 31, "thinking-config", body(HI, model="claude-opus-4-7", thinking=MANUAL)
    ),
    BadRequest("adaptive-thinking-on-old-model", 31, "thinking-config", body(HI, model=SONNET_4_5, thinking=_ADAPTIVE)),
    BadRequest("thinking-off-on-fable", 31, "thinking-config", body(HI, model="claude-fable-5", thinking=_OFF)),
    BadRequest(
        "thinking-off-on-mythos-preview",
        31,
        "thinking-config",
        body(HI, model="claude-mythos-preview", thinking=_OFF),
    ),
    BadRequest(
        "thinking-budget-small",
        31,
        "thinking-config",
        body(HI, model=SONNET_4_5, thinking=MANUAL | {"budget_tokens": 1023}),
    ),
    BadRequest(
        "thinking-off-with-most-effort",
        31,
        "effort",
        body(HI, model="claude-opus-5", thinking=_OFF, output_config={"effort": "max"}),
        checked=None,
    ),
    BadRequest(
        "thinking-budget-over-max-tokens",
        31,
        "thinking config",
        body(HI, model=SONNET_4_5, thinking=MANUAL, max_tokens=1024),
        checked=None,
    ),
    BadRequest(
        "manual-thinking-with-forced-tool",
        31,
        "thinking config",
        body(HI, model=SONNET_4_5, thinking=MANUAL, tool_choice={"type": "any"}),
        checked=None,
    ),
]

_TOOLS = [
    BadRequest("tool-name-with-space", 35, "tool-definition", body(HI, tools=[TOOL | {"name": "look up"}])),
    BadRequest("tool-name-too-long", 35, "tool-definition", body(HI, tools=[TOOL | {"name": "x" * 65}])),
    BadRequest("tool-name-twice", 35, "tool-definition", body(HI, tools=[TOOL, TOOL])),
    BadRequest("server-tool-twice", 35, "tool-definition", body(HI, tools=[TOOL, WEB_SEARCH, WEB_SEARCH])),
    BadRequest("tool-without-schema", 35, "tool-definition", body(HI, tools=[without(TOOL, "input_schema")])),
    BadRequest(
        "choice-of-unknown-tool", 35, "tool_choice", body(HI, tool_choice={"type": "tool", "name": "fly"}), checked=None
    ),
    BadRequest("choice-without-tools", 35, "tool_choice", bare(HI, tool_choice={"type": "auto"}), checked=None),
    BadRequest("choice-a-string", 35, "tool_choice", body(HI, tool_choice="auto"), checked=None),
    BadRequest("choice-of-unknown-type", 35, "tool_choice", body(HI, tool_choice={"type": "some"}), checked=None),
    BadRequest(
        "addition-of-no-tool", 22, "tool-reference", body(HI, system(tool_change("tool_addition", "fly"))), **_BETA
    ),
    BadRequest(
        "removal-of-no-tool",
        22,
        "tool-reference",
        body(HI, system(text(), tool_change("tool_removal", "fly")), HELLO, NEXT),
        **_BETA,
    ),
    BadRequest(
        "reference-beside-a-removal",
        35,
        "tool-reference",
        body(
            HI, assistant(call()), user(result(content=[reference("fly")])), system(tool_change("tool_removal", "look"))
        ),
        **_BETA,
    ),
    BadRequest(
        "addition-by-user", 22, "misplaced-block", body(user(text(), tool_change("tool_addition", "look"))), **_BETA
    ),
    BadRequest(
        "removal-by-assistant",
        22,
        "misplaced-block",
        body(HI, assistant(text(), tool_change("tool_removal", "look")), NEXT),
        **_BETA,
    ),
    BadRequest("addition-without-tool", 22, "block-fields", body(HI, system({"type": "tool_addition"})), **_BETA),
    BadRequest("upload-without-file", 3, "block-fields", body(user(text(), {"type": "container_upload"}))),
]

#: What is refused for the way a history is called upon.
BAD_PARAMETERS: list[BadRequest] = [*_THINKING, *_TOOLS]

BAD_COMPACTIONS: list[BadRequest] = [
    BadRequest("compaction-empty", 36, "compaction-content", body(HI, assistant(compaction(""), text()), NEXT)),
    BadRequest("compaction-a-list", 36, "block-fields", body(HI, assistant(compaction([text()]), text()), NEXT)),
    BadRequest("compaction-signature-a-number", 36, "block-fields", body(assistant(compaction(signature=7)), NEXT)),
    BadRequest(
        "compaction-tool-changes-a-string",
        36,
        "block-fields",
        body(HI, assistant(compaction(tool_changes="x"), text()), NEXT),
    ),
    BadRequest(
        "compaction-tool-change-a-string",
        36,
        "block-fields",
        body(HI, assistant(compaction(tool_changes=["x"]), text()), NEXT),
    ),
    BadRequest("compaction-in-system", 36, "system-content", body(HI, system(compaction()))),
    BadRequest("compaction-in-result", 36, "result-content", answered(content=[compaction()])),
    BadRequest(
        "signed-compaction-after-a-message",
        36,
        "compaction-place",
        body(HI, assistant(compaction(signature="c2ln")), NEXT),
    ),
    BadRequest(
        "signed-compaction-after-text",
        36,
        "compaction-place",
        body(assistant(text(), compaction(signature="c2ln")), NEXT),
    ),
    BadRequest(
        "two-signed-compactions",
        36,
        "compaction-place",
        body(assistant(compaction(signature="c2ln")), NEXT, assistant(compaction(signature="c2lo")), NEXT),
    ),
    BadRequest(
        "result-of-a-compacted-call",
        16,
        "orphan-result",
        body(HI, assistant(call(), compaction(), text()), user(result(), text())),
    ),
    BadRequest(
        "call-before-a-failed-compaction",
        15,
        "unanswered-call",
        body(HI, assistant(call()), NEXT, assistant(compaction(None), text()), NEXT),
    ),
    BadRequest("call-after-a-compaction", 15, "unanswered-call", body(HI, assistant(compaction(), call()), NEXT)),
    BadRequest(
        "manual-thinking-before-the-compaction-only",
        27,
        "thinking-first",
        body(
            HI,
            assistant(thinking(), call("a")),
            user(result("a")),
            assistant(compaction(), call("b")),
            user(result("b")),
            model=SONNET_4_5,
            thinking=MANUAL,
        ),
    ),
]
