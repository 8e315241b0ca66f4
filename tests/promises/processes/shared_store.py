"""Where the processes of a test meet: a store, a witness, and what both say afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import define, field

from tests.kit.fork_server import Child, ForkServer
from tests.promises.processes.programs import store_of
from toolloop.errors import LoopNotFound
from toolloop.machine import State
from toolloop.stores.codec import decode_event, read_journal
from toolloop.stores.protocol import Store
from toolloop.testing.promises import check_promises

KINDS = ("sync", "asyncio", "trio")


@define
class SharedStore:
    """The store and the witness of a test."""

    fork_server: ForkServer
    folder: Path
    place: str = field()
    store: Store = field()

    @place.default
    def _place(self) -> str:
        return str(self.folder / "loops.db")

    @store.default
    def _store(self) -> Store:
        return store_of(self.place)

    def start(self, program: str, loop_id: str, **given: Any) -> Child:
        """A process that does something with a loop."""
        return self.fork_server.start(
            program,
            path=self.place,
            loop_id=loop_id,
            witness=str(self.folder / loop_id),
            **given,
        )

    def witnessed(self, loop_id: str, *what: str, by: int | None = None) -> list[list[str]]:
        """What really happened, one list of words each, the first of them the process."""
        file = self.folder / loop_id
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if line[1] in what and by in (None, int(line[0]))]

    def ran(self, loop_id: str, by: int | None = None) -> list[str]:
        """The calls that ran."""
        return [line[2] for line in self.witnessed(loop_id, "ran", by=by)]

    def journal(self, loop_id: str) -> list[Any]:
        """The stored events; none if the loop is not there."""
        try:
            return [decode_event(entry) for entry in self.store.load(loop_id).entries]
        except LoopNotFound:
            return []

    def state(self, loop_id: str) -> State:
        return read_journal(self.store.load(loop_id).entries)

    def assert_sound(self, loop_id: str) -> None:
        """The journal keeps every promise."""
        assert check_promises(self.store.load(loop_id).entries).broken == ()
