"""Standing grants: approvals that a person gave for later calls. Expiry uses the time of the loop.

Patterns are matched as a set of positions that advances with each character, not by a regular expression. The model
writes the text, and a hostile text must not make matching slow.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Set as AbstractSet

from attrs import evolve

from toolloop.errors import IllegalCommand
from toolloop.machine.record.loop import Loop, Round
from toolloop.machine.rules.calls import deadline, replace_calls
from toolloop.machine.values.calls import Call, DecisionRecord, GrantSpec, StandingGrant, Status, Wait, Why, same_json
from toolloop.machine.values.jsontext import JSON, canonical, decode

_PARTS = re.compile(r"\*+|.", re.DOTALL)
_SEPARATORS = frozenset("/\\")
_SEGMENTS = re.compile(r"[/\\]")
_NOT_TAKEN = frozenset(";&|<>$()`%")  # these end or expand a command, or encode a character
_ADDRESS = re.compile("(.*?://[^/]*)(.*)", re.DOTALL)  # a pattern up to its host and port, and the rest
_HOST = re.compile("[^:/?#]+://[^/?#\\\\]*")


def remember(loop: Loop, before: Round, after: Round) -> Loop:
    """Return the loop with the grants that were given with these approvals.

    Raises:
        IllegalCommand: a grant is for another tool and has no `match`.

    """
    given = [
        _given(loop, after, call, call.decision, call.decision.remember)
        for was, call in after.calls.changes(before.calls)
        if was.status is Status.WAITING and call.decision is not None
        if call.decision.kind == "approve" and call.decision.remember is not None
    ]
    return loop._replace(grants=(*loop.grants, *given)) if given else loop


def _given(loop: Loop, round_: Round, call: Call, decision: DecisionRecord, spec: GrantSpec) -> StandingGrant:
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
        id=f"{round_.iteration}/{call.id}",
        tool=tool,
        match=spec.match,
        exact=call.effective_input if spec.match is None else None,
        uses=spec.uses,
        expires_at=spec.expires_at,
        by=decision.by,
        reason=decision.reason,
        at=loop.now,
        call_id=call.id,
    )


def without_grant(loop: Loop, grant_id: str) -> Loop:
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


def ask_where_gone(loop: Loop, round_: Round) -> Round:
    """Return the round with every call waiting whose grant was revoked or has expired."""
    standing = {None, *(grant.id for grant in _standing(loop))}
    gone = [call for call in round_.having(Status.CLEARED) if _cleared_by(call) not in standing]
    expires_at = deadline(loop.setup, loop.now)
    return replace_calls(round_, [_asking(call, expires_at) for call in gone]) if gone else round_


def _asking(call: Call, expires_at: float | None) -> Call:
    return call._replace(status=Status.WAITING, why=Why.APPROVAL, decision=None, expires_at=expires_at)


def _cleared_by(call: Call) -> str | None:
    """Return the id of the grant by which a call may start."""
    return None if call.decision is None else call.decision.grant


def _standing(loop: Loop) -> list[StandingGrant]:
    return [grant for grant in loop.grants if grant.expires_at is None or grant.expires_at > loop.now]


def satisfy(loop: Loop, call: Call, wait: Wait) -> tuple[Loop, Call] | None:
    """Return the loop after a use of a standing grant, and the call that it clears; None if the call must wait.

    A call that was cleared by a grant and is judged again does not use the grant a second time. The grant is still
    valid, otherwise the call would wait (see `ask_where_gone`).
    """
    if wait.why is not Why.APPROVAL or wait.fresh:
        return None
    decision = call.decision
    if decision is not None and decision.grant is not None:
        return loop, _cleared(call, decision)
    if decision is not None and decision.by_person:  # a decision on the call itself needs no grant
        return None
    found = next((grant for grant in _standing(loop) if grant.uses != 0 and allows(grant, call)), None)
    if found is None:
        return None
    decision = DecisionRecord("approve", by=found.by, reason=found.reason, grant=found.id, at=loop.now)
    return _use(loop, found), _cleared(call, decision)


def _cleared(call: Call, decision: DecisionRecord) -> Call:
    return call._replace(status=Status.CLEARED, judged=True, decision=decision)


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
        return same_json(grant.exact, call.effective_input)
    given = decode(call.effective_input)
    wanted = decode(grant.match)
    return all(key in given and _fits(want, given[key]) for key, want in wanted.items())


def _fits(wanted: JSON, given: JSON) -> bool:
    if isinstance(wanted, str) and isinstance(given, str):
        return matches(wanted, given)
    return canonical(wanted) == canonical(given)


def matches(pattern: str, text: str) -> bool:
    """Return whether a whole text matches a pattern; see `Grant`.

    A pattern with wildcards does not match a path that could lead outside it. The host of an address is matched
    separately, and wildcards do not match characters that end a host.
    """
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    wanted = _ADDRESS.fullmatch(pattern)
    if wanted is None:
        return _stays(text) and _takes(pattern, text, _is_plain)
    found = _HOST.match(text)
    if found is None or not _takes(wanted[1], found[0], _is_in_host):
        return False
    path = text[found.end() :]
    return _stays(path) and _takes(wanted[2], path, _is_plain)


def _stays(path: str) -> bool:
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
        places = _after(parts, places, char, is_taken=is_taken(char))
        if not places:
            return False
    return len(parts) in places


def _after(parts: list[str], places: AbstractSet[int], char: str, *, is_taken: bool) -> set[int]:
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
