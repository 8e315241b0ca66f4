"""The response types: values that check their fields when they are made."""

from __future__ import annotations

from typing import Any

import pytest
from attrs.exceptions import FrozenInstanceError

from toolloop import responses
from toolloop.responses import EmptyResponse, JsonResponse

# The tests pass values that the types forbid.
TextResponse: Any = responses.TextResponse
FileResponse: Any = responses.FileResponse
LinkResponse: Any = responses.LinkResponse
RawOutputs: Any = responses.RawOutputs


def test_a_bad_field_is_refused_by_name() -> None:
    """The constructor refuses it, so the traceback leads to the tool."""
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: TextResponse(5), TypeError, "text"),
        (lambda: FileResponse(b"a", "text/plain", b""), TypeError, "name"),
        (lambda: FileResponse("", "text/plain", b""), ValueError, "name"),
        (lambda: FileResponse("a", "", b""), ValueError, "mime_type"),
        (lambda: FileResponse("a", "text/plain", "text"), TypeError, "data"),
        (lambda: LinkResponse(None, "https://example.org"), TypeError, "name"),
        (lambda: LinkResponse("a", ""), ValueError, "url"),
        (lambda: RawOutputs("text"), TypeError, "blocks: expected a list of content blocks, got a str"),
        (lambda: RawOutputs({"type": "text", "text": "a"}), TypeError, "blocks: .*got a dict"),
    ]
    for make, kind, says in cases:
        with pytest.raises(kind, match=says):
            make()


def test_responses_are_values() -> None:
    """Two with equal fields are equal, and their fields cannot be changed."""
    assert TextResponse("a") == TextResponse("a") != TextResponse("b")
    assert (EmptyResponse(), JsonResponse({"a": 1})) == (EmptyResponse(), JsonResponse({"a": 1}))
    assert RawOutputs(block for block in [{"type": "text"}]) == RawOutputs([{"type": "text"}])
    assert FileResponse("a", "b/c", bytearray(b"x")) == FileResponse("a", "b/c", memoryview(b"x"))
    with pytest.raises(FrozenInstanceError):
        TextResponse("a").text = "b"


def test_the_repr_of_a_file_has_its_size_and_not_its_bytes() -> None:
    """So the contents do not get into logs."""
    assert repr(FileResponse("a.txt", "text/plain", b"secret")) == (
        "FileResponse(name='a.txt', mime_type='text/plain', data=<6 bytes>)"
    )
