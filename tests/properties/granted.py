"""Grants as their giver understands them, written anew: what a call that runs by one is held against."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from attrs import define, field

from tests.properties.wire import exact
from toolloop import Grant
from toolloop.core.values import Call


@define
class Given:
    """A grant that was given.

    Attributes:
        match: what the input must match; None where it must be `only`.
        used_by: the ids of the calls that ran by it.

    """

    tool: str
    only: Any
    match: Mapping[str, Any] | None
    uses: int | None
    expires_at: float | None
    revoked: bool = False
    used_by: set[str] = field(factory=set)

    def check(self, call: Call) -> None:
        """Check a call that starts by this grant."""
        assert call.ruling is not None
        self.used_by.add(call.id)
        assert not self.revoked, f"{call.id} runs by a grant that was taken back"
        assert call.name == self.tool, f"{call.id} runs by a grant for {self.tool}"
        assert self.expires_at is None or call.ruling.at < self.expires_at, f"{call.id} runs by a grant that was over"
        assert self.uses is None or len(self.used_by) <= self.uses, f"{call.id} is one use too many"
        given = _plain(call.effective_input)
        if self.match is None:
            assert given == self.only, f"{call.id} has another input than the one that was approved"
        else:
            assert all(key in given and _fits(want, given[key]) for key, want in self.match.items())


def given(grant: Grant, call: Any, only: Any) -> Given:
    """The grant that comes with the approval of a call that runs with this input."""
    expires_at = None if grant.expires_at is None else grant.expires_at.timestamp()
    return Given(grant.tool or call.name, dict(only), grant.match, grant.uses, expires_at)


def grants(now: float) -> list[Grant | None]:
    """What may be remembered with an approval; most often nothing."""
    soon = datetime.fromtimestamp(now + 30, UTC)
    return [
        None,
        None,
        None,
        Grant(),
        Grant(match={}),
        Grant(match={}, uses=1),
        Grant(match={"do": "re*"}, uses=2),
        Grant(match={"n": 0}),
        Grant(match={}, expires_at=soon),
        Grant(tool="gate", match={}),
    ]


def _fits(want: Any, found: Any) -> bool:
    if isinstance(want, str):
        return isinstance(found, str) and fnmatchcase(found, want)  # no input of a drawn call has slashes or dots
    return bool(want == found)


def _plain(text: str) -> Any:
    return dict(exact(text.encode()))
