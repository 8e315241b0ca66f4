"""How turns end: cancelled, decided elsewhere, failed, at a limit. The client is the protocol's own, of npm."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.acp.conftest import Desk
from tests.acp.editor import Refused
from toolloop import Approve, Ask, Deny, LoopConfig, MemoryStore, SqliteStore, ToolLoopHandle
from toolloop.errors import StoreError
from toolloop.providers import Request
from toolloop.stores import Store, StoredLoop
from toolloop.testing import AsyncScriptedProvider, call, fault, reply
from toolloop.types import JSON

# --- cancelled ---


def test_cancel_stops_a_tool_that_runs(desk: Desk) -> None:
    """What runs is cancelled, and its call has failed. The next prompt is a turn of its own."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "hang")
    editor.wait_until(lambda: "it hangs" in str(editor.updates))
    editor.cancel(session)
    assert answer.result(30) == {"stopReason": "cancelled"}
    assert editor.statuses() == [["pending", "in_progress", "", "failed"]]
    assert editor.turn(session, "hello") == "end_turn"
    assert [each.kind for each in desk.inbox.trail(session) if each.kind == "stop"] == ["stop"]


def test_cancel_at_a_question_runs_nothing(desk: Desk) -> None:
    """The client takes its cards back then, as the protocol wants it. A cancellation twice is one."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    editor.cancel(session)
    editor.cancel(session)
    card.dismiss()
    assert answer.result(30) == {"stopReason": "cancelled"}
    assert editor.statuses() == [["pending", "pending", "failed"]]
    assert "waiting" not in editor.said
    assert editor.turn(session, "hello") == "end_turn"
    assert desk.ran == []


def test_a_card_that_is_answered_after_the_cancellation_runs_nothing(desk: Desk) -> None:
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    editor.cancel(session)
    assert answer.result(30) == {"stopReason": "cancelled"}
    card.choose("once")
    editor.wait_for_text("send does not wait any more. Your answer came later, and changes nothing.")
    assert desk.ran == []


def test_cancel_right_behind_a_prompt_cancels_it(desk: Desk) -> None:
    """What was said is kept, and a prompt right behind it is a turn of its own."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "hang")
    editor.cancel(session)
    after = editor.prompt(session, "hello")
    assert answer.result(30) == {"stopReason": "cancelled"}
    assert after.result(30) == {"stopReason": "end_turn"}
    assert editor.said.endswith("Done: hello")
    assert "hang" in str(desk.inbox.show(session)["messages"][0])


def test_cancel_without_a_turn_changes_nothing(desk: Desk) -> None:
    editor = desk.open()
    session = editor.new()
    editor.cancel(session)
    editor.note("session/cancel", sessionId="none")
    assert editor.turn(session, "hello") == "end_turn"


def test_a_person_who_may_not_stop_leaves_the_turn(desk: Desk) -> None:
    """The loop stays as it is, and the next prompt asks again."""
    desk.given["may"] = lambda person, action, *_: action != "stop"
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    editor.card()
    editor.cancel(session)
    assert answer.result(30) == {"stopReason": "cancelled"}
    assert desk.waiting().name == "send"
    answer = editor.prompt(session, "hello")
    editor.card().choose("once")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert desk.ran == ["send bo"]


# --- decided elsewhere ---


