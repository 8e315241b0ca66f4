"""What a tool raised becomes words that the model can use."""

from __future__ import annotations

import math
import pickle
from collections import UserString
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import ToolError as SdkToolError
from anthropic.types import TextBlock
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.answering import ADAPTER, answer, error
from toolloop.responses import (
    AnthropicMessagesToolResponseAdapter,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    TextResponse,
)
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
        (ToolError(TextBlock.construct(type="text", text="one")), [{"type": "text", "text": "one"}]),  # type: ignore[arg-type]
        (ToolError(UserString("one")), [{"type": "text", "text": "one"}]),  # type: ignore[arg-type]
        (ToolError(b"one"), [{"type": "text", "text": "one"}]),  # type: ignore[arg-type]
        (ToolError([b"\xff", "two"]), [{"type": "text", "text": "[bytes]"}, {"type": "text", "text": "two"}]),  # type: ignore[list-item]
        (ToolError([ValueError("x")]), [{"type": "text", "text": "ValueError: x"}]),  # type: ignore[list-item]
        (SdkToolError("sdk"), "sdk"),
        (SdkToolError([{"type": "text", "text": "sdk"}]), [{"type": "text", "text": "sdk"}]),
        (
            ToolError([{"type": "text", "text": "a\ud800"}, IMAGE, "x", 5]),  # type: ignore[list-item]
            [
                {"type": "text", "text": "a\N{REPLACEMENT CHARACTER}"},
                {"type": "text", "text": "[image]"},
                {"type": "text", "text": "x"},
                {"type": "text", "text": "5"},
            ],
        ),
        (
            noted(ToolError([{"type": "text", "text": "a"}]), "b"),
            [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        ),
    ],
)
def test_a_failure_is_told_in_words(exc: BaseException, content: object) -> None:
    """Its type, its text and its notes; what a `ToolError` says is passed on whole, files by name."""
    assert describe_failure(exc) == content
    assert answer(exc)["is_error"] is True


SAID = {"type": "text", "text": "said"}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"code": 5, "at": date(2024, 1, 1)}, '{"code":5,"at":"2024-01-01"}'),
        ({"type": "text"}, '{"type":"text"}'),
        ({"type": "text", "text": None}, '{"type":"text","text":null}'),
        ({"type": "image", "path": "a.png"}, '{"type":"image","path":"a.png"}'),
        ([1, {"a": 2}], '[1,{"a":2}]'),
        (Decimal("1.50"), "1.50"),
        (Path("a") / "b.txt", "a/b.txt"),
        (JsonResponse({"a": 1}), '{"a":1}'),
        (LinkResponse("a", "b"), '{"name":"a","url":"b"}'),
        (FileResponse("a", "image/png", b""), "a.png"),
        (RawOutputs([SAID, IMAGE, "more"]), "said\n[image]\nmore"),
        ({"type": "search_result", "source": "s", "title": "t", "content": [SAID, SAID]}, "t\ns\nsaid\nsaid"),
        ({"type": "search_result", "source": 5, "content": "x"}, "x"),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}, "d"),
        ({"type": "document", "title": "t", "source": {"type": "content", "content": [SAID, IMAGE]}}, "t\nsaid"),
        ({"type": "document", "source": {"type": "base64", "data": "AA=="}}, "[document]"),
        ({"type": "tool_reference", "tool_name": "a"}, "[tool_reference]"),
        (object(), "[object]"),
        ({"a": object()}, "[dict]"),
        (JsonResponse(object()), "[JsonResponse]"),
        (math.nan, "[float]"),
    ],
)
def test_nothing_of_what_a_tool_error_says_is_lost(item: Any, words: str) -> None:
    """Data is its JSON, a search result its texts; what is neither text nor data is named."""
    assert describe_failure(ToolError([item])) == [{"type": "text", "text": words}]
    assert error(ToolError([item])) == words


def test_a_tool_error_without_end_is_cut_and_says_so() -> None:
    """At a thousand parts."""
    told = describe_failure(ToolError(repeat("x")))  # type: ignore[arg-type]
    assert len(told) == 1001
    assert told[-1] == {"type": "text", "text": "[and more]"}


class Endless(list[str]):
    def __iter__(self) -> Iterator[str]:
        return repeat("note")


def test_notes_are_read_as_the_list_that_they_are() -> None:
    """Whatever their class makes of it."""
    exc = ValueError("no")
    exc.__notes__ = Endless(["one"])
    assert describe_failure(exc) == "ValueError: no\none"
    exc.__notes__ = ("one", "two")  # type: ignore[assignment]
    assert describe_failure(exc) == "ValueError: no\none\ntwo"
    exc.__notes__ = "one"  # type: ignore[assignment]
    assert describe_failure(exc) == "ValueError: no"


class Secretive(type):
    """A metaclass that does not tell the name of its classes."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class Closed(type):
    def __getattribute__(cls, name: str) -> Any:
        if name == "__name__":
            raise RuntimeError
        return super().__getattribute__(name)


@pytest.mark.parametrize("kind", [Secretive, Closed])
def test_an_exception_whose_type_hides_its_name_is_told(kind: type[type], caplog: pytest.LogCaptureFixture) -> None:
    """Its true name is known anyway; the adapter's texts and its log do not stumble over it either."""
    caplog.set_level("INFO", "toolloop")
    nameless = kind("Nameless", (Exception,), {})
    assert describe_failure(nameless("no")) == "Nameless: no"
    assert error(nameless("no")) == ADAPTER.to_plain_text(nameless("no")) == "Nameless: no"
    assert error(kind("Odd", (), {})()).startswith("The tool ran, but what it returned cannot be sent: ")
    silent = type("Silent", (AnthropicMessagesToolResponseAdapter,), {"describe": lambda *_: ""})
    assert error(nameless("no"), adapter=silent()) == "The tool failed with Nameless."


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


def test_a_group_that_holds_one_group_many_times_is_not_counted_to_the_end() -> None:
    """Level for level it would be millions."""
    group: Exception = ValueError("x")
    for _ in range(8):
        group = ExceptionGroup("g", [group] * 8)
    assert str(describe_failure(group)).endswith("\n- and more than 1000 more")


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
