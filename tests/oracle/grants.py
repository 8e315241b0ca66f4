"""Standing grants: what a person allowed once, for calls that come later. Time is the ledger's.

A pattern is matched place by place, all of them at once, and not by a regular expression: what it is matched against
is the model's own words, and no word may make it take long.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet

from attrs import evolve

from tests.oracle import events as ev
from tests.oracle.calls import deadline
from tests.oracle.errors import IllegalCommand
from tests.oracle.jsontext import JSON, canonical, decode
from tests.oracle.states import Ledger, State
from tests.oracle.tree import round_of, with_round
from tests.oracle.values import Call, Round, Ruling, StandingGrant, Status, Terms, Wait, Why, same_json

_PARTS = re.compile(r"\*\*+|[*?]|[^*?]")
_PREFIX = re.compile(r"[^*?]*")
_SEPARATORS = frozenset("/\\")
_SEGMENTS = re.compile(r"[/\\]")
_CODED = re.compile("%(2e|2f|5c)", re.IGNORECASE)  # a dot or a slash, to those who decode it
_ADDRESS = re.compile("(.*?://[^/]*)(.*)", re.DOTALL)  # a pattern up to its host, and the rest
_HOST = re.compile("[^:/?#]+://[^/?#\\\\]*")


def remember(ledger: Ledger, before: Round, after: Round) -> Ledger:
    """The ledger with the grants that came with approvals: those that decided a call just now.

    Raises:
        IllegalCommand: a grant for another tool that does not say what its input must match.

    """
    given = [
        _given(ledger, after, call, call.ruling, call.ruling.remember)
        for was, call in zip(before.calls, after.calls, strict=True)
        if was.status is Status.WAITING and call.ruling is not None
        if call.ruling.kind == "approve" and call.ruling.remember is not None
    ]
    return evolve(ledger, grants=(*ledger.grants, *given)) if given else ledger


def _given(ledger: Ledger, round_: Round, call: Call, ruling: Ruling, terms: Terms) -> StandingGrant:
    tool = terms.tool or call.name
    if terms.match is None and tool != call.name:
        raise IllegalCommand(
            f"the grant given with the call {call.id!r} is for {tool!r}, and the call is one of {call.name!r}, whose "
            "input says nothing about another tool: say what the input must match ({} is any input)",
            state=str(call.status),
            asked=ruling.kind,
            allowed=(),
        )
    return StandingGrant(
        id=f"{round_.iteration}/{call.id}",
        tool=tool,
        match=terms.match,
        exact=call.effective_input if terms.match is None else None,
        uses=terms.uses,
        expires_at=terms.expires_at,
        by=ruling.by,
        reason=ruling.reason,
        at=ledger.now,
        call_id=call.id,
    )


def revoke(state: State, event: ev.GrantRevoked) -> State:
    """A grant is taken back: nothing runs by it any more, also not a call that it had cleared."""
    grants = state.ledger.grants
    kept = tuple(grant for grant in grants if grant.id != event.grant_id)
    if len(kept) == len(grants):
        known = tuple(grant.id for grant in grants)
        raise IllegalCommand(
            f"there is no standing grant {event.grant_id!r}; there are: {', '.join(known) or 'none'}",
            state=type(state).__name__,
            asked="revoking a grant",
            allowed=known,
        )
    state = evolve(state, ledger=evolve(state.ledger, grants=kept))
    round_ = round_of(state)
    return state if round_ is None else with_round(state, ask_where_gone(state.ledger, round_))


def ask_where_gone(ledger: Ledger, round_: Round) -> Round:
    """The round in which a call that was cleared by a grant that no longer stands waits for the caller."""
    standing = {None, *(grant.id for grant in _standing(ledger))}
    if all(_cleared_by(call) in standing for call in round_.calls):
        return round_
    expires_at = deadline(ledger.setup, ledger.now)
    calls = (call if _cleared_by(call) in standing else _asking(call, expires_at) for call in round_.calls)
    return evolve(round_, calls=tuple(calls))


def _asking(call: Call, expires_at: float | None) -> Call:
    return evolve(call, status=Status.WAITING, why=Why.APPROVAL, ruling=None, expires_at=expires_at)


def _cleared_by(call: Call) -> str | None:
    """The id of the grant by which a call may start."""
    return call.ruling.grant if call.status is Status.CLEARED and call.ruling is not None else None


def _standing(ledger: Ledger) -> list[StandingGrant]:
    return [grant for grant in ledger.grants if grant.expires_at is None or grant.expires_at > ledger.now]


def satisfy(ledger: Ledger, call: Call, wait: Wait) -> tuple[Ledger, Call] | None:
    """The call cleared by a standing grant, and the ledger with one use less of it; None if it is to wait.

    A call that runs by a grant already, and is judged once more, uses nothing up again. Its grant stands: it would wait
    else (see `ask_where_gone`).
    """
    if wait.why is not Why.APPROVAL or wait.fresh:
        return None
    ruling = call.ruling
    if ruling is not None and ruling.grant is not None:
        return ledger, _cleared(call, ruling)
    if ruling is not None and ruling.by_person:  # who decided on the call itself needs no grant, and uses none up
        return None
    found = next((grant for grant in _standing(ledger) if grant.uses != 0 and allows(grant, call)), None)
    if found is None:
        return None
    ruling = Ruling("approve", by=found.by, reason=found.reason, grant=found.id, at=ledger.now)
    return _use(ledger, found), _cleared(call, ruling)


def _cleared(call: Call, ruling: Ruling) -> Call:
    return evolve(call, status=Status.CLEARED, judged=True, ruling=ruling)


def _use(ledger: Ledger, found: StandingGrant) -> Ledger:
    if found.uses is None:
        return ledger
    used = evolve(found, uses=found.uses - 1)
    return evolve(ledger, grants=tuple(used if grant.id == found.id else grant for grant in ledger.grants))


def allows(grant: StandingGrant, call: Call) -> bool:
    """Whether a grant is for calls like this one: its tool, and the input that would run."""
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
    """Whether a whole text fits a pattern; see `Grant`.

    A path with `.` or `..` in it may lead anywhere, and so may an address that hides its host: only a pattern without
    wildcards takes such a one.
    """
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    if _leads_anywhere(text):
        return False
    if "://" not in pattern:
        return _takes(pattern, text)
    wanted, found = _ADDRESS.fullmatch(pattern), _HOST.match(text)
    if wanted is None or found is None or "@" in found[0]:
        return False
    return _takes(wanted[1], found[0]) and _takes(wanted[2], text[found.end() :])


def _leads_anywhere(text: str) -> bool:
    plain = unicodedata.normalize("NFKC", text)  # some characters are dots and slashes to those who read on
    segments = {segment.strip() for each in (text, plain) for segment in _SEGMENTS.split(each)}
    return not segments.isdisjoint({".", ".."}) or "\0" in text or _CODED.search(plain) is not None


def _takes(pattern: str, text: str) -> bool:
    prefix = _PREFIX.match(pattern)[0]  # type: ignore[index]  # it always matches
    if not text.startswith(prefix):  # what is written out is compared at once, for a text may be long
        return False
    pattern, text = pattern[len(prefix) :], text[len(prefix) :]
    if pattern == "**":
        return True
    parts = _PARTS.findall(pattern)
    places = _over_stars(parts, {0})
    for char in text:
        places = _over_stars(parts, _after(parts, places, char))
        if not places:
            return False
    return len(parts) in places


def _over_stars(parts: list[str], places: AbstractSet[int]) -> set[int]:
    """Those places, and the one after each star: it may stand for nothing. No two stars are neighbours."""
    return {*places, *(place + 1 for place in places if place < len(parts) and parts[place].startswith("*"))}


def _after(parts: list[str], places: AbstractSet[int], char: str) -> set[int]:
    """Where one may stand in a pattern after a further character."""
    after = set()
    for place in places:
        part = parts[place] if place < len(parts) else ""
        if part.startswith("**") or (part == "*" and char not in _SEPARATORS):
            after.add(place)
        elif part == char or (part == "?" and char not in _SEPARATORS):
            after.add(place + 1)
    return after
