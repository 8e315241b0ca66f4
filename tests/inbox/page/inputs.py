# ruff: noqa: RUF001 - letters that look like others are what these inputs are made of
"""Inputs of calls, generated and chosen, and for each the inputs that are one edit away."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import Any

from hypothesis import strategies as st

# What is hard to show: quotes, escapes, white space, controls, invisible, bidi, scripts, marks, signs of the page.
FRAGMENTS = (
    *("a", "Z", "0", "true", "null", "1", "1.0", "-", "/", "\\", '"', "'", "{", "}", "[", "]", "(", ",", ":", ".", "$"),
    *(" ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", "\u2028", "\u2029", "\u00a0", "\u202f", "\u3000", "\x00", "\x1b"),
    *("\\n", "\\u200b", "\u200b", "\u200c", "\u200d", "\ufeff", "\u00ad", "\u2060", "\u3164", "\u2800", "\u115f"),
    *("\u202e", "\u2066", "\u2069", "\u200e", "\U000e0061", "\ue000", "\ud800", "\ufe0f", "\ufe0e", "\u180b"),
    *(
        "é",
        "e\u0301",
        "Å",
        "\u212b",
        "ё",
        "е\u0308",
        "한",
        "\u1112\u1161\u11ab",
        "\u0301",
        "\u093f",
        "\u1161",
        "ﬁ",
        "\U0001d68a",
        "ａ",
        "²",
        "µs",
    ),
    *("сору", "Привет", "gіthub.com", "αβγ", "Δx", "日本語", "カナ", "ไทย", "हिन्दी", "क\u094d\u200dष", "ქართული"),
    *(
        "שלום",
        "مرحبا",
        "می\u200cخواهم",
        "١٢٣",
        "(",
        "۱",
        "❤\ufe0f",
        "🙏🏽",
        "👩\u200d👧",
        "1\ufe0f\u20e3",
        "⟦",
        "⟧",
        "⇥",
    ),
    *(
        "⟧",
        "⇥",
        "⟦NL⟧",
        "⟦U+200B⟧",
        "- ",
        "? ",
        "word",
        "https://example.org/a?b=c",
        "-rf",
        "x" * 45,
        "…",
        "—",
        "“",
        "«",
        "»",
    ),
)
texts = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join),
    st.text(max_size=12),
    st.text('ab \n\t"\\', max_size=12),
)
keys = st.one_of(
    st.sampled_from(("a", "b", "name", "path", "a.b", "[0]", "a key", "", '"', "\u200bk", "⟦", "0")), texts
)
literals = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**60),
    st.floats(allow_nan=False, allow_infinity=False),
)


def inputs() -> st.SearchStrategy[dict[str, Any]]:
    """Inputs of a call, nested, with texts that are hard to show."""
    values = st.recursive(
        texts | literals,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=8,
    )
    return st.dictionaries(keys, values, max_size=4)


# Small ones, of every kind of row; the pictures of each and of its neighbours are compared.
INPUTS: tuple[dict[str, Any], ...] = (
    {"command": "set -e\ncd /srv/app \n\tmake - all\n\nrm -rf /var/x/ y", "timeout_s": 300, "shell": True},
    {"a": "true", "b": "1", "c": "null", "d": None, "e": 1, "f": "", "g": " late ", "h": "\\u200b", "i": "x\ry"},
    {"text": '{"a":1}', "object": {"a": 1}, "list": ["a b", "c"], "empty": [], "none": {}},
    {"path": "/data/ana/Документы", "host": "https://github.com/a", "name": "café", "note": "a b\u00a0c"},
    {"spec": {"kind": "web", "labels": {"app": "web", "a.b": "x"}, "args": ["sh", "-c", "set -e\nrun"], "n": 1.0}},
    {"a b": 1, "a": {"b": {"c": "x"}}, "\u200bkey": "v", '"q"': "w", "": [1, [2, "3"]]},
    {"query": "SELECT name FROM customers WHERE id = 1 -- all", "number": 10**399 + 7},
    {"text": "العربية 12 words שלום", "mixed": "abc שלום 1 2", "persian": "می\u200cخواهم", "zwj": "👩\u200d👧 ❤\ufe0f"},
    {"crlf": "a\r\nb\r\n", "ls": "a\u2028b", "end": "a\n\n", "tab": "a\tb\t", "filler": "a\u3164b"},
    {"rows": [{"id": 1, "ok": True}, {"id": 2, "ok": False}], "tags": ["true", True, "1", 1, None, "null"]},
)
_LOOK_LIKE = {"a": "а", "c": "с", "e": "е", "o": "о", "p": "р", "x": "х", "i": "і", "s": "ѕ"}


def neighbours(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the inputs that are one edit away from an input, each with the name of the edit."""
    match value:
        case str():
            yield from _texts_beside(value)
        case dict() | list():
            yield from _groups_beside(value)
        case None | bool():
            yield from (("type", json.dumps(value)), ("type", not value), ("type", 0))
        case _:
            yield from (("type", json.dumps(value)), ("type", float(value) if abs(value) < 1e9 else -value))
            yield "escape", value + 1


