"""Read the body of a form."""

from __future__ import annotations

import re
from binascii import a2b_qp
from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from toolloop._web import CLOSE, read_body
from toolloop.inbox.page.forms import BadForm, line_ends

MOST: Final = 7_000_000  # bytes of a form: what a text of 2 MB can become in it
LONGEST: Final = 2_000_000  # bytes of a value
_FIELDS = 20_000
_MALFORMED = re.compile(rb"%(?![0-9A-Fa-f]{2})|[\r\n]")
_TYPE = "application/x-www-form-urlencoded"
_FORM = "toolloop.form"  # the form in the scope of its request


class ValueTooLong(BadForm):
    """A value of a form is longer than 2 MB.

    Attributes:
        field: the name of the field.

    """

    def __init__(self, field: str, size: int) -> None:
        """Say what is too long, and what fits."""
        super().__init__(f"{field}: the value has {size:,} bytes; at most {LONGEST:,} bytes are accepted")
        self.field = field


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Call it only when the person is known, or the link is valid.

    Raises:
        HTTPException: the body is larger than 7 MB (413), took longer than 20 seconds (408), or is not a form (415).
        BadForm: the body cannot be decoded.

    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise HTTPException(415, f"Send the form as {_TYPE}.", CLOSE)
    form = _parse(await read_body(request, "form", MOST))
    request.scope[_FORM] = form
    return form


def form_of(request: Request) -> Mapping[str, str]:
    """Return the form of a request if it was read, else an empty one."""
    form: Mapping[str, str] = request.scope.get(_FORM, {})
    return form


def check_values(form: Mapping[str, str]) -> None:
    """Refuse a form with a value that is too long.

    Raises:
        ValueTooLong: a value is longer than 2 MB in UTF-8, with Unix line ends.

    """
    for name, value in form.items():
        if (size := len(line_ends(value).encode())) > LONGEST:
            raise ValueTooLong(name, size)


def _parse(body: bytes) -> dict[str, str]:
    if body.count(b"&") >= _FIELDS or _MALFORMED.search(body):
        raise BadForm("the form cannot be decoded: it has too many fields, or characters that are not encoded")
    pairs = [field.partition(b"=") for field in body.split(b"&") if field]
    try:
        return {_decode(name): _decode(value) for name, _, value in pairs}
    except UnicodeDecodeError as error:
        raise BadForm(f"the form cannot be decoded: {error.reason} in UTF-8") from error


def _decode(text: bytes) -> str:
    """Decode percent escapes as those of quoted-printable: `parse_qsl` holds up all other requests for seconds."""
    return a2b_qp(text.replace(b"=", b"=3D").replace(b"%", b"=").replace(b"+", b" ")).decode()
