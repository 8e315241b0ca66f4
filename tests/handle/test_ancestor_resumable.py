"""The ancestor's checklist, "Resumable" and "Owned": what its loop did step by step, this one does too."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

from tests.handle.support import HUNDRED, TOOLS, failed, params, scene, user, yielded
from toolloop import Completed, LoopConfig, LoopContext, ToolLoopHandle
from toolloop.errors import MaxDepthExceeded
from toolloop.events import CallFinished, CallStarted, RequestStarted
from toolloop.terminations import MaxIterations, NaturalEnd, StopCondition, Timeout
from toolloop.testing import FakeMessagesAPI, reply

ADD = reply(calls=[("add", {"a": 2, "b": 3})], usage=HUNDRED)


def test_resumable_no_tools_completes() -> None:
    """A reply of text alone completes the loop, and its text can be read."""
    with scene([reply("Hello!")]) as at:
        done = at.done()
        assert (done.termination, done.text, at.handle.is_finished) == (NaturalEnd(), "Hello!", True)


def test_resumable_one_tool_iteration() -> None:
    """A round of one call yields with its result, and the next turn completes."""
    with scene([ADD, reply("5")]) as at:
        turn = at.turn()
        assert (turn.iteration, [call.name for call in turn.calls]) == (1, ["add"])
        assert [result.content for result in turn.results if result] == ["5"]
        turn.continue_loop()
        done = at.done()
        assert (done.iterations, done.termination) == (2, NaturalEnd())


def test_resumable_inject_messages() -> None:
    """An injected message is in the next request; PY: one of the role system survives to the wire."""
    with scene([ADD, reply("ok")]) as at:
        system = {"role": "system", "content": "The user has gone home."}
        at.turn().inject_and_continue([system])
        at.done()
        assert at.sent()[-1] == system


def test_resumable_stop_command() -> None:
    """Stop ends the loop with its reason, and no further request is made."""
    with scene([ADD]) as at:
        at.turn().stop("task_spawn detected")
        done = at.done()
        assert (done.termination, at.count) == (StopCondition("task_spawn detected"), 1)


def test_resumable_usage_accumulation() -> None:
    """Usage adds up over the iterations, and `into_result` agrees."""
    with scene([ADD, ADD, reply("done", usage=HUNDRED)]) as at:
        totals = []
        for _ in range(2):
            turn = at.turn()
            totals.append(turn.total_usage.input_tokens)
            turn.continue_loop()
        done = at.done()
        totals.append(done.total_usage.input_tokens)
        assert (totals, done.total_usage.output_tokens) == ([100, 200, 300], 150)
        assert at.handle.into_result().total_usage == done.total_usage


def test_resumable_max_iterations() -> None:
    """With a limit of two, two turns yield and the third is the end."""
    with scene([ADD, ADD], max_iterations=2) as at:
        for number in (1, 2):
            turn = at.turn()
            assert turn.iteration == number
            turn.continue_loop()
        assert at.done().termination == MaxIterations(2)


def test_resumable_depth_exceeded() -> None:
    """A loop at depth 1 under a limit of 1 fails at once, and is finished."""
    with scene([], depth=1, max_depth=1) as at:
        error = at.failed().error
        assert isinstance(error, MaxDepthExceeded)
        assert (error.current, error.limit, at.handle.is_finished, at.count) == (1, 1, True, 0)


def test_resumable_messages_access() -> None:
    """The history has one message, then three; PY: the final assistant message makes it four, and five after text."""
    with scene([ADD, reply("5")]) as at:
        assert len(at.handle.messages) == 1
        turn = at.turn()
        assert [message["role"] for message in at.handle.messages] == ["user", "assistant", "user"]
        turn.continue_loop()
        at.done()
        assert at.handle.messages[-1] == {"role": "assistant", "content": [{"type": "text", "text": "5"}]}
        assert len(at.handle.messages) == 4


def test_resumable_into_result() -> None:
    """`into_result` tells termination, iterations and usage."""
    with scene([reply("hi", usage=HUNDRED)]) as at:
        at.done()
        result = at.handle.into_result()
        assert (result.termination, result.iterations, result.total_usage.input_tokens) == (NaturalEnd(), 1, 100)


def test_resumable_repeated_next_after_completion() -> None:
    """After the end every further turn is the same result, and no request is made."""
    with scene([reply("hi")]) as at:
        done = at.done()
        assert (at.done() is done, at.count) == (True, 1)


def test_resumable_stop_condition_callback() -> None:
    """`stop_when` ends the loop before any tool runs."""
    with scene([ADD], stop_when=lambda view: bool(view.reply["content"])) as at:
        assert (at.done().termination, at.ran) == (StopCondition(None), [])


def test_resumable_debug_impl() -> None:
    """The repr shows type, state and iterations."""
    with scene([reply("hi")]) as at:
        assert repr(at.handle) == "<ToolLoopHandle Ready: 0 iterations, id loop>"
        at.done()
        assert repr(at.handle) == "<ToolLoopHandle Finished: 1 iterations, id loop>"


def test_resumable_assistant_content_exposed() -> None:
    """Text beside the calls is there as a block and as text."""
    with scene([reply("Let me add.", calls=[("add", {"a": 1, "b": 1})])]) as at:
        turn = at.turn()
        assert turn.assistant_content == ({"type": "text", "text": "Let me add."},)
        assert turn.assistant_text == "Let me add."


def test_resumable_assistant_content_empty_when_no_text() -> None:
    """Without text there is no content beside the calls, and no text."""
    with scene([ADD]) as at:
        turn = at.turn()
        assert (turn.assistant_content, turn.assistant_text) == ((), None)


def test_resumable_multi_iteration_with_mixed_commands() -> None:
    """Continue, then inject, then complete: the injected text is in the third request."""
    with scene([ADD, ADD, reply("done")]) as at:
        at.turn().continue_loop()
        at.turn().inject_and_continue([user("by the way")])
        assert at.done().iterations == 3
        assert at.sent(2)[-1] == user("by the way")


def test_resumable_timeout() -> None:
    """A timeout of nothing ends the loop before the first request."""
    with scene([], timeout=0) as at:
        assert (at.done().termination, at.count) == (Timeout(0), 0)


def test_resumable_events_via_stream() -> None:
    """A turn with a call tells of the request, of the start of the tool and of its end, to the observers too."""
    seen: list[object] = []
    with scene([ADD], observers=[seen.append]) as at:
        turn = at.turn()
        assert tuple(seen) == turn.events
        kinds = [type(event) for event in seen]
        assert kinds.index(RequestStarted) < kinds.index(CallStarted) < kinds.index(CallFinished)


def test_resumable_drain_events() -> None:
    """Each result holds the events since the last one, and no event comes twice."""
    with scene([ADD, reply("5")]) as at:
        turn = at.turn()
        assert {RequestStarted, CallStarted, CallFinished} <= {type(event) for event in turn.events}
        turn.continue_loop()
        done = at.done()
        assert [event.iteration for event in done.events if isinstance(event, RequestStarted)] == [2]
        assert not [event for event in done.events if isinstance(event, CallStarted)]


def test_owned_handle_is_send_static() -> None:
    """PY: a handle made in one thread is driven in another."""
    with scene([ADD, reply("5")]) as at, ThreadPoolExecutor(1) as threads:
        yielded(threads.submit(at.handle.next_turn).result()).continue_loop()
        assert at.done().text == "5"


def test_owned_inside_tokio_spawn() -> None:
    """PY: a whole loop is driven in a task, in a worker thread of its own."""
    script = [reply(calls=[("add", {"a": 10, "b": 20})], usage=HUNDRED), reply("Result: 30", usage=HUNDRED)]

    async def drive(handle: ToolLoopHandle) -> Completed:
        return (await asyncio.to_thread(handle.run)).unwrap()

    with scene(script) as at:
        done = asyncio.run(drive(at.handle))
        assert (done.text, done.iterations, done.total_usage.input_tokens) == ("Result: 30", 2, 200)


def test_owned_into_owned_preserves_state() -> None:
    """PY: after a turn the loop goes on under a new provider, by way of a snapshot that was JSON in between."""
    with scene([ADD]) as at, FakeMessagesAPI([ADD, reply("done")]) as other:
        at.turn()
        snapshot = json.loads(json.dumps(at.handle.snapshot()))
        handle = ToolLoopHandle.restore(snapshot, other.client(), tools=TOOLS)
        assert (handle.iterations, len(handle.messages)) == (1, 3)
        yielded(handle.pending_turn).continue_loop()
        turn = yielded(handle.next_turn())
        assert turn.iteration == 2
        turn.continue_loop()
        assert handle.run().unwrap().iterations == 3
        assert other.refused == []


def test_owned_max_iterations_and_depth_hold_for_a_handle_of_its_own() -> None:
    """The limits come from the configuration of each handle, not from anything shared."""
    with FakeMessagesAPI([ADD]) as api:
        first = ToolLoopHandle(api.client(), params=params(), tools=TOOLS, config=LoopConfig(max_iterations=1))
        second = ToolLoopHandle(
            api.client(),
            params=params(),
            tools=TOOLS,
            config=LoopConfig(max_depth=2),
            context=LoopContext(depth=2),
        )
        assert first.run().unwrap().termination == MaxIterations(1)
        assert isinstance(failed(second.next_turn()).error, MaxDepthExceeded)
