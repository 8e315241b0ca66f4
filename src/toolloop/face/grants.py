"""The standing grants of a loop: what runs unasked, to list and to take back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, overload

from attrs import field, frozen

from toolloop.machine.jsontext import JSON, decode
from toolloop.machine.values import StandingGrant


@frozen
class GivenGrant:
    """A grant that somebody gave with an approval.

    Attributes:
        id: names it; a call that runs by it says so in its decision.
        tool: the tool whose calls run unasked.
        match: what their input must match, as in `Grant`; None where `input` says it.
        input: the exact input they must have; None where `match` says it.
        uses: how many more calls may run by it; None is any number.
        expires_at: until when, an aware UTC time; None is for ever.
        by: who gave it.
        reason: why.
        at: when, an aware UTC time.
        call_id: of the call that was approved with it.
        path: the calls that lead to the loop for which it stands; empty for the outermost.

    """

    id: str
    tool: str
    match: JSON = field(repr=False)
    input: JSON = field(repr=False)
    uses: int | None
    expires_at: datetime | None
    by: str | None
    reason: str | None
    at: datetime
    call_id: str
    path: tuple[str, ...] = ()


def is_over(grant: StandingGrant, now: float) -> bool:
    """Return whether the time of a grant is over."""
    return grant.expires_at is not None and grant.expires_at <= now


def shown(path: tuple[str, ...], grant: StandingGrant) -> GivenGrant:
    """Return a grant of the loop at that path, as callers see it."""
    return GivenGrant(
        id="/".join((*path, grant.id)),
        tool=grant.tool,
        match=None if grant.match is None else decode(grant.match),
        input=None if grant.exact is None else decode(grant.exact),
        uses=grant.uses,
        expires_at=None if grant.expires_at is None else datetime.fromtimestamp(grant.expires_at, UTC),
        by=grant.by,
        reason=grant.reason,
        at=datetime.fromtimestamp(grant.at, UTC),
        call_id=grant.call_id,
        path=path,
    )


class Grants(Sequence[GivenGrant]):
    """The grants that stand, in the order in which they were given."""

    def __init__(self, standing: Sequence[GivenGrant], revoke: Callable[[str, str | None], None]) -> None:
        """Made by a handle."""
        self._standing = tuple(standing)
        self._revoke = revoke

    def revoke(self, grant: GivenGrant | str, by: str | None = None) -> None:
        """Take a grant back: no call runs by it from now on. A call that has started goes on.

        Args:
            grant: one of these, or its id.
            by: who takes it back, for the record.

        Raises:
            IllegalCommand: no such grant stands.
            StoreError: the store failed, and the grant stands.

        """
        self._revoke(grant.id if isinstance(grant, GivenGrant) else grant, by)

    @overload
    def __getitem__(self, index: int) -> GivenGrant: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[GivenGrant, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._standing[index]

    def __len__(self) -> int:
        return len(self._standing)

    def __iter__(self) -> Iterator[GivenGrant]:
        return iter(self._standing)

    def __repr__(self) -> str:
        return f"<Grants: {', '.join(f'{grant.id} ({grant.tool})' for grant in self) or 'none'}>"
