"""Protect the page: headers on every response, tokens in forms, and a check of the origin of requests."""

from __future__ import annotations

from typing import Any

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class ForbiddenError(Exception):
    """A request is refused: its person is unknown, or a page of another site made it."""


def with_headers(app: ASGIApp) -> ASGIApp:
    """Return the application with security headers on every response, including errors."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await app(scope, receive, sending)

    return guarded


class FormTokens:
    """Make and check the tokens of forms. A token is bound to a person, so another site cannot know it."""

    def __init__(self, secret: str) -> None:
        """Store the secret for signatures."""
        self._signer: Any = URLSafeTimedSerializer(secret, salt="toolloop.form")

    def of(self, subject: str) -> str:
        """Return a token for the forms of a person or a link."""
        return str(self._signer.dumps(subject))

    def check(self, request: Request, token: object, subject: str) -> None:
        """Refuse a form that a page of another site has sent.

        Browsers send the origin of a form in `Sec-Fetch-Site`; without this header, only the token is checked.
        `Origin` is not usable: with `no-referrer` it is `null`.

        Raises:
            ForbiddenError: the form is refused.

        """
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise ForbiddenError("A page of another site sent this form. Nothing was changed.")
        try:
            found = self._signer.loads(str(token), max_age=_A_DAY)
        except BadData:
            found = None
        if found != subject:
            raise ForbiddenError("This form has expired, or it was made for another person. Reload the page.")
