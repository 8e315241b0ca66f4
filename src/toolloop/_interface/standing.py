"""What stands in a call after a decision."""

from __future__ import annotations

from datetime import UTC, datetime

from attrs import frozen

from toolloop._public import set_module
from toolloop.machine.rules.approving import count_missing, demands_of, is_same_person, is_unjudged, list_approvals
from toolloop.machine.rules.calls import LATEST
from toolloop.machine.values.calls import Call, DecisionRecord, Status


@set_module("toolloop.types")
@frozen
class Standing:
    """What stands in a call after a decision: the decision itself, or the one that was there before.

    Attributes:
        kind: `approve`, `deny`, `answer` or `rerun`.
        by: the name of the person, if known.
        at: when it was made, an aware UTC time.
        reason: the reason, if given.
        is_yours: whether the person who decided now made it. If not, this decision has changed nothing.
        missing: how many approvals the call still needs; with 0 it runs, unless it was denied or answered.
        is_judged: whether the policies have judged the input that would run. They judge an edited input when the loop
            is next driven, and may demand more then: until that, `missing` is a lower bound.

    """

    kind: str
    by: str | None
    at: datetime
    reason: str | None
    is_yours: bool
    missing: int
    is_judged: bool = True


def standing_of(call: Call, given: DecisionRecord) -> Standing:
    """Return what stands in a call that took a decision."""
    taken = call.decision
    standing = [*list_approvals(call)] if taken is None or taken.is_yes else [taken]
    own = [each for each in standing if is_same_person(each, given)]
    taken = (own or standing)[-1]
    still = sum(count_missing(demands_of(call), list_approvals(call))) if call.status is Status.WAITING else 0
    at = datetime.fromtimestamp(min(taken.at, LATEST), UTC)
    return Standing(taken.kind, taken.by, at, taken.reason, bool(own), still, not is_unjudged(call))
