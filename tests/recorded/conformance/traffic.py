"""Traffic of the Messages API to replay: the scenes of this repository, and recordings where they lie beside it.

A scene has the shape of the recording of its name, and none of its text; `test_scene_shapes.py` compares the two. The
recordings are in the folder `recordings` of the folder that the environment variable `TOOLLOOP_SHARED` names, or else
of `../shared` beside the repository. Without them, the tests run on the scenes alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

_REPOSITORY = Path(__file__).resolve().parents[3]
SCENES = _REPOSITORY / "tests" / "recorded" / "scenes"
RECORDINGS = Path(os.environ.get("TOOLLOOP_SHARED") or _REPOSITORY.parent / "shared") / "recordings"


@frozen
class Exchange:
    """A request and its answer: `reply` is the JSON body of the answer, `sse` the text of an event stream."""

    path: str
    beta: str | None
    request: dict[str, Any]
    status: int
    headers: dict[str, str]
    reply: Any
    sse: str | None

    @property
    def streamed(self) -> list[dict[str, Any]]:
        """The data of each event of the stream."""
        lines = (self.sse or "").split("\n")
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


@frozen
class Traffic:
    """What a client sent and got, in order."""

    name: str
    exchanges: list[Exchange]

    @property
    def answered(self) -> list[Exchange]:
        """The exchanges whose request was not refused."""
        return [exchange for exchange in self.exchanges if exchange.status == 200]


def names(folder: Path = SCENES) -> list[str]:
    """The names of what lies in a folder, in order; none if it does not exist."""
    return sorted(path.stem for path in folder.glob("*.json"))


def load(folder: Path, name: str) -> Traffic:
    """Read one file of a folder."""
    raw = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return Traffic(name, [_exchange(each["request"], each["response"]) for each in raw["exchanges"]])


def with_traffic(*chosen: str) -> pytest.MarkDecorator:
    """Run a test with each scene, and with each recording of the same name, as its argument `traffic`."""
    found = [(folder, name) for folder in (SCENES, RECORDINGS) for name in chosen or names() if name in names(folder)]
    return pytest.mark.parametrize(
        "traffic", [pytest.param(load(folder, name), id=f"{folder.name}-{name}") for folder, name in found]
    )


def _exchange(request: dict[str, Any], response: dict[str, Any]) -> Exchange:
    sse = response.get("sse")
    return Exchange(
        path=request["path"],
        beta=request.get("beta"),
        request=request["body"],
        status=response["status"],
        headers=response.get("headers", {}),
        reply=response.get("body"),
        sse="\n".join(sse) if isinstance(sse, list) else sse,  # a scene has a line each, to be read
    )
