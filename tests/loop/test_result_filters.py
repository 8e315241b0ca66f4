"""Result filters: what a tool returned is looked at before it is recorded."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.each import each
from tests.loop.concurrency import (
    async_loop,
    cancelled_after,
    either_kind,
    make,
    on_both_backends,
    run_async,
    sync_loop,
    turn,
)
from tests.loop.support import completed, yielded
from toolloop import AsyncToolLoopHandle, Continue, LoopConfig, ToolCall, ToolError, ToolLoopHandle, tool
from toolloop.errors import Drift
from toolloop.events import ResultFiltered
from toolloop.responses import TruncateResults
from toolloop.testing import ScriptedProvider, call, reply

Any_ = ToolLoopHandle | AsyncToolLoopHandle
SAYS = reply(calls=[("say", {})])


@tool
def say() -> str:
    """Say something."""
    return "one two three"


@tool
def fail() -> str:
    """Fail."""
    raise ToolError("it broke")


def told(executed: Any) -> list[Any]:
    return [result and (result.content, result.is_error) for result in yielded(executed).results]


def upper(_call: ToolCall, content: Any) -> Any:
    return content.upper()


@either_kind
def test_filters_run_in_order_and_each_is_reported(kind: str) -> None:
    """Each sees what the one before it left; the events say its name, and the sizes before and after."""

    def shorten(shown: ToolCall, content: Any) -> Any:
        assert (shown.name, shown.status) == ("say", "running")
        return content[:3]

    handle = make(kind, [SAYS, reply("fine")], [say], result_filters=[shorten, upper])
    executed = yielded(turn(kind, handle))
    assert told(executed) == [("ONE", False)]
    call_id = executed.calls[0].id
    assert [event for event in executed.events if isinstance(event, ResultFiltered)] == [
        ResultFiltered(1, call_id, "say", "shorten", len('"one two three"'), len('"one"')),
        ResultFiltered(1, call_id, "say", "upper", 5, 5),
    ]
    assert "two" not in str(handle.snapshot())
    handle.resume(Continue())
    assert completed(turn(kind, handle)).text == "fine"


@on_both_backends
def test_an_async_filter_is_awaited_also_for_a_tool_that_runs_in_a_thread(backend: str) -> None:
    """It runs in the event loop, whatever the tool is."""
    threads: list[threading.Thread] = []

    async def mark(shown: ToolCall, content: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        threads.append(threading.current_thread())
        return f"{shown.name}: {content}"

    @tool
    async def sing() -> str:
        """Sing."""
        return "la"

    handle = async_loop([reply(calls=[("say", {}), ("sing", {})])], [say, sing], result_filters=[mark])
    assert told(run_async(backend, handle.next_turn)) == [("say: one two three", False), ("sing: la", False)]
    assert set(threads) == {threading.current_thread()}


def test_none_leaves_a_result_as_it_was() -> None:
    """And so does the same content; neither is reported."""
    filters = [lambda _call, _content: None, lambda _call, content: content]
    executed = yielded(turn("sync", sync_loop([SAYS], [say], result_filters=filters)))
    assert told(executed) == [("one two three", False)]
    assert not any(isinstance(event, ResultFiltered) for event in executed.events)


def test_errors_answers_and_denials_are_not_filtered() -> None:
    """Only what a tool returned."""

    @tool(needs_approval=True)
    def ask() -> str:
        """Ask."""
        return "never"

    asked: list[str] = []

    def note(shown: ToolCall, content: Any) -> Any:
        asked.append(shown.id)
        return f"filtered {content}"

    calls: list[Any] = [("fail", {}), call("ask", id="a"), call("ask", id="b"), ("gone", {}), call("say", id="said")]
    handle = sync_loop([reply(calls=calls)], [fail, ask, say], result_filters=[note])
    waiting = yielded(handle.next_turn())
    waiting.answer("a", "an answer")
    waiting.deny("b", "no")
    waiting.continue_loop()
    results = told(handle.next_turn())
    assert results[:2] == [("it broke", True), ("an answer", False)]
    assert [failed for _, failed in results] == [True, False, True, True, False]
    assert (results[4], asked) == (("filtered one two three", False), ["said"])


def raises(_call: ToolCall, _content: Any) -> Any:
    raise KeyError("what is this?")


def misfits(_call: ToolCall, _content: Any) -> Any:
    return [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}]


def nonsense(_call: ToolCall, _content: Any) -> Any:
    return object()


async def later(_call: ToolCall, content: Any) -> Any:
    return content


class Sneaky:
    def __call__(self, call: ToolCall, content: Any) -> Any:
        return later(call, content)


@each("bad", [raises, misfits, nonsense, Sneaky()])
def test_a_filter_that_fails_leaves_the_result_as_it_was(bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged by name, without the content, and the others still run."""
    handle = sync_loop([SAYS], [say], result_filters=[bad, upper])
    with caplog.at_level(logging.ERROR, "toolloop.tools"):
        assert told(handle.next_turn()) == [("ONE TWO THREE", False)]
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert getattr(bad, "__name__", type(bad).__name__) in record.getMessage()
    assert "one two" not in caplog.text


