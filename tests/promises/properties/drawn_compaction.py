"""The strategies of the drawn loops, and what may come of a request for a summary."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.promises.properties.drawn_replies import Said, WholeScript
from toolloop.compaction import SUMMARY_PROMPT, DropRounds, MaskResults, Summarize
from toolloop.testing import dropped, fault, html


def sum_up(messages: list[Any]) -> str:
    """A summary by a function."""
    return f"{len(messages)} messages."


def fail(messages: list[Any]) -> str:
    """No summary."""
    raise OSError(f"no words for {len(messages)} messages")


# The tools that every drawn loop has come to 3,800 tokens, so this is soon reached, but not at once.
_SOON = 4000
#: What a configuration may have.
STRATEGIES: dict[str, Any] = {
    "drop": DropRounds(2, at_tokens=_SOON),
    "drop if it pays": DropRounds(1),
    "mask": MaskResults(1, 100, at_tokens=_SOON),
    "ask": Summarize(keep_last=1, at_tokens=_SOON),
    "tell": Summarize(sum_up, 2, at_tokens=_SOON),
    "fail": Summarize(fail, 1, at_tokens=_SOON),
}
COMPACTIONS: st.SearchStrategy[tuple[str, ...]] = st.sampled_from(
    [
        (),
        (),
        (),
        ("drop",),
        ("drop if it pays", "ask"),
        ("mask",),
        ("ask",),
        ("ask",),
        ("mask", "tell"),
        ("fail", "drop"),
    ]
)


def _summary(stop_reason: str | None = "end_turn", *kinds: str, calls: int = 0) -> Said:
    made = (("work", {"do": "return"}),) * calls
    return Said(kinds or ("text",), made, stop_reason, False, False, False, {"input_tokens": 3, "output_tokens": 2})


#: What the model answers to a request for a summary; the first is what it says unless something else is drawn.
SUMMARY = _summary()
SUMMARIES = st.sampled_from(
    [
        SUMMARY,
        SUMMARY,
        _summary("end_turn", "thinking", "text"),
        _summary("max_tokens"),
        _summary("refusal"),
        _summary("pause_turn"),
        _summary("tool_use", calls=1),
        _summary("end_turn", "blank"),
        fault(500),
        fault(400),
        dropped(),
        html(),
    ]
)


def is_for_summary(body: Any) -> bool:
    """Whether a request asks for a summary."""
    content = body["messages"][-1]["content"]
    return isinstance(content, list) and content[-1:] == [{"type": "text", "text": SUMMARY_PROMPT}]


class SummingScript(WholeScript):
    """A script that answers requests for a summary with what is in `summaries`; when it has run out, with a summary."""

    def __init__(self, said: list[Any] | None = None, summaries: list[Any] | None = None) -> None:
        """Nothing was said yet."""
        super().__init__(said)
        self.summaries = summaries or []

    def __call__(self, body: dict[str, Any]) -> Any:
        """Answer a request."""
        if not is_for_summary(body):
            return super().__call__(body)
        return self.answer(self.summaries.pop(0) if self.summaries else SUMMARY, body)
