"""JSON as text: what goes in comes out, and a value that is not JSON is refused."""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import TextBlock
from hypothesis import given, strategies as st

import toolloop
from toolloop.machine.values import jsontext
from toolloop.machine.values.jsontext import (
    decode,
    describe_type,
    encode,
    fingerprint,
    make_well_formed,
    read_typed,
    to_canonical,
    to_plain,
    unify_numbers,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
surrogates = st.text("aé\ud800")  # two that make a pair would come back as the one letter they stand for


@given(values)
def test_a_value_survives_and_its_text_is_stable(value: Any) -> None:
    """Decoded it is the same, key order included; encoded again it is the same text; and it is UTF-8."""
    text = encode(value)
    assert decode(text) == value
    assert encode(decode(text)) == text
    assert decode(text.encode()) == value
    assert to_plain(value) == value


@given(st.dictionaries(surrogates, surrogates, max_size=3))
def test_a_lone_surrogate_is_carried_as_an_escape(value: dict[str, str]) -> None:
    """Even invalid Unicode text does not break the wire."""
    text = encode(value)
    text.encode()
    assert decode(text) == value


@given(st.dictionaries(st.text(), values))
def test_what_is_compared_does_not_depend_on_key_order(value: dict[str, Any]) -> None:
    """The canonical text is one of sorted keys, in ASCII, and of the same value; the fingerprint is a digest of it."""
    turned = dict(reversed(value.items()))
    assert fingerprint(turned) == fingerprint(value) != fingerprint([value])
    assert to_canonical(turned) == to_canonical(value)
    assert to_canonical(value).isascii()
    assert decode(to_canonical(value)) == value


@given(st.recursive(values, lambda inner: st.tuples(inner) | st.dictionaries(st.integers() | st.none(), inner)))
def test_a_text_is_what_the_standard_library_writes(value: Any) -> None:
    """Also of what Python takes for JSON, such as tuples and keys that are numbers; with its C or without it."""
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert encode(value) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json.encoder, "c_make_encoder", None)
        assert jsontext._make_writer(ascii_only=False)(value) == expected


@pytest.mark.parametrize("write", [encode, to_canonical])
def test_a_circular_value_or_one_that_is_not_json_is_not_written(write: Any) -> None:
    """A circle is not mistaken for a value that is only too deep."""
    circle: list[Any] = []
    circle.append({"again": circle})
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(ValueError, match="Circular"):
        write(circle)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write([float("nan")])
    with pytest.raises(TypeError, match="object is not JSON serializable"):
        write({"a": [object()]})
    with pytest.raises(RecursionError):
        write(deep)
    while deep:
        deep = deep[0]


def test_a_circle_is_refused_at_once_however_deep_python_may_go() -> None:
    """And not by the depth of it: that would end the process."""
    limit = sys.getrecursionlimit()
    circle: list[Any] = ["a" * 1000]
    circle.append(circle)
    try:
        sys.setrecursionlimit(1_000_000)
        with pytest.raises(ValueError, match="Circular"):
            encode(circle)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":-Infinity}', "1e999", "[-1e999]", "", "{", "'a'"])
def test_text_that_is_not_json_is_not_read(text: str) -> None:
    """The Python extensions of JSON are refused, and a number too large for a float does not become infinity."""
    with pytest.raises(ValueError, match=r"."):
        decode(text)


def test_what_a_person_typed_is_taken_if_a_request_can_carry_it() -> None:
    """Whatever is wrong with it is one kind of error."""
    assert read_typed(' {"to": "Ana"}') == {"to": "Ana"}
    for text in ("{", "NaN", "[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            read_typed(text)


class Tool:
    """Something that tells its JSON, as the SDK's tools do."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": "look", "parts": (1, 2)}


def test_objects_become_plain() -> None:
    """Mappings become dicts, sequences lists, and objects of the SDK what it would send for them."""
    given_ = OrderedDict(a=(1, "x"), b=[TextBlock(type="text", text="hi")], c=Tool())
    assert to_plain(given_) == {
        "a": [1, "x"],
        "b": [{"type": "text", "text": "hi"}],
        "c": {"name": "look", "parts": [1, 2]},
    }
    assert type(to_plain(given_)) is dict


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [1, object()]}, r"messages\.a\[1\] is an object, which is not JSON"),
        ({"a": {1: 2}}, r"messages\.a has the key 1"),
        (b"bytes", "messages is a bytes"),
        ({1, 2}, "messages is a set"),
        (["half a pair: \ud83d"], r"messages\[0\] contains a lone surrogate"),
        ([float("nan")], r"messages\[0\] is nan, which is not JSON"),
        ({"a": -float("inf")}, r"messages\.a is -inf"),
    ],
)
def test_a_value_that_is_not_json_is_named_by_its_place(value: Any, says: str) -> None:
    """The error says where it is and what to give instead."""
    with pytest.raises(TypeError, match=says):
        to_plain(value, "messages")


def test_a_value_that_contains_itself_is_not_json() -> None:
    """It is refused by name, and not with the depth of the stack."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="messages contains itself"):
        to_plain(endless, "messages")


@pytest.mark.parametrize(
    ("text", "mended"),
    [("", ""), ("aé😀", "aé😀"), ("\ud83d\ude00", "😀"), ("a\ud83db", "a\ufffdb"), ("\ude00\ud83d", "\ufffd\ufffd")],
)
def test_half_a_surrogate_pair_becomes_a_mark(text: str, mended: str) -> None:
    """Two halves become the character that they stand for."""
    assert make_well_formed(text) == mended


@given(values)
def test_floats_that_are_integers_become_integers(value: Any) -> None:
    """Wherever they are; nothing else changes, and the value that was given stays as it was."""
    before = encode(value)
    assert unify_numbers(value) == value
    assert encode(value) == before
    assert encode(unify_numbers({"a": [5.0, 0.5, True, None, "5.0"]})) == '{"a":[5,0.5,true,null,"5.0"]}'


def test_a_type_has_the_right_article() -> None:
    """A value is named as a person would say it: "an int", "a str", and None is None."""
    named = [describe_type(value) for value in (3, "", {}, object(), OrderedDict(), None, int)]
    assert named == ["an int", "a str", "a dict", "an object", "an OrderedDict", "None", "the class int"]


def test_an_article_is_not_written_before_the_name_of_a_type() -> None:
    """One function writes it; an f-string would say "a int"."""
    sources = {path: path.read_text() for path in Path(toolloop.__path__[0]).rglob("*.py")}
    assert [str(path) for path, text in sources.items() if re.search(r"\b[Aa]n? \{type\(", text)] == []