def _texts_beside(text: str) -> Iterator[tuple[str, Any]]:
    yield from (("quote", f'"{text}"'), ("escape", text + "\\"), ("type", [text]))
    yield from (("space", text + " "), ("space", " " + text), ("space", text + "\n"), ("space", text + "\t"))
    with suppress(ValueError):
        yield "type", json.loads(text)
    middle = len(text) // 2
    for name, char in (
        ("space", " "),
        ("escape", "\u200b"),
        ("escape", "\u202e"),
        ("space", "\u2028"),
        ("NBSP", "\u00a0"),
    ):
        yield name, text[:middle] + char + text[middle:]
    for place, char in enumerate(text):
        before, after = text[:place], text[place + 1 :]
        if char == " ":
            yield from (("NBSP", f"{before}\u00a0{after}"), ("space", f"{before}  {after}"), ("space", before + after))
            yield "space", f"{before}\t{after}"
        elif char == "\n":
            yield from (
                ("space", f"{before} {after}"),
                ("space", f"{before}\r\n{after}"),
                ("escape", f"{before}\\n{after}"),
            )
        elif char in "-/?":
            yield "space", f"{before}{char} {after}"
        elif not char.isascii() or char < " ":
            yield "escape", before + ascii(char)[1:-1] + after
        elif char in _LOOK_LIKE:
            yield "NFD", before + _LOOK_LIKE[char] + after
    for form in ("NFD", "NFC"):
        yield "NFD", unicodedata.normalize(form, text)


def _groups_beside(group: Any) -> Iterator[tuple[str, Any]]:
    items = list(group.items()) if isinstance(group, dict) else [(str(index), item) for index, item in enumerate(group)]
    pack: Callable[[Any], Any] = dict if isinstance(group, dict) else lambda pairs: [item for _, item in pairs]
    for place in range(len(items) - 1):
        yield "order", pack([*items[:place], items[place + 1], items[place], *items[place + 2 :]])
    for place, (key, item) in enumerate(items):
        before, after = items[:place], items[place + 1 :]
        if isinstance(group, dict):
            for other in (key + " ", key + "\u00a0", f'"{key}"', key + ".x", f"{key}[0]", key + "\u200b"):
                yield "key", dict([*before, (other, item), *after])
            if isinstance(item, dict) and len(item) == 1:
                (inner, only), *_ = item.items()
                yield "key", dict([*before, (f"{key}.{inner}", only), *after])
        if isinstance(item, dict | list):
            yield "type", pack([*before, (key, json.dumps(item, separators=(",", ":"))), *after])
            yield "type", pack([*before, (key, [] if isinstance(item, dict) else {}), *after])
        if isinstance(item, list):
            yield "type", pack([*before, (key, {str(index): each for index, each in enumerate(item)}), *after])
        for name, other in neighbours(item):
            yield name, pack([*before, (key, other), *after])


def some_neighbours(value: dict[str, Any], count: int) -> list[tuple[str, dict[str, Any]]]:
    """So many neighbours of an input, of all kinds of edits in turn."""
    found: dict[str, list[Any]] = {}
    for name, other in neighbours(value):
        if json.dumps(other) != json.dumps(value):
            found.setdefault(name, []).append(other)
    turns = zip_longest(*(each[:: max(1, len(each) // count)] for each in found.values()))
    return [(name, other) for turn in turns for name, other in zip(found, turn, strict=True) if other is not None][
        :count
    ]
