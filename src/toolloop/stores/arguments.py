"""Checks of what users give: single values, such as a text or a time, and the store."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from types import UnionType

from toolloop.machine.values.jsontext import describe_type

_INTEGERS = 2**63  # SQLite and PostgreSQL keep 64 bits
_METADATA_BYTES = 4096
_ID_BYTES = 256

# Which metadata to look for: all of a mapping, or all of one of several mappings.
MetadataFilter = Mapping[str, str] | Sequence[Mapping[str, str]] | None


def check_text(name: str, value: object, *, may_be_empty: bool = False) -> None:
    """Refuse a value that is not a string, or that a store could not return unchanged.

    Args:
        name: the name of the argument, for the error.
        value: the argument.
        may_be_empty: whether `""` is allowed.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty, or contains a NUL or a lone surrogate.

    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is {describe_type(value)}; give a string")
    if not value and not may_be_empty:
        raise ValueError(f"{name} is empty")
    if "\0" in value:
        raise ValueError(f"{name} has a NUL at index {value.index(chr(0))}, which a store cannot keep: remove it")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} has a lone surrogate at index {error.start}, which a store cannot keep: remove it"
            ) from None


def check_new_id(loop_id: object) -> None:
    """Refuse an id for a new loop that is hard to show or to keep. Loops that have such an id still open.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty, has more than 256 bytes, or a control character.

    """
    check_text("loop_id", loop_id)
    text = str(loop_id)
    odd = next((each for each in text if unicodedata.category(each) == "Cc"), None)
    if odd is not None:
        raise ValueError(f"loop_id has the control character {odd!r} at index {text.index(odd)}: remove it")
    if (size := len(text.encode())) > _ID_BYTES:
        raise ValueError(f"loop_id has {size} bytes; give at most {_ID_BYTES}")


def check_integer(name: str, value: object, least: int = 0) -> None:
    """Refuse a value that is not an integer, or is less than `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {describe_type(value)}; give an integer")
    if not least <= value < _INTEGERS:
        raise ValueError(f"{name} is {value}; give an integer from {least} to {_INTEGERS - 1}")


def check_seconds(name: str, value: object) -> None:
    """Refuse a value that is not a finite number of seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {describe_type(value)}; give seconds as a number")
    if not -_INTEGERS < value < _INTEGERS:
        raise ValueError(f"{name} is {value}; give a finite number of seconds")


def check_kind(name: str, value: object, kind: type | UnionType) -> None:
    """Refuse a value of another class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {describe_type(value)}; give a {getattr(kind, '__name__', kind)}")


def check_metadata(metadata: object) -> dict[str, str]:
    """Return a copy of a caller's metadata; empty for None.

    Raises:
        TypeError: it is not a mapping of strings to strings.
        ValueError: its keys and values together have more than 4,096 bytes, or a store cannot keep one of them.

    """
    if metadata is None:
        return {}
    kept = check_texts("metadata", metadata)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in kept.items())
    if size > _METADATA_BYTES:
        raise ValueError(f"metadata has {size:,} bytes; give at most {_METADATA_BYTES:,}")
    return kept


def check_alternatives(metadata: object) -> list[dict[str, str]]:
    """Return the metadata to look for, as a list of alternatives; one that is empty, for None, fits every loop.

    Raises:
        TypeError, ValueError: as for `check_metadata`.

    """
    if isinstance(metadata, Sequence) and not isinstance(metadata, str | bytes):
        return [check_metadata(each) for each in metadata]
    return [check_metadata(metadata)]


def narrow(metadata: Mapping[str, str] | None, alternatives: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return the alternatives that also contain this metadata."""
    wanted = metadata or {}
    return [
        {**each, **wanted} for each in alternatives if all(each.get(key, wanted[key]) == wanted[key] for key in wanted)
    ]


def check_texts(name: str, texts: object) -> dict[str, str]:
    """Return a copy of a mapping of strings to strings, which may be empty; refuse any other value."""
    if not isinstance(texts, Mapping):
        raise TypeError(f"{name} is {describe_type(texts)}; give a mapping of strings to strings")
    for key, value in texts.items():
        check_text(f"a key of {name}", key)
        check_text(f"{name}[{key!r:.80}]", value, may_be_empty=True)
    return dict(texts)


def check_page(status: object, limit: object, before: object) -> tuple[tuple[str, ...] | None, int | None]:
    """Check the arguments of `Store.list`; return the statuses, and the number in the cursor.

    Stores of this library count their loops, and a cursor is such a number.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: an argument has a wrong value, or `before` is not from a row of `list`.

    """
    check_integer("limit", limit, least=1)
    statuses = None if status is None else _read_statuses(status)
    if before is None:
        return statuses, None
    check_text("before", before)
    number = str(before)
    if not (number.isascii() and number.isdecimal() and int(number) < _INTEGERS):
        raise ValueError(f"before is {before!r}; give the `cursor` of a row that list() returned")
    return statuses, int(number)


def _read_statuses(status: object) -> tuple[str, ...]:
    if not isinstance(status, Collection) or isinstance(status, (bytes, Mapping)):
        raise TypeError(f"status is {describe_type(status)}; give a string, or a list of strings")
    statuses = (status,) if isinstance(status, str) else tuple(status)
    for each in statuses:
        check_text("status", each)
    return statuses


def require_store(store: object) -> None:
    """Refuse an object without the methods of a store, such as a path.

    Raises:
        TypeError: it lacks a method, or is a class.

    """
    if isinstance(store, type) or not all(
        callable(getattr(store, name, None)) for name in ("load", "append", "acquire")
    ):
        raise TypeError(
            f"store is {describe_type(store)}; give a store, such as SqliteStore('loops.db') or MemoryStore()"
        )
