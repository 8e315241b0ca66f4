"""What a tool raised becomes words that the model can use."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from anthropic.lib.tools import ToolError as SdkToolError
from anthropic.types import TextBlock
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.answering import answer, error
from toolloop.responses import TextResponse
from toolloop.tools import ToolError, describe_failure

ANY_TEXT = st.text(st.characters(codec=None) | st.characters(categories=["Cs"]))
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Careless(ToolError):
    def __init__(self) -> None:
        """Forget the content."""


class Hostile(Exception):
    def __getattribute__(self, name: str) -> Any:
        if name == "__notes__":
            raise RuntimeError
        return super().__getattribute__(name)


def noted(exc: Exception, *notes: Any) -> Exception:
    for note in notes:
        exc.add_note(note)
    return exc


@pytest.mark.parametrize(
    ("exc", "content"),
    [
        (ValueError("no such file"), "ValueError: no such file"),
        (KeyError("x"), "KeyError: 'x'"),
        (KeyError(5), "KeyError: 5"),
        (KeyError("there is no 'x'\nhere"), "KeyError: there is no 'x'\nhere"),
        (ValueError(), "ValueError"),
        (type(" ", (Exception,), {})(), "Exception"),
        (ValueError(" \n"), "ValueError"),
        (Mute(), "Mute"),
        (Hostile("x"), "Hostile"),
        (ValueError("\ud800"), "ValueError: \N{REPLACEMENT CHARACTER}"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 4083 + "…"),
        (TypeError("bad <object object at 0x7ffa1726ca90>"), "TypeError: bad <object object>"),
        (noted(ValueError("no"), "try 5", "or 6"), "ValueError: no\ntry 5\nor 6"),
        (
            OSError(2, "No such file or directory", "a.txt"),
            "FileNotFoundError: [Errno 2] No such file or directory: 'a.txt'",
        ),
        (ToolError("the disk is full"), "the disk is full"),
        (noted(ToolError("full"), "free: 0"), "full\nfree: 0"),
        (ToolError("\udfff"), "\N{REPLACEMENT CHARACTER}"),
        (ToolError("x" * 5000), "x" * 5000),
        (ToolError(" "), "ToolError"),
        (ToolError([]), "ToolError"),
        (ToolError(None), "ToolError"),  # type: ignore[arg-type]
        (ToolError(5), "ToolError: 5"),  # type: ignore[arg-type]
        (Careless(), "Careless"),
        (ToolError([{"type": "text", "text": " "}]), "ToolError"),
        (ToolError({"type": "text", "text": "one"}), [{"type": "text", "text": "one"}]),  # type: ignore[arg-type]
        (ToolError(TextResponse("one")), [{"type": "text", "text": "one"}]),  # type: ignore[arg-type]
        (ToolError([TextBlock.construct(type="text", text="one")]), [{"type": "text", "text": "one"}]),  # type: ignore[list-item]
        (ToolError(b"one"), [{"type": "text", "text": "[bytes]"}]),  # type: ignore[arg-type]
        (ToolError([ValueError("x")]), [{"type": "text", "text": "ValueError: x"}]),  # type: ignore[list-item]
        (SdkToolError("sdk"), "sdk"),
        (SdkToolError([{"type": "text", "text": "sdk"}]), [{"type": "text", "text": "sdk"}]),
        (
            ToolError([{"type": "text", "text": "a\ud800"}, IMAGE, "x", 5]),  # type: ignore[list-item]
            [
                {"type": "text", "text": "a\N{REPLACEMENT CHARACTER}"},
                {"type": "text", "text": "[image]"},
                {"type": "text", "text": "x"},
                {"type": "text", "text": "[int]"},
            ],
        ),
        (
            noted(ToolError([{"type": "text", "text": "a"}]), "b"),
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        ),
    ],
)
def test_a_failure_is_told_in_words(exc: BaseException, content: object) -> None:
    """Its type, its text and its notes; what a `ToolError` says is passed on whole, blocks that are no text by name."""
    assert describe_failure(exc) == content
    assert answer(exc)["is_error"] is True


def test_a_group_is_told_as_an_indented_list() -> None:
    """Nested groups are indented once more; notes stay with their exception."""
    inner = ExceptionGroup("network", [noted(OSError("reset"), "host a"), KeyError("b")])
    group = noted(ExceptionGroup("two tasks failed", [ValueError("no"), inner]), "of 3")
    assert describe_failure(group) == (
        "ExceptionGroup: two tasks failed\n"
        "- ValueError: no\n"
        "- ExceptionGroup: network\n"
        "  - OSError: reset\n"
        "    host a\n"
        "  - KeyError: 'b'\n"
        "of 3"
    )


def test_a_large_group_is_cut_and_says_so() -> None:
    """Twenty are told, the rest is counted; the whole has at most 4096 characters."""
    told = describe_failure(ExceptionGroup("many", [ValueError(str(number)) for number in range(50)]))
    assert isinstance(told, str)
    assert told.splitlines()[-2:] == ["- ValueError: 19", "- and 30 more"]
    long = describe_failure(ExceptionGroup("many", [ValueError("x" * 900)] * 20))
    assert len(long) == 4096


def test_a_deep_group_is_told_as_far_as_anybody_reads() -> None:
    """However deep it is, it is told."""
    deep: Exception = ValueError("bottom")
    for _ in range(500):
        deep = ExceptionGroup("level", [deep])
    told = describe_failure(deep)
    assert isinstance(told, str)
    assert told.count("level") == 10


@given(ANY_TEXT)
def test_a_failure_is_never_empty_and_can_always_be_sent(words: str) -> None:
    """Whatever it says."""
    for exc in (ValueError(words), ToolError(words), ToolError([{"type": "text", "text": words}]), KeyError(words)):
        assert error(exc).strip()


@pytest.mark.parametrize("content", ["full", [{"type": "text", "text": "full"}, IMAGE]])
def test_a_tool_error_survives_pickling(content: Any) -> None:
    """It may be raised in another process."""
    again = pickle.loads(pickle.dumps(ToolError(content)))
    assert (type(again), again.content) == (ToolError, content)
    assert str(again) == ("full" if isinstance(content, str) else "full [image]")
