"""The recorded traffic of the Messages API, where it is at hand.

It lies in `recordings` of the folder that the environment variable `TOOLLOOP_SHARED` names, else of `../shared` beside
the repository.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from toolloop.core.jsontext import decode

_REPOSITORY = Path(__file__).resolve().parents[2]


@frozen
class Exchange:
    """One request and its answer: `reply` is the JSON body of it, `sse` the text of an event stream."""

    path: str
    beta: str | None
    request: dict[str, Any]
    status: int
    headers: dict[str, str]
    reply: Any
    sse: str | None


def folder() -> Path:
    """Where the recordings lie, or would."""
    return Path(os.environ.get("TOOLLOOP_SHARED") or _REPOSITORY.parent / "shared") / "recordings"


needs_recordings = pytest.mark.skipif(not folder().is_dir(), reason="the recorded traffic is not beside the repository")


def names() -> list[str]:
    """The names of all recordings; none where the folder is missing."""
    return sorted(path.stem for path in folder().glob("*.json"))


def load(name: str) -> list[Exchange]:
    """The exchanges of one recording; without the folder the test is skipped."""
    path = folder() / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"the recording {name} is not in {folder().name} beside the repository")
    return [_exchange(raw["request"], raw["response"]) for raw in decode(path.read_bytes())["exchanges"]]


def _exchange(request: dict[str, Any], response: dict[str, Any]) -> Exchange:
    return Exchange(
        path=request["path"],
        beta=request.get("beta"),
        request=request["body"],
        status=response["status"],
        headers=response.get("headers", {}),
        reply=response.get("body"),
        sse=response.get("sse"),
    )
