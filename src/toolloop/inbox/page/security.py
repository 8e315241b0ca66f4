"""Protect the page: headers on every response, tokens in forms, and a check of the origin of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from itsdangerous import BadData, URLSafeSerializer
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolloop._web import is_of_this_site

# Only resources and form targets of this site; no inline code, no frames.
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_A_DAY = 86_400  # seconds for which a form is valid
PAUSE: Final = 0.5  # seconds for which a call that has just appeared takes no decision
_LINK = "/link/"


class ForbiddenError(Exception):
    """A request is refused: its person is unknown, or a page of another site made it."""


class TooSoonError(Exception):
    """A call was decided before a person could have read it."""


def with_headers(app: ASGIApp) -> ASGIApp:
    """Return the application with security headers on every response, including errors.

    The tokens of links do not get into the access log: servers write it from the scope when the response starts.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
                root = scope.get("root_path", "")
                if scope["path"].removeprefix(root).startswith(_LINK):
                    scope["path"] = f"{root}{_LINK}-"
            await send(message)

        await app(scope, receive, sending)

    return guarded


class FormTokens:
    """Make and check the tokens of forms. A token is bound to a person, so another site cannot know it."""

    def __init__(self, secret: str, clock: Callable[[], float]) -> None:
        """Store the secret for signatures, and the clock, which counts seconds since the epoch."""
        self._signer: Any = URLSafeSerializer(secret, salt="toolloop.form")
        self._clock = clock

    def of(self, subject: str, *, is_new: bool = False) -> str:
        """Return a token for the forms of a person or a link, with the time at which they are made.

        Args:
            subject: the person or the link.
            is_new: whether the call in focus has just appeared, without the person having chosen it: after a
                decision, or because the call changed. Then it takes no decision for half a second.

        """
        return str(self._signer.dumps([subject, self._clock(), is_new]))

    def check(self, request: Request, token: object, subject: str) -> None:
        """Refuse a form that a page of another site has sent.

        Raises:
            ForbiddenError: the form is refused.

        """
        if not is_of_this_site(request):
            raise ForbiddenError("A page of another site sent this form. Nothing was changed.")
        found, made, _ = self._read(token)
        if found != subject or not self._clock() - made < _A_DAY:
            raise ForbiddenError("This form has expired, or it was made for another person. Reload the page.")

    def check_pause(self, token: object) -> None:
        """Refuse a decision about a call that has just appeared.

        Raises:
            TooSoonError: the form was made less than half a second ago.

        """
        _, made, is_new = self._read(token)
        if is_new and self._clock() - made < PAUSE:
            raise TooSoonError("This click came too soon after a new call appeared. Nothing was changed.")

    def _read(self, token: object) -> tuple[str | None, float, bool]:
        try:
            subject, made, is_new = self._signer.loads(str(token))
        except (BadData, TypeError, ValueError):
            return None, 0.0, False
        return subject, made, is_new
