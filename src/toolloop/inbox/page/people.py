"""Ask the application who sends a request."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request

from toolloop.inbox.page.security import ForbiddenError
from toolloop.machine.values.names import Person

Who = Callable[[Request], "str | Person | Awaitable[str | Person | None] | None"]
_log = logging.getLogger("toolloop.inbox")


class UnknownPersonError(Exception):
    """The application could not say who sends a request, because it failed."""


class People:
    """Names the person of each request with the function of the application."""

    def __init__(self, who: Who) -> None:
        """Store the function."""
        self._who = who
        self._has_failed = False

    async def find(self, request: Request) -> Person | None:
        """Return the person of a request, or None. An `HTTPException` of the application is its answer.

        Raises:
            UnknownPersonError: the function failed. The first of several failures in a row is logged.

        """
        try:
            found = self._who(request)
            found = await found if inspect.isawaitable(found) else found
            if not isinstance(found, str | Person | None):
                raise TypeError(f"who: expected a name, a Person or None, got {found!r}")  # noqa: TRY301 - one log
        except HTTPException:
            raise
        except Exception as error:
            if not self._has_failed:  # open pages ask each second
                _log.exception("the function of who= failed: the approval page answers 503")
            self._has_failed = True
            raise UnknownPersonError("It is not known who you are, because the login failed. Try again.") from error
        self._has_failed = False
        return Person(found) if found and isinstance(found, str) else found or None

    async def require(self, request: Request) -> Person:
        """Return the person of a request.

        Raises:
            ForbiddenError: there is none.
            UnknownPersonError: the function failed.

        """
        person = await self.find(request)
        if person is None or not person.name:
            raise ForbiddenError("You are not logged in, or not allowed to decide here.")
        return person
