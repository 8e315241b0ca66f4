"""What a client gets of replies: in the middle of one, and what they used."""

from __future__ import annotations

import anyio
import anyio.lowlevel
from ag_ui.core import RunFinishedEvent, SubagentStartedEvent

from tests.agui.door import HELLO, PARAMS, opened, write_file
from toolloop import Inbox, MemoryStore, events as ev, sub_loop
from toolloop.inbox import LiveEvents

HELPER = sub_loop("helper", "Does a part.", params={**PARAMS, "system": "child"}, tools=[write_file])
NESTED = {**HELLO, "content": "nested please"}


def loop(loop_id: str) -> ev.WatchedLoop:
    return ev.WatchedLoop(loop_id, 0, lambda: None)


def test_a_client_that_comes_late_to_a_long_reply_gets_it_in_one_piece() -> None:
    """It is not taken for a slow one, however small the pieces were; text, reasoning and inputs stay apart."""
    left = list[str]()

    async def read() -> list[ev.WatchEvent]:
        live = LiveEvents()
        tell = live.for_loop(loop("loop"))
        tell(ev.RequestStarted(iteration=1, message_id="m1"))
        for _ in range(9_000):
            tell(ev.ThinkingDelta(iteration=1, index=0, thinking="h"))
        for _ in range(9_000):
            tell(ev.TextDelta(iteration=1, index=1, text="x"))
        for call_id in ("a", "b"):
            for _ in range(3_000):
                tell(ev.InputDelta(iteration=1, index=2, call_id=call_id, name="write", partial_json="1"))
        found = list[ev.WatchEvent]()
        with live.reading("loop", lambda: left.append("left")) as reader:
            reader.end()
            await anyio.lowlevel.checkpoint()
            while (event := await reader.read(60)) is not None:
                found.append(event)
        return found

    started, thought, text, *inputs = anyio.run(read)
    assert isinstance(started, ev.RequestStarted)
    assert isinstance(thought, ev.ThinkingDelta)
    assert isinstance(text, ev.TextDelta)
    assert (thought.thinking, text.text, left) == ("h" * 9_000, "x" * 9_000, [])
    assert [getattr(each, "partial_json", "") for each in inputs] == ["1" * 3_000] * 2


def test_a_reader_of_a_client_that_was_given_up_keeps_nothing() -> None:
    """Whatever a front end does about it: it is asked once to end the connection, and the memory is bounded."""
    left = list[str]()

    async def read() -> ev.WatchEvent | None:
        live = LiveEvents()
        tell = live.for_loop(loop("loop"))
        with live.reading("loop", lambda: left.append("left")) as reader:
            for _ in range(30):
                tell(ev.TextDelta(iteration=1, index=0, text="x" * 100_000))
            reader.end()
            await anyio.wait_all_tasks_blocked()
            return await reader.read(60)

    assert (anyio.run(read), left) == (None, ["left"])


def test_nothing_is_kept_of_a_driver_that_is_gone() -> None:
    """It was left in the middle of a reply, whose end is never reported."""

    async def read() -> ev.WatchEvent | None:
        live = LiveEvents()
        tell = live.for_loop(loop("loop"))
        tell(ev.RequestStarted(iteration=1))
        tell(ev.TextDelta(iteration=1, index=0, text="half a"))
        del tell
        with live.reading("loop", lambda: None) as reader:
            reader.end()
            return await reader.read(60)

    assert anyio.run(read) is None


def test_two_texts_of_a_reply_stay_apart_for_a_client_that_comes_late() -> None:
    async def read() -> list[ev.WatchEvent]:
        live = LiveEvents()
        tell = live.for_loop(loop("loop"))
        tell(ev.RequestStarted(iteration=1))
        for index, text in ((0, "a"), (0, "b"), (1, "c"), (1, "d")):
            tell(ev.TextDelta(iteration=1, index=index, text=text))
        with live.reading("loop", lambda: None) as reader:
            return [event for _ in range(3) if (event := await reader.read(60)) is not None]

    assert anyio.run(read)[1:] == [ev.TextDelta(1, 0, "ab"), ev.TextDelta(1, 1, "cd")]


def test_the_end_of_a_run_says_what_it_used() -> None:
    """If `show` says so. The parts of the input are counted in it, as in the usage of the loop."""
    with opened(MemoryStore(), show=["text", "usage"]) as door:
        end = door.run(HELLO)[-1]
        (row,) = door.store.list()
        used = Inbox(door.store).show(row.loop_id)["usage"]
    (counted,) = RunFinishedEvent.model_validate(end).usage or []
    assert (counted.provider, counted.input_tokens, counted.output_tokens, counted.total_tokens) == (
        "anthropic",
        used["total_input_tokens"],
        used["output_tokens"],
        used["total_tokens"],
    )


def test_the_usage_of_a_run_has_that_of_nested_loops() -> None:
    """Also if these are not shown: it is what the run cost."""
    with opened(MemoryStore(), tools=[HELPER], show=["usage"]) as door:
        end = door.run(NESTED)[-1]
        assert len(end["usage"]) == len(door.api.requests) == 2
    RunFinishedEvent.model_validate(end)


def test_a_subagent_has_no_name_if_calls_are_not_shown() -> None:
    """It would be that of a tool, and its call is one that the client does not have."""
    with opened(MemoryStore(), tools=[HELPER], show=["text", "nested"]) as door:
        events = door.run(NESTED)
    (started,) = [SubagentStartedEvent.model_validate(each) for each in events if each["type"] == "SUBAGENT_STARTED"]
    assert (started.name, started.parent_tool_call_id) == ("subagent", None)
