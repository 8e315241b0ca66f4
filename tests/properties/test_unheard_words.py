"""A handle that has not heard how the loop went on says what time it is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.properties.choices import spoken
from tests.properties.counting import AT_THE_RIGHT_MOMENT, Way
from tests.properties.drawing import Said
from tests.properties.loops import Loop
from tests.properties.settings import FREE, Setting
from toolloop import Approve, Continue
from toolloop.core import events as ev
from toolloop.core.states import Executed, Failed, Finished, Paused, Ready, Requesting, State
from toolloop.testing import fault

USAGE = {"input_tokens": 1, "output_tokens": 1}
STATES: tuple[type[State], ...] = (Ready, Requesting, Executed, Paused, Finished, Failed)
THEN = {
    Requesting: Said(("text",), (), "end_turn", True, False, False, USAGE),
    Paused: Said(("text",), (), "pause_turn", True, False, False, USAGE),
    Finished: Said(("text",), (), "end_turn", True, False, False, USAGE),
    Failed: fault(500),
}


def go_on(loop: Loop, to: type[State]) -> None:
    """Let the loop go on from a decision to a state."""
    (call,) = loop.handle.pending
    loop.handle.decide({call: Approve()})
    loop.approved(call, Approve())
    loop.handle.resume(Continue())
    loop.next_turn()
    if to is Executed:
        return
    loop.handle.resume(Continue())
    if to is Ready:
        return
    loop.script.said[:] = [THEN[to]]
    loop.in_flight = "unheard" if to is Requesting else ""
    loop.next_turn()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("state", STATES)
def test_a_tick_of_one_who_has_not_heard_does_nothing(store: str, state: type[State]) -> None:
    """The call that would have expired was decided in time; wherever the loop is, it stays there."""
    assert (state, ev.Ticked) in AT_THE_RIGHT_MOMENT
    taken = Counter[Way]()
    loop = Loop(Setting(FREE, "barrier", 1, 20, 5, False, False, 0, patience=50.0, store=store), taken)
    try:
        loop.script.said[:] = [spoken(("gate", {"do": "return", "ask": "", "n": 0}))]
        loop.next_turn()
        loop.open_beside()
        go_on(loop, state)
        loop.check()
        if state is not Requesting:
            assert isinstance(loop.handle.state, state)
            loop.interfere("unheard", None)
            assert isinstance(loop.truth, state)
        loop.check()
        assert taken[state, ev.Ticked, state] == 1
    finally:
        loop.close()
