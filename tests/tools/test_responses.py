"""The response types: values that are checked when they are made."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from attrs.exceptions import FrozenInstanceError

from toolloop import responses
from toolloop.responses import EmptyResponse, JsonResponse

# Given what their types forbid.
TextResponse: Any = responses.TextResponse
FileResponse: Any = responses.FileResponse
LinkResponse: Any = responses.LinkResponse
RawOutputs: Any = responses.RawOutputs


@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda: TextResponse(5), TypeError, "text is a int; give a string"),
        (lambda: FileResponse(b"a", "text/plain", b""), TypeError, "name is a bytes"),
        (lambda: FileResponse(" ", "text/plain", b""), ValueError, "name is blank"),
        (lambda: FileResponse("a", None, b""), TypeError, "mime_type is a NoneType"),
        (lambda: FileResponse("a", "", b""), ValueError, "mime_type is blank"),
        (lambda: FileResponse("a", "text/plain", "text"), TypeError, "data is a str; give bytes"),
        (lambda: LinkResponse(None, "https://example.org"), TypeError, "name is a NoneType"),
        (lambda: LinkResponse("a", "\n"), ValueError, "url is blank"),
        (lambda: RawOutputs("text"), TypeError, "blocks is a str; give a list of content blocks"),
        (lambda: RawOutputs({"type": "text", "text": "a"}), TypeError, "blocks is a dict"),
        (lambda: RawOutputs(None), TypeError, "blocks is a NoneType"),
        (
            lambda: RawOutputs([{"type": "text", "text": "a"}, 5]),
            TypeError,
            r"blocks\[1\] is a int; give a content block, a text, a file or a response",
        ),
    ],
)
def test_a_wrong_field_is_refused_by_name(make: Any, kind: type[Exception], says: str) -> None:
    """Where it is made, so that the traceback leads to the tool."""
    with pytest.raises(kind, match=says):
        make()


def test_responses_are_values() -> None:
    """Two that say the same are equal, and nothing of them changes."""
    assert TextResponse("a") == TextResponse("a") != TextResponse("b")
    assert (EmptyResponse(), JsonResponse({"a": 1})) == (EmptyResponse(), JsonResponse({"a": 1}))
    assert RawOutputs(block for block in [{"type": "text"}]) == RawOutputs([{"type": "text"}])
    assert FileResponse("a", "b/c", bytearray(b"x")) == FileResponse("a", "b/c", memoryview(b"x"))
    with pytest.raises(FrozenInstanceError):
        TextResponse("a").text = "b"


def test_a_file_does_not_spill_its_bytes_into_logs() -> None:
    """Its repr tells the size."""
    assert repr(FileResponse("a.txt", "text/plain", b"secret")) == (
        "FileResponse(name='a.txt', mime_type='text/plain', data=<6 bytes>)"
    )


def test_importing_the_responses_loads_nothing_slow() -> None:
    """Neither NumPy nor pydantic nor imagesize, before they are needed."""
    code = (
        "import sys, toolloop.responses; print(*({'numpy', 'pydantic', 'pydantic_core', 'imagesize'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == []
