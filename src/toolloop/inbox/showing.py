"""A stored loop as JSON, for those who look at it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from toolloop._interface.loop_view import view_of
from toolloop._journal.lease import read_progress
from toolloop._journal.store_access import load_state, read_with_row
from toolloop.inbox.hiding import shown_inputs
from toolloop.inbox.items import ResultView, ShownLoop, left_view
from toolloop.inbox.stored_tools import schemas_of
from toolloop.machine.queries import driven, find_open_calls
from toolloop.machine.record.loop import State
from toolloop.machine.values.calls import Status
from toolloop.machine.values.jsontext import JSON
from toolloop.machine.values.setup import Setup
from toolloop.stores.protocol import Store


def shown_loop(store: Store, loop_id: str) -> ShownLoop:
    """Return a loop as `Inbox.show` does."""
    row, known = read_with_row(store, loop_id, partial(load_state, store, loop_id))
    state = known.state
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
        "results": dict(_list_results(state)),
        "brought": _list_brought(state.root.setup),
        "said": [*state.root.said],
    }


def _list_results(state: State) -> Iterator[tuple[str, ResultView]]:
    for path, loop in driven(state):
        for call in find_open_calls(loop).having(Status.SETTLED):
            if (one := call.result) is not None:
                view: ResultView = {"text": one.plain_text, "is_error": one.is_error, "outcome": str(one.outcome)}
                yield "/".join((*path, call.id)), view


def _list_brought(setup: Setup) -> list[JSON]:
    return [tool for name, tool in setup.find_definitions().items() if name in setup.brought] if setup.brought else []
