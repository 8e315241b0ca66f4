"""A stop in another process: it reaches a tool of a worker, and a worker that is killed leaves nothing `stopping`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.fork_server import ForkServer
from tests.kit.postgres import database, in_postgres_deep
from tests.kit.warm_python import warm
from tests.promises.processes.programs import store_of
from tests.worker.test_waking import PARAMS, hold
from toolloop import Approve, Inbox, ToolLoopHandle, Worker
from toolloop.machine.values.setup import Texts
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.worker.programs")) as fork_server:
        yield fork_server


@pytest.fixture(params=["sqlite", in_postgres_deep])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "loops.db") if request.param == "sqlite" else database()


def open_again(store: Store) -> Any:
    return ToolLoopHandle.open(store, "loop", ScriptedProvider([]), tools=[hold])


def work(store: Store) -> Any:
    assert Worker(store, ScriptedProvider([]), [hold]).run_once() == 1


def stop_again(store: Store) -> Any:
    Inbox(store).stop("loop", "really", by="bo")


@pytest.mark.parametrize(("settle", "kind"), [(open_again, "sync"), (work, "asyncio"), (stop_again, "sync")])
def test_a_worker_that_is_killed_after_a_stop_leaves_nothing_stopping(
    fork_server: ForkServer, place: str, kind: str, settle: Callable[[Store], Any]
) -> None:
    """Until a process looks, it is `stopping`; then its call was cancelled while it ran, and nothing starts."""
    worker = fork_server.start("stand_by", path=place, kind=kind, poll=1.0, stubborn=True)
    with store_of(place) as store:
        inbox = Inbox(store)
        ToolLoopHandle.open(store, "loop", ScriptedProvider([]), tools=[hold], params=PARAMS).close()
        assert worker.hear("reached")["reached"] == "loop"
        inbox.decide("loop", {"hold": Approve(by="ana")})
        assert worker.hear("reached")["reached"] == "decision"
        inbox.stop("loop", "enough", by="ana")
        assert worker.hear("reached")["reached"] == "stop"
        inbox.stop("loop", "enough", by="ana")
        assert store.head("loop").status == "stopping"
        worker.kill()
        assert store.head("loop").status == "stopping"
        settle(store)
        shown = inbox.show("loop")
        assert (shown["status"], shown["termination"]) == ("ended", "stop_condition")
        assert shown["messages"][-1]["content"][0]["content"] == Texts().cancelled
