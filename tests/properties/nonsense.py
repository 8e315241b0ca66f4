"""What a loop refuses: each is possible to ask for in some states, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from toolloop import Answer, Approve, Continue, Deny, Grant, InjectMessages, Rerun, ToolLoopHandle
from toolloop.core.states import Deciding, Executed, Failed, Finished, Judging, Paused, Ready, Running
from toolloop.errors import DecisionConflict, IllegalCommand, InvalidHistory, UndecidedCalls, UnknownCall

WAITING = (Deciding, Executed, Paused)
ORPHAN = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_nobody", "content": "?"}]}


@frozen
class Nonsense:
    """Something to be refused.

    Args:
        fits: whether it is nonsense for this loop now.
        ask: asks for it.
        refused: what is raised.

    """

    fits: Callable[[Any], bool]
    ask: Callable[[Any], object]
    refused: type[Exception]


def _in(*states: type) -> Callable[[ToolLoopHandle], bool]:
    return lambda handle: isinstance(handle.state, states)


def _waits(why: str) -> Callable[[ToolLoopHandle], bool]:
    return lambda handle: any(call.why == why for call in handle.pending)


def _first(handle: ToolLoopHandle, why: str) -> Any:
    return next(call for call in handle.pending if call.why == why)


def _settled(handle: ToolLoopHandle) -> Any:
    """A call of the open round that nobody decided, and that has its result."""
    if not isinstance(handle.state, Deciding | Running):
        return None
    calls = handle.state.round.calls
    return next((call.id for call in calls if call.result is not None and call.ruling is None), None)


def _good_and_bad(handle: ToolLoopHandle) -> None:
    first = handle.pending[0].id
    handle.decide({first: Deny("with a bad one beside it"), "toolu_nobody": Deny("no such call")})


def _is_strict(handle: ToolLoopHandle) -> bool:
    return handle.state.ledger.setup.execution == "barrier" and bool(handle.pending) and _in(Deciding)(handle)


def _broken_edit(handle: ToolLoopHandle) -> None:
    """The list stays to be mended: what was there before puts it right."""
    working = handle.messages_mut()
    kept = list(working)
    working.insert(1, {"role": "nobody", "content": "?"})
    try:
        _go_on(handle)
    finally:
        assert handle.messages_mut() is working
        working[:] = kept


def _go_on(handle: ToolLoopHandle) -> None:
    if isinstance(handle.state, WAITING):
        handle.resume(Continue())
    elif isinstance(handle.state, Failed):
        handle.retry()
    elif isinstance(handle.state, Finished):
        handle.follow_up([{"role": "user", "content": "never said"}])
    else:
        handle.next_turn()


NONSENSE: dict[str, Nonsense] = {
    "drive while a turn waits": Nonsense(_in(*WAITING), lambda h: h.next_turn(), IllegalCommand),
    "go on where nothing waits": Nonsense(_in(Ready, Judging, Running), lambda h: h.resume(Continue()), IllegalCommand),
    "go on while calls wait": Nonsense(_is_strict, lambda h: h.resume(Continue()), UndecidedCalls),
    "inject while calls wait": Nonsense(
        _is_strict, lambda h: h.resume(InjectMessages([{"role": "user", "content": "x"}])), UndecidedCalls
    ),
    "decide a stranger": Nonsense(_in(Deciding, Ready), lambda h: h.decide({"toolu_nobody": Deny("x")}), UnknownCall),
    "decide a good and a bad one": Nonsense(lambda h: bool(h.pending), _good_and_bad, UnknownCall),
    "decide what is settled": Nonsense(
        lambda h: _settled(h) is not None, lambda h: h.decide({_settled(h): Deny("x")}), UnknownCall
    ),
    "decide what was not shown": Nonsense(
        lambda h: bool(h.pending), lambda h: h.decide({h.pending[0].id: Deny("x", digest="0")}), DecisionConflict
    ),
    "approve what is external": Nonsense(
        _waits("external"), lambda h: h.decide({_first(h, "external"): Approve()}), IllegalCommand
    ),
    "approve what is uncertain": Nonsense(
        _waits("uncertain"), lambda h: h.decide({_first(h, "uncertain"): Approve()}), IllegalCommand
    ),
    "rerun what never ran": Nonsense(
        _waits("approval"), lambda h: h.decide({_first(h, "approval"): Rerun()}), IllegalCommand
    ),
    "an edit that fits no schema": Nonsense(
        _waits("approval"), lambda h: h.decide({_first(h, "approval"): Approve({"do": 7})}), IllegalCommand
    ),
    "an answer that is no JSON": Nonsense(
        lambda h: bool(h.pending), lambda h: h.decide({h.pending[0]: Answer(float("nan"))}), IllegalCommand
    ),
    "follow up before the end": Nonsense(
        _in(Ready, Judging, Running, Failed, *WAITING),
        lambda h: h.follow_up([{"role": "user", "content": "x"}]),
        IllegalCommand,
    ),
    "retry what did not fail": Nonsense(
        _in(Ready, Judging, Running, Finished, *WAITING), lambda h: h.retry(), IllegalCommand
    ),
    "inject an orphan": Nonsense(_in(Ready, Executed), lambda h: h.resume(InjectMessages([ORPHAN])), InvalidHistory),
    "inject what is no JSON": Nonsense(
        _in(Ready, Executed), lambda h: h.resume(InjectMessages([{"role": "user", "content": {1}}])), TypeError
    ),
    "edit the history badly": Nonsense(lambda h: not _is_strict(h), _broken_edit, InvalidHistory),
    "say nothing": Nonsense(_in(Finished), lambda h: h.follow_up([]), ValueError),
    "change messages as a parameter": Nonsense(lambda h: True, lambda h: h.update_params(messages=[]), ValueError),
    "stream as a parameter": Nonsense(lambda h: True, lambda h: h.update_params(stream=True), ValueError),
    "a grant that says nothing of its tool": Nonsense(
        lambda h: _waits("approval")(h) and _first(h, "approval").name != "work",
        lambda h: h.decide({_first(h, "approval"): Approve(remember=Grant(tool="work"))}),
        IllegalCommand,
    ),
    "revoke what nobody gave": Nonsense(lambda h: True, lambda h: h.grants.revoke("1/toolu_nobody"), IllegalCommand),
    "a limit below nothing": Nonsense(lambda h: True, lambda h: h.extend(max_iterations=-1), ValueError),
}
