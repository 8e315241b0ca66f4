"""The progress of a driver beside its lease: what is stored of it, when, and what comes of a failure."""

from __future__ import annotations

import gc
import logging
import math
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.kit.tools import user
from tests.kit.world import each_store, store_at
from toolloop import Inbox, MemoryStore, ToolContext, ToolLoopHandle, Worker, sub_loop, tool
from toolloop._interface.progress import Progress
from toolloop.errors import StoreError
from toolloop.inbox import LoopChange
from toolloop.stores import Lease, Store
from toolloop.testing import ScriptedProvider, call, reply
from toolloop.types import RunningCall

PATIENCE = 60.0
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [user("Draw")]}
DRAWS = [reply(calls=[call("draw", {}, id="c1")]), reply("done")]

texts = st.text(st.characters(), max_size=3)  # with lone surrogates and NUL
numbers = st.none() | st.integers() | st.floats()
moments = st.integers(0, 2_000_000_000_000).map(lambda at: datetime.fromtimestamp(at / 1000, UTC))
calls = st.builds(
    RunningCall,
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.just("draw"),
    st.none() | moments,
    *[st.none()] * 3,
)


class Image:
    """A tool that stands still after its report, until the test lets it end."""

    def __init__(self) -> None:
        self.runs, self.goes_on = threading.Event(), threading.Event()
        self.reports: list[Any] = [("images", 2, 3)]

        @tool
        def draw(context: ToolContext) -> str:
            """Draw."""
            for message, progress, total in self.reports:
                context.report(message, progress=progress, total=total)
            self.runs.set()
            assert self.goes_on.wait(PATIENCE)
            return "drawn"

        self.tool = draw


@pytest.fixture
def image() -> Iterator[Image]:
    image = Image()
    yield image
    image.goes_on.set()


def open_loop(store: Store, image: Image, **more: Any) -> ToolLoopHandle:
    return ToolLoopHandle.open(
        store, "loop", ScriptedProvider(DRAWS), **{"tools": [image.tool], "params": PARAMS, **more}
    )


def start_driving(handle: ToolLoopHandle) -> threading.Thread:
    thread = threading.Thread(target=handle.run)
    thread.start()
    return thread


def follow(changes: Iterator[LoopChange], wanted: Callable[[LoopChange], object]) -> LoopChange:
    return next(change for change in changes if wanted(change))


# --- what is stored --------------------------------------------------------------------------------------------------


@examples(200)
@given(st.lists(st.tuples(calls, st.none() | texts, numbers, numbers), max_size=3), st.none() | texts)
def test_what_is_stored_is_what_was_reported(
    reports: list[tuple[RunningCall, Any, Any, Any]], text: str | None
) -> None:
    """Whatever a tool reported: text that no store keeps is replaced, and a number that JSON lacks is left out."""
    running = [RunningCall(each.id, each.name, each.since, *report) for each, *report in reports]
    stored = Progress(tuple(running), text).to_json()
    assert stored is None or stored.isascii()
    read = Progress.of(stored)
    assert [(each.id, each.name, each.since) for each in read.running] == [
        (each.id, each.name, each.since) for each, *_ in reports
    ]
    for each, (_, message, *amounts) in zip(read.running, reports, strict=True):
        assert each.message == clean(message)
        for kept, amount in zip((each.progress, each.total), amounts, strict=True):
            assert kept == amount or (kept is None and not abs(amount) <= 2**53)
    assert read.text == clean(text)


def clean(text: str | None) -> str | None:
    """The text without lone surrogates."""
    return None if text is None else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@pytest.mark.parametrize("text", ["", "[", "[]", "1", '{"running": [{}]}', '{"running": 1}', '{"newer": 1}'])
def test_progress_that_cannot_be_read_is_none(text: str) -> None:
    """It is only displayed, so it blocks nothing."""
    assert Progress.of(text) == Progress()


# --- one process -----------------------------------------------------------------------------------------------------


@each_store
def test_a_handle_and_an_inbox_show_what_runs(where: str, tmp_path: Path, image: Image) -> None:
    """The handle at once; the inbox within about a second, and nothing once the lease is given back."""
    store = store_at(where, tmp_path)
    with open_loop(store, image) as handle:
        assert (handle.view()["running"], handle.view()["driven"]) == ([], False)
        thread = start_driving(handle)
        assert image.runs.wait(PATIENCE)
        view = handle.view()
        (running,) = view["running"]
        shown = {name: running[name] for name in ("id", "name", "message", "progress", "total")}
        assert shown == {"id": "c1", "name": "draw", "message": "images", "progress": 2, "total": 3}
        assert view["driven"] is True
        change = follow(Inbox(store).watch("loop"), lambda change: change.running)
        assert Inbox(store).show("loop")["running"] == handle.view()["running"] == [running]
        assert change.running[0].since == datetime.fromisoformat(running["since"] or "")
        image.goes_on.set()
        thread.join(PATIENCE)
    assert store.progress("loop") is None
    assert (Inbox(store).show("loop")["running"], Inbox(store).show("loop")["driven"]) == ([], False)


