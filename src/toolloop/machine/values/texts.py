"""Fill in the texts of the setup, which the model gets for calls without a result of their tools."""

from __future__ import annotations

from toolloop.machine.values.jsontext import make_well_formed
from toolloop.machine.values.setup import Texts

# The names in braces that each text may have, with sample values.
PLACES: dict[str, dict[str, str]] = {
    "denied": {"reason": "not today"},
    "not_run": {},
    "cancelled": {},
    "uncertain": {"reason": "the process crashed"},
    "unknown_tool": {"name": "add", "known": "sub, mul"},
    "tool_gone": {"name": "add"},
    "invalid_input": {"name": "add", "problems": "- a: expected a number"},
    "timed_out": {"seconds": "30"},
    "left_behind": {"seconds": "30"},
    "failed": {"error": "ValueError: no"},
    "edited": {"id": "toolu_1", "name": "add", "input": "{}"},
    "expired": {},
    "loop_warning": {"name": "search", "count": "3"},
    "no_answer": {"reason": "it was refused"},
    "misfit": {"problems": "- amount: must be greater than 0"},
    "member_not_run": {"kind": "computer "},
    "cut_short": {"reason": "max iterations", "text": "So far"},
}


def fill_text(texts: Texts, which: str, /, **places: object) -> str:
    """Return one of the texts, filled in. Return the default text if it is blank or cannot be filled in."""
    try:
        text: str = getattr(texts, which).format(**places)
    except (LookupError, ValueError, AttributeError):
        text = ""
    return make_well_formed(text if text.strip() else str(getattr(Texts(), which).format(**places)))
