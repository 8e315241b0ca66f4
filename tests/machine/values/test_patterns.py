"""The patterns of a grant: what a string in `match` stands for."""

from __future__ import annotations

import ntpath
import posixpath
import re
import unicodedata
import urllib.parse

import pytest
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from toolloop.machine.rules.grants import matches

PATHS = st.text("ab./\\*?", max_size=8)


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
        ("/srv/*", "/srv/", False),
        ("/srv/**", "/srv/", False),
        ("/srv/*", "/srv", False),
        ("/srv/*", "/srv/a/b", False),
        ("/srv/*", "/srv/a\\b", False),
        ("/srv/*", "x/srv/a", False),
        ("/srv/*.txt", "/srv/a.txt.exe", False),
        ("/srv/**", "/srv/a/b", True),
        ("/srv/**", "/srv/a\\b c", True),
        ("/srv/**", "/srv/a/", True),
        ("/srv/***", "/srv/a/b", True),
        ("/srv/**/*.py", "/srv/a/b/c.py", True),
        ("/srv/**/*.py", "/srv/c.py", False),
        ("*", "", False),
        ("*", "a b", True),
        ("**", "", False),
        ("?", "a", True),
        ("?", "é", True),
        ("?", "", False),
        ("?", "/", False),
        ("?", "\\", False),
        ("a?c*", "abcd", True),
        ("a?c*", "abc", False),
        ("*a*b*", "xaxxbx", True),
        ("*a*b*", "xbxxax", False),
        ("*a*b*", "xaxb", False),
        ("git *", "git status", True),
        ("git *", "git push /srv", False),
    ],
)
def test_a_pattern_is_for_the_whole_text(pattern: str, text: str, fits: bool) -> None:
    """`*` is at least one character, no slash; `**` any; `?` is one character, no slash. All else is itself."""
    assert matches(pattern, text) is fits


LEADS_OUT = (
    *("/srv/..", "/srv/../etc/passwd", "/srv/a/../../b", "/srv/./b", "/srv/.", "/srv\\..\\b", "..", "../b", "."),
    *("/srv//", "/srv//b", "/srv/ ", "/srv/ /b", "/srv/.. /b", "/srv/. .", "/srv/...", "/srv/a/\\b"),
)


@pytest.mark.parametrize("pattern", ["/srv/*", "/srv/**", "**", "/srv/?/*", "/srv/*/b", "/srv/**/b"])
def test_no_wildcard_leads_out_of_where_it_stands(pattern: str) -> None:
    """A path may lead anywhere if one of its parts is empty, or only dots and spaces."""
    assert [text for text in LEADS_OUT if matches(pattern, text)] == []


@pytest.mark.parametrize("text", ["/srv/..", "../etc", ".", "a/./b"])
def test_a_path_that_is_named_in_full_is_taken_as_it_is(text: str) -> None:
    assert matches(text, text)


@pytest.mark.parametrize("text", ["/srv/..a", "/srv/a..", "/srv/.a", "/srv/a.b"])
def test_dots_in_a_name_lead_nowhere(text: str) -> None:
    assert matches("/srv/*", text)


@given(PATHS, PATHS)
def test_it_says_what_a_regular_expression_would(pattern: str, text: str) -> None:
    """For short texts without a character that no wildcard takes."""
    words = {"*": r"[^/\\]+", "?": r"[^/\\]"}
    parts = re.findall(r"\*\*+|.", pattern)
    spelled = "".join(".+" if part.startswith("**") else words.get(part, re.escape(part)) for part in parts)
    wild = "*" in pattern or "?" in pattern
    leads_out = re.search(r"(^|[/\\])\.+([/\\]|$)|[^/\\][/\\]{2}", text) is not None
    expected = not (wild and leads_out) and re.fullmatch(spelled, text) is not None
    assert matches(pattern, text) is expected


# --- characters that no wildcard takes --------------------------------------------------------------------------------

HIDDEN = ("%2e%2e", "a%2Fb", "%5c", "%252e%252e", "%25252fb", "%u002e", "%c0%ae", "a%00", "..\0/etc", ".. /etc")
LOOKALIKES = (
    "\uff0e\uff0e",
    "\u2025",
    "\u2024\u2024/etc",
    "a\uff0fb",
    "a\uff3cb",
    "\uff052e",
    "a\u2100b",
    "\u2488",
    "a\u200b",
)


@pytest.mark.parametrize("text", [*HIDDEN, *LOOKALIKES])
@pytest.mark.parametrize("pattern", ["/srv/*", "/srv/**"])
def test_no_wildcard_takes_dots_and_slashes_in_disguise(pattern: str, text: str) -> None:
    """Encoded once or twice, full-width, or cut off by a NUL."""
    assert not matches(pattern, f"/srv/{text}")


PARTS = st.sampled_from(
    [*("a", ".", "..", "/", "\\", " ", "%", "25", "2e", "2F", "%2e", "%252f", "5c", "%5c", "\0", "\n"), *LOOKALIKES]
)


