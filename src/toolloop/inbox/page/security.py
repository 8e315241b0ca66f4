"""What protects the page: headers on every response, tokens in forms, and where a request comes from."""

from __future__ import annotations

from typing import Any

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Nothing inline, nothing from elsewhere, in no frame; forms go here only.
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
_A_DAY = 86_400  # seconds that a form may be open


class ForbiddenError(Exception):
    """A request is refused: nobody is named, or a page of another site made it."""


def with_headers(app: ASGIApp) -> ASGIApp:
    """Return the application with the protecting headers on every response, those of its failures included."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await app(scope, receive, sending)

    return guarded


class FormTokens:
    """Makes and checks the tokens of forms. A token is bound to a person, so that no other site can know it."""

    def __init__(self, secret: str) -> None:
        """Sign with a secret."""
        self._signer: Any = URLSafeTimedSerializer(secret, salt="toolloop.form")

    def of(self, subject: str) -> str:
        """Return a token for the forms of a person, or of a link."""
        return str(self._signer.dumps(subject))

    def check(self, request: Request, token: object, subject: str) -> None:
        """Refuse a form that a page of another site has sent.

        Browsers say in `Sec-Fetch-Site` which site's page sends a form; those that do not are judged by the token
        alone. `Origin` tells nothing here: under `no-referrer` it is `null`.

        Raises:
            ForbiddenError: it is refused.

        """
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise ForbiddenError("A page of another site sent this form. Nothing was changed.")
        try:
            found = self._signer.loads(str(token), max_age=_A_DAY)
        except BadData:
            found = None
        if found != subject:
            raise ForbiddenError("This form is too old, or it was not made for you. Open the page again.")
