"""Each scene has the shape of the recording of its name; compared where the recordings lie beside the repository.

The shape is all but the text: the keys of each object in their order, the type of each value, the names that the API
gives (types, roles, stop reasons), and which block or event follows which. A scene may repeat less.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.recorded.conformance.traffic import RECORDINGS, SCENES, Exchange, load, names

NAMES = {"type", "role", "stop_reason", "status", "service_tier"}


def kind(item: Any) -> Any:
    """What an item of a list is: an event by its own type and that of its block or delta."""
    if not isinstance(item, dict):
        return type(item).__name__
    part = item.get("content_block") or (item.get("delta") if "index" in item else None) or {}
    return item.get("type") or item.get("role"), part.get("type")


def shape(value: Any, path: tuple[Any, ...] = ()) -> set[Any]:
    """The facts that make up the shape of a JSON value."""
    if isinstance(value, dict):
        inside = [shape(item, (*path, value.get("type"), key)) for key, item in value.items()]
        return {(path, tuple(value))}.union(*inside)
    if isinstance(value, list):
        follows = {(path, pair) for pair in pairwise(["start", *map(kind, value), "end"])}
        return follows.union(*(shape(item, path) for item in value))
    *_, parent, key = path
    named = key in NAMES or (key == "name" and parent is not None)  # a `name` may be an input of a tool, too
    return {(path, value if named else type(value).__name__)}


def shape_of(exchange: Exchange) -> set[Any]:
    """The shape of a request and its answer."""
    parts = {
        "path": exchange.path,
        "beta": exchange.beta,
        "request": exchange.request,
        "status": exchange.status,
        "headers": exchange.headers,
        "reply": exchange.reply,
        "events": exchange.streamed,
        "lines": [line.partition(":")[0] for line in (exchange.sse or "").split("\n")],
    }
    return shape(parts)


def test_a_scene_is_read_as_it_lies() -> None:
    """Each exchange has exactly one answer: JSON, or a stream whose events are named as they are typed."""
    for name in names():
        for exchange in load(SCENES, name).exchanges:
            assert (exchange.reply is None) != (exchange.sse is None)
            lines = (exchange.sse or "").split("\n")
            named = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
            assert named == [event["type"] for event in exchange.streamed]


if RECORDINGS.is_dir():

    def test_every_recording_has_its_scene() -> None:
        assert names(SCENES) == names(RECORDINGS)

    @pytest.mark.parametrize("name", names(RECORDINGS))
    def test_a_scene_has_the_shape_of_its_recording(name: str) -> None:
        scene, recording = (load(folder, name).exchanges for folder in (SCENES, RECORDINGS))
        for ours, theirs in zip(scene, recording, strict=True):
            assert shape_of(ours) == shape_of(theirs)
