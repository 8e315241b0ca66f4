"""The text of an error result: what the model reads about an exception."""

from __future__ import annotations

import pickle
from typing import Any

from anthropic.lib.tools import ToolError as SdkToolError
from anthropic.types import TextBlock

from tests.tools.answering import error
from toolloop.tools import ToolError, describe_failure

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
SAID = {"type": "text", "text": "one"}


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Careless(ToolError):
    def __init__(self) -> None:
        """Forget the content."""


def add_notes(exc: Exception, *notes: Any) -> Exception:
    for note in notes:
        exc.add_note(note)
    return exc


def test_an_exception_becomes_text() -> None:
    """Its type, its message and its notes; the content of a `ToolError` is passed on whole."""
    cases: list[tuple[BaseException, str]] = [
        (ValueError("no such file"), "ValueError: no such file"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        (Mute(), "Mute"),
        (ValueError("\ud800"), "ValueError: \N{REPLACEMENT CHARACTER}"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 4083 + "…"),
        (ValueError("x" * 4084), "ValueError: " + "x" * 4084),
        (TypeError("bad <object object at 0x7ffa1726ca90>"), "TypeError: bad <object object>"),
        (add_notes(ValueError("no"), "try 5", "or 6"), "ValueError: no\ntry 5\nor 6"),
        (
            OSError(2, "No such file or directory", "a.txt"),
            "FileNotFoundError: [Errno 2] No such file or directory: 'a.txt'",
        ),
        (ToolError("the disk is full"), "the disk is full"),
        (add_notes(ToolError("full"), "free: 0"), "full\nfree: 0"),
        (ToolError("\udfff"), "\N{REPLACEMENT CHARACTER}"),
        (ToolError("x" * 5000), "x" * 5000),
        (ToolError(" "), "ToolError"),
        (ToolError([]), "ToolError"),
        (ToolError([{"type": "text", "text": " "}]), "ToolError"),
        (ToolError(None), "ToolError"),  # type: ignore[arg-type]
        (ToolError(5), "5"),  # type: ignore[arg-type]
        (Careless(), "Careless"),
        (ToolError(SAID), "one"),  # type: ignore[arg-type]
        (ToolError([TextBlock.construct(type="text", text="one")]), "one"),  # type: ignore[list-item]
        (SdkToolError("sdk"), "sdk"),
        (SdkToolError([{"type": "text", "text": "sdk"}]), "sdk"),
        (ToolError([SAID, IMAGE, "x", 5]), "one\n[image]\nx\n5"),  # type: ignore[list-item]
        (add_notes(ToolError([SAID]), "b"), "one\nb"),
    ]
    for exc, words in cases:
        assert describe_failure(exc) == error(exc) == words


def test_a_group_is_an_indented_list() -> None:
    """Notes stay with their exception; the whole text has at most 4096 characters."""
    inner = ExceptionGroup("network", [add_notes(OSError("reset"), "host a"), KeyError("b")])
    group = add_notes(ExceptionGroup("two tasks failed", [ValueError("no"), inner]), "of 3")
    assert describe_failure(group) == (
        "ExceptionGroup: two tasks failed\n"
        "- ValueError: no\n"
        "- ExceptionGroup: network\n"
        "  - OSError: reset\n"
        "    host a\n"
        "  - KeyError: 'b'\n"
        "of 3"
    )
    assert len(describe_failure(ExceptionGroup("many", [ValueError("x" * 900)] * 20))) == 4096


def test_a_tool_error_survives_pickling() -> None:
    """It may be raised in another process."""
    cases: list[Any] = ["full", [{"type": "text", "text": "full"}, IMAGE]]
    for content in cases:
        again = pickle.loads(pickle.dumps(ToolError(content)))
        assert (type(again), again.content) == (ToolError, content)
        assert str(again) == ("full" if isinstance(content, str) else "")
