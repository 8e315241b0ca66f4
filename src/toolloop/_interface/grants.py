"""The standing grants of a loop, which approve calls without a decision. List and revoke them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, overload

from attrs import field, frozen

from toolloop._public import set_module
from toolloop.machine.queries import everywhere
from toolloop.machine.record.loop import State
from toolloop.machine.values.calls import StandingGrant
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.machine.values.names import Person


@set_module("toolloop.types")
@frozen
class GivenGrant:
    """A grant that was given with an approval.

    Attributes:
        id: the id of the grant. The decision of a call that it approves has this id.
        tool: the tool whose calls need no decision.
        match: the patterns that the input must match, as in `Grant`; None if `input` is used.
        input: the exact input that the call must have; None if `match` is used.
        uses: the number of calls that it still approves; None means no limit.
        expires_at: the time at which it expires, an aware UTC datetime; None if it never does.
        by: the name of the person who gave it.
        reason: the reason that was given.
        at: the time at which it was given, an aware UTC datetime.
        call_id: the id of the call that was approved with it.
        path: the path of the loop that it applies to; empty for the root.

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


def has_expired(grant: StandingGrant, now: float) -> bool:
    """Return whether a grant has expired."""
    return grant.expires_at is not None and grant.expires_at <= now


def view_grant(path: tuple[str, ...], grant: StandingGrant) -> GivenGrant:
    """Return a grant of the loop at a path, as callers see it."""
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


def list_standing_grants(state: State, now: float) -> list[GivenGrant]:
    """Return the grants of a tree of loops that may still approve calls."""
    given = [(path, grant) for path, loop in everywhere(state) for grant in loop.grants]
    return [view_grant(path, grant) for path, grant in given if grant.uses != 0 and not has_expired(grant, now)]


@set_module("toolloop.types")
class Grants(Sequence[GivenGrant]):
    """The standing grants, in the order in which they were given."""

    def __init__(self, standing: Sequence[GivenGrant], revoke: Callable[[str, str | Person | None], None]) -> None:
        """Store the grants. Made by a handle."""
        self._standing = tuple(standing)
        self._revoke = revoke

    def revoke(self, grant: GivenGrant | str, by: str | Person | None = None) -> None:
        """Revoke a grant: it approves no further calls. Calls that have started continue.

        Args:
            grant: a grant, or its id.
            by: the name of the person who revokes it, for the record.

        Raises:
            IllegalCommand: the grant is unknown.
            StoreError: the store failed, and the grant is still valid.

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
