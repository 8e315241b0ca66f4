"""What a person may do with the calls that wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from attrs import frozen

from toolloop._interface.calls import list_pending_calls
from toolloop._interface.heads import list_accepted_decisions
from toolloop._public import set_module
from toolloop.inbox.rights.rights import Action, Rights
from toolloop.inbox.shown.words import Need
from toolloop.machine.record.loop import State
from toolloop.machine.values.names import Person
from toolloop.stores.protocol import StoredLoop
from toolloop.tools.calls import ToolCall

_NO_PERSON = Person("a person")  # of an inbox that is that of no person: names and groups are not known


@set_module("toolloop.inbox")
@frozen
class Offer:
    """What a person may do with a call that waits.

    Attributes:
        digest: the digest of the call that this is about.
        kinds: the decisions that the person may make: `approve`, `edit` (approve another input; not where the call has
            secret values, which are hidden), `grant` (approve, and let such calls run from now on), `deny`, `answer`
            and `rerun`. Empty if others must decide.
        needs: which approvals are missing, such as "one more of finance"; empty if one by any person is enough.

    """

    digest: str
    kinds: frozenset[str]
    needs: str = ""


def list_offers(state: State, row: StoredLoop, rights: Rights | None) -> Iterator[tuple[str, Offer]]:
    """Yield what a person may do with each call that waits, by its path joined with "/". It asks the application.

    Args:
        state: the state of the loop.
        row: its row, for the application.
        rights: those of the person; None: everything is allowed, and no demand is counted for a person.

    """
    person = _NO_PERSON if rights is None else rights.person
    for call in list_pending_calls(state):
        need = Need(call.demands, call.counted_approvals, person)
        kinds = frozenset(_list_kinds(call, need, row, rights))
        yield "/".join(call.path), Offer(call.digest, kinds, need.still_needed if need.is_special else "")


def why_no_grant(call: ToolCall, person: Person) -> str | None:
    """Return why an approval of a call by this person may not give a grant; None if it may."""
    if any(each.fresh for each in call.demands):
        return "each such call needs an approval of its own: leave out `remember`"
    if Need(call.demands, call.counted_approvals, person).needs_others:
        return "others must approve it, too: leave out `remember`"
    return None


def _list_kinds(call: ToolCall, need: Need, row: StoredLoop, rights: Rights | None) -> Iterator[str]:
    counts = rights is None or need.is_mine
    for kind in cast("tuple[Action, ...]", list_accepted_decisions(call)):
        if (counts or kind not in ("approve", "rerun")) and (rights is None or rights.allow(kind, row, call)):
            yield kind
            if kind == "approve" and not call.has_secrets:  # an edit is a whole input, and these values are hidden
                yield "edit"
            is_last = rights is None or why_no_grant(call, rights.person) is None
            if kind == "approve" and is_last and (rights is None or rights.allow("grant", row, call)):
                yield "grant"