@examples(200)
@given(st.lists(PARTS, max_size=6).map("".join), st.sampled_from(["/data/*", "/data/**", "/data/a*", "/data/?**"]))
def test_no_path_leaves_the_folder_of_a_pattern(rest: str, pattern: str) -> None:
    """However often a program decodes and normalizes it, on any system: it names something inside."""
    path = f"/data/{rest}"
    if not matches(pattern, path):
        return
    for _ in range(4):
        assert posixpath.normpath(path).startswith("/data/")
        assert ntpath.normpath(path).startswith("\\data\\")
        path = unicodedata.normalize("NFKC", urllib.parse.unquote(path))


CONTROL = [*";&|<>$()`\n\r\t\0\x1b", "\u2028", "\u0085"]


@pytest.mark.parametrize("sign", CONTROL)
@pytest.mark.parametrize("pattern", ["git *", "git **", "**", "?*"])
def test_no_wildcard_takes_what_ends_or_expands_a_command(pattern: str, sign: str) -> None:
    """Whether a space stands before it or not."""
    assert [text for text in (f"git status{sign}ls", f"git a {sign} b", f"git a{sign}") if matches(pattern, text)] == []


@examples(150)
@given(st.text([*"gita *", *CONTROL], max_size=12), st.text([*"git a", *CONTROL], max_size=12))
def test_a_control_character_is_taken_only_where_it_stands_in_the_pattern(pattern: str, text: str) -> None:
    """Each one in the text is one in the pattern, in the same order."""
    if matches(pattern, text):
        assert [sign for sign in text if sign in CONTROL] == [sign for sign in pattern if sign in CONTROL]


def test_a_control_character_of_the_pattern_is_itself() -> None:
    assert matches("git * | head -?", "git log | head -5")
    assert not matches("git * | head -?", "git log | sh | head -5")


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("https://www.ex.com/a/", True),
        ("https://www.ex.com/", False),
        ("https://www.ex.com//a", True),
        ("https://www.ex.com/a//b", False),
        ("https://.ex.com/a", False),
        ("https://www.ex.com:80/a", False),
        ("https://evil.com:80.ex.com/a", False),
        ("https://[::1].ex.com/a", False),
        ("https://evil.com\t.ex.com/a", False),
        ("https://evil.com\u3002.ex.com/a", False),
        ("https://evil.com\uff0f.ex.com/a", False),
        ("https://evil.com%2f.ex.com/a", False),
        ("https://www.ex.com/a/b?q=1#x", True),
        ("https://ex.com/", False),
        ("https://evil.com#.ex.com/a", False),
        ("https://evil.com?.ex.com/a", False),
        ("https://evil.com\\.ex.com/a", False),
        ("https://a@www.ex.com/a", False),
        ("https://www.ex.com", False),
        ("www.ex.com/a", False),
    ],
)
def test_in_an_address_the_host_is_the_host(text: str, fits: bool) -> None:
    """A wildcard in the host takes none of what ends a host."""
    assert matches("https://*.ex.com/**", text) is fits


@pytest.mark.parametrize("pattern", ["**", "*", "**ex.com/**", "https:**"])
def test_an_address_needs_a_pattern_that_is_an_address(pattern: str) -> None:
    assert [text for text in ("https://evil.com/", "https://evil.com/?ex.com/a") if matches(pattern, text)] == []


@pytest.mark.parametrize("text", ["http://localhost:80/a", "http://localhost:8080/a"])
def test_a_port_is_named_in_the_pattern(text: str) -> None:
    assert matches("http://localhost:*/*", text)
    assert not matches("http://localhost/*", text)


ADDRESS_PARTS = [
    *("https://", "http://", "evil.com", "a", ".", ".ex.com", "x.ex.com", ":80", ":", "@", "/", "//", "\\", "?", "#")
]
ADDRESS_PARTS += ["%2f", "%40", "\u3002", "\uff0f", "\uff20", "\t", "\n", " ", "[", "]", "[::1]", "::"]
HOSTS = {
    "https://*.ex.com/**": (r"[a-z0-9._-]+\.ex\.com", None),
    "https://*.ex.com:80/*": (r"[a-z0-9._-]+\.ex\.com", 80),
    "https://?.ex.com/*": (r"[a-z0-9._-]\.ex\.com", None),
    "*://ex.com/**": (r"ex\.com", None),
    "https://x.ex.com/**": (r"x\.ex\.com", None),
}


@examples(200)
@given(st.sampled_from(sorted(HOSTS)), st.lists(st.sampled_from(ADDRESS_PARTS), max_size=6).map("".join), st.data())
def test_the_host_of_a_text_that_matches_is_one_that_the_pattern_names(
    pattern: str, rest: str, data: st.DataObject
) -> None:
    """As the standard library reads the address."""
    end = data.draw(st.sampled_from(["", ".ex.com/a", ".ex.com:80/a", "ex.com/a"]))
    text = f"https://{rest}{end}"
    if matches(pattern, text):
        address, (host, port) = urllib.parse.urlsplit(text), HOSTS[pattern]
        assert address.hostname is not None
        assert re.fullmatch(host, address.hostname)
        assert (address.port, address.username) == (port, None)


def test_no_text_makes_it_take_long() -> None:
    """What is matched is the model's own words: a regular expression would not come back."""
    pattern, text = "*a" * 12 + "*b", "a" * 5000
    assert not matches(pattern, text)