@pytest.mark.parametrize(
    ("decision", "told", "ran"),
    [
        (Approve(by="bo"), "bo approved send.", ["send bo"]),
        (Deny("no", by="bo"), "bo denied send.", []),
        (Approve({"to": "eve"}, by="bo"), "bo approved send with another input.", ["send eve"]),
    ],
    ids=["approve", "deny", "edit"],
)
def test_a_decision_elsewhere_is_shown_and_stands(desk: Desk, decision: Any, told: str, ran: list[str]) -> None:
    """The turn goes on by itself. The card stays, and its answer changes nothing."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    desk.inbox.decide(session, {desk.waiting(): decision})
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert told in editor.said
    card.choose("reject")
    editor.wait_for_text("Your answer came later, and changes nothing.")
    assert desk.ran == ran


def test_a_stop_elsewhere_ends_the_turn(desk: Desk) -> None:
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    editor.card()
    desk.inbox.stop(session, "enough", by="bo")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert "enough" in editor.said
    assert desk.ran == []


def test_a_call_expires_at_the_editor(desk: Desk) -> None:
    """A late answer changes nothing."""
    desk.given["config"] = LoopConfig(on_tool_call=lambda *_: Ask(expires_in=0.2))
    editor = desk.open()
    answer = editor.prompt(editor.new(), "send bo")
    card = editor.card()
    assert answer.result(30) == {"stopReason": "end_turn"}
    card.choose("once")
    editor.wait_for_text("Your answer came later, and changes nothing.")
    assert editor.statuses() == [["pending", "pending", "failed"]]
    assert desk.ran == []


class Ahead(MemoryStore):
    """A store whose clock is ahead of that of this machine."""

    def now(self) -> float:
        return time.time() + 1000


def test_a_deadline_is_judged_by_the_clock_of_the_store(desk: Desk) -> None:
    """By the clock of this machine, the call would wait for a quarter of an hour."""
    desk.given["store"] = Ahead()
    desk.given["config"] = LoopConfig(on_tool_call=lambda *_: Ask(expires_in=0.2))
    editor = desk.open()
    answer = editor.prompt(editor.new(), "send bo")
    editor.card()
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert editor.statuses() == [["pending", "pending", "failed"]]
    assert desk.ran == []


class Failing(SqliteStore):
    """A store that fails a few times.

    Attributes:
        left: how many times each of its methods fails; `answer` is an append that is stored, and whose answer is lost.
        before: how many times it works before that.
        failed_at: when it failed, in seconds.

    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.left: Counter[str] = Counter()
        self.before: Counter[str] = Counter()
        self.failed_at: list[float] = []

    def _fail(self, method: str) -> None:
        if self.left[method] and self.before[method]:
            self.before[method] -= 1
        elif self.left[method]:
            self.left[method] -= 1
            self.failed_at.append(time.monotonic())
            raise StoreError("the network is down")

    def watch(self, on_change: Callable[[], object]) -> AbstractContextManager[None]:
        self._fail("watch")
        return super().watch(on_change)

    def head(self, loop_id: str) -> StoredLoop:
        self._fail("head")
        return super().head(loop_id)

    def now(self) -> float:
        self._fail("now")
        return time.time()

    def acquire(self, *given: Any, **more: Any) -> Any:
        self._fail("acquire")
        return super().acquire(*given, **more)

    def append(self, *given: Any, **more: Any) -> Any:
        self._fail("append")
        stored = super().append(*given, **more)
        self._fail("answer")
        return stored


def failing_store(desk: Desk) -> Failing:
    """Return the store of the agents, which is in a file that the person elsewhere has open, too."""
    path = desk.folder / "loops.db"
    store = desk.given["store"] = Failing(path)
    desk.store = SqliteStore(path)
    return store


def test_a_store_that_fails_at_a_question_is_asked_again(desk: Desk) -> None:
    """A second later, each time. What was decided elsewhere meanwhile is shown then."""
    store = failing_store(desk)
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    editor.card()
    store.left.update(now=1, watch=1)
    desk.inbox.decide(session, {desk.waiting(): Approve(by="bo")})
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert "bo approved send." in editor.said
    first, second = store.failed_at
    assert second - first > 0.9
    assert desk.ran == ["send bo"]


@pytest.mark.parametrize("method", ["head", "now", "append", "answer"])
def test_an_answer_outlives_a_store_that_fails(desk: Desk, method: str) -> None:
    """It is stored once, when the store works again, and the prompt goes on."""
    store = failing_store(desk)
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    store.left[method] = 1
    card.choose("once")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert len(store.failed_at) == 1
    assert [each.kind for each in desk.inbox.trail(session) if each.path] == ["approve"]
    assert desk.ran == ["send bo"]


@pytest.mark.parametrize("method", ["head", "acquire", "append", "answer"])
def test_a_prompt_outlives_a_store_that_fails(desk: Desk, method: str) -> None:
    """Wherever that is: what was said is said once, and the call runs once."""
    store = failing_store(desk)
    editor = desk.open()
    sessions = [editor.new() for _ in range(3)]
    for before, session in enumerate(sessions):
        store.left[method], store.before[method] = 1, before
        assert editor.turn(session, "look a.txt") == "end_turn"
        assert [each.kind for each in desk.inbox.trail(session)] == ["metadata", "say"]
    assert editor.said == "I do it.All done." * len(sessions)
    assert desk.ran == ["look a.txt"] * len(sessions)
    assert store.failed_at


def test_a_cancellation_outlives_a_store_that_fails(desk: Desk) -> None:
    store = failing_store(desk)
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    editor.card()
    store.left["head"] = store.left["append"] = 2
    editor.cancel(session)
    assert answer.result(30) == {"stopReason": "cancelled"}
    assert editor.turn(session, "hello") == "end_turn"
    assert desk.ran == []


@pytest.mark.parametrize("text", ["look a.txt", "send bo"])
def test_a_cancelled_prompt_ends_while_the_store_is_down(desk: Desk, text: str) -> None:
    """Also one that was not stored yet. It is stopped when the store works again, before the next prompt."""
    store = failing_store(desk)
    editor = desk.open()
    session = editor.new()
    down = dict.fromkeys(("head", "append", "acquire", "now"), 1_000_000)
    if text.startswith("look"):
        store.left.update(down)
    answer = editor.prompt(session, text)
    if not text.startswith("look"):
        editor.card()
        store.left.update(down)
    editor.cancel(session)
    assert answer.result(30) == {"stopReason": "cancelled"}
    assert "The store cannot be reached." in editor.said
    store.left.clear()
    assert editor.turn(session, "hello") == "end_turn"
    assert [each.kind for each in desk.inbox.trail(session) if each.kind == "stop"] == ["stop"]
    assert desk.ran == []


