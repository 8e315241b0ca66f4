"""The patterns of a grant: what a string in `match` stands for."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolloop.machine.grants import matches

PATHS = st.text("ab./\\*?\n", max_size=8)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("", "", True),
        ("", "a", False),
        ("a", "a", True),
        ("a", "A", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("/srv/*", "/srv/a.txt", True),
        ("/srv/*", "/srv/", True),
        ("/srv/*", "/srv", False),
        ("/srv/*", "/srv/a/b", False),
        ("/srv/*", "/srv/a\\b", False),
        ("/srv/*", "x/srv/a", False),
        ("/srv/*.txt", "/srv/a.txt.exe", False),
        ("/srv/**", "/srv/a/b", True),
        ("/srv/**", "/srv/a\\b\nc", True),
        ("/srv/***", "/srv/a/b", True),
        ("/srv/**/*.py", "/srv/a/b/c.py", True),
        ("/srv/**/*.py", "/srv/c.py", False),
        ("*", "", True),
        ("*", "a\nb", True),
        ("**", "", True),
        ("?", "a", True),
        ("?", "\n", True),
        ("?", "", False),
        ("?", "/", False),
        ("?", "\\", False),
        ("a?c*", "abc", True),
        ("*a*b*", "xaxxbx", True),
        ("*a*b*", "xbxxax", False),
        ("git *", "git status", True),
        ("git *", "git push /srv", False),
    ],
)
def test_a_pattern_is_for_the_whole_text(pattern: str, text: str, fits: bool) -> None:
    """`*` stops at slashes of either kind, `**` at nothing, `?` is one character; all else is itself."""
    assert matches(pattern, text) is fits


LEADS_OUT = ("/srv/..", "/srv/../etc/passwd", "/srv/a/../../b", "/srv/./b", "/srv/.", "/srv\\..\\b", "..", "../b", ".")


@pytest.mark.parametrize("pattern", ["/srv/*", "/srv/**", "**", "/srv/?/*", "/srv/*/b", "/srv/**/b"])
def test_no_wildcard_leads_out_of_where_it_stands(pattern: str) -> None:
    """A path with `.` or `..` as a part may lead anywhere."""
    assert [text for text in LEADS_OUT if matches(pattern, text)] == []


@pytest.mark.parametrize("text", ["/srv/..", "../etc", ".", "a/./b"])
def test_a_path_that_is_named_in_full_is_taken_as_it_is(text: str) -> None:
    assert matches(text, text)


@pytest.mark.parametrize("text", ["/srv/...", "/srv/..a", "/srv/a..", "/srv/.a", "/srv/a.b"])
def test_dots_in_a_name_lead_nowhere(text: str) -> None:
    assert matches("/srv/*", text)


@given(PATHS, PATHS)
def test_it_says_what_a_regular_expression_would(pattern: str, text: str) -> None:
    """For all that one can try in so short a time."""
    words = {"*": r"[^/\\]*", "?": r"[^/\\]"}
    parts = re.findall(r"\*\*+|.", pattern, re.DOTALL)
    spelled = "".join(r"(?s:.*)" if part.startswith("**") else words.get(part, re.escape(part)) for part in parts)
    wild = "*" in pattern or "?" in pattern
    travels = wild and any(part.strip() in (".", "..") for part in re.split(r"[/\\]", text))
    expected = not travels and re.fullmatch(spelled, text) is not None
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    "text", ["/srv/%2e%2e", "/srv/a%2Fb", "/srv/%5c", "/srv/..\0/etc", "/srv/.. /etc", "/srv/\u2024\u2024/etc"]
)
def test_no_wildcard_takes_what_is_a_way_out_to_those_who_decode_it(text: str) -> None:
    """Coded dots and slashes, dots that only look otherwise, and what a NUL cuts off."""
    assert not matches("/srv/**", text)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("https://www.ex.com/", True),
        ("https://www.ex.com/a/b?q=1#x", True),
        ("https://ex.com/", False),
        ("https://evil.com#.ex.com/", False),
        ("https://evil.com?.ex.com/", False),
        ("https://evil.com\\.ex.com/", False),
        ("https://a@www.ex.com/", False),
        ("https://www.ex.com", False),
        ("www.ex.com/", False),
    ],
)
def test_in_an_address_the_host_is_the_host(text: str, fits: bool) -> None:
    """A wildcard in the host takes none of what ends a host."""
    assert matches("https://*.ex.com/**", text) is fits


def test_no_text_makes_it_take_long() -> None:
    """What is matched is the model's own words: a regular expression would not come back."""
    pattern, text = "*a" * 12 + "*b", "a" * 5000
    assert not matches(pattern, text)
