"""Requests that are refused for what goes with the messages, or for what a compaction or a change of tools left there.

A part of the corpus: see `bad_requests`.
"""

from __future__ import annotations

from typing import Any

from tests.messages.bodies import (
    HELLO,
    HI,
    MANUAL,
    NEXT,
    SONNET_4_5,
    TOOL,
    WEB_SEARCH,
    BadRequest,
    assistant,
    body,
    call,
    compaction,
    drop_keys,
    list_refused,
    make_answered,
    make_bare,
    reference,
    result,
    system,
    text,
    thinking,
    tool_change,
    user,
)

_BETA: dict[str, Any] = {"beta": "mid-conversation-tool-changes-2026-07-01"}
_ADAPTIVE = {"type": "adaptive"}
_OFF = {"type": "disabled"}


#: What is refused for the way a history is called upon.
BAD_PARAMETERS: list[BadRequest] = [
    *list_refused(
        {
            "thinking-config": {
                "manual-thinking-on-new-model": body(HI, thinking=MANUAL),
                "manual-thinking-on-opus-4-7": body(HI, model="claude-opus-4-7", thinking=MANUAL),
                "adaptive-thinking-on-old-model": body(HI, model=SONNET_4_5, thinking=_ADAPTIVE),
                "thinking-off-on-fable": body(HI, model="claude-fable-5", thinking=_OFF),
                "thinking-off-on-mythos-preview": body(HI, model="claude-mythos-preview", thinking=_OFF),
                "thinking-budget-small": body(HI, model=SONNET_4_5, thinking=MANUAL | {"budget_tokens": 1023}),
                "thinking-budget-over-max-tokens": body(HI, model=SONNET_4_5, thinking=MANUAL, max_tokens=1024),
                "manual-thinking-with-forced-tool": body(
                    HI, model=SONNET_4_5, thinking=MANUAL, tool_choice={"type": "any"}
                ),
            },
            "tool-definition": {
                "tool-name-with-space": body(HI, tools=[TOOL | {"name": "look up"}]),
                "tool-name-too-long": body(HI, tools=[TOOL | {"name": "x" * 65}]),
                "tool-name-twice": body(HI, tools=[TOOL, TOOL]),
                "server-tool-twice": body(HI, tools=[TOOL, WEB_SEARCH, WEB_SEARCH]),
                "tool-without-schema": body(HI, tools=[drop_keys(TOOL, "input_schema")]),
            },
            "block-fields": {"upload-without-file": body(user(text(), {"type": "container_upload"}))},
        }
    ),
    *list_refused(
        {
            "effort": {
                "thinking-off-with-most-effort": body(
                    HI, model="claude-opus-5", thinking=_OFF, output_config={"effort": "max"}
                )
            },
            "tool_choice": {
                "choice-of-unknown-tool": body(HI, tool_choice={"type": "tool", "name": "fly"}),
                "choice-without-tools": make_bare(HI, tool_choice={"type": "auto"}),
                "choice-a-string": body(HI, tool_choice="auto"),
                "choice-of-unknown-type": body(HI, tool_choice={"type": "some"}),
            },
        },
        checked=None,
    ),
    *list_refused(
        {
            "tool-reference": {
                "addition-of-no-tool": body(HI, system(tool_change("tool_addition", "fly"))),
                "removal-of-no-tool": body(HI, system(text(), tool_change("tool_removal", "fly")), HELLO, NEXT),
                "reference-beside-a-removal": body(
                    HI,
                    assistant(call()),
                    user(result(content=[reference("fly")])),
                    system(tool_change("tool_removal", "look")),
                ),
            },
            "misplaced-block": {
                "addition-by-user": body(user(text(), tool_change("tool_addition", "look"))),
                "removal-by-assistant": body(HI, assistant(text(), tool_change("tool_removal", "look")), NEXT),
            },
            "block-fields": {"addition-without-tool": body(HI, system({"type": "tool_addition"}))},
        },
        **_BETA,
    ),
]

BAD_COMPACTIONS: list[BadRequest] = [
    *list_refused(
        {
            "compaction-content": {"compaction-empty": body(HI, assistant(compaction(""), text()), NEXT)},
            "block-fields": {
                "compaction-a-list": body(HI, assistant(compaction([text()]), text()), NEXT),
                "compaction-signature-a-number": body(assistant(compaction(signature=7)), NEXT),
                "compaction-tool-changes-a-string": body(HI, assistant(compaction(tool_changes="x"), text()), NEXT),
                "compaction-tool-change-a-string": body(HI, assistant(compaction(tool_changes=["x"]), text()), NEXT),
            },
            "system-content": {"compaction-in-system": body(HI, system(compaction()))},
            "result-content": {"compaction-in-result": make_answered(content=[compaction()])},
            "compaction-place": {
                "signed-compaction-after-a-message": body(HI, assistant(compaction(signature="c2ln")), NEXT),
                "signed-compaction-after-text": body(assistant(text(), compaction(signature="c2ln")), NEXT),
                "two-signed-compactions": body(
                    assistant(compaction(signature="c2ln")), NEXT, assistant(compaction(signature="c2lo")), NEXT
                ),
            },
            "orphan-result": {
                "result-of-a-compacted-call": body(HI, assistant(call(), compaction(), text()), user(result(), text()))
            },
            "unanswered-call": {
                "call-before-a-failed-compaction": body(
                    HI, assistant(call()), NEXT, assistant(compaction(None), text()), NEXT
                ),
                "call-after-a-compaction": body(HI, assistant(compaction(), call()), NEXT),
            },
            "thinking-first": {
                "manual-thinking-before-the-compaction-only": body(
                    HI,
                    assistant(thinking(), call("a")),
                    user(result("a")),
                    assistant(compaction(), call("b")),
                    user(result("b")),
                    model=SONNET_4_5,
                    thinking=MANUAL,
                )
            },
        }
    )
]
