"""Who may do what in the web examples: the person, the loops that are theirs, the page that asks, and what it sends."""

from __future__ import annotations

from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from toolloop import Approve, Deny
from toolloop.errors import CallerError, Conflict, LoopNotFound, UnknownCall


class Click(BaseModel, extra="forbid", strict=True):
    """A decision on a call, with the digest of the call that the page showed."""

    approve: bool
    digest: str = Field(pattern="^[0-9a-f]{64}$")
    reason: str = Field("denied", max_length=1000)

    def decision(self, by: str) -> Approve | Deny:
        """Return the decision of this person on exactly that call."""
        return Approve(by=by, digest=self.digest) if self.approve else Deny(self.reason, by=by, digest=self.digest)


def person(request: Request) -> str:
    """Return the person that the proxy in front has logged in. A page of another site cannot act for them."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is not None:  # an old browser, or no HTTPS
        site = "same-origin" if origin.partition("://")[2] == request.headers.get("host") else "cross-site"
    if site not in ("same-origin", "none", None):  # "none": an address that was typed; None: no browser
        raise HTTPException(403, "this request comes from a page of another site")
    if not (name := request.headers.get("x-user")):
        raise HTTPException(403, "nobody is logged in")
    return name


def own_loop(request: Request) -> str:
    """Return the id of a loop in the store. It begins with its owner, so nobody can name a loop of somebody else."""
    return f"{person(request)}/{request.path_params['loop']}"


async def refuse(_: Request, error: Exception) -> JSONResponse:
    """Say what is not possible: a body of another shape, a call or loop that is not there, a decision that is late."""
    codes: dict[type[Exception], int] = {ValidationError: 422, UnknownCall: 404, LoopNotFound: 404}
    return JSONResponse({"error": str(error)}, codes.get(type(error), 409))


REFUSALS = dict.fromkeys((CallerError, Conflict, LoopNotFound, ValidationError), refuse)
