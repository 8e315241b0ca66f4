"""Judge requests before anything in them counts: the host, the origin, the person, the type and the size."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import anyio
from ag_ui.core import RunAgentInput
from attrs import frozen
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from toolloop.machine.values.names import Person

Who = Callable[[Request], "str | Person | Awaitable[str | Person | None] | None"]
MOST: Final = 16_000_000  # bytes of an input: a client sends the whole conversation each time
_DROPPED = 4 * MOST  # bytes of a body that are read at most
_LONGEST = 256  # characters of the id of a thread or a run
_SECONDS = 20.0  # for a whole input
_PROBLEMS = 5  # how many mistakes in an input are named
_CLOSE = {"connection": "close"}  # the rest of the body is not read
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]*)?")
LOG = logging.getLogger("toolloop.agui")


def host_of(text: str) -> str:
    """Return the name in a `Host` header, without the port and in lower case; empty if it is not a name."""
    found = _HOST.fullmatch(text.lower())
    return "" if found is None else found[1].rstrip(".")


@frozen
class Door:
    """Says who may send requests.

    Attributes:
        who: returns the person of a request.
        origins: the origins of other sites whose pages may send requests.
        hosts: the host names that are answered.

    """

    who: Who
    origins: frozenset[str]
    hosts: frozenset[str]

    async def enter(self, request: Request) -> Person:
        """Return the person of a request. Nothing of its body is read before.

        Raises:
            HTTPException: the host name (421), the origin (403), the person (403, or 503 if `who` failed), or the type
                of the body (415) is refused.

        """
        if host_of(request.headers.get("host", "")) not in self.hosts:
            raise HTTPException(421, "This server does not answer to this host name. Add it to hosts= of agui_app.")
        if not self._is_of_known_site(request):
            raise HTTPException(403, "A page of this origin may not send requests. Add it to origins= of agui_app.")
        person = await self._find(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "Send the input as application/json.", _CLOSE)
        return person

    def _is_of_known_site(self, request: Request) -> bool:
        """Return whether a page of this site or of a named origin sends a request, or a program without an origin."""
        origin = request.headers.get("origin", "").lower()
        if not origin:
            return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        try:
            site = urlsplit(origin).netloc  # empty for the origin "null"
        except ValueError:
            return False
        return origin in self.origins or (bool(site) and site == request.headers.get("host", "").lower())

    async def _find(self, request: Request) -> Person:
        try:
            found = self.who(request)
            found = await found if inspect.isawaitable(found) else found
            person = Person(found) if isinstance(found, str) else found
        except HTTPException:
            raise
        except Exception as error:
            LOG.exception("who= failed: the request is answered with 503")
            raise HTTPException(503, "It is not known who you are, because the login failed. Try again.") from error
        if not isinstance(person, Person) or not person.name:
            raise HTTPException(403, "You are not logged in, or not allowed to use this agent.")
        return person


async def read_input(request: Request) -> RunAgentInput:
    """Return the input of a run.

    Raises:
        HTTPException: it is too large (413), took too long (408), or is not the input of a run (422).

    """
    with anyio.move_on_after(_SECONDS):
        body = await _read(request)
        try:
            asked = RunAgentInput.model_validate_json(body)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False, include_context=False)[:_PROBLEMS]
            text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found)
            raise HTTPException(422, f"The body is not the input of a run: {text}") from error
        check_id("threadId", asked.thread_id)
        check_id("runId", asked.run_id)
        if any("\0" in each.id for each in asked.messages):
            raise HTTPException(422, "messages: an id has a NUL.")
        return asked
    raise HTTPException(408, f"The input did not arrive within {_SECONDS:g} seconds. Send it again.", _CLOSE)


def check_id(name: str, value: str) -> None:
    """Refuse an id that is empty, too long, or has characters that do not print.

    Raises:
        HTTPException: it is refused (422).

    """
    if not (0 < len(value) <= _LONGEST and value.isprintable()):
        raise HTTPException(422, f"{name}: expected 1 to {_LONGEST} printable characters.")


async def _read(request: Request) -> bytes:
    """Return the body. What is a little too large is read and dropped, so that the client gets the answer."""
    parts, size = bytearray(), 0
    try:
        if int(request.headers.get("content-length", "0")) <= _DROPPED:
            async for part in request.stream():
                size += len(part)
                parts += part if size <= MOST else b""
                if size > _DROPPED:
                    break
            if size <= MOST:
                return bytes(parts)
    except ClientDisconnect as error:
        raise HTTPException(400, "The input is incomplete.") from error
    raise HTTPException(413, f"The input is larger than {MOST:,} bytes.", _CLOSE)
