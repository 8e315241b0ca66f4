"""Signed links to a call, which cannot be forged or changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import evolve, frozen

from toolloop._interface.calls import pending_calls
from toolloop._interface.heads import accepted_decisions
from toolloop._interface.people import person_of
from toolloop._interface.shown import Shown
from toolloop.errors import BadLink, IllegalCommand, LinkExpired, LinkUsed, NotAllowed, UnknownCall
from toolloop.machine.record.state import State
from toolloop.machine.values.calls import Answer, Approve, Decision, Deny, Rerun
from toolloop.machine.values.names import Person, name_key
from toolloop.tools.calls import ToolCall

_SALT = "toolloop.link"
_KINDS = ("approve", "deny", "answer", "rerun")


@frozen
class Link:
    """The call and the decisions that a link is bound to.

    Attributes:
        first_id: identifies the creation of the loop.
        allow: the decisions that the link allows.
        until: the time at which it expires, in seconds since the epoch.
        person: the only person who may use it; None means each person who has it.

    """

    loop_id: str
    first_id: str
    path: tuple[str, ...]
    digest: str
    allow: tuple[str, ...]
    until: float
    person: Person | None = None

    def to_token(self, secret: str) -> str:
        """Return the link as a signed token for a URL."""
        parts: list[Any] = [self.loop_id, self.first_id, self.path, self.digest, self.allow, self.until]
        if self.person is not None:
            parts.append([self.person.name, self.person.groups])
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
        person = Person(who[0][0], tuple(who[0][1])) if who else None
        return cls(loop_id, first_id, tuple(path), digest, tuple(allow), until, person)

    def find_call(self, state: State) -> ToolCall:
        """Return the call of the link.

        Raises:
            LinkUsed: the call no longer waits, or the person of the link has approved it.
            BadLink: the call has changed.

        """
        call = next((each for each in pending_calls(state) if each.path == self.path), None)
        name = "/".join(self.path)
        if call is None:
            raise LinkUsed(f"the call {name!r} no longer waits", call=name, decision=None, by=None, at=None)
        if call.digest != self.digest:
            raise BadLink(f"the call {name!r} has changed since this link was made. Request a new link")
        mine = None if self.person is None else name_key(self.person.name)
        for yes in call.counted_approvals:
            if mine is not None and name_key(yes.by) == mine:
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
        if (kind := _kind_of(decision)) not in self.allow:
            raise IllegalCommand(
                f"this link does not allow {kind}; it allows: {', '.join(self.allow)}",
                state="Waiting",
                asked=str(kind),
                allowed=self.allow,
            )
        if self.person is None:
            return evolve(decision, digest=self.digest)
        name, _ = person_of(decision.by)
        if name is not None and name_key(name) != name_key(self.person.name):
            raise NotAllowed(f"this link is for {self.person.name}; {name} cannot use it")
        return evolve(decision, digest=self.digest, by=self.person)


def new_link(  # noqa: PLR0913 - what a link is bound to
    state: State,
    first_id: str,
    named: str | Shown,
    *,
    allow: Sequence[str] | None,
    person: str | Person | None,
    until: float,
) -> Link:
    """Return a link to a waiting call; see `Inbox.link`."""
    call = _find_call(state, named)
    takes = accepted_decisions(call)
    if allow is None:
        allow = [kind for kind in takes if kind != "rerun"]
    if isinstance(allow, str) or not allow or not set(allow) <= set(_KINDS):
        raise ValueError(f"allow: expected one or more of {', '.join(_KINDS)}, got {allow!r}")
    if wrong := [kind for kind in allow if kind not in takes]:
        raise ValueError(f"allow: the call {call.id!r} does not take {wrong[0]}; it takes {', '.join(takes)}")
    name, groups = person_of(person)
    if name is None and any(demand.is_personal for demand in call.demands):
        raise IllegalCommand(
            f"link(): the call {call.id!r} counts only approvals with a name. Make a link for each person: person=",
            state=call.status,
            asked="link()",
            allowed=takes,
        )
    if call.expires_at is not None:
        until = min(until, call.expires_at.timestamp())
    whose = None if name is None else Person(name, groups)
    return Link(state.root.setup.loop_id, first_id, call.path, call.digest, tuple(allow), until, whose)


def _kind_of(decision: Decision) -> str | None:
    kinds = {"approve": Approve, "deny": Deny, "answer": Answer, "rerun": Rerun}
    return next((kind for kind, of in kinds.items() if isinstance(decision, of)), None)


def _find_call(state: State, named: str | Shown) -> ToolCall:
    name = named if isinstance(named, str) else named.path
    waiting = pending_calls(state)
    calls = [each for each in waiting if name in (each.path, "/".join(each.path), each.id)]
    if len(calls) != 1:
        known = tuple("/".join(each.path) for each in waiting)
        text = f"link(): {name!r} is not a waiting call; waiting: {', '.join(known) or 'none'}"
        raise UnknownCall(text, call=str(name), known=known)
    return calls[0]


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
