"""Sends any body at all through the real client, which would not build all of them itself."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx2
from attrs import frozen

from toolloop.testing import FakeMessagesAPI, reply


@frozen
class Said:
    """The answer of the server to a request."""

    status: int
    type: str | None = None
    message: str = ""
    error_code: str | None = None


def ask(client: anthropic.Anthropic, body: Any, **headers: str) -> Said:
    """Post a body; header names are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    options: Any = {"timeout": 30, "headers": {"content-type": "application/json", **named}}
    try:
        answer = client.post(
            "/v1/messages", cast_to=httpx2.Response, content=json.dumps(body).encode(), options=options
        )
    except anthropic.APIStatusError as error:
        told: Any = error.body
        error_code = told["error"].get("details", {}).get("error_code")
        return Said(error.status_code, told["error"]["type"], told["error"]["message"], error_code)
    return Said(answer.status_code)


def judged(body: Any, **headers: str) -> Said:
    """Return the answer of a server that does not verify signatures."""
    with FakeMessagesAPI([reply("fine")], verify_signatures=False) as api:
        said = ask(api.client(), body, **headers)
        assert len(api.refused) == (said.status != 200)
        assert api.requests[0].status == said.status
        return said
