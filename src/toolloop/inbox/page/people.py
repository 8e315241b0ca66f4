"""Ask the application who sends a request, and what this person sees and may do."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from attrs import frozen
from starlette.exceptions import HTTPException
from starlette.requests import Request

from toolloop._drivers.event_loops import run_in_thread
from toolloop._web import Who, ask_who
from toolloop.errors import NotAllowed
from toolloop.inbox.asynchronous import AsyncInbox
from toolloop.inbox.page.security import ForbiddenError
from toolloop.inbox.rights.links import Link
from toolloop.inbox.rights.rights import Action, May, Seen, Sees, careful, seen_of, with_answers
from toolloop.machine.values.names import Person
from toolloop.stores.protocol import Store, StoredLoop
from toolloop.tools.calls import ToolCall

T = TypeVar("T")
_log = logging.getLogger("toolloop.inbox")


class UnknownPersonError(Exception):
    """The application could not say who sends a request, or what this person sees, because it failed."""


@frozen
class Me:
    """A person at the page, for one request.

    Attributes:
        person: the person; without a name at a link without a person, if the visitor is not signed in.
        inbox: the inbox of this person.
        store: the store, as this person sees it.
        seen: identifies what this person sees.
        may: see `Inbox.as_`. It is called in threads.
        is_signed_in: whether the application named the person; if not, a link did.

    """

    person: Person
    inbox: AsyncInbox
    store: Store
    seen: str = ""
    may: Callable[..., bool] | None = None
    is_signed_in: bool = True

    @property
    def name(self) -> str:
        """The name of the person."""
        return self.person.name

    def allowed(self, actions: Iterable[Action], row: StoredLoop, call: ToolCall | None = None) -> frozenset[str]:
        """Return the actions that this person may do. It blocks."""
        return frozenset(each for each in actions if self.may is None or self.may(self.person, each, row, call))


class People:
    """Names the person of each request with the functions of the application."""

    def __init__(self, inbox: AsyncInbox, store: Store, who: Who, may: May | None, sees: Sees | None) -> None:
        """Store the arguments. `inbox`: that of the store. The functions are those of `inbox_app`."""
        self._inbox = inbox
        self._store = store
        self._who = who
        self._may = None if may is None else careful(with_answers(may))
        self._sees = None if sees is None else with_answers(sees)
        self._has_failed = False

    async def require(self, request: Request) -> Me:
        """Return the person of a request.

        Raises:
            ForbiddenError: there is none.
            UnknownPersonError: a function of the application failed.

        """
        me = await self._known(self._signed_in(request))
        if me is None:
            raise ForbiddenError("You are not logged in, or not allowed to decide here.")
        return me

    async def at_link(self, request: Request, link: Link) -> Me:
        """Return the person at a link: who is signed in, else the person of the link.

        Raises:
            NotAllowed: the link is for another person, or has none and the visitor is not signed in.
            UnknownPersonError: a function of the application failed.

        """
        return await self._known(self._at_link(request, link))

    async def _signed_in(self, request: Request) -> Me | None:
        found = await ask_who(self._who, request)
        return None if found is None else await self._me(found if isinstance(found, Person) else Person(found))

    async def _at_link(self, request: Request, link: Link) -> Me:
        found = await ask_who(self._who, request)
        link.check_person(found)
        person = found if isinstance(found, Person) else link.person  # a bare name says nothing of groups
        if person is None and found is None:
            if self._may is not None or self._sees is not None:
                raise NotAllowed("this link is for no person in particular. Sign in to use it")
            return Me(Person(""), self._inbox, self._store, is_signed_in=False)
        return await self._me(person or Person(str(found)), is_signed_in=found is not None)

    async def _me(self, person: Person, *, is_signed_in: bool = True) -> Me:
        """Ask once what a person sees, for the whole request."""
        seen: Seen = None
        if self._sees is not None:
            seen = seen_of(await run_in_thread(partial(self._sees, person)))
        inbox = self._inbox.as_(person, may=self._may, sees=None if self._sees is None else lambda _: seen, via="page")
        key = "" if seen is None else json.dumps([sorted(each.items()) for each in seen])
        return Me(person, inbox, inbox._store, key, self._may, is_signed_in)  # noqa: SLF001 - of the same library

    async def _known(self, answer: Awaitable[T]) -> T:
        """Await what the application says. An `HTTPException` of it is the response.

        Raises:
            UnknownPersonError: it failed. The first of several failures in a row is logged.

        """
        try:
            found = await answer
        except (HTTPException, NotAllowed):
            raise
        except Exception as error:
            if not self._has_failed:  # open pages ask each second
                _log.exception("a function of the application failed: the approval page answers 503")
            self._has_failed = True
            raise UnknownPersonError("It is not known who you are, because the login failed. Try again.") from error
        self._has_failed = False
        return found
