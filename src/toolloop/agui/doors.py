"""Judge requests before anything in them counts: the site, the person, the type and the size."""

from __future__ import annotations

import logging
from typing import Final

from ag_ui.core import RunAgentInput
from attrs import frozen
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from toolloop import Person
from toolloop._web import CLOSE, Who, ask_who, is_of_this_site, is_own_address, read_body

MOST: Final = 16_000_000  # bytes of an input: a client sends the whole conversation each time
_LONGEST = 256  # characters of the id of a thread or a run
_PROBLEMS = 5  # how many mistakes in an input are named
LOG = logging.getLogger("toolloop.agui")


@frozen
class Door:
    """Says who may send requests.

    Attributes:
        who: returns the person of a request.
        origins: the origins of other sites whose pages may send requests.

    """

    who: Who
    origins: frozenset[str]

    async def enter(self, request: Request) -> Person:
        """Return the person of a request. Nothing of its body is read before.

        Raises:
            HTTPException: the origin (403), the person (403, or 503 if `who` failed), or the type of the body (415) is
                refused.

        """
        origin = request.headers.get("origin", "").lower()
        is_own = is_of_this_site(request) and (not origin or is_own_address(origin, request))
        if not is_own and origin not in self.origins:
            raise HTTPException(403, "A page of this origin may not send requests. Add it to origins= of agui_app.")
        try:
            found = await ask_who(self.who, request)
            person = Person(found) if isinstance(found, str) else found
        except HTTPException:
            raise
        except Exception as error:
            LOG.exception("who= failed: the request is answered with 503")
            raise HTTPException(503, "It is not known who you are, because the login failed. Try again.") from error
        if person is None:
            raise HTTPException(403, "You are not logged in, or not allowed to use this agent.")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "Send the input as application/json.", CLOSE)
        return person


async def read_input(request: Request) -> RunAgentInput:
    """Return the input of a run.

    Raises:
        HTTPException: it is too large (413), took too long (408), or is not the input of a run (422).

    """
    body = await read_body(request, "input", MOST, dropped=4 * MOST)
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


def check_id(name: str, value: str) -> None:
    """Refuse an id that is empty, too long, or has characters that do not print.

    Raises:
        HTTPException: it is refused (422).

    """
    if not (0 < len(value) <= _LONGEST and value.isprintable()):
        raise HTTPException(422, f"{name}: expected 1 to {_LONGEST} printable characters.")
