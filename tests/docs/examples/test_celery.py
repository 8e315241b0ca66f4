"""Loops that Celery dispatches, in its eager mode: a task runs where it is enqueued."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs.examples.programs import imported
from toolloop import Approve, SqliteStore, ToolLoopHandle, Worker
from toolloop.errors import LoopNotFound
from toolloop.testing import ScriptedProvider, call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay bo"}]}
SCRIPT = (reply(calls=[call("transfer", {"to": "bo", "euros": 9}, id="c1")]), reply("Paid."))


def answer(request: Any) -> Any:
    return SCRIPT[sum(message["role"] == "assistant" for message in request["messages"])]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("celery"))
        patch.setenv("ANTHROPIC_API_KEY", "none")
        example: Any = imported("celery_loops")
    example.app.conf.update(task_always_eager=True, task_eager_propagates=True)
    example.worker = Worker(example.store, ScriptedProvider(answer), [example.transfer])
    yield example
    example.store.close()


def test_a_task_drives_a_loop_to_its_next_pause(example: Any) -> None:
    """A start and a decision enqueue it. The task names how the loop stands."""
    example.start("loop", PARAMS)
    assert example.store.head("loop").status == "needs_decision"
    example.decide("loop", {"c1": Approve(by="ana")})
    assert example.store.head("loop").status == "ended"
    assert example.drive.delay("loop").get() == "ended"


def test_a_sweep_drives_what_was_lost(example: Any) -> None:
    """The loop was created, and its task never ran."""
    store: SqliteStore = example.store
    ToolLoopHandle.open(store, "lost", ScriptedProvider(()), tools=[example.transfer], params=PARAMS).close()
    assert (example.sweep.delay().get(), store.head("lost").status) == (1, "needs_decision")
    assert example.sweep.delay().get() == 0


def test_a_loop_that_is_left_to_other_workers_gets_no_task_at_once(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here its next task would run inside this one. A worker with the tool drives it in a sweep."""
    with monkeypatch.context() as patch:
        patch.setattr(example, "worker", Worker(example.store, ScriptedProvider(answer), []))
        example.start("left", PARAMS)
    assert example.store.head("left").status == "runnable"
    assert example.sweep.delay().get() == 1
    assert example.store.head("left").status == "needs_decision"


def test_a_task_is_retried_where_that_helps(example: Any) -> None:
    """Not if the loop was deleted."""
    with pytest.raises(LoopNotFound):
        example.drive.delay("never")
    task = example.app.tasks["loops.drive"]
    assert (task.max_retries, example.app.conf.task_acks_late) == (None, True)
