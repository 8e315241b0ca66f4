"""Find calls by name: an id, ids joined with slashes, or a path."""

from __future__ import annotations

from toolloop._interface.shown import Named
from toolloop.errors import UnknownCall
from toolloop.machine.queries import driven, find_open_round
from toolloop.machine.record.loop import Loop, Path, State
from toolloop.machine.values.calls import Call


def join_path(path: Path) -> str:
    """Return the name of a call: its path, joined with slashes."""
    return "/".join(path)


def find_path(state: State, named: Named) -> Path:
    """Return the path of an open call, named by its path, by the path joined with slashes, or by an id if unique.

    Raises:
        UnknownCall: several open calls have this name.

    """
    if isinstance(named, tuple):
        return named
    call_id = named.rpartition("/")[2]
    open_calls = [(*path, call_id) for path, loop in driven(state) if find_open_call(loop, call_id)]
    having = [path for path in open_calls if named in (call_id, join_path(path), f"/{join_path(path)}")]
    if len(having) > 1:
        names = ", ".join(f"/{join_path(each)}" for each in having)
        raise UnknownCall(
            f"the call name {named!r} is ambiguous. Give one of the paths {names}, or the ToolCall that was shown",
            call=named,
            known=tuple(map(join_path, having)),
        )
    return having[0] if having else (named,)


def find_open_call(loop: Loop, call_id: str) -> Call | None:
    """Return a call of the open round of a loop, or None."""
    round_ = find_open_round(loop)
    return None if round_ is None else round_.calls.find(call_id)
