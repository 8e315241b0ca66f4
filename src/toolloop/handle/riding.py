"""What a driver does next that is recorded before anybody hears of it: what waits to be stored may go with that.

So a turn is stored once before its request, once before its tools run, and once at its end. Where a function of the
caller's is asked first (a policy, a compaction, what begins a loop inside a call), what happened is stored before. Only
the types of a tool's parameters may run code of the caller's while a reply waits: what validates an input is quick.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolloop.core.effects import Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.core.states import State
from toolloop.core.tree import round_of
from toolloop.handle.kits import Kit
from toolloop.handle.sub_loops import SubLoop


def is_recorded_first(state: State, effects: Sequence[Effect], kit: Kit) -> bool:
    """Whether all that is to be done is recorded first. `kit`: of the outermost loop."""
    return bool(effects) and all(not effect.path and _is_recorded_first(state, effect, kit) for effect in effects)


def _is_recorded_first(state: State, effect: Effect, kit: Kit) -> bool:
    match effect:
        case EndTurn():
            return True
        case SendRequest():
            return not kit.config.strategies()
        case Judge(calls=calls, stop_when=stop_when):
            config = kit.config
            if config.on_tool_call is not None or (stop_when and config.stop_when is not None):
                return False
            return not any(callable(getattr(_tool(state, call_id, kit), "needs_approval", None)) for call_id in calls)
        case RunCall(call_id=call_id):
            return not isinstance(_tool(state, call_id, kit), SubLoop)
    return False


def _tool(state: State, call_id: str, kit: Kit) -> object:
    round_ = round_of(state)
    call = None if round_ is None else round_.find(call_id)
    return None if call is None else kit.tools.get(call.name)
