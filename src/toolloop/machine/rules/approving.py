"""Count approvals: whether what a call demands is met. Everything that makes a call run asks `count_missing`."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from toolloop.machine.values.calls import Call, DecisionRecord
from toolloop.machine.values.demands import PLAIN, Demand, Edit
from toolloop.machine.values.names import to_name_key


def list_approvals(call: Call) -> tuple[DecisionRecord, ...]:
    """Return the approvals of the input that would run, oldest first. That of a grant can only be the last."""
    taken = call.decision
    return (*call.approvals, taken) if taken is not None and taken.is_yes else call.approvals


def list_approvals_by_persons(call: Call) -> tuple[DecisionRecord, ...]:
    """Return the approvals of the input that would run, without that of a grant."""
    return tuple([each for each in list_approvals(call) if each.grant is None])


def is_counted(demand: Demand, yes: DecisionRecord) -> bool:
    """Return whether an approval counts for a demand. A grant speaks only for the person who gave it.

    Names are trusted: a caller who decides under several names counts as several persons.
    """
    if yes.grant is not None and (demand.fresh or demand.need > 1):
        return False
    who = to_name_key(yes.by)
    if demand.is_personal and (not who or who in map(to_name_key, demand.not_by)):
        return False
    return not demand.of or not {*demand.of}.isdisjoint(yes.groups)


def count_missing(demands: Sequence[Demand], given: Sequence[DecisionRecord]) -> tuple[int, ...]:
    """Return how many approvals by different persons each demand still needs. One may count for several demands."""
    return tuple([max(0, demand.need - len(_find_persons(demand, given))) for demand in demands])


def _find_persons(demand: Demand, given: Sequence[DecisionRecord]) -> set[str]:
    standing = given[demand.since :] if demand.fresh else given
    return {to_name_key(yes.by) for yes in standing if is_counted(demand, yes)}


def find_counted(demands: Sequence[Demand], given: Sequence[DecisionRecord]) -> tuple[bool, ...]:
    """Return for each approval whether it counts for a demand."""
    starts = [(demand, demand.since if demand.fresh else 0) for demand in demands]
    return tuple([any(at >= since and is_counted(each, yes) for each, since in starts) for at, yes in enumerate(given)])


def is_open(call: Call) -> bool:
    """Return whether demands of the call are not met, so that it may not start."""
    return any(count_missing(call.demands, list_approvals(call)))


def demands_of(call: Call) -> tuple[Demand, ...]:
    """Return what a call demands that waits for approval or for a rerun."""
    return call.demands or PLAIN


def is_enough_alone(demands: Sequence[Demand], yes: DecisionRecord) -> bool:
    """Return whether one approval meets all demands."""
    return all(demand.need == 1 and is_counted(demand, yes) for demand in demands)


def renew_demands(demands: Sequence[Demand], before: Sequence[Demand], given: int) -> tuple[Demand, ...]:
    """Return the newest demands. One that stood already keeps the approvals that were given while it stood.

    Args:
        demands: the newest demands.
        before: those that stood.
        given: how many approvals there are.

    """
    return tuple([next((old for old in before if _is_same(old, new)), evolve(new, since=given)) for new in demands])


def _is_same(old: Demand, new: Demand) -> bool:
    return old == new or (old.failed and new.failed)


def drop_approvals(call: Call) -> Call:
    """Return the call without its approvals. Its demands stand."""
    demands = tuple([evolve(demand, since=0) for demand in call.demands])
    return call._replace(approvals=(), decision=None, demands=demands)


def is_unjudged(call: Call) -> bool:
    """Return whether a person has edited the call, and no policy has judged the edit."""
    return call.edit in (Edit.NEW, Edit.AGAIN)


def describe(demands: Sequence[Demand], given: Sequence[DecisionRecord]) -> str:
    """Return which approvals are missing, such as "1 more approval of finance"."""
    return describe_missing(demands, count_missing(demands, given))


def describe_missing(demands: Sequence[Demand], counts: Sequence[int]) -> str:
    """Return the text of `describe`. `counts`: as `count_missing` returns them."""
    parts = []
    for demand, count in zip(demands, counts, strict=True):
        if count:
            more = " more" if count < demand.need else ""
            of = f" of {' or '.join(demand.of)}" if demand.of else ""
            never = f" (not by {', '.join(demand.not_by)})" if demand.not_by else ""
            parts.append(f"{count}{more} approval{'s' if count > 1 else ''}{of}{never}")
    return " and ".join(parts) or "no more approvals"


def describe_progress(demands: Sequence[Demand], counts: Sequence[int], names: Sequence[str | None]) -> str:
    """Return how many approvals there are, of whom, and which are missing, such as "1 of 2: ana; 1 more approval".

    Args:
        demands: the demands, at least one.
        counts: as `count_missing` returns them.
        names: the persons whose approvals count; None for one without a name.

    """
    needed = sum(demand.need for demand in demands)
    text = f"{needed - sum(counts)} of {needed}"
    if names:
        text += f": {', '.join(name or 'no name' for name in names)}"
    return f"{text}; {describe_missing(demands, counts)}" if any(counts) else text


def is_same_person(one: DecisionRecord, other: DecisionRecord) -> bool:
    """Return whether two decisions are of one person."""
    return to_name_key(one.by) == to_name_key(other.by)
