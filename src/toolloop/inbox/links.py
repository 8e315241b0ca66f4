"""Signed links to a call, which cannot be forged or changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from toolloop.errors import BadLink, LinkExpired

_SALT = "toolloop.link"


@frozen
class Link:
    """The call and the decisions that a link is bound to.

    Attributes:
        first_id: identifies the creation of the loop.
        allow: the decisions that the link allows.
        until: the time at which it expires, in seconds since the epoch.

    """

    loop_id: str
    first_id: str
    path: tuple[str, ...]
    digest: str
    allow: tuple[str, ...]
    until: float

    def to_token(self, secret: str) -> str:
        """Return the link as a signed token for a URL."""
        parts = [self.loop_id, self.first_id, self.path, self.digest, self.allow, self.until]
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
            loop_id, first_id, path, digest, allow, until = _serializer(secret).loads(token)
        except (BadData, UnicodeEncodeError) as error:
            raise BadLink("this link is incomplete or changed, or was signed with another secret") from error
        if now >= until:
            at = datetime.fromtimestamp(until, UTC)
            raise LinkExpired(f"this link expired at {at.isoformat(timespec='seconds')}. Request a new link", at=at)
        return cls(loop_id, first_id, tuple(path), digest, tuple(allow), until)


def _serializer(secret: str) -> Any:
    try:
        from itsdangerous import URLSafeSerializer  # noqa: PLC0415 - of an extra
    except ImportError as missing:
        raise ImportError(
            f"links need itsdangerous ({missing}): pip install 'toolloop[inbox]'", name=missing.name
        ) from missing
    return URLSafeSerializer(secret, salt=_SALT)
