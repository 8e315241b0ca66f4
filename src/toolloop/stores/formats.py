"""The format of what is kept: one number, for snapshots and for the events of journals.

Formats, newest first; golden files of each are in `tests/golden/`, and are never edited:

    1  snapshots: a state's class, its fields, and a digest over them
       journals: an object for each event: its class, and its fields

Readers read every format ever released; writers write the newest; a newer one is refused by name. `docs/format.md`
tells every field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from toolloop.core.errors import UnreadableSnapshot
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON

FORMAT: Final = 1

Change = Callable[[dict[str, JSON]], dict[str, JSON]]


@frozen
class Upgrade:
    """From one format to the next: what becomes of an object of the older one.

    Attributes:
        snapshot: of the fields of a snapshot, `state` among them; `format` and `digest` are not.
        event: of the fields of an event, `event` among them; `format` is not.

    """

    snapshot: Change
    event: Change


#: By the format that they start from.
UPGRADES: Final[Mapping[int, Upgrade]] = {}


def check_format(found: JSON, what: str, upgrades: Mapping[int, Upgrade] = UPGRADES) -> int:
    """The format of an object, if it can be read.

    Raises:
        UnreadableSnapshot: it is newer than this version of toolloop, or no format at all.

    """
    oldest = min(upgrades, default=FORMAT)
    if type(found) is int and oldest <= found <= FORMAT:
        return found
    known = f"format {FORMAT}" if oldest == FORMAT else f"formats {oldest} to {FORMAT}"
    raise UnreadableSnapshot(
        f"{what} has format {found!r}; this version of toolloop reads {known}. "
        "Read it with the version that wrote it, or a newer one"
    )


def upgraded(fields: dict[str, JSON], changes: Mapping[int, Change], format_: int, what: str) -> dict[str, JSON]:
    """The fields of an object as the newest format has them.

    Raises:
        UnreadableSnapshot: an upgrade does not find what it looks for.

    """
    try:
        for number in range(format_, FORMAT):
            fields = changes[number](fields)
    except Exception as error:
        raise UnreadableSnapshot(
            f"{what} of format {format_} cannot be read: {type(error).__name__}: {error}"
        ) from error
    return fields
