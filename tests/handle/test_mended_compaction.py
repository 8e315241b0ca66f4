"""What a review found in compactions by hand, each as a test: nothing is lost, and what goes wrong is said."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.handle.compaction_stories import (
    TOOLS,
    WORDS,
    Reader,
    Reading,
    asks_for_summary,
    book,
    pages_in,
    read,
    reading,
)
from tests.handle.concurrency import Background, awaited
from tests.handle.support import params, refused, user
from tests.handle.talking import each_driver, play
from toolloop import Continue, InjectMessages, LoopConfig, MemoryStore, Stop, ToolLoopHandle, sub_loop
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.events import Compacted
from toolloop.testing import FakeMessagesAPI, call, delayed, reply

LATER = user("And this is important.")
ROUNDS = [read(number) for number in range(1, 5)]
SIGNS = reply("I sign.", calls=[call("sign", {"name": "ana"}, id="s1")])
Say = Callable[[Any], object]
# What the model does, what is said while a summary is written, and the words to look for.
MEANWHILE: dict[str, tuple[Callable[[], Reader], Say, str]] = {
    "follow_up": (lambda: Reader(4), lambda handle: handle.follow_up([LATER]), LATER["content"]),
    "inject": (lambda: Reader(9), lambda handle: handle.resume(InjectMessages([LATER])), LATER["content"]),
    "stop": (lambda: Reader(0, first=[*ROUNDS, SIGNS]), lambda handle: handle.resume(Stop()), "I sign."),
}
each_saying = pytest.mark.parametrize("said", MEANWHILE)


async def to_the_word(at: Reading, said: str = "inject") -> None:
    """To where the caller may say that: after the end, after four rounds, or where a call waits."""
    if said == "inject":
        for _ in range(3):
            (await at.turn()).continue_loop()
        await at.turn()
    else:
        await at.to_the_end()


@each_driver
@pytest.mark.parametrize("stored", [False, True], ids=["kept", "stored"])
@each_saying
def test_what_is_said_while_a_summary_is_written_by_hand_stays(driver: str, stored: bool, said: str) -> None:
    """It stands after the summary, and goes out with the next request."""
    made, say, words = MEANWHILE[said]

    async def story() -> None:
        script = made()
        async with reading(driver, script, store=MemoryStore() if stored else None) as at:
            script.on_summary = lambda: say(at.handle)
            await to_the_word(at, said)
            report = await at.by_hand(Summarize(keep_last=1))
            assert report.problem is None
            assert report.after < report.before
            assert WORDS in str(at.handle.messages[1])
            assert words in str(at.handle.messages[-2:])
            if said == "stop":
                at.handle.follow_up([user("Go on.")])
            assert (await at.to_the_end()).text == "done"
            assert words in str(at.requests[-1]["messages"])

    play(driver, story)


def elsewhere(at: Reading, store: MemoryStore, say: Say) -> None:
    """Another handle of the same stored loop says it, and this one hears of it."""
    assert isinstance(at.handle, ToolLoopHandle)
    other = ToolLoopHandle.open(store, "loop", at.client, tools=TOOLS)
    say(other)
    other.close()
    at.handle.flush()


@each_saying
def test_what_another_handle_says_meanwhile_stays_too(said: str) -> None:
    """It was read before the summary came."""
    made, say, words = MEANWHILE[said]

    async def story() -> None:
        script, store = made(), MemoryStore()
        async with reading("sync", script, store=store) as at:
            await to_the_word(at, said)
            at.handle.close()
            script.on_summary = lambda: elsewhere(at, store, say)
            report = await at.by_hand(Summarize(keep_last=1))
            assert report.problem is None
            assert report.after < report.before
            assert words in str(at.handle.messages[-2:])
            if said == "stop":
                at.handle.follow_up([user("Go on.")])
            assert (await at.to_the_end()).text == "done"
            assert words in str(at.requests[-1]["messages"])

    play("sync", story)


def test_a_history_that_another_handle_compacted_meanwhile_stays() -> None:
    """The summary is of what is no more; what it used is counted."""

    async def story() -> None:
        script, store = Reader(9), MemoryStore()
        async with reading("sync", script, store=store) as at:
            await to_the_word(at)
            at.handle.close()
            script.on_summary = lambda: elsewhere(at, store, MaskResults(keep_rounds=1))
            report = await at.by_hand(Summarize(keep_last=1))
            assert report.problem == "the history changed meanwhile"
            assert report.after == report.before
            assert pages_in(at.handle.messages) == [4]
            assert len(at.handle.messages) == 9
            assert [entry.kind for entry in at.handle.usage_log].count("summary") == 1
            assert (await at.to_the_end()).text == "done"

    play("sync", story)


def test_a_request_of_another_handle_meanwhile() -> None:
    """It carries the history as it is: a problem is told, what the summary used is counted, and the loop goes on."""
    summary, answer, read_on = delayed(threading.Event(), reply(WORDS)), delayed(threading.Event(), read(5)), Reader(0)

    def script(body: Any) -> Any:
        if asks_for_summary(body):
            return summary
        rounds = len(body["messages"]) // 2
        return read(rounds + 1) if rounds < 4 else answer if rounds == 4 else read_on(body)

    async def story() -> None:
        store = MemoryStore()
        async with reading("sync", script, store=store) as at:
            await to_the_word(at)
            at.handle.close()
            by_hand = Background(lambda: Summarize(keep_last=1)(at.handle))
            awaited(summary.arrived)
            other = ToolLoopHandle.open(store, "loop", at.client, tools=TOOLS)
            other.resume(Continue())
            turn = Background(other.next_turn)
            awaited(answer.arrived)
            assert isinstance(at.handle, ToolLoopHandle)
            at.handle.flush()
            summary.release()
            report: Any = by_hand.result()
            assert report.problem
            assert report.after == report.before
            answer.release()
            turn.result()
            other.close()
            at.handle.flush()
            assert pages_in(at.handle.messages) == [1, 2, 3, 4, 5]
            assert [entry.kind for entry in at.handle.usage_log].count("summary") == 1
            at.handle.resume(Continue())
            assert (await at.to_the_end()).text == "done"

    play("sync", story)


def test_a_sync_handle_awaits_no_function() -> None:
    """It says so before the function is called, and nothing changes."""

    async def write(messages: Any) -> str:
        raise AssertionError(messages)

    async def story() -> None:
        async with reading("sync", Reader(4)) as at:
            await at.to_the_end()
            with refused(at.handle, TypeError, "async"):  # type: ignore[type-var]
                Summarize(write, 1)(at.handle)

    play("sync", story)


# --- what goes wrong is said ---


class EvilError(Exception):
    """It does not even say what it is."""

    def __str__(self) -> str:
        raise ValueError


def failing(error: Exception) -> Callable[[Any], bool]:
    """A `pinned` that fails so."""

    def pinned(_message: Any) -> bool:
        raise error

    return pinned


@each_driver
@pytest.mark.parametrize("error", [RuntimeError("no pin"), EvilError()])
@pytest.mark.parametrize("kind", [DropRounds, Summarize])
def test_a_pinned_that_raises_is_told_and_breaks_nothing(driver: str, error: Exception, kind: Any) -> None:
    """The history is left as it is, and the log has a line of it; by hand, the caller gets the exception."""

    async def story() -> None:
        async with reading(driver, Reader(4), kind(keep_last=1, at_tokens=3000, pinned=failing(error))) as at:
            assert (await at.to_the_end()).text == "done"
            assert pages_in(at.handle.messages) == [1, 2, 3, 4]
            assert at.problems
            assert all(problem.startswith(type(error).__name__) for problem in at.problems if problem)
            assert None not in at.problems
            with pytest.raises(type(error)):
                await at.by_hand(kind(keep_last=1, pinned=failing(error)))

    play(driver, story)


def test_a_pinned_that_raises_in_a_child() -> None:
    """The child goes on, and so does its parent."""
    strategy = DropRounds(1, at_tokens=2000, pinned=failing(RuntimeError("no pin")))
    heard: list[Any] = []
    config = LoopConfig(max_iterations=9, compaction=strategy)
    asked = {name: value for name, value in params(thinking={"type": "adaptive"}).items() if name != "messages"}
    child = sub_loop("child", "Reads.", params=asked, tools=TOOLS, config=config)

    def script(body: Any) -> Any:
        rounds = len(body["messages"]) // 2
        if body["messages"][0] == user("Read the book."):
            return reply("done") if rounds else reply(calls=[call("child", {"prompt": "Read."})])
        return read(rounds + 1) if rounds < 4 else reply("read")

    with FakeMessagesAPI(script) as api:
        handle = ToolLoopHandle(api.client(), params=book(), tools=[child], config=LoopConfig(observers=[heard.append]))
        assert handle.run().unwrap().text == "done"
        assert api.refused == []
    problems = [event.problem for event in heard if isinstance(event, Compacted)]
    assert problems
    assert set(problems) == {"RuntimeError: no pin"}


@each_driver
def test_a_problem_is_a_line_in_the_log(driver: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody need listen for events to hear that nothing is compacted; one that went well is none."""

    async def story() -> None:
        script = Reader(9, summaries=[reply(""), reply(WORDS)])
        async with reading(driver, script) as at:
            await to_the_word(at)
            failed = await at.by_hand(Summarize(keep_last=1))
            assert (await at.by_hand(Summarize(keep_last=1))).problem is None
            lines = [record for record in caplog.records if record.levelno == logging.WARNING]
            (line,) = [record for record in lines if record.name.startswith("toolloop")]
            assert failed.problem
            assert failed.problem not in line.getMessage()  # it may repeat what was said
            assert "Summarize" in line.getMessage()

    with caplog.at_level(logging.WARNING, logger="toolloop"):
        play(driver, story)
