"""Loops that Celery dispatches: a task drives a loop from one pause to the next."""

import time
from collections.abc import Mapping
from typing import Any

from anthropic import Anthropic
from celery import Celery

from toolloop import Approve, Deny, Inbox, SqliteStore, ToolLoopHandle, Worker, tool
from toolloop.errors import LoopNotFound, StoreError

LONGEST_DELAY = 600.0  # seconds
app = Celery("bank", broker="amqp://localhost")
app.conf.update(
    task_acks_late=True,  # a task whose worker was killed is given to another one
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    beat_schedule={"sweep": {"task": "loops.sweep", "schedule": 60.0}},
)


@tool(needs_approval=True)
def transfer(to: str, euros: int) -> str:
    """Send money."""
    return f"sent {euros} to {to}"


store = SqliteStore("bank.db")
worker = Worker(store, Anthropic(), [transfer])


@app.task(
    shared=False,  # a task of this app alone
    name="loops.drive",
    autoretry_for=(StoreError,),  # another driver has the loop, or the store failed
    dont_autoretry_for=(LoopNotFound,),
    max_retries=None,
    retry_backoff=True,
    retry_backoff_max=60,
)
def drive(loop_id: str) -> str:
    """Drive a loop to its next pause. A deadline or a retry is a task for later."""
    loop = worker.drive(loop_id)
    if loop.due_at is not None and loop.left is None:  # `sweep` tries a loop that is left to other workers
        # Look then, or earlier: brokers give long delays to another worker.
        drive.apply_async((loop_id,), countdown=min(max(0.0, loop.due_at - time.time()), LONGEST_DELAY))
    return loop.status


@app.task(name="loops.sweep", shared=False)
def sweep() -> int:
    """Drive what was lost: a broker that was emptied, a decision on the approval page."""
    return worker.run_once()


def start(loop_id: str, params: Mapping[str, Any]) -> None:
    """Create a loop, and enqueue it."""
    ToolLoopHandle.open(store, loop_id, Anthropic(), tools=[transfer], params=params).close()
    drive.delay(loop_id)


def decide(loop_id: str, decisions: Mapping[str, Approve | Deny]) -> None:
    """Decide calls of a loop, and enqueue it."""
    Inbox(store).decide(loop_id, decisions)
    drive.delay(loop_id)
