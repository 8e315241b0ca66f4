"""What an `Ask` of a policy demands before a call may start."""

from __future__ import annotations

from enum import StrEnum

from attrs import field, frozen


@frozen
class Demand:
    """A number of persons who must approve the input that would run.

    Attributes:
        need: how many different persons.
        of: groups of which each person must be in one; empty means anybody.
        not_by: names of persons whose approval does not count.
        fresh: whether only approvals count that were given while this demand stood, and no grant.
        reason: why it is asked.
        rule: the rule that asks, and `rule_digest` which version of it.
        expires_in: how many seconds the call may wait; None means the timeout of the setup.
        remind_after: after how many seconds to remind of the call.
        failed: whether it stands for a policy that raised. Such demands are equal, whatever their reasons.
        since: how many approvals of the call were given before it stood; only for `fresh`.

    """

    need: int = 1
    of: tuple[str, ...] = ()
    not_by: tuple[str, ...] = ()
    fresh: bool = False
    reason: str | None = None
    rule: str | None = None
    rule_digest: str | None = None
    expires_in: float | None = None
    remind_after: tuple[float, ...] = ()
    failed: bool = False
    since: int = field(default=0, eq=False)

    @property
    def is_personal(self) -> bool:
        """Return whether only approvals with a name count."""
        return self.need > 1 or bool(self.of or self.not_by)


# The demand of a call that waits and has none of its own: one approval by anybody.
PLAIN = (Demand(),)


class Edit(StrEnum):
    """What became of the newest edit of a call by a person."""

    NEW = "new"  # no policy has judged it
    JUDGED = "judged"  # it was judged, and its wait has had its own full time
    AGAIN = "again"  # it replaces a judged edit, and no policy has judged it
