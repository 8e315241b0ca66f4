"""What the rule-based machine over a whole loop draws from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.properties.drawing import FAULTS, MEDDLING, PAUSING, Said, answers
from tests.properties.settings import BINDS, FREE, Setting
from tests.properties.shortening import COMPACTIONS
from toolloop import LoopDetection

SETTINGS = st.builds(
    Setting,
    model=st.sampled_from([BINDS, FREE, FREE]),
    execution=st.sampled_from(["barrier", "ready"]),
    parallel=st.sampled_from([1, 1, 1, 8]),
    iterations=st.sampled_from([1, 3, 20, 20, 20, 20]),
    pauses=st.sampled_from([0, 1, 5]),
    has_policy=st.booleans(),
    has_stop_when=st.booleans(),
    meddling=st.sampled_from([0, 1, 2, 3]),
    patience=st.sampled_from([None, 50.0]),
    store=st.sampled_from(["", "", "memory", "sqlite"]),
    pace=st.sampled_from([0.0, 0.0, 7.0]),
    circles=st.sampled_from([None, None, LoopDetection(1, "inject_warning"), LoopDetection(2, "stop")]),
    compaction=COMPACTIONS,
)
IN_FLIGHT = st.sampled_from([*[""] * 6, *MEDDLING, "revoke", "update", "extend", "copy", "unheard"])
#: How far another driver gets, and which replies it has.
APART = st.tuples(
    st.sampled_from([0, 0, 1, 1, 2, 3, 4, 5, 6, 6, 6]),
    st.lists(st.one_of(answers(), PAUSING, FAULTS), max_size=3),
)
TOOL_SETS = [["work", "pure", "gate", "maybe"], ["work", "gate", "pure"], ["work", "pure", "gate", "maybe", "extra"]]
KINDS = {
    "approval": ["approve", "approve", "edit", "deny", "answer"],
    "external": ["answer", "deny"],
    "uncertain": ["rerun", "answer", "deny"],
}


def spoken(*calls: tuple[str, dict[str, Any]]) -> Said:
    """A plain reply with these calls."""
    return Said(("text",), calls, "tool_use", True, False, False, {"input_tokens": 1, "output_tokens": 1})
