"""What a tool returned or raised becomes content that can be sent."""

from __future__ import annotations

import json
import math
import pickle
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from anthropic.lib.tools import ToolError as SdkToolError
from anthropic.types import TextBlock
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolloop.tools import ToolError, describe_failure, render

ANY_TEXT = st.text(st.characters(codec=None) | st.characters(categories=["Cs"]))
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    YES = "yes"


@dataclass
class Point:
    x: int
    tags: tuple[str, ...] = ()


@attrs.frozen
class Box:
    point: Point


class Person(BaseModel):
    name: str


Pair = namedtuple("Pair", "left right")  # noqa: PYI024 - the kind without types


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, "ok"),
        ("", ""),
        ("text\n", "text\n"),
        (True, "true"),
        (10**30, str(10**30)),
        (1.5, "1.5"),
        ({"a": [1, None], 2: "é"}, '{"a":[1,null],"2":"é"}'),
        (MappingProxyType({Colour.RED: 1}), '{"red":1}'),
        ((1, Pair(2, 3)), "[1,[2,3]]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset("ba"), '["a","b"]'),
        (Colour.RED, '"red"'),
        (Level.LOW, "1"),
        (Word.YES, "yes"),
        (Point(1, ("a",)), '{"x":1,"tags":["a"]}'),
        (Box(Point(1)), '{"point":{"x":1,"tags":[]}}'),
        ([Person(name="Ana")], '[{"name":"Ana"}]'),
        ([], "[]"),
        ([{"type": "video"}], '[{"type":"video"}]'),
        ([{"type": ["text"]}], '[{"type":["text"]}]'),
        ([{"type": "text"}], '[{"type":"text"}]'),
        ([{"type": "text", "text": "a"}, 1], '[{"type":"text","text":"a"},1]'),
        ({"type": "text", "text": "a"}, '{"type":"text","text":"a"}'),
        ("half \ud800 pair", "half \N{REPLACEMENT CHARACTER} pair"),
        (["\udc00", {"\ud800": 1}], '["\N{REPLACEMENT CHARACTER}",{"\N{REPLACEMENT CHARACTER}":1}]'),
    ],
)
def test_text_stays_and_values_become_json(value: object, content: str) -> None:
    assert render(value) == content


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        IMAGE,
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a"}, "title": "t"},
        {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "a"}]},
        {"type": "tool_reference", "tool_name": "t"},
    ],
)
def test_content_blocks_stay_as_they_are(block: dict[str, Any]) -> None:
    assert render([block]) == [block]


def test_content_is_a_copy_without_blank_text_blocks_and_half_pairs() -> None:
    blocks = [{"type": "text", "text": " \n"}, IMAGE, {"type": "text", "text": "\ud83d"}]
    content = render(blocks)
    assert content == [IMAGE, {"type": "text", "text": "\N{REPLACEMENT CHARACTER}"}]
    assert content[0] is not IMAGE
    assert len(blocks) == 3
    assert render([{"type": "text", "text": ""}]) == ""


def test_blocks_of_the_sdk_are_taken_as_the_sdk_would_send_them() -> None:
    assert render([TextBlock.construct(type="text", text="a")]) == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "result is a object, which is not JSON"),
        (b"bytes", "result is a bytes"),
        ({"a": [1, 2j]}, r"result\.a\[1\] is a complex"),
        ([IMAGE | {"extra": b""}], r"result\[0\]\.extra is a bytes"),
        ({(1, 2): 3}, "a key that is a tuple"),
        ({True: 3}, "a key that is a bool"),
        ((n for n in "ab"), "result is a generator"),
    ],
)
def test_what_is_not_json_is_named(value: object, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        render(value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_named(number: float) -> None:
    with pytest.raises(ValueError, match=r"result\.a\[0\] is (nan|inf|-inf), which is not JSON"):
        render({"a": [number]})


def test_a_value_that_contains_itself_is_named() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="a list that contains itself"):
        render(endless)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
        lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    )
)
def test_what_is_rendered_can_be_sent_and_read_back(value: Any) -> None:
    content = render(value)
    assert isinstance(content, str)
    assert content.encode().decode() == content
    if value is not None and not isinstance(value, str) and not _has_surrogate(value):
        assert json.loads(content) == value


def _has_surrogate(value: object) -> bool:
    return "\\ud" in json.dumps(value)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "content"),
    [
        (ValueError("no such file"), "ValueError: no such file"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        (Mute(), "Mute"),
        (ValueError("\ud800"), "ValueError: \N{REPLACEMENT CHARACTER}"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 4083 + "…"),
        (ToolError("the disk is full"), "the disk is full"),
        (ToolError("\udfff"), "\N{REPLACEMENT CHARACTER}"),
        (ToolError("x" * 5000), "x" * 5000),
        (ToolError(" "), "ToolError"),
        (ToolError([]), "ToolError"),
        (ToolError([{"type": "text", "text": " "}]), "ToolError"),
        (SdkToolError("sdk"), "sdk"),
        (SdkToolError([{"type": "text", "text": "sdk"}]), [{"type": "text", "text": "sdk"}]),
        (
            ToolError([{"type": "text", "text": "a\ud800"}, IMAGE, "x"]),  # type: ignore[list-item]
            [
                {"type": "text", "text": "a\N{REPLACEMENT CHARACTER}"},
                {"type": "text", "text": "[image]"},
                {"type": "text", "text": "[str]"},
            ],
        ),
    ],
)
def test_a_failure_is_told_in_words(error: BaseException, content: object) -> None:
    assert describe_failure(error) == content


@given(ANY_TEXT)
def test_a_failure_is_never_empty_and_can_always_be_sent(text: str) -> None:
    for error in (ValueError(text), ToolError(text), ToolError([{"type": "text", "text": text}])):
        content = describe_failure(error)
        told = content if isinstance(content, str) else content[0]["text"]
        assert told.strip()
        assert told.encode()


@pytest.mark.parametrize("content", ["full", [{"type": "text", "text": "full"}, IMAGE]])
def test_a_tool_error_survives_pickling(content: Any) -> None:
    again = pickle.loads(pickle.dumps(ToolError(content)))
    assert (type(again), again.content) == (ToolError, content)
    assert str(again) == ("full" if isinstance(content, str) else "full [image]")
