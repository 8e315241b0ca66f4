"""Check the waiting calls in a row of a database, so that damage is reported as damage of the row."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from toolloop.machine.rules.calls import LATEST
from toolloop.machine.values.jsontext import JSON, decode

Fits = Callable[[JSON], bool]
_EARLIEST: Final = -62_135_596_800.0  # the first time of a datetime


def is_time(value: JSON) -> bool:
    """Return whether a value is a time that a datetime can hold, in seconds since the epoch; or None."""
    return value is None or (type(value) in (int, float) and _EARLIEST <= value <= LATEST)


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: JSON) -> bool:
    return isinstance(value, str | None)


def _is_flag(value: JSON) -> bool:
    return isinstance(value, bool)


def _is_count(value: JSON) -> bool:
    return type(value) is int and value >= 0


def _make_list_check(fits: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _are_texts(value: JSON) -> bool:
    return value != [] and _make_list_check(_is_text)(value)


def _has(**fields: Fits) -> Fits:
    return lambda value: (
        isinstance(value, dict) and all(name in value and fits(value[name]) for name, fits in fields.items())
    )


def _is_amount(value: JSON) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value, re.ASCII) is not None


_DEMAND: Final = _has(
    need=lambda value: _is_count(value) and value > 0,
    of=_make_list_check(_is_text),
    not_by=_make_list_check(_is_text),
    fresh=_is_flag,
    reason=_is_text_or_none,
    rule=_is_text_or_none,
    missing=_is_count,
)
_APPROVAL: Final = _has(
    kind=_is_text,
    by=_is_text_or_none,
    groups=_make_list_check(_is_text),
    at=lambda value: value is not None and is_time(value),
    via=_is_text_or_none,
)
# By the names of `PendingCall.named`. A later version may add names.
_NAMED: Final[dict[str, Fits]] = {
    "demands": _make_list_check(_DEMAND),
    "approvals": _make_list_check(_APPROVAL),
    "edited": lambda value: value in ("unjudged", "judged"),
    "since": is_time,
    "size": _is_count,
    "asked": _is_text_or_none,
    "said": _is_text_or_none,
    "usage": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "cost": _has(dollars=_is_amount, is_partial=_is_flag),
    "secret": _make_list_check(_is_text),
}
_POSITIONS: Final[tuple[Fits, ...]] = (
    _are_texts,  # path
    _are_texts,  # names
    _is_text,  # why
    _make_list_check(_is_text),  # takes
    _is_text,  # digest
    _is_text_or_none,  # reason
    is_time,  # expires_at
    lambda value: isinstance(value, str) and isinstance(decode(value), dict),  # input_text
    _is_flag,  # truncated
    _is_text_or_none,  # preview
)
_LEAST: Final = 5  # positions that every version wrote


def check_call(row: JSON) -> list[JSON]:
    """Return the positions of a call in the column `pending`.

    Raises:
        ValueError: they are not those of a call.

    """
    if isinstance(row, list) and _LEAST <= len(row) <= len(_POSITIONS):
        fit = all(fits(value) for fits, value in zip(_POSITIONS, row, strict=False))
        if fit and len(row[0]) == len(row[1]):
            return row
    raise ValueError("its summary of the waiting calls does not fit")


def check_named(named: JSON) -> dict[str, dict[str, JSON]]:
    """Return the column `named`: values by name, by the digests of the calls.

    Raises:
        ValueError: a value does not fit its name.

    """
    if _make_list_check(_is_entry)([*named.values()] if isinstance(named, dict) else [None]):
        return dict(named)
    raise ValueError("its details of the waiting calls do not fit")


def _is_entry(entry: JSON) -> bool:
    return isinstance(entry, dict) and all(fits(entry[name]) for name, fits in _NAMED.items() if name in entry)
