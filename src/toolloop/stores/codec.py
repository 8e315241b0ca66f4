"""A state as JSON, and back.

Formats, newest first; a golden file of each is in `tests/golden/`, and is never edited:

    1  one state: its class, its fields, and a digest over them

Readers read every format ever released; writers write the newest; a newer one is refused by name. Messages stay the
JSON texts they are in the state, so that a restored loop sends the very same bytes.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, cast, get_args, get_origin

import attrs
from cattrs import Converter, transform_error

from toolloop.core import states
from toolloop.core.chain import Chain
from toolloop.core.errors import UnreadableSnapshot
from toolloop.core.jsontext import JSON, canonical, decode
from toolloop.core.stops import Fate
from toolloop.core.terminations import Termination

FORMAT = 1

_STATES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(states.State)}
_TERMINATIONS: dict[str, type[Any]] = {kind.kind: kind for kind in get_args(Termination)}


def dump(state: states.State) -> dict[str, JSON]:
    """The snapshot of a state: JSON, `format` first."""
    body = {"state": type(state).__name__, **_converter().unstructure(state, unstructure_as=type(state))}
    return {"format": FORMAT, "digest": _digest(body), **body}


def load(snapshot: Mapping[str, JSON]) -> states.State:
    """The state of a snapshot.

    Raises:
        UnreadableSnapshot: it is damaged, foreign, or of a format that this version does not know.

    """
    if "format" not in _mapping(snapshot):
        raise UnreadableSnapshot("this is no snapshot of toolloop: it has no `format`. Give what `snapshot()` returned")
    if snapshot["format"] != FORMAT or type(snapshot["format"]) is not int:
        raise UnreadableSnapshot(
            f"the snapshot has format {snapshot['format']!r}; this version of toolloop reads format {FORMAT}. "
            "Read it with the version that wrote it, or a newer one"
        )
    body = {key: value for key, value in snapshot.items() if key not in ("format", "digest")}
    if not _intact(body, snapshot.get("digest")):
        raise UnreadableSnapshot("the snapshot is damaged: its digest is not that of its content")
    kind = _STATES.get(body.pop("state", ""))
    if kind is None:
        raise UnreadableSnapshot("the snapshot is of no state that toolloop knows")
    try:
        state = cast("states.State", _converter().structure(body, kind))
        for text in state.ledger.messages:
            decode(text)["role"]
    except Exception as error:
        raise UnreadableSnapshot(f"the snapshot cannot be read: {'; '.join(_reasons(error))}") from error
    return state


def _mapping(value: object) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}


def _intact(body: Mapping[str, JSON], digest: object) -> bool:
    try:
        return digest == _digest(body)
    except (TypeError, ValueError):
        return False


def _digest(body: Mapping[str, JSON]) -> str:
    """Catches damage, not attackers: never take a snapshot from a client."""
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


def _reasons(error: Exception) -> list[str]:
    try:
        return transform_error(error)  # cattrs names the path to each bad field
    except Exception:  # noqa: BLE001 - whatever it was, it is told as it is
        return [f"{type(error).__name__}: {error}"]


_made: list[Converter] = []


def _converter() -> Converter:
    if not _made:
        _made.append(_make_converter())
    return _made[0]


def _make_converter() -> Converter:
    converter = Converter(omit_if_default=True, forbid_extra_keys=True)
    converter.register_structure_hook_func(
        _is_a(Chain), lambda value, kind: Chain(converter.structure(value, _list_of(kind)))
    )
    converter.register_unstructure_hook_func(
        _is_a(Chain), lambda chain: [converter.unstructure(item) for item in chain]
    )
    converter.register_structure_hook(Fate, lambda value, _: Fate[value])
    converter.register_unstructure_hook(Fate, lambda fate: fate.name)
    converter.register_unstructure_hook_func(_is_a(frozenset), sorted)
    converter.register_structure_hook_func(_is(Termination), lambda value, _: _read_termination(converter, value))
    converter.register_unstructure_hook_func(
        _is(Termination), lambda value: {"kind": value.kind, **attrs.asdict(value)}
    )
    return converter


def _is_a(generic: type) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) is generic


def _list_of(kind: Any) -> Any:
    return types.GenericAlias(list, get_args(kind))


def _is(union: Any) -> Callable[[Any], bool]:
    members = set(get_args(union))
    return lambda kind: get_origin(kind) in (Union, types.UnionType) and set(get_args(kind)) == members


def _read_termination(converter: Converter, value: Any) -> Any:
    fields = dict(value)
    kind = _TERMINATIONS.get(fields.pop("kind", ""))
    if kind is None:
        raise ValueError("a termination of no kind that toolloop knows")
    return converter.structure(fields, kind)
