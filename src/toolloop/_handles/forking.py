"""Fork a loop: copy it as it is now, or as it was at an earlier point of its journal."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from attrs import evolve, frozen

from toolloop._handles.commands import make_refusal
from toolloop._handles.opening import LoopParts
from toolloop._handles.waking import WakeUp
from toolloop._interface.decisions import name_of
from toolloop._journal.store_access import Place, call_store, load_journal
from toolloop._requests.params import Secrets
from toolloop.errors import IllegalCommand, LoopNotFound
from toolloop.machine.record.journal_events import Adopted
from toolloop.machine.record.loop import State, TooDeep
from toolloop.machine.rewinding import rewind
from toolloop.machine.tree import fork
from toolloop.machine.values.jsontext import describe_type
from toolloop.machine.values.names import Person
from toolloop.stores.arguments import check_integer, check_metadata, check_new_id
from toolloop.stores.protocol import Store, StoredJournal


@frozen
class Fork:
    """A fork, as its caller asks for it: see `ToolLoopHandle.fork`. `via`: where, for the record."""

    loop_id: str
    at: int | str | None = None
    metadata: Mapping[str, str] | None = None
    by: str | None = None
    via: str | None = None

    @classmethod
    def of(
        cls,
        loop_id: str | None,
        at: int | str | None,
        metadata: Mapping[str, str] | None,
        by: str | Person | None = None,
        via: str | None = None,
    ) -> Fork:
        """Check the arguments of a caller. They raise `TypeError` and `ValueError`."""
        name = loop_id or uuid.uuid4().hex
        check_new_id(name)
        if isinstance(at, int):
            check_integer("at", at, least=1)
        elif not isinstance(at, str | None):
            raise TypeError(f"fork(): at is {describe_type(at)}; give an iteration, or the id of a message")
        return cls(name, at, None if metadata is None else check_metadata(metadata), name_of(by), via)

    def copy(self, state: State, now: float) -> State:
        """Return the copy of a state.

        Raises:
            IllegalCommand: the loop is nested too deep to run.

        """
        if isinstance(state.root.phase, TooDeep):
            raise make_refusal(state.root, "fork()")
        return fork(state, self.loop_id, now)

    def read(self, store: Store, loop_id: str) -> tuple[State, StoredJournal]:
        """Return the state of a stored loop to copy, and its journal.

        Raises:
            LoopNotFound: it does not exist.
            IllegalCommand: its journal has no such point.

        """
        from toolloop.stores.codec import replay  # noqa: PLC0415 - cattrs is loaded when it is first needed

        state, stored = load_journal(store, loop_id)
        return state if self.at is None else rewind(replay(stored.entries), self.at), stored

    def place(self, store: Store, original: str, copied: State, known: Mapping[str, str]) -> Place:
        """Return the place of the copy in the store of the original. `known`: the metadata of that."""
        iteration, message = (self.at, None) if isinstance(self.at, int) else (0, self.at)
        adopted = Adopted(copied, original, iteration, message, self.by, self.via)
        return Place(store, first=adopted, metadata=known if self.metadata is None else self.metadata)

    def apply(self, parts: LoopParts, now: float) -> LoopParts:
        """Return the parts of the copy. `parts`: those of the original, as it is now. This may block.

        Raises:
            IllegalCommand: the loop cannot be copied, or not at this point.
            StoreError: the store failed.

        """
        original, place, state, wake_up = parts.state.root.setup.loop_id, parts.place, parts.state, parts.wake_up
        if self.at is not None:
            if place is None:
                why = "its journal is needed, and it has no store. Give the handle a MemoryStore or an SqliteStore"
                raise IllegalCommand(
                    f"fork(at=...): {why}", state="no store", asked="fork(at=...)", allowed=("fork()",)
                )
            (state, _), wake_up = self.read(place.store, original), wake_up or WakeUp()
        copied, here = self.copy(state, now), parts.here
        if self.at is not None:
            here = evolve(here, tools=here.tools.as_of(copied.root.setup.tools))
        secrets = Secrets(dict(parts.secrets.options), dict(parts.secrets.mcp_tokens))
        copy = LoopParts(copied, here, secrets, wake_up=wake_up)
        if place is None:
            return copy
        known = place.metadata
        with suppress(LoopNotFound):  # else the original is not stored yet
            known = call_store(original, partial(place.store.head, original)).metadata
        return evolve(copy, place=self.place(place.store, original, copied, known))
