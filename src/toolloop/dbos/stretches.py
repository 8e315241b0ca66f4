"""Stretches as workflows in a queue of DBOS.

A stretch drives a loop from one pause to the next. Its workflow id is `LOOP/REV`: the loop, and its revision when it
was enqueued. DBOS runs each id once. A second run is harmless, because the journal refuses stale appends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from attrs import frozen
from dbos import DBOSClient, EnqueueOptions

from toolloop.stores.protocol import StoredLoop

T = TypeVar("T")
WORKFLOW = "toolloop.stretch"
_LIMIT = 10.0  # seconds for a call of DBOS: its own connections wait as long as the network is silent


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

    def __init__(self, settings: Mapping[str, Any], queue: str, clock: Callable[[], float]) -> None:
        """Keep the settings; the first use connects. `settings`: see `settings_of`. `clock`: of the loops."""
        self.version: str = settings["application_version"]
        self._queue = queue
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._client = self._make_client()

    def _make_client(self) -> DBOSClient:
        settings = self._settings
        return DBOSClient(
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

    def _ask(self, act: Callable[[DBOSClient], T]) -> T:
        """Call a function with the client, in a thread that is abandoned after `_LIMIT` seconds.

        Raises:
            TimeoutError: the system database did not answer.

        """
        client, answer = self._client, Future[T]()

        def call() -> None:
            try:
                answer.set_result(act(client))
            except Exception as error:  # noqa: BLE001 - it is raised where `_ask` was called
                answer.set_exception(error)

        threading.Thread(target=call, name="dbos-client-of-toolloop", daemon=True).start()
        try:
            return answer.result(_LIMIT)
        except TimeoutError:
            if answer.done():
                raise
            self._replace(client)
            raise TimeoutError(f"the system database of DBOS did not answer within {_LIMIT:g} seconds") from None

    def _replace(self, client: DBOSClient) -> None:
        """Use another client from now on: calls without an answer may hold all connections of this one."""
        with self._lock:
            if self._client is not client:
                return  # another call has done it
            self._client = self._make_client()
        client.destroy()  # it closes the connections of calls that are still running when these end

    def enqueue(self, loop: StoredLoop) -> None:
        """Enqueue the stretch of a loop that is due, or will be. If it was already enqueued, nothing changes."""
        options = EnqueueOptions(queue_name=self._queue, workflow_name=WORKFLOW, workflow_id=stretch_id(loop))
        options["app_version"] = self.version
        wait = (loop.due_at or 0.0) - self._clock()
        if wait > 0:
            options["delay_seconds"] = wait
        self._ask(lambda client: client.enqueue(options, loop.loop_id))

    def used(self, ids: Collection[str]) -> set[str]:
        """Return those ids for which a workflow exists, with any status."""
        if not ids:
            return set()
        found = self._ask(
            lambda client: client.list_workflows(workflow_ids=list(ids), load_input=False, load_output=False)
        )
        return {each.workflow_id for each in found}

    def put_back(self, lost: str) -> None:
        """Put a stretch with any status into the queue again, for executors of this version."""

        def put_back(client: DBOSClient) -> None:
            client.cancel_workflow(lost)
            client.rewind_workflow(lost, start_step=1, application_version=self.version, queue_name=self._queue)

        self._ask(put_back)

    def open(self) -> list[Stretch]:
        """Return the running stretches, and the waiting stretches that are due."""
        some: dict[str, Any] = {"name": WORKFLOW, "queue_name": self._queue, "status": ["PENDING", "ENQUEUED"]}
        found = self._ask(lambda client: client.list_workflows(**some, load_input=False, load_output=False))
        return [
            Stretch(each.workflow_id, each.status == "PENDING", each.dequeued_at, each.app_version) for each in found
        ]

    def is_latest(self) -> bool:
        """Return whether the version of this process is the latest one that DBOS knows."""
        versions = self._ask(lambda client: client.list_application_versions())
        return any(each["version_name"] == self.version for each in versions[:1])


def stretch_id(loop: StoredLoop) -> str:
    """Return the id of the stretch that begins at the current revision of a loop."""
    return f"{loop.loop_id}/{loop.rev}"
