"""What another process sees of a loop that a worker drives: its progress, the words of a reply, and its end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.inbox.page.visitor import Visitor
from tests.inbox.support import desk_of
from tests.kit.fork_server import Child, ForkServer
from tests.kit.postgres import database, in_postgres, in_postgres_deep, needs_postgres
from tests.kit.warm_python import warm
from tests.kit.world import wait
from tests.promises.processes.programs import store_of
from tests.worker.watched_program import WORDS
from toolloop import AsyncInbox, Inbox, LoopConfig, MemoryStore, ToolLoopHandle, Worker, tool
from toolloop.errors import ModelError
from toolloop.events import TextDelta
from toolloop.inbox import LoopChange, watching
from toolloop.inbox.shown.running import running_words
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider, reply
from toolloop.types import RunningCall

NEVER = 600.0  # seconds, so that nothing but the watch can have brought it
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Draw"}]}


@tool
def draw() -> str:
    """Draw."""
    return ""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.worker.watched_program")) as fork_server:
        yield fork_server


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "loops.db") if request.param == "sqlite" else database()


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    with store_of(place) as store:
        opened(store).close()
        yield store


def opened(store: Store) -> ToolLoopHandle:
    return ToolLoopHandle.open(store, "loop", ScriptedProvider([]), tools=[draw], params=PARAMS)


def follow(changes: Iterator[LoopChange], wanted: Callable[[LoopChange], object]) -> LoopChange:
    """The first change that is wanted."""
    return next(change for change in changes if wanted(change))


def at_tool(fork_server: ForkServer, place: str, **given: Any) -> Child:
    """A worker that runs the tool."""
    worker = fork_server.start("work", path=place, **{"kind": "sync", **given})
    assert worker.hear("at")["at"] == "tool"
    return worker


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        *(("sqlite", kind) for kind in ("sync", "asyncio", "trio")),
        pytest.param("postgres", "asyncio", marks=needs_postgres),
    ],
    indirect=["place"],
)
def test_another_process_sees_the_words_and_the_progress_of_a_worker(
    fork_server: ForkServer, place: str, store: Store, kind: str
) -> None:
    """As they come: the words while the reply streams, then the call with what its tool reported, then the end."""
    inbox = Inbox(store)
    changes = inbox.watch("loop")
    row = store.head("loop")
    assert next(changes) == LoopChange("loop", row.rev, "runnable", row.head.changed, driven=False)
    worker = fork_server.start("work", path=place, kind=kind, live=0.05)
    assert worker.hear("at")["at"] == "words"
    streaming = follow(changes, lambda change: change.text)
    assert streaming.text is not None
    assert (WORDS.startswith(streaming.text), streaming.status, streaming.running) == (True, "running", ())
    worker.go()
    assert worker.hear("at")["at"] == "tool"
    working = follow(changes, lambda change: change.running and change.running[0].progress)
    (call,) = working.running
    assert call.since is not None
    assert (call.id, call.name, call.message, call.progress, call.total) == ("c1", "draw", "drawing", 2, 3)
    assert timedelta() <= datetime.now(UTC) - call.since < timedelta(minutes=5)
    assert (working.text, working.status, working.driven) == (None, "running", True)
    worker.go()
    done = follow(changes, lambda change: change.status == "ended")
    assert (done.running, done.rev) == ((), store.head("loop").rev)
    worker.kill()


@pytest.mark.parametrize(
    ("place", "ends"),
    [
        *(("sqlite", ends) for ends in ("by itself", "with its process")),
        pytest.param("postgres", "with its process", marks=needs_postgres),
    ],
    indirect=["place"],
)
def test_a_stopping_loop_says_what_still_runs_and_whether_its_driver_is_gone(
    fork_server: ForkServer, place: str, store: Store, ends: str
) -> None:
    """The views of the inbox and of a handle in this process agree; they say `gone` once the lease is over."""
    inbox = Inbox(store)
    worker = at_tool(fork_server, place)
    follow(inbox.watch("loop"), lambda change: change.running)
    inbox.stop("loop", "wrong images", by="ana")
    assert inbox.wait("loop", "stopping", timeout=60).status == "stopping"
    shown = inbox.show("loop")
    (running,) = shown["running"]
    assert running["since"] is not None
    reported = {"message": "drawing", "progress": 2, "total": 3}
    assert running == {"id": "c1", "name": "draw", "since": running["since"], **reported}
    assert (shown["status"], shown["driven"]) == ("stopping", True)
    page = Visitor(desk_of(store, now=time.time()))
    page.open("/loop", id="loop")
    assert re.search(r"Stopping: draw still runs, since \d\d:\d\d UTC\.", page.bare), page.bare
    assert re.search(r", running \d+ s, 2 of 3 drawing ", page.bare), page.bare
    with opened(store) as handle:
        view = handle.view()
        assert (view["running"], view["status"], view["driven"]) == ([running], "stopping", True)
        if ends == "by itself":
            worker.go()
            # The worker gives its lease back after it has written the end.
            done = follow(inbox.watch("loop"), lambda change: change.status == "ended" and not change.driven)
            assert (done.running, inbox.show("loop")["running"], inbox.show("loop")["driven"]) == ((), [], False)
            worker.kill()
        else:
            worker.kill()
            for gone in (inbox.show("loop"), handle.view()):
                assert (gone["status"], gone["driven"]) == ("stopping", False)
                assert gone["running"] == [{**running, **dict.fromkeys(("since", "message", "progress", "total"))}]
            page.open("/loop", id="loop")
            assert "Stopping; its driver is gone." in page.bare


@pytest.mark.parametrize("place", ["sqlite", in_postgres_deep], indirect=True)
@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_an_async_inbox_follows_and_waits_likewise(
    fork_server: ForkServer, place: str, store: Store, kind: str
) -> None:
    """Its event loop is free meanwhile."""
    worker = at_tool(fork_server, place, kind=kind)

    async def follow_to_the_end() -> list[tuple[str, Any]]:
        inbox, seen = AsyncInbox(store), list[tuple[str, Any]]()
        changes = inbox.watch("loop")
        async for change in changes:
            seen.append((change.status, change.running and change.running[0].progress))
            if change.running and seen[-1][1] == 2:
                break
        await changes.aclose()
        worker.go()
        seen.append(((await inbox.wait("loop", timeout=60)).status, None))
        with pytest.raises(TimeoutError, match=r"the loop 'loop' is ended, and did not become running"):
            await inbox.wait("loop", "running", timeout=0.01)
        return seen

    seen = wait(kind, follow_to_the_end())
    worker.kill()
    assert seen[-2:] == [("running", 2), ("ended", None)]


@pytest.mark.parametrize("place", ["sqlite", in_postgres], indirect=True)
def test_a_change_reaches_an_inbox_that_never_polls(place: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the watch of the store, also if another connection made the change."""
    monkeypatch.setattr(watching, "_POLL", NEVER)
    changes = Inbox(store).watch("loop")
    assert next(changes).status == "runnable"
    with store_of(place) as other:
        begun = time.monotonic()
        Inbox(other).stop("loop", "enough", by="ana")
        assert follow(changes, lambda change: change.status == "ended").rev == store.head("loop").rev
        assert time.monotonic() - begun < NEVER / 10


