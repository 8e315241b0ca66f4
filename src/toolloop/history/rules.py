"""The rules of a history, each with its id, and what is found when one is broken.

The table is the source of `docs/history-rules.md`. Numbers are those of the rules in the API notes that came from the
public documentation, recorded requests and public reports.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import field

from toolloop.core.freezing import frozen

Level = Literal["error", "warning"]


@frozen
class Rule:
    """One rule.

    Args:
        level: `error` where the API is certain to refuse, else `warning`.
        says: the rule, in a sentence.
        remedy: how to mend a history that breaks it.
        source: the number of the rule in the API notes, and what it rests on.

    """

    level: Level
    says: str
    remedy: str
    source: str


@frozen
class Problem:
    """One place where a history breaks a rule.

    Args:
        path: like `messages[4].content[1]`, in the indices of the list that was given.
        rule: the id of the rule, a key of `RULES`.
        level: `error`: the API will refuse; `warning`: it may, or the model fares worse.
        message: what is wrong there.
        remedy: what to do.

    """

    path: str
    rule: str
    level: Level
    message: str
    remedy: str


@frozen
class Findings:
    """The problems found so far."""

    problems: list[Problem] = field(factory=list)

    def add(self, rule: str, path: str, message: str, *, level: Level | None = None, remedy: str | None = None) -> None:
        """Note a problem; level and remedy are those of the rule unless given."""
        known = RULES[rule]
        self.problems.append(Problem(path, rule, level or known.level, message, remedy or known.remedy))


RULES: Final[dict[str, Rule]] = {
    "no-messages": Rule("error", "There is at least one message.", "Add a user message.", "1, reported"),
    "too-many-messages": Rule("error", "There are at most 100,000 messages.", "Compact the history.", "1, SDK"),
    "not-encodable": Rule(
        "error",
        "Messages are JSON that a request can carry: no half of a surrogate pair in a text (of the model's own: a "
        "warning), no number that is NaN, infinite or of thousands of digits, nothing that is no JSON value.",
        "Replace what is named; U+FFFD stands for half of a surrogate pair.",
        "section 3, reported",
    ),
    "unknown-role": Rule("error", "A role is user, assistant or system.", "Use one of the three.", "2, measured"),
    "message-shape": Rule(
        "error",
        "Messages are a list of objects with a role and a content; the content is a string or a list; "
        "what a system message sets has values that the API knows.",
        "Give the message a role and a content.",
        "3, reported",
    ),
    "block-shape": Rule("error", "A block is an object with a type.", "Wrap words in a text block.", "3, reported"),
    "block-fields": Rule(
        "error",
        "A known block has its fields, of the right kind; ids match their patterns.",
        "Restore the block as it was received, or build it anew.",
        "3 and 20, reported",
    ),
    "unknown-block": Rule(
        "warning", "The type of a block is a known one.", "Check the spelling; new types pass.", "3, reported"
    ),
    "unknown-key": Rule(
        "error",
        "Messages and known blocks have no other keys than the API's (in replies: a warning).",
        "Remove the key.",
        "4, reported",
    ),
    "assistant-first": Rule(
        "warning",
        "The first message is the user's; older texts of the API ask for it.",
        "Keep the first user message when you cut a history.",
        "9, recorded and measured",
    ),
    "prefill": Rule(
        "error",
        "The last message is not an assistant's, but for a paused turn (one that ends in a server result: a warning); "
        "models before 4.6 take one without thinking.",
        "Add a user message.",
        "10, documented",
    ),
    "trailing-whitespace": Rule(
        "error",
        "A last assistant message does not end in whitespace.",
        "Strip the end of its text.",
        "11, reported",
    ),
    "thinking-last": Rule(
        "error",
        "An assistant turn does not end in thinking.",
        "Drop the thinking blocks at its end; `repair` does.",
        "12, measured; before the last turn reported",
    ),
    "empty-content": Rule(
        "error",
        "A turn has content (a last assistant turn, for a model that takes prefill: a warning).",
        "Leave the empty message out; `repair` does.",
        "13, reported and measured",
    ),
    "blank-text": Rule(
        "error",
        "Text holds a word, inside a result too.",
        "Leave the text block out; `repair` does.",
        "14, reported",
    ),
    "unanswered-call": Rule(
        "error",
        "Each call has its result in the user turn right after it.",
        "Add a `tool_result`, with `is_error` if the call did not run; `repair` does.",
        "15, documented",
    ),
    "results-first": Rule(
        "error",
        "Results come before all else in their user turn.",
        "Move the results to the front; `repair` does.",
        "15, documented",
    ),
    "text-after-call": Rule(
        "warning",
        "No text follows a call within its assistant turn; the API never writes such.",
        "Put the text before the calls.",
        "15, reported",
    ),
    "orphan-result": Rule(
        "error",
        "Each result answers a call of the assistant turn right before it.",
        "Drop the result; `repair` does.",
        "16 and 24, recorded",
    ),
    "repeated-result": Rule(
        "error", "A call has one result.", "Keep one of them; `repair` keeps the first.", "17, measured"
    ),
    "duplicate-call": Rule(
        "error",
        "The calls of one assistant turn have different ids.",
        "Drop one of the calls, or give it an id and a result of its own.",
        "18, reported",
    ),
    "reused-call": Rule(
        "warning",
        "A call has an id that no earlier turn used.",
        "Give each call an id of its own.",
        "18, recorded as accepted",
    ),
    "misplaced-block": Rule(
        "error",
        "Calls, thinking, server results are the assistant's; results, images, documents, search results the user's; "
        "references to tools and browser states stand in results only.",
        "Move the block to where it may stand.",
        "20, 32 and 33, documented",
    ),
    "no-tools": Rule("warning", "A history with calls is sent with tools.", "Keep sending the tools.", "20, reported"),
    "system-model": Rule(
        "error",
        "The model takes system messages.",
        "Say it in a user message, or in the `system` parameter.",
        "21, documented",
    ),
    "system-place": Rule(
        "error",
        "A system message follows a user turn, or an assistant turn that ends in a server tool's result, and comes "
        "before an assistant turn or last.",
        "Move it to the end of the user turn; `repair` does where a user message follows.",
        "21, measured",
    ),
    "system-content": Rule(
        "error",
        "A system message has blocks: text, tool_addition or tool_removal.",
        "Leave the rest out.",
        "21, measured",
    ),
    "open-server-call": Rule(
        "error",
        "A server call has its result, unless its turn still goes on.",
        "Drop the call; `repair` does.",
        "23, reported",
    ),
    "server-tool-gone": Rule(
        "error",
        "While a server call is open, its tool is among the tools (if it may be there under another name: a warning).",
        "Keep sending the tool until the call has its result.",
        "23, reported",
    ),
    "code-results-only": Rule(
        "error",
        "After calls made by code comes a user turn of nothing but results, and these hold only text.",
        "Move the rest behind the next assistant message.",
        "25, documented",
    ),
    "thinking-first": Rule(
        "error",
        "With manual thinking the turn that results belong to began with thinking.",
        "Keep the thinking blocks of that turn, or send the request without thinking.",
        "27, reported",
    ),
    "empty-thinking": Rule(
        "error",
        "A thinking block has its words or its signature.",
        "Restore the block as it was received, or drop it.",
        "28, reported",
    ),
    "thinking-config": Rule(
        "error",
        "The model takes this kind of thinking: `enabled` before 4.7 and with a budget of at least 1,024 tokens, "
        "`adaptive` after 4.5, `disabled` unless it is a Fable or Mythos.",
        "Use `adaptive` with an effort from 4.7 on, `enabled` with a budget up to 4.5, and neither to leave it out.",
        "31, documented",
    ),
    "user-citations": Rule("warning", "Text of the user has no citations.", "Drop the citations.", "32, documented"),
    "mixed-search-results": Rule(
        "error",
        "A result holds search results only, or none.",
        "Put the rest into text after the results.",
        "33, documented",
    ),
    "mixed-citations": Rule(
        "error",
        "Citations are on for all documents and search results, or for none.",
        "Set `citations` alike in all of them.",
        "33, documented",
    ),
    "cache-marks": Rule(
        "error",
        "There are at most four cache marks, those of an hour before those of five minutes.",
        "Keep the last marks only.",
        "34, reported",
    ),
    "result-content": Rule(
        "error",
        "A result holds a string, or a list of text, images, documents, search results and references; that of an "
        "error only text; that of a toolset member text, images and one browser state.",
        "Put anything else into text, as JSON.",
        "section 3, SDK",
    ),
    "toolset-name": Rule(
        "error",
        "The result of a toolset member names the toolset that its call names, and no other result names one.",
        "Give the result the `toolset_name` of its call; `repair` does.",
        "section 3, SDK",
    ),
    "tool-reference": Rule(
        "error",
        "A reference in a result, or in what a system message adds or removes, names a tool of the request.",
        "Send the tool along (it may have `defer_loading`), or drop the reference.",
        "22 and 35, reported",
    ),
    "tool-definition": Rule(
        "error",
        "The tools of the request have names of their own, of letters, digits, `_` and `-`, at most 64; one of the "
        "caller's has an `input_schema`.",
        "Rename the tool, or give it a schema.",
        "35, reported",
    ),
    "compaction-content": Rule(
        "error",
        "The content of a compaction block is null, or has at least one character.",
        "Restore the block as it was received.",
        "36, SDK",
    ),
    "compaction-place": Rule(
        "error",
        "A signed compaction block is the very first block of the messages.",
        "Send it in the place of all messages that it stands for.",
        "36, SDK",
    ),
    "image-limits": Rule(
        "error",
        "An image has at most 5 MB of base64 and 8,000 pixels a side (2,000 if there are more than 20 images); a "
        "request has at most 600 images, 100 for models before 4.6 (more than 100 for an unknown model: a warning).",
        "Make the images smaller, or fewer.",
        "documented; the size reported",
    ),
    "request-size": Rule(
        "error",
        "A request has at most 32 MB; `check` does not know the whole request, a loop does before it sends one.",
        "Shorten the history with `messages_mut()`; a round that is not in it yet goes with `resume(Stop())`.",
        "1, documented",
    ),
    "empty-error-result": Rule(
        "error",
        "A result that is an error says something.",
        "Say what failed; `repair` does in general words.",
        "section 3, reported",
    ),
}
