"""The rules of a history by id, and the problems that `check` reports.

`docs/history-rules.md` shows the same table. The numbers refer to the API notes, which are based on the public
documentation, recorded requests and public reports.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen

from toolloop._public import set_module

Level = Literal["error", "warning"]


@set_module("toolloop.history")
@frozen
class Rule:
    """One rule.

    Args:
        says: the rule, in a sentence.
        remedy: how to repair a history that breaks it.
        source: the number of the rule in the API notes, and the kind of evidence.
        level: `error` if the API certainly refuses, else `warning`.

    """

    says: str
    remedy: str
    source: str
    level: Level = "error"


@set_module("toolloop.history")
@frozen
class Problem:
    """A violation of a rule in a history.

    Args:
        path: the position in the given list, such as `messages[4].content[1]`.
        rule: the id of the rule, a key of `RULES`.
        level: `error`: the API refuses the request; `warning`: it may refuse it, or the model may answer worse.
        message: a description of the problem.
        remedy: how to repair it.

    """

    path: str
    rule: str
    level: Level
    message: str
    remedy: str


@frozen
class Problems:
    """Collect the problems that are found."""

    problems: list[Problem] = field(factory=list)

    def add(self, rule: str, path: str, message: str, *, level: Level | None = None, remedy: str | None = None) -> None:
        """Add a problem. The level and the remedy default to those of the rule."""
        known = RULES[rule]
        self.problems.append(Problem(path, rule, level or known.level, message, remedy or known.remedy))


RULES: Final[dict[str, Rule]] = {
    "no-messages": Rule("There is at least one message.", "Add a user message.", "1, reported"),
    "too-many-messages": Rule("There are at most 100,000 messages.", "Compact the history.", "1, SDK"),
    "not-encodable": Rule(
        "Messages are JSON without NaN, infinity and lone surrogates (in a reply: a warning).",
        "Replace the value; use U+FFFD for a lone surrogate.",
        "section 3, reported",
    ),
    "unknown-role": Rule(
        "A role is user, assistant or system.", "Use the role user, assistant or system.", "2, measured"
    ),
    "message-shape": Rule(
        "A message has a role, and a content that is a string or a list.",
        "Add a role and a content.",
        "3, reported",
    ),
    "block-shape": Rule("A block is an object with a type.", "Wrap text in a text block.", "3, reported"),
    "block-fields": Rule(
        "A block of a known type has its members, with the right types; ids match their patterns.",
        "Restore the block as it was received.",
        "3 and 20, reported",
    ),
    "unknown-block": Rule(
        "The type of a block is known.", "Check the spelling; new types pass.", "3, reported", "warning"
    ),
    "unknown-key": Rule(
        "Messages and blocks have only the keys of the API (in replies: a warning).", "Remove the key.", "4, reported"
    ),
    "assistant-first": Rule(
        "The first message has the role user; older documentation requires it.",
        "Keep the first user message.",
        "9, recorded and measured",
        "warning",
    ),
    "prefill": Rule(
        "The last message is not from the assistant, except a paused turn, or before Claude 4.6 without thinking.",
        "Add a user message.",
        "10, documented",
    ),
    "trailing-whitespace": Rule(
        "A last assistant message does not end in whitespace.", "Strip the end of its text.", "11, reported"
    ),
    "thinking-last": Rule(
        "An assistant turn does not end in thinking.", "Drop the thinking at its end; `repair` does.", "12, measured"
    ),
    "empty-content": Rule(
        "A message has content (a prefill: a warning).",
        "Leave the message out; `repair` does.",
        "13, reported and measured",
    ),
    "blank-text": Rule(
        "Texts are not blank, including those in results.", "Leave the block out; `repair` does.", "14, reported"
    ),
    "unanswered-call": Rule(
        "Each call has its result in the user turn directly after it.",
        "Add a `tool_result`, with `is_error` if the call did not run; `repair` does.",
        "15, documented",
    ),
    "results-first": Rule(
        "Results come before other blocks in their user turn.",
        "Move the results to the front; `repair` does.",
        "15, documented",
    ),
    "text-after-call": Rule(
        "Text does not follow a call in its assistant turn.",
        "Put the text before the calls.",
        "15, reported",
        "warning",
    ),
    "orphan-result": Rule(
        "Each result answers a call of the assistant turn directly before it.",
        "Drop the result; `repair` does.",
        "16 and 24, recorded",
    ),
    "repeated-result": Rule("A call has one result.", "Keep one of them; `repair` keeps the first.", "17, measured"),
    "duplicate-call": Rule(
        "The calls of one assistant turn have different ids.",
        "Drop one of them; `repair` drops the second.",
        "18, reported",
    ),
    "reused-call": Rule(
        "The id of a call differs from those of earlier turns.",
        "Use a unique id for each call.",
        "18, recorded as accepted",
        "warning",
    ),
    "misplaced-block": Rule(
        "A block is in a message or result that may hold its type.",
        "Move the block.",
        "20, 32 and 33, documented",
    ),
    "no-tools": Rule(
        "A request with calls in its history has tools.", "Keep sending the tools.", "20, reported", "warning"
    ),
    "system-model": Rule(
        "The model accepts system messages.", "Use a user message, or the `system` parameter.", "21, documented"
    ),
    "system-place": Rule(
        "A system message follows a user turn or a server result, and precedes an assistant turn or is last.",
        "Move it to the end of the user turn; `repair` does if a user message follows.",
        "21, measured",
    ),
    "system-content": Rule(
        "A system message has only blocks of type text, tool_addition and tool_removal.",
        "Leave other blocks out.",
        "21, measured",
    ),
    "open-server-call": Rule(
        "A server call has its result, unless its turn has not ended.", "Drop the call; `repair` does.", "23, reported"
    ),
    "orphan-server-result": Rule(
        "Each server result is after its server call.", "Drop the result; `repair` does.", "23, recorded"
    ),
    "server-tool-gone": Rule(
        "The request has the tool of each open server call.", "Keep sending the tool.", "23, reported"
    ),
    "code-results-only": Rule(
        "After calls made by code, the user turn has only results, and these have only text.",
        "Move other content after the next reply.",
        "25, documented",
    ),
    "thinking-first": Rule(
        "With manual thinking, an open turn, or its last reply, begins with thinking.",
        "Keep the thinking of that turn.",
        "27, reported",
    ),
    "empty-thinking": Rule(
        "A thinking block has a text or a signature.", "Restore the block, or drop it.", "28, reported"
    ),
    "thinking-config": Rule(
        "The model accepts the type of thinking; a budget has at least 1,024 tokens, and fewer than `max_tokens`; "
        "manual thinking does not go with a forced tool.",
        "Use `adaptive` from Claude 4.7 on, `enabled` up to 4.5.",
        "31, documented",
    ),
    "user-citations": Rule(
        "The user's text does not have citations.", "Drop the citations.", "32, documented", "warning"
    ),
    "mixed-search-results": Rule(
        "A result holds either only search results or none.", "Put other blocks after the results.", "33, documented"
    ),
    "cache-marks": Rule(
        "There are at most four cache marks; marks with a ttl of an hour come first.",
        "Keep only the last marks.",
        "34, reported",
    ),
    "result-content": Rule(
        "A result holds blocks that its call may return; an error result holds only text.",
        "Convert other values to text, as JSON.",
        "section 3, SDK",
    ),
    "toolset-name": Rule(
        "A result has the same `toolset_name` as its call.",
        "Use the `toolset_name` of the call; `repair` does.",
        "section 3, SDK",
    ),
    "tool-reference": Rule(
        "A reference names a tool of the request.", "Send the tool too, or drop the reference.", "22 and 35, reported"
    ),
    "tool-definition": Rule(
        "A tool has a unique, valid name and an `input_schema`.",
        "Rename the tool, or add a schema.",
        "35, reported",
    ),
    "compaction-content": Rule(
        "The content of a compaction block is null, or not empty.", "Restore the block.", "36, SDK"
    ),
    "compaction-place": Rule(
        "A signed compaction block is the first block of the history.", "Drop the messages before it.", "36, SDK"
    ),
    "image-limits": Rule("An image has at most 5 MB as base64.", "Make the image smaller.", "reported"),
    "request-size": Rule(
        "A request has at most 32 MB; only a loop checks this.",
        "Shorten the history, or stop the loop if the open round is too large.",
        "1, documented",
    ),
    "empty-error-result": Rule(
        "An error result has content.", "Describe the error; `repair` adds a general text.", "section 3, reported"
    ),
}
