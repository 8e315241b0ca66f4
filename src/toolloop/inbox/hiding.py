"""How the inputs of waiting calls are shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

from toolloop._public import set_module
from toolloop.machine.queries import waiting
from toolloop.machine.record.loop import State


@set_module("toolloop.inbox")
class ShownInput(TypedDict):
    """How the input of a call is shown: see `tool`.

    Attributes:
        diff: the parameters with the old and the new text, which are shown as one diff; empty if there are none.
        path: the parameter that names the file of the diff, or None.
        secret: the parameters whose values are hidden.

    """

    diff: list[str]
    path: str | None
    secret: list[str]


def shown_inputs(state: State) -> Iterator[tuple[str, ShownInput]]:
    """Yield how the waiting calls are shown whose tools say so, by the path of the call joined with "/"."""
    for path, call in waiting(state):
        setup = state.loops[path].setup
        facts, secret = setup.tool(call.name), setup.secrets_of(call.name)
        diff, file = ((), None) if facts is None else (facts.diff, facts.path)
        if diff or secret:
            yield "/".join((*path, call.id)), {"diff": [*diff], "path": file, "secret": [*secret]}
