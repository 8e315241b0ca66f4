"""A drawn program, told to a sync handle or an async one; what it did is kept, times aside."""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import cycle
from typing import Any, Literal

import anyio
from attrs import asdict, frozen
from hypothesis import strategies as st

from tests.kit import inside
from tests.promises.properties.checked_tools import PARAMS_TOOLS, TOOLS, Bench, Boom, StopWhen, policy
from tests.promises.properties.drawn_compaction import SummingScript
from tests.promises.properties.drawn_replies import answers
from toolloop import AsyncToolLoopHandle, Deny, LoopConfig, LoopContext, LoopDetection, ToolLoopHandle, Yielded
from toolloop.errors import CallerError
from toolloop.machine.tree import begin, step
from toolloop.stores.codec import decode_event, read_journal
from toolloop.stores.protocol import Store
from toolloop.testing import FakeMessagesAPI, RecordedRequest

Kind = Literal["sync", "asyncio", "trio"]
Step = Generator[Any, Any, None]
MOVES = ["go on", "go on", "go on", "inject", "stop", "edit", "update", "extend"]
THREAD_FAULTS = (
    "thread_not_found",
    "thread_already_continued",
    "thread_continue_in_flight",
    "thread_fingerprint_mismatch",
    "thread_unsupported_request",
)
BINDS, FREE = "claude-opus-5-5", "claude-opus-4-8"  # whether a model binds its thinking to the words before it


@frozen
class Program:
    """What the model will say, and what the caller will do at each turn.

    Args:
        answers: of the fake API, in order.
        moves: one for each turn; then one choice for each decision.
        thread_faults: with which the server refuses the requests of message threads, in turn; None accepts one.

    """

    answers: tuple[Any, ...]
    moves: tuple[tuple[str, tuple[int, ...]], ...]
    parallel: int
    execution: str
    iterations: int
    has_stop_when: bool
    circles: LoopDetection | None
    model: str = FREE
    strategies: tuple[Any, ...] = ()
    summaries: tuple[Any, ...] = ()
    result_filters: tuple[Any, ...] = ()
    threads: bool = False
    thread_faults: tuple[str | None, ...] = (None,)

    def config(self) -> LoopConfig:
        """The configuration of the handle."""
        return LoopConfig(
            max_parallel_tools=self.parallel,
            execution=self.execution,  # type: ignore[arg-type]  # drawn from the two there are
            max_iterations=self.iterations,
            on_tool_call=policy,
            stop_when=StopWhen() if self.has_stop_when else None,
            loop_detection=self.circles,
            compaction=self.strategies,
            result_filters=self.result_filters,
            threads=self.threads,
        )

    def params(self) -> dict[str, Any]:
        """The parameters of its requests."""
        return {
            "model": self.model,
            "max_tokens": 1000,
            "thinking": {"type": "adaptive"},
            "tools": PARAMS_TOOLS,
            "messages": [{"role": "user", "content": "Begin."}],
        }


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


@frozen
class Lived:
    """What came of a program. `journal`: in any order, where tools ran side by side."""

    requests: list[RecordedRequest]
    bodies: list[bytes]
    seen: list[Any]
    starts: dict[str, int]
    snapshot: Any
    journal: list[Any]
    messages: Any


def live(program: Program, kind: Kind, store: Store | None = None) -> Lived:
    """Tell a program to a handle of this kind."""
    if kind != "sync":
        return anyio.run(_live, program, kind, store, backend=kind)
    try:
        _live(program, kind, store).send(None)
    except StopIteration as over:
        lived: Lived = over.value
        return lived
    raise AssertionError("a sync handle awaits nothing")


async def _live(program: Program, kind: Kind, store: Store | None) -> Lived:
    script = SummingScript(list(program.answers), list(program.summaries))
    faults = cycle(program.thread_faults)
    with FakeMessagesAPI(script, refuse_thread=lambda _: next(faults)) as api:
        bench, seen = Bench(), list[Any]()
        client: Any = api.client() if kind == "sync" else api.async_client()
        handle: Any = (ToolLoopHandle if kind == "sync" else AsyncToolLoopHandle)(
            client,
            params=program.params(),
            tools=TOOLS,
            config=program.config(),
            context=LoopContext(bench),
            clock=lambda: 1_000_000.0,  # it stands, for deadlines
            store=store,
            loop_id="one",
        )
        story = play(program, handle, seen, bench)
        try:
            turn = next(story)
            while True:
                try:
                    result: Any = turn() if kind == "sync" else await turn()
                except Boom as boom:
                    result = boom
                turn = story.send(result)
        except StopIteration:
            pass
        if kind == "sync":
            handle.close()
        else:
            await handle.aclose()
            await client.close()
        assert bench.wrong == []
        assert [text for request in api.refused if not (text := str(request.refusal)).startswith("thread: ")] == []
        bodies = [request.body for request in api.requests]
        told, kept = timeless(handle.snapshot()), _kept(program, handle, store)
        return Lived(api.requests, bodies, seen, dict(bench.starts), told, kept, handle.messages)


def _kept(program: Program, handle: Any, store: Store | None) -> list[Any]:
    """The journal: however it is read, any beginning says the same, and all of it says what the handle does."""
    if store is None:
        return []
    entries = store.load("one").entries
    assert _replayed(entries) == handle.state
    assert store.head("one").lease is None
    events = [timeless({**json.loads(entry.body), "text": entry.text}) for entry in entries]
    return events if program.parallel == 1 else sorted(events, key=json.dumps)


def _replayed(entries: Any) -> Any:
    first, *events = map(decode_event, entries)
    state: Any = begin(first)  # type: ignore[arg-type]  # a journal begins so
    for count, event in enumerate(events, 2):
        state = step(state, event)
        if count % 7 == 0 or count == len(entries):
            assert read_journal(entries[:count]) == state
    return state


def play(program: Program, handle: Any, seen: list[Any], bench: Bench) -> Step:
    """Tell a handle the program. Each time it is to be driven, `handle.next_turn` is yielded, and the result is sent.

    A `Boom` that comes through is sent as itself.
    """
    for move, choices in program.moves:
        result = yield handle.next_turn
        seen.append(shown(result, in_order=program.parallel == 1))
        try:
            if isinstance(result, Yielded):
                _decide(result, choices, inside.tool_context_of(handle).state)
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
    state = type(handle.state.root.phase).__name__
    if state == "Failed":
        handle.retry()
    elif state == "Finished":
        handle.follow_up([{"role": "user", "content": "And now?"}])


def shown(result: Any, *, in_order: bool) -> Any:
    """A result of a turn, times aside. Of tools that run side by side it is unknown which ends first."""
    if isinstance(result, Boom):
        return repr(result)
    events = [f"{type(event).__name__}{timeless(asdict(event))}" for event in result.events]
    more: tuple[Any, ...] = (result.total_usage, events if in_order else sorted(events))
    if isinstance(result, Yielded):
        calls = [(repr(call), call.input, call.effective_input, call.digest, call.result) for call in result.calls]
        return (result.reason, result.iterations, calls, result.message, result.usage, *more)
    if hasattr(result, "termination"):
        return (result.termination, result.response, result.text, result.iterations, *more)
    return (type(result.error).__name__, str(result.error), result.retryable, result.retry_after, *more)


_TIMES = {"seconds", "at", "said_at", "now", "active", "took", "digest"}


def timeless(value: Any) -> Any:
    """A JSON value without its times, and without the digest over all of it."""
    match value:
        case dict():
            return {key: timeless(item) for key, item in value.items() if key not in _TIMES}
        case list() | tuple():
            return [timeless(item) for item in value]
    return value
