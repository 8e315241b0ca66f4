"""Loops that Temporal dispatches: an activity drives a loop from one pause to the next."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from anthropic import Anthropic

    import toolloop

QUEUE = "loops"
LONGEST_TURN = timedelta(minutes=10)
LOOK_ANYWAY = timedelta(hours=1)  # if a signal was lost
RETRY = RetryPolicy(maximum_interval=timedelta(minutes=1), non_retryable_error_types=["LoopNotFound"])


@toolloop.tool(needs_approval=True)
def transfer(to: str, euros: int) -> str:
    """Send money."""
    return f"sent {euros} to {to}"


class Drivers:
    """The activities. `worker` has the store, the client and the tools; Temporal decides when it drives."""

    def __init__(self, worker: toolloop.Worker) -> None:
        self.worker = worker

    @activity.defn
    def drive(self, loop_id: str) -> dict[str, Any]:
        """Drive a loop to its next pause. Temporal retries errors, perhaps in a process with the tools of the loop."""

        def is_over() -> bool:  # asked between two turns
            activity.heartbeat()
            return activity.is_worker_shutdown()

        loop = self.worker.drive(loop_id, is_over)
        if loop.left is not None:
            raise ApplicationError(loop.left.why)
        return {"status": loop.status, "due_at": loop.due_at}


@workflow.defn
class LoopWorkflow:
    """One loop, until it has ended."""

    def __init__(self) -> None:
        self.changes = 0

    @workflow.signal
    def changed(self) -> None:
        """Drive again: the loop was changed in the store."""
        self.changes += 1

    def has_changed(self, seen: int) -> bool:
        """Return whether there was another signal."""
        return self.changes != seen

    @workflow.run
    async def run(self, loop_id: str) -> str:
        """Drive the loop whenever it is due."""
        while True:
            seen = self.changes
            loop = await workflow.execute_activity_method(
                Drivers.drive,
                loop_id,
                start_to_close_timeout=timedelta(hours=6),
                heartbeat_timeout=LONGEST_TURN,
                retry_policy=RETRY,
            )
            if loop["status"] == "ended":
                return loop_id
            due_at = loop["due_at"]
            wait = LOOK_ANYWAY if due_at is None else timedelta(seconds=max(0.0, due_at - workflow.time()))
            if wait:
                with suppress(asyncio.TimeoutError):
                    await workflow.wait_condition(partial(self.has_changed, seen), timeout=wait)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(loop_id)


async def start(client: Client, store: toolloop.SqliteStore, loop_id: str, params: Mapping[str, Any]) -> None:
    """Create a loop, and the workflow that drives it. Neither happens twice."""
    loop = toolloop.ToolLoopHandle.open(store, loop_id, Anthropic(), tools=[transfer], params=params)
    await asyncio.to_thread(loop.close)
    await client.start_workflow(LoopWorkflow.run, loop_id, id=loop_id, task_queue=QUEUE)


async def decide(
    client: Client, store: toolloop.SqliteStore, loop_id: str, decisions: Mapping[str, toolloop.Approve | toolloop.Deny]
) -> None:
    """Decide calls, and tell the workflow."""
    await toolloop.AsyncInbox(store).decide(loop_id, decisions)
    await client.get_workflow_handle(loop_id).signal(LoopWorkflow.changed)


async def main() -> None:
    """Run a Temporal worker."""
    client = await Client.connect("localhost:7233")
    drivers = Drivers(toolloop.Worker(toolloop.SqliteStore("bank.db"), Anthropic(), [transfer]))
    with ThreadPoolExecutor(8) as threads:
        worker = Worker(
            client,
            task_queue=QUEUE,
            workflows=[LoopWorkflow],
            activities=[drivers.drive],
            activity_executor=threads,
            max_concurrent_activities=8,
        )
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
