"""Make, show and redeem the links of a store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from toolloop._interface.heads import head_of
from toolloop._interface.shown import Shown
from toolloop._interface.standing import Standing
from toolloop._journal.store_access import call_store, load_state
from toolloop.errors import LinkUsed, LoopNotFound
from toolloop.inbox.commander import Commander
from toolloop.inbox.items import InboxCall
from toolloop.inbox.rights.links import Link, find_waiting, gone_error, new_link
from toolloop.machine.values.calls import Decision
from toolloop.machine.values.names import Person
from toolloop.stores.arguments import check_seconds


@frozen
class Links:
    """The links of a store. `secret`: the key that signs them; None: the store keeps it."""

    commander: Commander
    secret: str | None

    def make(  # noqa: PLR0913 - what a link is bound to
        self,
        loop_id: str,
        named: str | Shown,
        *,
        allow: Sequence[str] | None,
        person: str | Person | None,
        expires_in: float,
        base_url: str | None,
    ) -> str:
        """See `Inbox.link`."""
        check_seconds("expires_in", expires_in)
        if base_url is not None and not base_url.isprintable():
            raise ValueError(f"base_url: expected a URL without control characters, got {base_url!r}")
        known = load_state(self.commander.store, loop_id)
        call, until, rights = (
            find_waiting(known.state, named),
            self.commander.clock() + expires_in,
            self.commander.rights,
        )
        self.commander.check("link", loop_id, call)
        is_personal = rights is not None and rights.are_limited
        until = self.commander.clock() + expires_in
        link = new_link(known, call, allow=allow, person=person, until=until, is_personal=is_personal)
        token = link.to_token(self.key)
        return token if base_url is None else f"{base_url.rstrip('/')}/link/{token}"

    def revoke(self, loop_id: str, named: str | Shown | None, by: str | Person | None) -> None:
        """See `Inbox.revoke_links`."""
        state = load_state(self.commander.store, loop_id).state
        call = None if named is None else find_waiting(state, named)
        name = None if call is None else "/".join(call.path)
        who = self.commander.who(by)
        refuse = partial(self.commander.check, "link", loop_id, call)
        self.commander.say(loop_id, lambda _, commands: commands.revoke_links(name, who), refuse=refuse)

    def show(self, token: str) -> InboxCall:
        """See `Inbox.linked`."""
        link, store, rights = self._read(token), self.commander.store, self.commander.rights
        try:
            known = load_state(store, link.loop_id)
            link.check_loop(store, known.first_id)
            row = call_store(link.loop_id, partial(store.head, link.loop_id))
        except LoopNotFound as error:
            raise gone_error(link) from error
        try:
            found = link.find_call(known.state)
        except LinkUsed as error:
            raise self.commander.with_decision(link.loop_id, error) from None
        pending = head_of(known.state, 0.0, is_handed_over=False, key=store.secret).pending
        call = InboxCall.of(row, next(each for each in pending if each.path == found.path))
        takes: Any = [kind for kind in call.takes if kind in link.allow]
        return evolve(call, takes=tuple(kind for kind in takes if rights is None or rights.allow(kind, row, found)))

    def redeem(self, token: str, decision: Decision) -> Standing:
        """See `Inbox.redeem`."""
        link = self._read(token)
        bound = link.bind(self.commander.signed(decision))
        try:
            stands = self.commander.decide(link.loop_id, [(link.path, bound)], link)
        except LoopNotFound as error:
            raise gone_error(link) from error
        standing: Standing = stands[0]
        return standing

    def _read(self, token: str) -> Link:
        link = Link.of(token, self.key, self.commander.clock())
        if self.commander.rights is not None:
            link.check_person(self.commander.rights.person)
        return link

    @property
    def key(self) -> str:
        """The key that signs links."""
        return self.secret or self.commander.store.secret()
