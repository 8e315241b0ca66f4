"""The rules of a history by id, and the problems that `check` reports.

The table is the source of `docs/history-rules.md`. The numbers are those of the rules in the API notes, which come from
the public documentation, recorded requests and public reports.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import field, frozen

Level = Literal["error", "warning"]


@frozen
class Rule:
    """One rule.

    Args:
        says: the rule, in a sentence.
        remedy: how to repair a history that breaks it.
        source: the number of the rule in the API notes, and its evidence.
        level: `error` where the API is certain to refuse, else `warning`.

    """

    says: str
    remedy: str
    source: str
    level: Level = "error"


@frozen
class Problem:
    """One place where a history breaks a rule.

    Args:
        path: like `messages[4].content[1]`, in the indices of the list that was given.
        rule: the id of the rule, a key of `RULES`.
        level: `error`: the API refuses the request; `warning`: it may refuse it, or the model answers worse.
        message: what is wrong.
        remedy: what to do.

    """

    path: str
    rule: str
    level: Level
    message: str
    remedy: str


@frozen
class Findings:
    """The problems that were found."""

    problems: list[Problem] = field(factory=list)

    def add(self, rule: str, path: str, message: str, *, level: Level | None = None, remedy: str | None = None) -> None:
        """Add a problem, with the level and the remedy of its rule unless they are given."""
        known = RULES[rule]
        self.problems.append(Problem(path, rule, level or known.level, message, remedy or known.remedy))


RULES: Final[dict[str, Rule]] = {
    "no-messages": Rule("There is at least one message.", "Add a user message.", "1, reported"),
    "too-many-messages": Rule("There are at most 100,000 messages.", "Compact the history.", "1, SDK"),
    "not-encodable": Rule(
        "Messages are JSON, without NaN, infinity and half of a surrogate pair (in a reply: a warning).",
        "Replace the value; U+FFFD stands for half of a surrogate pair.",
        "section 3, reported",
    ),
    "unknown-role": Rule(
        "A role is user, assistant or system.", "Give one of the roles user, assistant and system.", "2, measured"
    ),
    "message-shape": Rule(
        "A message has a role and a content, a string or a list.",
        "Give the message a role and a content.",
        "3, reported",
    ),
    "block-shape": Rule("A block is an object with a type.", "Wrap words in a text block.", "3, reported"),
    "block-fields": Rule(
        "A known block has its members, of the right types; ids match their patterns.",
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
        "The first message is the user's; older documentation requires it.",
        "Keep the first user message.",
        "9, recorded and measured",
        "warning",
    ),
    "prefill": Rule(
        "The last message is not an assistant's, except for a paused turn, or before Claude 4.6 without thinking.",
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
        "A turn has content (a prefill: a warning).",
        "Leave the message out; `repair` does.",
        "13, reported and measured",
    ),
    "blank-text": Rule(
        "A text is not blank, also inside a result.", "Leave the block out; `repair` does.", "14, reported"
    ),
    "unanswered-call": Rule(
        "Each call has its result in the user turn right after it.",
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
        "Each result answers a call of the assistant turn right before it.",
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
        "A call has an id that no earlier turn used.",
        "Give each call an id of its own.",
        "18, recorded as accepted",
        "warning",
    ),
    "misplaced-block": Rule(
        "A block stands only in messages, or in results, that may hold its type.",
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
        "A system message follows a user turn or a server result, and comes before an assistant turn or last.",
        "Move it to the end of the user turn; `repair` does where a user message follows.",
        "21, measured",
    ),
    "system-content": Rule(
        "A system message has blocks: text, tool_addition or tool_removal.", "Leave the rest out.", "21, measured"
    ),
    "open-server-call": Rule(
        "A server call has its result, unless its turn has not ended.", "Drop the call; `repair` does.", "23, reported"
    ),
    "server-tool-gone": Rule(
        "While a server call is open, the request has its tool.", "Keep sending the tool.", "23, reported"
    ),
    "code-results-only": Rule(
        "After calls made by code the user turn has only results, and these only text.",
        "Move the rest behind the next reply.",
        "25, documented",
    ),
    "thinking-first": Rule(
        "With manual thinking, an unfinished turn begins with thinking.",
        "Keep the thinking of that turn.",
        "27, reported",
    ),
    "empty-thinking": Rule(
        "A thinking block has its text or its signature.", "Restore the block, or drop it.", "28, reported"
    ),
    "thinking-config": Rule(
        "The model accepts this type of thinking; a budget has at least 1,024 tokens.",
        "Use `adaptive` from Claude 4.7 on, `enabled` up to 4.5.",
        "31, documented",
    ),
    "user-citations": Rule(
        "The user's text does not have citations.", "Drop the citations.", "32, documented", "warning"
    ),
    "mixed-search-results": Rule(
        "A result holds search results only, or none.", "Put the rest after the results.", "33, documented"
    ),
    "cache-marks": Rule(
        "There are at most four cache marks; those of an hour come first.",
        "Keep the last marks only.",
        "34, reported",
    ),
    "result-content": Rule(
        "A result holds text, or blocks that its call may return; an error holds text.",
        "Put any other value into text, as JSON.",
        "section 3, SDK",
    ),
    "toolset-name": Rule(
        "A result names the toolset that its call names.",
        "Name the toolset of the call; `repair` does.",
        "section 3, SDK",
    ),
    "tool-reference": Rule(
        "A reference names a tool of the request.", "Send the tool, too, or drop the reference.", "22 and 35, reported"
    ),
    "tool-definition": Rule(
        "Tools have names of their own, as the API wants them, and an `input_schema`.",
        "Rename the tool, or add a schema.",
        "35, reported",
    ),
    "compaction-content": Rule(
        "The content of a compaction block is null, or not empty.", "Restore the block.", "36, SDK"
    ),
    "compaction-place": Rule(
        "A signed compaction block is the first block of all.", "Drop the messages before it.", "36, SDK"
    ),
    "image-limits": Rule("An image has at most 5 MB of base64.", "Make the image smaller.", "reported"),
    "request-size": Rule(
        "A request has at most 32 MB; only a loop checks it.",
        "Shorten the history, or stop the loop if the open round is too large.",
        "1, documented",
    ),
    "empty-error-result": Rule(
        "An error result has content.", "Say what failed; `repair` adds a general text.", "section 3, reported"
    ),
}
