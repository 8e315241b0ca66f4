"""A stored loop as JSON, for those who look at it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from toolloop._interface.loop_view import view_of
from toolloop._journal.lease import read_progress
from toolloop._journal.store_access import load_state, safely
from toolloop.inbox.hiding import shown_inputs
from toolloop.inbox.items import ShownLoop, left_view
from toolloop.inbox.stored_tools import schemas_of
from toolloop.stores.protocol import Store


def shown_loop(store: Store, loop_id: str) -> ShownLoop:
    """Return a loop as `Inbox.show` does."""
    row = safely(loop_id, partial(store.head, loop_id))
    state = load_state(store, loop_id, row.rev).state  # a driver may have continued since the head was read
    view = view_of(state, key=store.secret, doing=read_progress(store, row), messages=True)
    return {
        **view,
        "messages": view.get("messages", []),
        "status": row.status,
        "metadata": dict(row.metadata),
        "created": datetime.fromtimestamp(row.created, UTC).isoformat(),
        "schemas": dict(schemas_of(state)),
        "shown": dict(shown_inputs(state)),
        "left_to_others": left_view(row.left),
    }
