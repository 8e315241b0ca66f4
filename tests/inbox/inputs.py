# ruff: noqa: RUF001 - letters that look like others are what these inputs are made of
"""Inputs of calls, generated and chosen, and for each the inputs that are one edit away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

# What is hard to show: quotes, escapes, white space, controls, invisible, bidi, scripts, marks, signs of the page.
FRAGMENTS = (
    *("a", "Z", "0", "true", "null", "1", "1.0", "-", "/", "\\", '"', "'", "{", "}", "[", "]", "(", ",", ":", ".", "$"),
    *(" ", "  ", "\n", "\n\n", "\t", "\r", "\r\n", "\u2028", "\u2029", "\u00a0", "\u202f", "\u3000", "\x00", "\x1b"),
    *("\\n", "\\u200b", "\u200b", "\u200c", "\u200d", "\ufeff", "\u00ad", "\u2060", "\u3164", "\u2800", "\u115f"),
    *("\u202e", "\u2066", "\u2069", "\u200e", "\U000e0061", "\ue000", "\ud800", "\ufe0f", "\ufe0e", "\u180b"),
    *("é", "e\u0301", "Å", "\u212b", "ё", "е\u0308", "한", "\u1112\u1161\u11ab", "ﬁ", "\U0001d68a", "ａ", "²", "µs"),
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
    st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join),
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
        max_leaves=12,
    )
    return st.dictionaries(keys, values, max_size=5)


INPUTS: tuple[dict[str, Any], ...] = ()


def neighbours(value: Any) -> Iterator[tuple[str, Any]]:
    """Inputs that are one edit away from an input, each with the name of the edit."""
    yield from ()
