"""A drawn program, told to a sync handle or an async one; what it did is kept, times aside."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from attrs import asdict, frozen
from hypothesis import strategies as st

from tests.properties.bench import PARAMS_TOOLS, Bench, Boom, StopWhen, policy
from tests.properties.drawing import answers
from toolloop import Deny, LoopConfig, LoopDetection, Yielded
from toolloop.core.errors import CallerError

Step = Generator[Any, Any, None]
MOVES = ["go on", "go on", "go on", "inject", "stop", "edit", "update", "extend"]


@frozen
class Program:
    """What the model will say, and what the caller will do at each turn.

    Args:
        answers: of the fake API, in order.
        moves: one for each turn; then one choice for each decision.

    """

    answers: tuple[Any, ...]
    moves: tuple[tuple[str, tuple[int, ...]], ...]
    parallel: int
    execution: str
    iterations: int
    has_stop_when: bool
    circles: LoopDetection | None

    def config(self, **more: Any) -> LoopConfig:
        """The configuration of the handle."""
        return LoopConfig(
            max_parallel_tools=self.parallel,
            execution=self.execution,  # type: ignore[arg-type]  # drawn from the two there are
            max_iterations=self.iterations,
            on_tool_call=policy,
            stop_when=StopWhen() if self.has_stop_when else None,
            loop_detection=self.circles,
            **more,
        )


def programs() -> st.SearchStrategy[Program]:
    """Programs of up to eight turns."""
    choices = st.lists(st.integers(0, 9), min_size=5, max_size=5).map(tuple)
    return st.builds(
        Program,
        answers=st.lists(answers(), min_size=2, max_size=6).map(tuple),
        moves=st.lists(st.tuples(st.sampled_from(MOVES), choices), min_size=3, max_size=8).map(tuple),
        parallel=st.sampled_from([1, 4]),
        execution=st.sampled_from(["barrier", "ready"]),
        iterations=st.sampled_from([1, 3, 20]),
        has_stop_when=st.booleans(),
        circles=st.sampled_from([None, None, LoopDetection(1, "inject_warning"), LoopDetection(2, "stop")]),
    )


PARAMS: dict[str, Any] = {
    "model": "claude-opus-4-8",
    "max_tokens": 1000,
    "thinking": {"type": "adaptive"},
    "tools": PARAMS_TOOLS,
    "messages": [{"role": "user", "content": "Begin."}],
}


def play(program: Program, handle: Any, seen: list[Any], bench: Bench) -> Step:
    """Tell a handle the program. Each time it is to be driven, `handle.next_turn` is yielded, and the result is sent.

    A `Boom` that comes through is sent as itself.
    """
    for move, choices in program.moves:
        result = yield handle.next_turn
        seen.append(shown(result, in_order=program.parallel == 1))
        try:
            if isinstance(result, Yielded):
                _decide(result, choices, handle._context.state)
            _move(move, handle, result)
        except CallerError as error:
            seen.append((type(error).__name__, str(error)))
        if handle.is_finished:
            _begin_again(handle)
        elif handle.pending_turn is not None:
            for call in handle.pending:
                handle.decide({call: Deny("enough")})
                bench.closed.add(call.id)
            handle.pending_turn.continue_loop()
        seen.append(timeless(handle.snapshot()))


def _decide(turn: Yielded, choices: tuple[int, ...], bench: Bench) -> None:
    for call, choice in zip(turn.pending, choices, strict=False):
        if call.why == "approval" and choice < 5:
            turn.approve(call)
            bench.approved.add(call.id)
        elif call.why == "approval" and choice < 7:
            turn.approve(call, {"n": 0, "do": "return", "ask": ""})
            bench.approved.add(call.id)
        elif choice < 9:
            turn.deny(call, "not today", by="ana")
        else:
            turn.answer(call, "a person knows")


def _move(move: str, handle: Any, result: Any) -> None:
    match move:
        case "go on" if isinstance(result, Yielded):
            result.continue_loop()
        case "inject" if isinstance(result, Yielded):
            result.inject_and_continue([{"role": "user", "content": "Mind this."}])
        case "stop" if isinstance(result, Yielded):
            result.stop("enough")
        case "edit":
            handle.messages_mut()[0] = {"role": "user", "content": "Begin otherwise."}
        case "update":
            handle.update_params(max_tokens=900)
        case "extend":
            handle.extend(max_iterations=handle.iterations + 1)


def _begin_again(handle: Any) -> None:
    state = type(handle.state).__name__
    if state == "Failed":
        handle.retry()
    elif state == "Finished":
        handle.follow_up([{"role": "user", "content": "And now?"}])


def shown(result: Any, *, in_order: bool) -> Any:
    """A result of a turn, times aside. Of tools that run side by side nobody knows which ends first."""
    if isinstance(result, Boom):
        return repr(result)
    events = [f"{type(event).__name__}{timeless(asdict(event))}" for event in result.events]
    more: tuple[Any, ...] = (result.total_usage, events if in_order else sorted(events))
    if isinstance(result, Yielded):
        calls = [(repr(call), call.input, call.effective_input, call.digest, call.result) for call in result.calls]
        return (result.reason, result.iteration, calls, result.message, result.usage, *more)
    if hasattr(result, "termination"):
        return (result.termination, result.response, result.text, result.iterations, *more)
    return (type(result.error).__name__, str(result.error), result.retryable, result.retry_after, *more)


_TIMES = {"seconds", "at", "now", "active", "took", "digest"}


def timeless(value: Any) -> Any:
    """A JSON value without its times, and without the digest over all of it."""
    match value:
        case dict():
            return {key: timeless(item) for key, item in value.items() if key not in _TIMES}
        case list() | tuple():
            return [timeless(item) for item in value]
    return value
