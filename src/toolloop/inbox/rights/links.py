"""Signed links to a call, which cannot be forged or changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from attrs import evolve, frozen

from toolloop._interface.calls import list_pending_calls
from toolloop._interface.heads import list_accepted_decisions
from toolloop._interface.people import person_of
from toolloop._interface.shown import Shown
from toolloop._journal.store_access import Known, call_store
from toolloop.errors import (
    BadLink,
    IllegalCommand,
    LinkExpired,
    LinkUsed,
    LoopNotFound,
    NotAllowed,
    StaleRevision,
    UnknownCall,
)
from toolloop.inbox.rights.rights import Action
from toolloop.machine.record.loop import State
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.machine.values.names import Person, to_name_key
from toolloop.stores.protocol import Store
from toolloop.stores.revisions import Revision
from toolloop.tools.calls import ToolCall

_SALT = "toolloop.link"
_KINDS: Mapping[type, Action] = {Approve: "approve", Deny: "deny", Answer: "answer", Rerun: "rerun"}


@frozen
class Link:
    """The call and the decisions that a link is bound to.

    Attributes:
        first_id: identifies the creation of the loop.
        allow: the decisions that the link allows.
        until: the time at which it expires, in seconds since the epoch.
        person: the only person who may use it; None means each person who has it.
        rev: the revision of the loop when the link was made; None in links of earlier versions.
        epoch: how often the store had been restored from a backup then.
        revoked: how often links of the loop had been revoked then.

    """

    loop_id: str
    first_id: str
    path: tuple[str, ...]
    digest: str
    allow: tuple[str, ...]
    until: float
    person: Person | None = None
    rev: Revision | None = None
    epoch: int = 0
    revoked: int = 0

    def to_token(self, secret: str) -> str:
        """Return the link as a signed token for a URL."""
        rev = Revision(0) if self.rev is None else self.rev
        bound = [self.digest, int(rev), rev.digest, self.epoch]  # an earlier version takes it for another digest
        parts: list[Any] = [self.loop_id, self.first_id, self.path, bound, self.allow, self.until]
        if self.person is not None or self.revoked:
            parts.append(None if self.person is None else [self.person.name, self.person.groups])
        if self.revoked:
            parts.append(self.revoked)
        return str(_serializer(secret).dumps(parts))

    @classmethod
    def of(cls, token: str, secret: str, now: float) -> Link:
        """Read a signed token.

        Raises:
            BadLink: the token is invalid, or was changed.
            LinkExpired: the link has expired.

        """
        from itsdangerous import BadData  # noqa: PLC0415 - of an extra

        try:
            loop_id, first_id, path, digest, allow, until, *who = _serializer(secret).loads(token)
        except (BadData, UnicodeEncodeError) as error:
            raise BadLink("this link is incomplete or changed, or was signed with another secret") from error
        if now >= until:
            at = datetime.fromtimestamp(until, UTC)
            raise LinkExpired(f"this link expired at {at.isoformat(timespec='seconds')}. Request a new link", at=at)
        person = Person(who[0][0], tuple(who[0][1])) if who and who[0] else None
        revoked = who[1] if len(who) > 1 else 0
        rev, epoch = None, 0
        if isinstance(digest, list):  # else it is a link of an earlier version
            digest, number, rev_digest, epoch = digest
            rev = Revision(number, rev_digest)
        return cls(loop_id, first_id, tuple(path), digest, tuple(allow), until, person, rev, epoch, revoked)

    def check_loop(self, store: Store, first_id: str) -> None:
        """Check that a loop is the one that the link was made for, and still has the history that it had then.

        Raises:
            LoopNotFound: it was deleted and created again.
            BadLink: the store was restored from a backup.

        """
        if self.first_id != first_id:
            raise LoopNotFound(f"the loop {self.loop_id!r} was deleted and created again", loop_id=self.loop_id)
        if self.rev is not None:
            try:
                call_store(self.loop_id, partial(store.load, self.loop_id, after=self.rev, first_id=first_id))
            except StaleRevision as error:
                raise _restored() from error

    def find_call(self, state: State) -> ToolCall:
        """Return the call of the link.

        Raises:
            LinkUsed: the call no longer waits, or the person of the link has approved it.
            BadLink: it was revoked, the call has changed, or the store was restored from a backup.

        """
        if state.root.epoch != self.epoch:
            raise _restored()
        if any(each in (None, "/".join(self.path)) for each in state.root.revoked_links[self.revoked :]):
            raise BadLink("this link was revoked. If the call still waits, request a new link")
        call = next((each for each in list_pending_calls(state) if each.path == self.path), None)
        name = "/".join(self.path)
        if call is None:
            raise LinkUsed(f"the call {name!r} no longer waits", call=name, decision=None, by=None, at=None)
        if call.digest != self.digest:
            raise BadLink(f"the call {name!r} has changed since this link was made. Request a new link")
        mine = None if self.person is None else to_name_key(self.person.name)
        for yes in call.counted_approvals:
            if mine is not None and to_name_key(yes.by) == mine:
                raise LinkUsed(
                    f"{yes.by} has approved the call {name!r}; {call.missing} more needed",
                    call=name,
                    decision=yes.kind,
                    by=yes.by,
                    at=yes.at,
                )
        return call

    def bind(self, decision: Decision) -> Decision:
        """Return a decision made with the link: bound to the call as the link shows it.

        Raises:
            IllegalCommand: the link does not allow this decision.
            NotAllowed: the decision is that of another person than the link is for.

        """
        if (kind := kind_of(decision)) not in self.allow:
            raise IllegalCommand(
                f"this link does not allow {kind}; it allows: {', '.join(self.allow)}",
                state="Waiting",
                asked=kind,
                allowed=self.allow,
            )
        if isinstance(decision, Approve) and decision.remember is not None:
            raise IllegalCommand(
                "a link is for one call: it cannot let later calls run",
                state="Waiting",
                asked="grant",
                allowed=self.allow,
            )
        if self.person is None:
            return evolve(decision, digest=self.digest)
        self.check_person(decision.by)
        # A `Person` has the groups of this moment.
        return evolve(decision, digest=self.digest, by=decision.by if isinstance(decision.by, Person) else self.person)

    def check_person(self, by: str | Person | None) -> None:
        """Refuse another person than the link is for.

        Raises:
            NotAllowed: the link is for another person.

        """
        name, _ = person_of(by)
        if self.person is not None and name is not None and to_name_key(name) != to_name_key(self.person.name):
            raise NotAllowed(f"this link is for {self.person.name}; {name} cannot use it")


def new_link(  # noqa: PLR0913 - what a link is bound to
    known: Known,
    call: ToolCall,
    *,
    allow: Sequence[str] | None,
    person: str | Person | None,
    until: float,
    is_personal: bool,
) -> Link:
    """Return a link to a waiting call; see `Inbox.link`. `is_personal`: whether it must be of a person."""
    takes = list_accepted_decisions(call)
    if allow is None:
        allow = [kind for kind in takes if kind != "rerun"]
    if isinstance(allow, str) or not allow or not set(allow) <= {*_KINDS.values()}:
        raise ValueError(f"allow: expected one or more of {', '.join(_KINDS.values())}, got {allow!r}")
    if wrong := [kind for kind in allow if kind not in takes]:
        raise ValueError(f"allow: the call {call.id!r} does not take {wrong[0]}; it takes {', '.join(takes)}")
    name, groups = person_of(person)
    if name is None and (is_personal or any(demand.is_personal for demand in call.demands)):
        why = "counts only approvals with a name" if not is_personal else "is decided by persons with rights"
        raise IllegalCommand(
            f"link(): the call {call.id!r} {why}. Make a link for each person: person=",
            state=call.status,
            asked="link()",
            allowed=takes,
        )
    if call.expires_at is not None:
        until = min(until, call.expires_at.timestamp())
    whose = None if name is None else Person(name, groups)
    loop = known.state.root
    return Link(
        loop.setup.loop_id,
        known.first_id,
        call.path,
        call.digest,
        tuple(allow),
        until,
        whose,
        Revision.of(known.rev),
        loop.epoch,
        len(loop.revoked_links),
    )


def kind_of(decision: Decision) -> Action:
    """Return the kind of a decision.

    Raises:
        TypeError: it is not a decision.

    """
    if (kind := _KINDS.get(type(decision))) is None:
        raise TypeError(f"expected Approve, Deny, Answer or Rerun, got {decision!r:.80}")
    return kind


def find_waiting(state: State, named: str | Shown) -> ToolCall:
    """Return the waiting call that a link is made for.

    Raises:
        UnknownCall: there is none with this name, or several.

    """
    name = named if isinstance(named, str) else named.path
    waiting = list_pending_calls(state)
    calls = [each for each in waiting if name in (each.path, "/".join(each.path), each.id)]
    if len(calls) != 1:
        known = tuple("/".join(each.path) for each in waiting)
        text = f"link(): {name!r} is not a waiting call; waiting: {', '.join(known) or 'none'}"
        raise UnknownCall(text, call=str(name), known=known)
    return calls[0]


def _restored() -> BadLink:
    return BadLink("this link is not valid: the store was restored from a backup after it was made. Request a new link")


def gone_error(link: Link) -> BadLink:
    """Return the error for a link whose loop is not there any more."""
    return BadLink(f"this link is not valid: its loop {link.loop_id!r} was deleted")


def _serializer(secret: str) -> Any:
    try:
        from itsdangerous import URLSafeSerializer  # noqa: PLC0415 - of an extra
    except ImportError as missing:
        raise ImportError(
            f"links need itsdangerous ({missing}): pip install 'toolloop[inbox]'", name=missing.name
        ) from missing
    return URLSafeSerializer(secret, salt=_SALT)
