"""Another driver takes the loop over in the middle of a call, and gets far or not: the end of the call comes late."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.properties.choices import spoken
from tests.properties.counting import AT_THE_RIGHT_MOMENT, Way
from tests.properties.drawing import BOOM, Said
from tests.properties.loops import Loop
from tests.properties.settings import FREE, Setting
from toolloop.core import events as ev
from toolloop.core.states import (
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Paused,
    Ready,
    Requesting,
    Running,
    State,
)
from toolloop.core.values import Outcome
from toolloop.testing import fault

USAGE = {"input_tokens": 1, "output_tokens": 1}
THEN = {
    "pause": Said(("text",), (), "pause_turn", True, False, False, USAGE),
    "fault": fault(500),
    "boom": Said((BOOM,), (), "end_turn", True, False, False, USAGE),
    "end": Said(("text",), (), "end_turn", True, False, False, USAGE),
}


def taken_over(store: str, name: str, steps: int, then: str) -> tuple[type[State], bool]:
    """Where the late end found the loop, and whether it counted."""
    taken = Counter[Way]()
    loop = Loop(Setting(FREE, "barrier", 1, 20, 5, False, True, 0, store=store), taken)
    try:
        loop.check()
        loop.steps_apart = steps
        loop.script.said[:] = [spoken((name, {"do": "take", "ask": "", "n": 0})), THEN[then]]
        loop.next_turn()
        loop.check()
        ended = [before for before, event, _ in taken if event is ev.Ended]  # the late one last; a rerun may be there
        return ended[-1], _counted(loop)
    finally:
        loop.close()


def _counted(loop: Loop) -> bool:
    """Whether the call has the result that came late."""
    state = loop.truth
    if not isinstance(state, Judging | Deciding | Running) or not state.round.calls:
        return False
    result = state.round.calls[0].result
    return result is not None and result.outcome is Outcome.RETURNED


EVERYWHERE: dict[tuple[str, int, str], tuple[type[State], bool]] = {
    ("work", 0, "end"): (Running, True),  # it was uncertain, and is not any more
    ("pure", 0, "end"): (Judging, True),  # it was to run again
    ("work", 1, "end"): (Deciding, True),
    ("work", 2, "end"): (Running, False),
    ("work", 3, "end"): (Executed, False),
    ("work", 4, "end"): (Ready, False),
    ("work", 5, "end"): (Finished, False),
    ("work", 5, "pause"): (Paused, False),
    ("work", 5, "fault"): (Failed, False),
    ("work", 5, "boom"): (Judging, False),
}


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize(("name", "steps", "then"), EVERYWHERE)
def test_a_late_end_is_kept_and_counts_only_if_its_call_is_open(store: str, name: str, steps: int, then: str) -> None:
    """Wherever the other driver has got by then; the one that was slow is told."""
    assert taken_over(store, name, steps, then) == EVERYWHERE[name, steps, then]


def test_a_late_end_is_shown_in_every_state() -> None:
    """Those in which another thread is needed for it are shown elsewhere."""
    shown: set[Any] = {state for state, _ in EVERYWHERE.values()} | {Requesting}
    assert {state for state, event in AT_THE_RIGHT_MOMENT if event is ev.Ended} == shown - {Running}