def test_a_cancelled_prompt_ends_behind_one_that_waits_for_the_store(desk: Desk) -> None:
    """Each of them is stored once the store works again, in their order, and stopped."""
    store = failing_store(desk)
    editor = desk.open()
    session = editor.new()
    store.left.update(dict.fromkeys(("head", "append", "acquire", "now"), 1_000_000))
    for text in ("look a.txt", "look b.txt"):
        answer = editor.prompt(session, text)
        editor.cancel(session)
        assert answer.result(30) == {"stopReason": "cancelled"}
    store.left.clear()
    assert editor.turn(session, "hello") == "end_turn"
    assert [each.kind for each in desk.inbox.trail(session)] == ["metadata", "say", "stop", "say", "stop", "say"]
    assert desk.ran == []


def test_a_cancelled_prompt_ends_while_its_question_waits_for_the_store(desk: Desk) -> None:
    store = failing_store(desk)
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    editor.card()
    store.left.update(now=1_000_000)  # of a question
    editor.cancel(session)
    assert answer.result(30) == {"stopReason": "cancelled"}
    store.left.clear()
    assert editor.turn(session, "hello") == "end_turn"
    assert [each.kind for each in desk.inbox.trail(session) if each.kind == "stop"] == ["stop"]
    assert desk.ran == []


def test_another_process_that_drives_is_waited_for(desk: Desk) -> None:
    """The thread says so, and the session can be loaded then."""
    editor = desk.open()
    session = editor.new()
    assert editor.turn(session, "hello") == "end_turn"
    loops = desk.loops(desk.sessions[0])
    begun, may_end = threading.Event(), threading.Event()

    def wait_for_test(_: Any) -> None:
        begun.set()
        assert may_end.wait(30)

    driving = threading.Thread(target=_drive, args=(loops.store, session, desk, wait_for_test))
    driving.start()
    assert begun.wait(30)
    answer = editor.prompt(session, "hello again")
    editor.wait_for_text("Another process continues this session.")
    may_end.set()
    assert answer.result(30) == {"stopReason": "end_turn"}
    driving.join()
    editor.updates.clear()
    editor.load(session)
    assert "Done: hello again" in editor.said
    answer = editor.prompt(session, "send bo")
    editor.card().choose("once")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert desk.ran == ["send bo"]


def _drive(store: Store, session: str, desk: Desk, observe: Any) -> None:
    config = LoopConfig(observers=[observe])
    tools = [each for each in desk.loops(desk.sessions[0]).tools if getattr(each, "name", "") not in ("hang", "stall")]
    with desk.api.client() as client, ToolLoopHandle.open(store, session, client, tools=tools, config=config) as handle:
        handle.say("from elsewhere")
        handle.run()


# --- ends ---


def _answer(desk: Desk, *answers: Any) -> None:
    """Let the model say this instead, once each."""
    desk.script += answers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply("I can", stop_reason="max_tokens"), "max_tokens"),
        (reply("No.", stop_reason="refusal"), "refusal"),
        (reply(calls=[call("look", {"path": "a"})]), "max_turn_requests"),
    ],
    ids=["truncated", "refused", "limit"],
)
def test_the_stop_reason_says_how_it_ended(desk: Desk, answer: Any, reason: str) -> None:
    desk.given["config"] = LoopConfig(max_iterations=1)
    _answer(desk, answer)
    editor = desk.open()
    assert editor.turn(editor.new(), "hello") == reason


def test_a_failed_request_is_an_error_and_the_next_prompt_goes_on(desk: Desk) -> None:
    _answer(desk, fault(529))
    editor = desk.open()
    session = editor.new()
    with pytest.raises(Refused, match="verloaded") as refused:
        editor.turn(session, "hello")
    assert refused.value.code == -32603
    assert editor.turn(session, "hello again") == "end_turn"


def test_a_prompt_at_a_question_asks_again_first(desk: Desk) -> None:
    """The turn before it ends. What was said goes out with the result."""
    editor = desk.open()
    session = editor.new()
    first = editor.prompt(session, "send bo")
    card = editor.card()
    second = editor.prompt(session, "hello")
    assert first.result(30) == {"stopReason": "end_turn"}
    editor.card().choose("once")
    assert second.result(30) == {"stopReason": "end_turn"}
    card.choose("once")
    editor.wait_for_text("ana approved send. Your answer came later, and changes nothing.")
    assert "Done: hello" in editor.said
    assert desk.ran == ["send bo"]


def test_a_provider_that_does_not_stream_is_shown_whole(desk: Desk) -> None:
    class Whole:
        async def send(self, request: Request) -> Mapping[str, JSON]:
            return await AsyncScriptedProvider([reply("All at once.")]).send(request)

    desk.given["provider"] = Whole()
    editor = desk.open()
    assert editor.turn(editor.new(), "hello") == "end_turn"
    assert editor.said == "All at once."
