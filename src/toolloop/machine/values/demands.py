"""What an `Ask` of a policy demands before a call may start."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from toolloop._public import set_module
from toolloop.machine.values.names import to_text_tuple

_MOST = 1_000_000  # persons
_LATEST = 10**12  # seconds


def _is_whole(_ask: Any, _attribute: Any, need: Any) -> None:
    if type(need) is not int or not 1 <= need <= _MOST:
        raise ValueError(f"Ask: need must be an int from 1 to {_MOST}")


def _check_names(_ask: Any, attribute: Any, names: tuple[Any, ...]) -> None:
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"Ask: {attribute.name} is {names!r}; give names")


def _check_seconds(_ask: Any, _attribute: Any, times: tuple[Any, ...]) -> None:
    if not all(isinstance(time, (int, float)) and 0 <= time <= _LATEST for time in times):
        raise ValueError(f"Ask: remind_after must be numbers of seconds from 0 to {_LATEST}")


def _to_numbers(times: Iterable[float]) -> tuple[float, ...]:
    return tuple(times)


@set_module("toolloop")
@frozen
class Ask:
    """A result of a policy: let persons decide. The call starts when as many have approved what would run.

    A policy may return a list of these; then each must be met, and one approval may count for several.

    Args:
        reason: why it asks; shown with the call.
        need: how many different persons must approve.
        of: groups of which each of them must be in one; empty means any person.
        not_by: names of persons whose approval does not count.
        fresh: whether only approvals count that are given while this is asked, and no grant.
        expires_in: how many seconds the call may wait; None means `LoopConfig.decision_timeout`.
        remind_after: after how many seconds to remind of the call.
        rule, rule_digest: the rule that asks, and which version of it.

    """

    reason: str | None = None
    need: int = field(default=1, kw_only=True, validator=_is_whole)
    of: tuple[str, ...] = field(default=(), kw_only=True, converter=to_text_tuple, validator=_check_names)
    not_by: tuple[str, ...] = field(default=(), kw_only=True, converter=to_text_tuple, validator=_check_names)
    fresh: bool = field(default=False, kw_only=True)
    expires_in: float | None = field(default=None, kw_only=True)
    remind_after: tuple[float, ...] = field(default=(), kw_only=True, converter=_to_numbers, validator=_check_seconds)
    rule: str | None = field(default=None, kw_only=True)
    rule_digest: str | None = field(default=None, kw_only=True)


@frozen
class Demand:
    """A number of persons who must approve the input that would run.

    Attributes:
        need: how many different persons.
        of: groups of which each person must be in one; empty means any person.
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
