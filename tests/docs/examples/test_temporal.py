"""Loops that Temporal dispatches. No server runs here: activities run in Temporal's test environment, workflows replay.

A replay runs the real workflow in Temporal's sandbox, and fails if it does something else than the history says.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Replayer

from tests.docs.examples.programs import EXAMPLES, imported
from tests.docs.examples.temporal_history import History
from toolloop import Approve, Inbox, SqliteStore, ToolLoopHandle, Worker
from toolloop.errors import LoopNotFound
from toolloop.providers.scripted import Completion
from toolloop.testing import FakeMessagesAPI, call, reply

PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100}
QUESTION = "Order 7 came broken"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox imports the module of a workflow again, by its name."""
    monkeypatch.syspath_prepend(EXAMPLES)


def replayed(workflow: Any, history: WorkflowHistory) -> Exception | None:
    async def main() -> Exception | None:
        result = await Replayer(workflows=[workflow]).replay_workflow(history, raise_on_replay_failure=False)
        return result.replay_failure

    return asyncio.run(main())


def standing(status: str, due_at: float | None = None) -> dict[str, Any]:
    return {"status": status, "due_at": due_at}


def test_the_activity_drives_a_loop_to_its_next_pause(tmp_path: Path) -> None:
    """It tells the workflow when to look again. What it raises is for Temporal to retry, or not."""
    example: Any = imported("temporal_loops")
    script = [reply(calls=[call("transfer", {"to": "bo", "euros": 9}, id="c1")]), reply("Paid.")]
    with FakeMessagesAPI(script) as api, api.client() as client, SqliteStore(tmp_path / "bank.db") as store:
        first = {**PARAMS, "messages": [{"role": "user", "content": "Pay bo"}]}
        ToolLoopHandle.open(store, "loop", client, tools=[example.transfer], params=first).close()
        drivers = example.Drivers(Worker(store, client, [example.transfer]))
        environment = ActivityEnvironment()
        assert environment.run(drivers.drive, "loop") == standing("needs_decision")
        Inbox(store).decide("loop", {"c1": Approve(by="ana")})
        environment.worker_shutdown()
        assert environment.run(drivers.drive, "loop") == standing("runnable", 0.0)
        assert ActivityEnvironment().run(drivers.drive, "loop") == standing("ended")
        ToolLoopHandle.open(store, "left", client, tools=[example.transfer], params=first).close()
        with pytest.raises(ApplicationError, match="no worker has the tools 'transfer'"):
            ActivityEnvironment().run(example.Drivers(Worker(store, client, [])).drive, "left")
        with pytest.raises(LoopNotFound):
            environment.run(drivers.drive, "never")
        assert example.RETRY.non_retryable_error_types == [LoopNotFound.__name__]


def test_the_workflow_drives_waits_for_a_person_and_drives_again() -> None:
    """A loop that was left between two turns is driven at once; one that waits, after a signal."""
    workflow = imported("temporal_loops").LoopWorkflow
    history = History("LoopWorkflow", ["loop"]).activity("drive", "loop", result=standing("runnable", 0.0))
    history.activity("drive", "loop", result=standing("needs_decision")).waits(3600)
    history.signal("changed").cancels_timer().activity("drive", "loop", result=standing("ended"))
    assert replayed(workflow, history.completes("loop")) is None


def test_a_replay_notices_another_workflow() -> None:
    """So the other tests mean something: this one would have to wait."""
    workflow = imported("temporal_loops").LoopWorkflow
    history = History("LoopWorkflow", ["loop"]).activity("drive", "loop", result=standing("needs_decision"))
    assert "Nondeterminism" in repr(replayed(workflow, history.activity("drive", "loop").completes("loop")))


def begun() -> tuple[History, dict[str, Any]]:
    """The machine has asked the model, and waits for a person; and what the model says next."""
    complete = Completion()
    asks = complete(reply(calls=[call("pay", {"order": 7}, id="c1")]), "claude-opus-5-5")
    history = History("Refunds", [PARAMS, QUESTION]).activity("ask_model", result=asks).rests()
    return history, complete(reply("Done."), "claude-opus-5-5")


@pytest.mark.parametrize("decision", [pytest.param("approve", marks=pytest.mark.deep), "deny"])
def test_the_machine_runs_inside_a_workflow(decision: str) -> None:
    """In the sandbox, which would refuse a clock, randomness or I/O. A denied call never starts."""
    history, done = begun()
    history.signal("decide", "c1", decision, "ana")
    if decision == "approve":
        history.activity("pay", 7, result="order 7 is paid back")
    history.activity("ask_model", result=done)
    assert replayed(imported("temporal_machine").Refunds, history.completes("Done.")) is None


def test_a_call_whose_end_is_unknown_is_not_repeated_by_the_workflow() -> None:
    """The machine asks a person, who says it again. An outdated decision changes nothing."""
    history, done = begun()
    history.signal("decide", "c1", "approve", "ana").activity("pay", 7, times_out=True).rests()
    history.signal("decide", "c1", "approve", "ana").rests()
    history.signal("decide", "c1", "rerun", "ana").activity("pay", 7, result="order 7 is paid back")
    history.activity("ask_model", result=done)
    assert replayed(imported("temporal_machine").Refunds, history.completes("Done.")) is None
