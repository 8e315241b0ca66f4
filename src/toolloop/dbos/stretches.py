"""Stretches as workflows in a queue of DBOS.

A stretch drives a loop from one pause to the next. Its workflow id is `LOOP/REV`: the loop, and its revision when it
was enqueued. DBOS runs each id once. A second run is harmless, because the journal refuses stale appends.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from attrs import frozen
from dbos import DBOSClient, EnqueueOptions

from toolloop.stores.protocol import StoredLoop

WORKFLOW = "toolloop.stretch"


@frozen
class Stretch:
    """A stretch that has not ended.

    Attributes:
        id: the id of the workflow.
        is_running: whether an executor has taken it from the queue.
        began: when it was taken, in milliseconds since the epoch.
        version: the version of the application that may run it.

    """

    id: str
    is_running: bool
    began: int | None
    version: str | None

    @property
    def loop_id(self) -> str:
        """The loop that it drives."""
        return self.id.rpartition("/")[0]


class Stretches:
    """The queue. Its methods may be called from any thread."""

    def __init__(self, settings: Mapping[str, Any], queue: str) -> None:
        """Keep the settings; the first use connects. `settings`: see `settings_of`."""
        self.version: str = settings["application_version"]
        self._queue = queue
        self._client = DBOSClient(
            system_database_url=settings["system_database_url"],
            system_database_engine=settings.get("system_database_engine"),
            dbos_system_schema=settings.get("dbos_system_schema", "dbos"),
            serializer=settings["serializer"],
            application_name=settings["name"],
            lazy=True,
            retry_connection_errors=False,
        )

    def close(self) -> None:
        """Disconnect."""
        self._client.destroy()

    def enqueue(self, loop: StoredLoop) -> None:
        """Enqueue the stretch of a loop that is due, or will be. If it was already enqueued, nothing changes."""
        options = EnqueueOptions(queue_name=self._queue, workflow_name=WORKFLOW, workflow_id=stretch_id(loop))
        options["app_version"] = self.version
        wait = (loop.due_at or 0.0) - time.time()
        if wait > 0:
            options["delay_seconds"] = wait
        self._client.enqueue(options, loop.loop_id)

    def used(self, ids: Collection[str]) -> set[str]:
        """Return those ids for which a workflow exists, with any status."""
        if not ids:
            return set()
        found = self._client.list_workflows(workflow_ids=list(ids), load_input=False, load_output=False)
        return {each.workflow_id for each in found}

    def put_back(self, lost: str) -> None:
        """Put a stretch with any status into the queue again, for executors of this version."""
        self._client.cancel_workflow(lost)
        self._client.rewind_workflow(lost, start_step=1, application_version=self.version, queue_name=self._queue)

    def open(self) -> list[Stretch]:
        """Return the running stretches, and the waiting stretches that are due."""
        found = self._client.list_workflows(
            name=WORKFLOW, queue_name=self._queue, status=["PENDING", "ENQUEUED"], load_input=False, load_output=False
        )
        return [
            Stretch(each.workflow_id, each.status == "PENDING", each.dequeued_at, each.app_version) for each in found
        ]


def stretch_id(loop: StoredLoop) -> str:
    """Return the id of the stretch that begins at the current revision of a loop."""
    return f"{loop.loop_id}/{loop.rev}"
