"""How much of the library one turn enters: what a reader must open to follow it from the handle to the store."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import toolloop
from tests.measured.speed.loops import PARAMS, Rote, add, config
from toolloop import ToolLoopHandle
from toolloop.stores import MemoryStore

_ROOT = Path(toolloop.__file__).parent
_FILES, _FUNCTIONS = 52, 330


def entered_by(act: Callable[[], object]) -> set[CodeType]:
    """Return the functions of the library that this thread enters, without lambdas, and without those of stores."""
    entered: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            entered.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(before)
    return {code for code in entered if _is_counted(code)}


def _is_counted(code: CodeType) -> bool:
    path = Path(code.co_filename)
    is_inside = path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] != "stores"
    return is_inside and not code.co_name.startswith("<")


def test_a_stored_turn_with_one_call_enters_few_files_and_functions() -> None:
    """The second turn of a loop: a request, its reply, one call and its result. The limits only ever go down."""
    store = MemoryStore()
    with ToolLoopHandle.open(store, "l1", Rote(), tools=[add], params=PARAMS, config=config()) as handle:
        handle.run(until=lambda: True)
        turn = handle.pending_turn
        assert turn is not None
        turn.continue_loop()
        entered = entered_by(handle.next_turn)
    files, functions = len({code.co_filename for code in entered}), len(entered)
    assert (files <= _FILES, functions <= _FUNCTIONS) == (True, True), f"{files} files, {functions} functions"
