"""Bedrock's own stream frames, which the SDK decodes with botocore."""

from __future__ import annotations

import base64
import importlib
import json
import struct
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from tests.providers.asking import request
from tests.providers.events import streamed
from tests.providers.server import MESSAGE, Answer, serving
from tests.providers.test_other_clients import CONTENT, LONG, RUNS, ask, read
from toolloop.errors import ModelError
from toolloop.providers.sdk_errors import broken_off

if TYPE_CHECKING:
    from collections.abc import Mapping

WHOLE = MESSAGE | {"content": CONTENT}


def frame(payload: Mapping[str, Any], **headers: str) -> bytes:
    """Encode lengths, checksums, headers and JSON (source: the event stream encoding of Amazon's API documentation)."""
    head = b"".join(
        struct.pack(">B", len(name) + 1)
        + f":{name.replace('_', '-')}".encode()
        + struct.pack(">BH", 7, len(value))
        + value
        for name, value in ((name, value.encode()) for name, value in headers.items())
    )
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", len(head) + len(body) + 16, len(head))
    frame = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + body
    return frame + struct.pack(">I", zlib.crc32(frame))


def answer(*frames: bytes) -> Answer:
    kind = {"content-type": "application/vnd.amazon.eventstream", "request-id": "req_1"}
    return Answer(b"".join(frames), headers=kind)


def chunk(event: Mapping[str, Any]) -> bytes:
    text = base64.b64encode(json.dumps(event).encode()).decode()
    return frame({"bytes": text}, message_type="event", event_type="chunk", content_type="application/json")


def test_bedrocks_frames_are_the_same_events() -> None:
    """Nothing is lost, closing early warns of nothing, and `send` streams them internally."""
    for run in RUNS:
        events = [event for event in streamed(WHOLE) if event["type"] != "ping"]
        with serving(answer(*map(chunk, events))) as server:
            assert read("bedrock", server, request(), run=run) == events
            assert read("bedrock", server, request(), run=run, most=2) == events[:2]
            reply = ask("bedrock", server, request(max_tokens=LONG), run=run)
        assert (reply, reply.request_id) == (WHOLE, "req_1")


def test_an_exception_of_bedrocks_in_mid_stream_is_an_error() -> None:
    """Its kind decides whether it is retryable."""
    kind_cases: list[tuple[str, bool]] = [("throttlingException", True), ("validationException", False)]
    for kind, retryable in kind_cases:
        for run in RUNS:
            events = [chunk(event) for event in streamed(WHOLE)[:4]]
            broken = frame({"message": "Slow down"}, message_type="exception", exception_type=kind)
            with serving(answer(*events, broken)) as server, pytest.raises(ModelError, match="Slow down") as failed:
                ask("bedrock", server, request(max_tokens=LONG), run=run)
            assert failed.value.partial_text
            assert (failed.value.kind, failed.value.retryable) == (kind, retryable)


def test_every_exception_that_bedrock_may_stream_is_judged() -> None:
    """All but bad requests are retryable; a new kind fails here."""
    loader = importlib.import_module("botocore.loaders").Loader()
    model = importlib.import_module("botocore.model").ServiceModel(
        loader.load_service_model("bedrock-runtime", "service-2")
    )
    members = set(model.shape_for("ResponseStream").members)
    assert {kind for kind in members if not broken_off(kind, "No.").retryable} == {"chunk", "validationException"}