def test_a_handle_without_a_store_shows_what_runs(image: Image) -> None:
    """Below a nested loop, too, by the whole path."""
    artist = sub_loop("artist", "Draws.", tools=[image.tool], params={"model": "claude-opus-5-5", "max_tokens": 100})
    script = [reply(calls=[call("artist", {"prompt": "Draw"}, id="p1")]), *DRAWS, reply("done")]
    handle = ToolLoopHandle(ScriptedProvider(script), params=PARAMS, tools=[artist])
    thread = start_driving(handle)
    assert image.runs.wait(PATIENCE)
    assert [(each["id"], each["name"], each["progress"]) for each in handle.view()["running"]] == [("p1/c1", "draw", 2)]
    image.goes_on.set()
    thread.join(PATIENCE)
    assert (handle.view()["running"], handle.view()["driven"]) == ([], False)


class Failing(MemoryStore):
    """A store that cannot keep progress, for some time."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = threading.Semaphore(0)
        self.fails = True

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        if self.fails:
            self.failures.release()
            raise StoreError("the disk is full")
        super().keep_progress(lease, text)


def test_a_failure_of_the_store_is_logged_once_and_retried(image: Image, caplog: pytest.LogCaptureFixture) -> None:
    """The tool and the turn do not notice it."""
    store = Failing()
    with open_loop(store, image) as handle, caplog.at_level(logging.WARNING, "toolloop"):
        thread = start_driving(handle)
        for _ in range(2):
            assert store.failures.acquire(timeout=PATIENCE)
        store.fails = False
        follow(Inbox(store).watch("loop"), lambda change: change.running)
        image.goes_on.set()
        thread.join(PATIENCE)
        assert handle.view()["text"] == "done"
    assert [record.message for record in caplog.records] == [
        "could not store the progress of a loop, for other processes; will retry: the disk is full"
    ]


class Counting(MemoryStore):
    """A store that remembers what was kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str | None] = []

    def keep_progress(self, lease: Lease, text: str | None) -> None:
        self.kept.append(text)
        super().keep_progress(lease, text)


def test_only_what_has_changed_is_stored(image: Image) -> None:
    """Of a thousand reports, the last; and the journal has none of it."""
    store = Counting()
    image.reports = [("images", number, 1000) for number in range(1000)]
    with open_loop(store, image) as handle:
        thread = start_driving(handle)
        follow(Inbox(store).watch("loop"), lambda change: change.running and change.running[0].progress == 999)
        image.goes_on.set()
        thread.join(PATIENCE)
    assert 1 <= len(store.kept) <= 3
    assert not any("images" in entry.body for entry in store.load("loop").entries)


def test_no_thread_keeps_what_was_closed(image: Image) -> None:
    """After a turn whose progress was stored."""
    store = Counting()
    with open_loop(store, image) as handle:
        thread = start_driving(handle)
        follow(Inbox(store).watch("loop"), lambda change: change.running)
        image.goes_on.set()
        thread.join(PATIENCE)
    gone = ref(store)
    del store, handle, thread
    gc.collect()
    assert gone() is None


def test_a_short_turn_stores_none(image: Image) -> None:
    """So a program with quick tools writes no more than before; and no thread keeps what was closed."""
    store = Counting()
    image.goes_on.set()
    with open_loop(store, image) as handle:
        handle.run()
    assert store.kept == []
    gone = ref(store)
    del store, handle
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("live", [0, -1, math.nan, "1", True])
def test_a_worker_refuses_other_intervals(live: Any) -> None:
    """It says which argument is wrong."""
    with pytest.raises((TypeError, ValueError), match="live"):
        Worker(MemoryStore(), ScriptedProvider([]), [], live=live)


@pytest.mark.parametrize(
    ("until", "timeout"), [((), None), ("waiting", None), (("ended", "over"), None), ("ended", "1")]
)
def test_wait_refuses_a_wrong_status_or_time(until: Any, timeout: Any) -> None:
    """Before it reads the store."""
    with pytest.raises((TypeError, ValueError), match=r"until: expected one or more of needs_decision, .*|timeout"):
        Inbox(MemoryStore()).wait("no loop", until, timeout)
