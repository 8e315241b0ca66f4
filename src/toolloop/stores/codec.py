"""A state as JSON, and back: the snapshot.

Messages stay the JSON texts they are in the state, so that a restored loop sends the very same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, get_args

from toolloop.core import states
from toolloop.core.errors import UnreadableSnapshot
from toolloop.core.jsontext import JSON, canonical
from toolloop.core.tree import children, round_of
from toolloop.core.values import Call, Status
from toolloop.stores.formats import FORMAT, UPGRADES, Upgrade, check_format, upgraded
from toolloop.stores.shapes import read, write

_STATES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(states.State)}


def dump(state: states.State) -> dict[str, JSON]:
    """The snapshot of a state: JSON, `format` first."""
    body = {"state": type(state).__name__, **write(state)}
    return {"format": FORMAT, "digest": digest_of(body), **body}


def load(snapshot: Mapping[str, JSON], *, upgrades: Mapping[int, Upgrade] = UPGRADES) -> states.State:
    """The state of a snapshot.

    Args:
        snapshot: what `dump` made, in this version of toolloop or an older one.
        upgrades: how to read the older formats.

    Raises:
        UnreadableSnapshot: it is damaged, foreign, or of a format that this version does not know.

    """
    if "format" not in _mapping(snapshot):
        raise UnreadableSnapshot("this is no snapshot of toolloop: it has no `format`. Give what `snapshot()` returned")
    number = check_format(snapshot["format"], "the snapshot", upgrades)
    body = {key: value for key, value in snapshot.items() if key not in ("format", "digest")}
    if not _intact(body, snapshot.get("digest")):
        raise UnreadableSnapshot("the snapshot is damaged: its digest is not that of its content")
    changes = {start: upgrade.snapshot for start, upgrade in upgrades.items()}
    body = dict(upgraded(body, changes, number, "the snapshot"))
    kind = _STATES.get(str(body.pop("state", None)))
    if kind is None:
        raise UnreadableSnapshot("the snapshot is of no state that toolloop knows")
    state: states.State = read(body, kind, "the snapshot")
    if (call := _foreign(state)) is not None:
        raise UnreadableSnapshot(
            f"the snapshot cannot be read: the loop inside the call {call.id!r} is none that could be there"
        )
    return state


def _foreign(state: states.State) -> Call | None:
    """A call that has a loop inside of it which is not its own, or which no machine leaves there."""
    loops = [state]
    while loops:
        loop = loops.pop()
        round_ = loop.round if isinstance(loop, states.Executed) else round_of(loop)
        if round_ is None:
            continue
        for call in (call for call in round_.calls if call.child is not None):
            if not _fits(call, (*loop.ledger.setup.within, (round_.iteration, call.id, call.attempts))):
                return call
        loops += [child for _, child in children(round_)]
    return None


def _fits(call: Call, within: tuple[tuple[int, str, int], ...]) -> bool:
    child = call.child
    if child is None or call.status is not Status.RUNNING or isinstance(child, states.Executed | states.Paused):
        return False
    return child.ledger.setup.within == within


def _mapping(value: object) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}


def _intact(body: Mapping[str, JSON], digest: object) -> bool:
    try:
        return digest == digest_of(body)
    except (TypeError, ValueError, RecursionError):
        return False


def digest_of(body: Mapping[str, JSON]) -> str:
    """The digest of a snapshot's other members but `format`.

    It catches damage, not attackers: never take a snapshot from a client.
    """
    return hashlib.sha256(canonical(_one_kind_of_number(body)).encode()).hexdigest()


def _one_kind_of_number(value: JSON) -> JSON:
    """60.0 and 60 are one number in most of the world's JSON, so a snapshot may come back with either."""
    match value:
        case dict():
            return {key: _one_kind_of_number(item) for key, item in value.items()}
        case list():
            return [_one_kind_of_number(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value
