"""What a worker says of itself, for the probe of a container."""

from __future__ import annotations

import threading
from typing import Any

from toolloop import MemoryStore, ToolLoopHandle, Worker
from toolloop.errors import StoreError
from toolloop.testing import ScriptedProvider, reply
from toolloop.types import WorkerHealth

PARAMS = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}]}


def test_a_worker_is_well_while_it_runs_and_can_read_its_store() -> None:
    """With the loops that it drives; before and after that, it is not."""
    store, asked, answers, stops = MemoryStore(), threading.Event(), threading.Event(), threading.Event()

    def answer(_body: dict[str, Any]) -> Any:
        asked.set()
        answers.wait()
        return reply("done")

    ToolLoopHandle.open(store, "a", ScriptedProvider([]), params=PARAMS).close()
    worker = Worker(store, ScriptedProvider(answer), [])
    assert worker.health() == WorkerHealth(is_well=False, looked=None, driving=())
    thread = threading.Thread(target=worker.run, args=(stops,))
    thread.start()
    assert asked.wait(30)
    health = worker.health()
    assert (health.is_well, health.driving) == (True, ("a",))
    assert health.looked is not None
    stops.set()
    answers.set()
    thread.join()
    assert worker.health() == WorkerHealth(is_well=False, looked=None, driving=())


class Gone(MemoryStore):
    """A store that cannot be read."""

    def list(self, *_given: object, **_more: object) -> Any:
        raise StoreError("the disk is gone")


def test_a_worker_that_cannot_read_its_store_is_not_well() -> None:
    """It runs, and tries again."""
    stops, worker = threading.Event(), Worker(Gone(), ScriptedProvider([]), [])
    thread = threading.Thread(target=worker.run, args=(stops,))
    thread.start()
    assert worker.health() == WorkerHealth(is_well=False, looked=None, driving=())
    stops.set()
    thread.join()