def test_what_a_filter_does_to_the_content_in_place_is_its_own_affair() -> None:
    """It is given a copy; what it returns counts."""

    @tool
    def blocks() -> list[Any]:
        """Say it in a block."""
        return [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    def spoil(_call: ToolCall, content: Any) -> None:
        content.clear()

    handle = sync_loop([reply(calls=[("blocks", {})])], [blocks], result_filters=[spoil])
    assert told(handle.next_turn()) == [([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], False)]


@each("of_thread", [True, False])
def test_a_turn_cancelled_in_a_filter_keeps_what_the_tool_returned(of_thread: bool) -> None:
    """The tool was back, so its end is known; no filter runs a second time on it, and nothing runs again."""
    ran: list[str] = []
    inside = threading.Event()

    @tool(name="work")
    def in_thread() -> str:
        """Work."""
        ran.append("work")
        return "raw"

    @tool(name="work")
    async def in_task() -> str:
        """Work."""
        ran.append("work")
        return "raw"

    async def forever(_call: ToolCall, _content: Any) -> Any:
        inside.set()
        await anyio.sleep_forever()

    script = [reply(calls=[("work", {})]), reply("fine")]
    handle = async_loop(script, [in_thread if of_thread else in_task], result_filters=[forever])

    async def main() -> None:
        await cancelled_after(handle, inside)
        assert told(await handle.next_turn()) == [("raw", False)]
        handle.resume(Continue())
        assert completed(await handle.next_turn()).text == "fine"

    run_async("asyncio", main)
    assert ran == ["work"]


def test_an_interrupt_in_a_filter_keeps_what_the_tool_returned() -> None:
    """Ctrl-C comes out; the loop can go on."""
    ran: list[str] = []

    @tool
    def work() -> str:
        """Work."""
        ran.append("work")
        return "raw"

    def interrupted(_call: ToolCall, _content: Any) -> Any:
        raise KeyboardInterrupt

    handle = sync_loop([reply(calls=[("work", {})]), reply("fine")], [work], result_filters=[interrupted])
    with pytest.raises(KeyboardInterrupt):
        handle.next_turn()
    assert told(handle.next_turn()) == [("raw", False)]
    assert ran == ["work"]


def test_the_sync_handle_refuses_an_async_filter_at_once() -> None:
    """Nobody would await it."""
    with pytest.raises(TypeError, match="AsyncToolLoopHandle"):
        sync_loop([], [say], result_filters=[later])


def test_filters_that_are_missing_after_sleep_are_drift() -> None:
    """Results that were cut would come back whole, so it is said."""
    asleep = sync_loop([], [say], result_filters=[upper]).snapshot()
    with pytest.raises(Drift, match="result_filters"):
        ToolLoopHandle.restore(asleep, ScriptedProvider([]), tools=[say])
    ToolLoopHandle.restore(asleep, ScriptedProvider([]), tools=[say], config=LoopConfig(result_filters=[upper]))


@each("bad", [upper, [1], "upper"])
def test_a_bad_list_of_filters_is_refused(bad: Any) -> None:
    """The error names the field."""
    with pytest.raises(ValueError, match="result_filters"):
        LoopConfig(result_filters=bad)


def twice(_call: ToolCall, content: Any) -> Any:
    return content * 2


def as_data(_call: ToolCall, content: Any) -> Any:
    return {"said": content}


def leave(_call: ToolCall, _content: Any) -> None:
    return None


def async_of(filter_: Any) -> Any:
    async def filtered(call: ToolCall, content: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return filter_(call, content)

    filtered.__name__ = filter_.__name__
    return filtered


@given(filters=st.lists(st.sampled_from([upper, twice, as_data, leave, raises, misfits, nonsense]), max_size=5))
def test_both_handles_filter_alike(filters: list[Any]) -> None:
    """The same contents and the same events, whether the filters and the tools are async or not."""

    @tool(name="say")
    async def say_async() -> str:
        """Say something."""
        return "one two three"

    seen = []
    for kind, own, given_filters in (
        ("sync", say, filters),
        ("asyncio", say, filters),
        ("asyncio", say_async, [*map(async_of, filters)]),
        ("trio", say, [*map(async_of, filters)]),
    ):
        handle = make(kind, [reply(calls=[call("say", id="toolu_1")])], [own], result_filters=given_filters)
        executed = yielded(turn(kind, handle))
        seen.append((told(executed), [event for event in executed.events if isinstance(event, ResultFiltered)]))
    assert seen[1:] == seen[:1] * 3


def test_what_a_filter_gives_is_judged_by_the_call() -> None:
    """A call made by code takes text only, and a reference must name a tool: else the result stays as it was."""

    def picture(_call: ToolCall, _content: Any) -> Any:
        return [{"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}]

    def refer(_call: ToolCall, _content: Any) -> Any:
        return [{"type": "tool_reference", "tool_name": "nothing"}]

    by_code = {**call("say", id="toolu_1"), "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}}
    for asked, bad in ((by_code, picture), (call("say", id="toolu_1"), refer)):
        assert told(sync_loop([reply(calls=[asked])], [say], result_filters=[bad]).next_turn())[0][0] == "one two three"


class TestTruncateResults:
    """The built-in one."""

    def test_it_keeps_head_and_tail(self) -> None:
        """The note between them says how much is missing."""

        @tool
        def long() -> str:
            """Say much."""
            return "a" * 500 + "b" * 500

        handle = sync_loop([reply(calls=[("long", {})])], [long], result_filters=[TruncateResults(200)])
        ((text, _),) = told(handle.next_turn())
        assert len(text) <= 200
        head, note, tail = text.split("\n")
        assert (set(head), set(tail)) == ({"a"}, {"b"})
        assert note == f"[... {1000 - len(head) - len(tail)} characters were left out here ...]"

    def test_only_texts_of_only_these_tools_are_cut(self) -> None:
        """Images stay; other tools' results stay."""
        image = {"type": "image", "source": {"type": "url", "url": f"https://example.org/{'x' * 300}.png"}}
        long = {"type": "text", "text": "x" * 300}
        cut = TruncateResults(100, only=["long"])
        shown = sync_loop([SAYS], [say])
        (other,) = yielded(shown.next_turn()).calls
        assert cut(other, "x" * 300) is None
        filtered = TruncateResults(100)(other, [long, image])
        assert [len(filtered[0]["text"]) <= 100, filtered[1]] == [True, image]

    @given(text=st.text(max_size=400), most=st.integers(100, 300))
    def test_it_is_never_longer_than_asked_and_a_second_time_changes_nothing(self, text: str, most: int) -> None:
        """What is kept is a beginning and an end of the text."""
        cut = TruncateResults(most)._cut(text)
        assert len(cut) <= max(most, len(text)) if len(text) <= most else len(cut) <= most
        assert TruncateResults(most)._cut(cut) == cut
        if cut != text:
            head, _, tail = cut.rpartition("\n[... ")
            assert text.startswith(head)
            assert text.endswith(tail.partition(" ...]\n")[2])

    @pytest.mark.parametrize("bad", [{"max_chars": 99}, {"max_chars": 1e3}, {"max_chars": 100, "only": "say"}])
    def test_what_makes_no_sense_is_refused(self, bad: Any) -> None:
        """The error names the field."""
        with pytest.raises(ValueError, match=list(bad)[-1]):
            TruncateResults(**bad)
