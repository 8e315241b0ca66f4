"""The history of a Temporal workflow, as a server would have written it: for `Replayer`, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from temporalio.api.common.v1 import ActivityType, Payloads, WorkflowType
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure, TimeoutFailureInfo
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

_BEGAN = 1_800_000_000  # seconds since the epoch
_QUEUE = TaskQueue(name="queue")


def payloads(values: Sequence[Any]) -> Payloads:
    return Payloads(payloads=DataConverter.default.payload_converter.to_payloads(values))


class History:
    """Events are added in the order in which they happened; each takes a second."""

    def __init__(self, workflow: str, arguments: Sequence[Any]) -> None:
        self._events: list[HistoryEvent] = []
        self._activities = 0
        self._task_id = 0
        self._timers: list[int] = []
        self._add(
            "WORKFLOW_EXECUTION_STARTED",
            workflow_type=WorkflowType(name=workflow),
            task_queue=_QUEUE,
            input=payloads(arguments),
            original_execution_run_id="run",
            first_execution_run_id="run",
            attempt=1,
        )

    def activity(self, name: str, *arguments: Any, result: Any = None, times_out: bool = False) -> Self:
        """The workflow begins an activity, which ends; or the process that runs it dies."""
        task, self._activities = self._task(), self._activities + 1
        scheduled = self._add(
            "ACTIVITY_TASK_SCHEDULED",
            activity_id=str(self._activities),
            activity_type=ActivityType(name=name),
            task_queue=_QUEUE,
            input=payloads(arguments),
            workflow_task_completed_event_id=task,
        )
        started = self._add("ACTIVITY_TASK_STARTED", scheduled_event_id=scheduled, attempt=1)
        both = {"scheduled_event_id": scheduled, "started_event_id": started}
        if times_out:
            failure = Failure(message="it timed out", timeout_failure_info=TimeoutFailureInfo(timeout_type=1))  # type: ignore[arg-type] # an enum
            self._add("ACTIVITY_TASK_TIMED_OUT", failure=failure, **both)
        else:
            self._add("ACTIVITY_TASK_COMPLETED", result=payloads([result]), **both)
        return self

    def waits(self, seconds: float) -> Self:
        """The workflow begins a timer."""
        task = self._task()
        self._timers.append(len(self._events) + 1)
        event = self._add("TIMER_STARTED", timer_id=str(len(self._timers)), workflow_task_completed_event_id=task)
        self._events[event - 1].timer_started_event_attributes.start_to_fire_timeout.FromNanoseconds(int(seconds * 1e9))
        return self

    def rests(self) -> Self:
        """The workflow waits for a signal alone."""
        self._task()
        return self

    def signal(self, name: str, *arguments: Any) -> Self:
        self._add("WORKFLOW_EXECUTION_SIGNALED", signal_name=name, input=payloads(arguments))
        return self

    def cancels_timer(self) -> Self:
        """The workflow gives its timer up, in the task in which it goes on."""
        task = self._task()
        number = len(self._timers)
        self._add(
            "TIMER_CANCELED",
            timer_id=str(number),
            started_event_id=self._timers[-1],
            workflow_task_completed_event_id=task,
        )
        return self

    def completes(self, result: Any) -> WorkflowHistory:
        task = self._task()
        self._add("WORKFLOW_EXECUTION_COMPLETED", result=payloads([result]), workflow_task_completed_event_id=task)
        return WorkflowHistory("loop", self._events)

    def _task(self) -> int:
        """Tell the workflow what happened. If it already knows, add nothing."""
        if self._events[-1].event_type in (
            EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
            EventType.EVENT_TYPE_TIMER_CANCELED,
        ):
            return self._task_id
        scheduled = self._add("WORKFLOW_TASK_SCHEDULED", task_queue=_QUEUE, attempt=1)
        started = self._add("WORKFLOW_TASK_STARTED", scheduled_event_id=scheduled)
        self._task_id = self._add("WORKFLOW_TASK_COMPLETED", scheduled_event_id=scheduled, started_event_id=started)
        return self._task_id

    def _add(self, kind: str, **fields: Any) -> int:
        attributes: dict[str, Any] = {f"{kind.lower()}_event_attributes": fields}
        read_kind = EventType.Value(f"EVENT_TYPE_{kind}")
        event = HistoryEvent(event_id=len(self._events) + 1, event_type=read_kind, **attributes)
        event.event_time.FromSeconds(_BEGAN + len(self._events))
        self._events.append(event)
        return len(self._events)
