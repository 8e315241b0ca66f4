"""Standing grants: approvals that a person gave for later calls. Expiry uses the time of the loop.

Patterns are matched as a set of positions that advances with each character, not by a regular expression. The model
writes the text, and a hostile text must not make matching slow.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence, Set as AbstractSet

from attrs import evolve

from toolloop.errors import IllegalCommand
from toolloop.machine.record.loop import Loop, find_round_calls, replace_calls
from toolloop.machine.record.round_calls import RoundCalls
from toolloop.machine.rules.approving import count_missing, demands_of
from toolloop.machine.rules.calls import find_deadline
from toolloop.machine.rules.limits import take_lesser
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, StandingGrant, Status, Why, is_same_json
from toolloop.machine.values.jsontext import JSON, decode, to_canonical

_PARTS = re.compile(r"\*+|.", re.DOTALL)
_SEPARATORS = frozenset("/\\")
_SEGMENTS = re.compile(r"[/\\]")
_NOT_TAKEN = frozenset(";&|<>$()`%")  # these end or expand a command, or encode a character
_ADDRESS = re.compile("(.*?://[^/]*)(.*)", re.DOTALL)  # a pattern up to its host and port, and the rest
_HOST = re.compile("[^:/?#]+://[^/?#\\\\]*")


def remember(loop: Loop, before: RoundCalls) -> Loop:
    """Return the loop with the grants that were given with new approvals. `before`: its calls without these.

    A call that waited again may give another grant. It replaces the first one, because they have one id.

    Raises:
        IllegalCommand: a grant is for another tool and has no `match`.

    """
    given = [
        (_make_grant(loop, call, call.decision, call.decision.remember), call.decision.via is not None)
        for was, call in loop.calls.changes(before)
        if was.status is Status.WAITING and call.decision is not None
        if call.decision.kind == "approve" and call.decision.remember is not None
    ]
    if not given:
        return loop
    replaced = {grant.id for grant, is_recent in given if is_recent}  # in old journals, two grants may have one id
    kept = [grant for grant in loop.grants if grant.id not in replaced]
    return loop._replace(grants=(*kept, *[grant for grant, _ in given]))


def _make_grant(loop: Loop, call: Call, decision: DecisionRecord, spec: GrantSpec) -> StandingGrant:
    tool = spec.tool or call.name
    if spec.match is None and tool != call.name:
        raise IllegalCommand(
            f"the grant given with the call {call.id!r} is for the tool {tool!r}, but the call is of {call.name!r}. "
            "Give the grant a match for the input ({} matches any input)",
            state=str(call.status),
            asked=decision.kind,
            allowed=(),
        )
    return StandingGrant(
        id=grant_id_of(loop.iterations, call),
        tool=tool,
        match=spec.match,
        exact=call.effective_input if spec.match is None else None,
        uses=spec.uses,
        expires_at=spec.expires_at,
        by=decision.by,
        reason=decision.reason,
        at=loop.now,
        call_id=call.id,
        groups=decision.groups,
    )


def grant_id_of(iteration: int, call: Call) -> str:
    """Return the id of the grant that is given with the approval of a call."""
    return f"{iteration}/{call.id}"


def drop_grant(loop: Loop, grant_id: str) -> Loop:
    """Return the loop without a standing grant.

    Raises:
        IllegalCommand: no grant has this id.

    """
    kept = tuple(grant for grant in loop.grants if grant.id != grant_id)
    if len(kept) == len(loop.grants):
        known = tuple(grant.id for grant in loop.grants)
        raise IllegalCommand(
            f"unknown grant {grant_id!r}; standing grants: {', '.join(known) or 'none'}",
            state=type(loop.phase).__name__,
            asked="revoking a grant",
            allowed=known,
        )
    return loop._replace(grants=kept)


def ask_where_gone(loop: Loop) -> Loop:
    """Return the loop in which every call waits whose grant was revoked or has expired."""
    return _ask_for_all(loop, _find_ungranted(loop))


def ask_where_gone_meanwhile(loop: Loop) -> Loop:
    """Return the loop after calls were interrupted: those wait that would run again by a grant that is gone.

    A call without demands of its own may: the policy judges it again, and the newest rule holds.
    """
    return _ask_for_all(loop, [call for call in _find_ungranted(loop) if call.demands])


def _find_ungranted(loop: Loop) -> list[Call]:
    """Return the calls that may start by a grant that no longer stands."""
    standing = {None, *(grant.id for grant in _list_standing(loop))}
    return [call for call in find_round_calls(loop).having(Status.CLEARED) if _find_grant_id(call) not in standing]


def _ask_for_all(loop: Loop, gone: Sequence[Call]) -> Loop:
    expires_at = find_deadline(loop.setup, loop.now)
    return replace_calls(loop, [_ask_for(call, expires_at) for call in gone])


def _ask_for(call: Call, expires_at: float | None) -> Call:
    """Return a call that waits for the persons who must approve it, with no more time than a first wait has left."""
    if call.demands:  # a call without demands of its own never waited before a grant cleared it
        expires_at = take_lesser(call.expires_at, expires_at)
    return call._replace(status=Status.WAITING, why=Why.APPROVAL, decision=None, expires_at=expires_at)


def _find_grant_id(call: Call) -> str | None:
    """Return the id of the grant by which a call may start."""
    return None if call.decision is None else call.decision.grant


def _list_standing(loop: Loop) -> list[StandingGrant]:
    return [grant for grant in loop.grants if grant.expires_at is None or grant.expires_at > loop.now]


def satisfy(loop: Loop, call: Call, given: Sequence[DecisionRecord]) -> tuple[Loop, Call] | None:
    """Return the loop after a use of a standing grant that meets what the approvals `given` leave open, and the call.

    None if no grant does. A call that was cleared by a grant and is judged again does not use the grant a second time.
    The grant is still valid, otherwise the call would wait (see `ask_where_gone`).
    """
    demands = demands_of(call)
    if (decision := call.decision) is not None and decision.grant is not None:
        return None if any(count_missing(demands, (*given, decision))) else (loop, call)
    for grant in _list_standing(loop):
        if grant.uses != 0 and allows(grant, call):
            approval = _make_approval(grant, loop.now)
            if not any(count_missing(demands, (*given, approval))):
                return _use(loop, grant), call._replace(approvals=tuple(given), decision=approval)
    return None


def _make_approval(grant: StandingGrant, now: float) -> DecisionRecord:
    """Return the approval that a grant gives: it speaks for the person who gave it, with the groups of then."""
    by, groups = grant.by, grant.groups
    return DecisionRecord("approve", by=by, groups=groups, reason=grant.reason, grant=grant.id, at=now)


def _use(loop: Loop, found: StandingGrant) -> Loop:
    if found.uses is None:
        return loop
    used = evolve(found, uses=found.uses - 1)
    return loop._replace(grants=tuple(used if grant.id == found.id else grant for grant in loop.grants))


def allows(grant: StandingGrant, call: Call) -> bool:
    """Return whether a grant covers a call, by its tool and its effective input."""
    if grant.tool != call.name:
        return False
    if grant.match is None:
        return is_same_json(grant.exact, call.effective_input)
    given = decode(call.effective_input)
    wanted = decode(grant.match)
    return all(key in given and _fits(want, given[key]) for key, want in wanted.items())


def _fits(wanted: JSON, given: JSON) -> bool:
    if isinstance(wanted, str) and isinstance(given, str):
        return matches(wanted, given)
    return to_canonical(wanted) == to_canonical(given)


def matches(pattern: str, text: str) -> bool:
    """Return whether a whole text matches a pattern; see `Grant`.

    A pattern with wildcards does not match a path that could lead outside it. The host of an address is matched
    separately, and wildcards do not match characters that end a host.
    """
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    wanted = _ADDRESS.fullmatch(pattern)
    if wanted is None:
        return _is_inside(text) and _takes(pattern, text, _is_plain)
    found = _HOST.match(text)
    if found is None or not _takes(wanted[1], found[0], _is_in_host):
        return False
    path = text[found.end() :]
    return _is_inside(path) and _takes(wanted[2], path, _is_plain)


def _is_inside(path: str) -> bool:
    """Return whether a path stays inside its start: no part is empty, or only dots and spaces."""
    parts = _SEGMENTS.split(path.lstrip("/\\"))
    if not parts[-1]:  # a slash at the end
        parts.pop()
    return all(part.strip(". ") for part in parts)


def _is_plain(char: str) -> bool:
    """Return whether a wildcard matches a character: shells, decoders and Unicode normalization do not change it."""
    return char.isprintable() and char not in _NOT_TAKEN and unicodedata.is_normalized("NFKC", char)


def _is_in_host(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char in "-._")


def _takes(pattern: str, text: str, is_taken: Callable[[str], bool]) -> bool:
    """Return whether a pattern matches a text, if wildcards match only the characters that `is_taken` accepts."""
    parts = _PARTS.findall(pattern)
    places = {0}
    for char in text:
        places = _advance(parts, places, char, is_taken=is_taken(char))
        if not places:
            return False
    return len(parts) in places


def _advance(parts: list[str], places: AbstractSet[int], char: str, *, is_taken: bool) -> set[int]:
    """Return the positions in a pattern that can be reached with one more character."""
    after = set()
    for place in places:
        part = parts[place] if place < len(parts) else ""
        is_wild = part.startswith(("*", "?"))
        if is_wild and (not is_taken or (len(part) == 1 and char in _SEPARATORS)):
            continue
        if is_wild or part == char:
            after.add(place + 1)
        if is_wild and part != "?":
            after.add(place)
    return after
