"""The revision of a journal: the number of its events, with the digest of the last one."""

from __future__ import annotations

from typing import Any, Self

from toolloop._public import set_module

_SHOWN = 8  # characters of a digest


@set_module("toolloop.stores")
class Revision(int):
    """The revision of a journal: the number of its events, and a digest of all of them.

    It is an `int`, and is written `NUMBER-DIGEST8`: `str(Revision(5, "0123456789ab"))` is `5-01234567`. Two revisions
    with the same number and different digests are not equal: one of them is from before the store was restored from a
    backup. A number, and a revision without a digest, is equal to each revision with that number.

    Attributes:
        digest: the digest of the last event and of all events before it, as hexadecimal digits. None if the store has
            no digests.

    """

    digest: str | None

    def __new__(cls, number: int, digest: str | None = None) -> Self:
        """Make a revision. `number`: the number of events; `digest`: see the attributes."""
        revision = super().__new__(cls, number)
        revision.digest = digest
        return revision

    @classmethod
    def of(cls, rev: int) -> Revision:
        """Return a number as a revision without a digest, and a revision as it is."""
        return rev if isinstance(rev, Revision) else cls(rev)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Revision) and None not in (self.digest, other.digest) and self.digest != other.digest:
            return False
        return int.__eq__(self, other) if isinstance(other, int) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return int.__hash__(self)

    def __getnewargs__(self) -> Any:
        return int(self), self.digest

    def __str__(self) -> str:
        return int.__repr__(self) if self.digest is None else f"{int(self)}-{self.digest[:_SHOWN]}"

    def __repr__(self) -> str:
        return f"Revision({int(self)}, {self.digest!r})"