@pytest.mark.parametrize(
    ("seconds", "report", "words"),
    [
        (102, ("images", 2, 3), "running 1 min 42 s, 2 of 3 images"),
        (0, (None, None, None), "running 0 s"),
        (-5, ("starts", None, 7), "running 0 s, starts"),
        (59.9, (None, 1234567, None), "running 59 s, 1,234,567"),
        (61, ("page 2", 2, 3), "running 1 min 1 s, 2 of 3, page 2"),
        (60, (None, 0.5, 1.0), "running 1 min 0 s, 0.5 of 1"),
        (11_520, ("", 1, 2), "running 3 h 12 min, 1 of 2"),
        (None, ("images", 2, 3), "running, 2 of 3 images"),
    ],
)
def test_the_page_says_how_long_a_call_runs_and_how_far_it_is(seconds: float | None, report: Any, words: str) -> None:
    """A message of one word is the unit."""
    since = None if seconds is None else datetime.fromtimestamp(1e9 - seconds, UTC)
    assert running_words(RunningCall("c1", "draw", since, *report), 1e9) == words


@pytest.mark.parametrize("is_due_again", [True, False])
def test_a_failed_loop_says_when_its_request_is_repeated(is_due_again: bool) -> None:
    """Not if a person must decide."""
    store, error = MemoryStore(), ModelError("busy", retryable=is_due_again, retry_after=3600.0)
    opened(store).close()
    Worker(store, ScriptedProvider([error]), [draw]).run_once()
    failed = next(Inbox(store).watch("loop"))
    assert (failed.status, failed.retry_at) == ("failed", store.head("loop").head.retry_at)
    assert (failed.retry_at is not None) == is_due_again


def test_an_observer_of_a_worker_gets_each_piece_before_the_next_one_arrives() -> None:
    """Though no stream is read: a front end hands the pieces on to its clients."""
    heard, arrived = list[str](), list[str]()

    def hear(event: Any) -> None:
        heard.extend([event.text] if isinstance(event, TextDelta) else [])

    class Model(ScriptedProvider):
        def stream(self, request: Any) -> Iterator[Any]:
            for event in super().stream(request):
                yield event
                arrived.extend([text] if (text := event.get("delta", {}).get("text")) else [])
                assert heard == arrived

    store = MemoryStore()
    opened(store).close()
    Worker(store, Model([reply(WORDS)]), [draw], config=LoopConfig(observers=[hear]), live=NEVER).run_once()
    assert (store.head("loop").status, "".join(heard)) == ("ended", WORDS)
    assert len(heard) > 1
