"""Compare a text with a pattern widely: a text that could mean what the pattern names matches it.

Text and pattern are compared in several forms, each made of both in the same way. So a disguise that a form removes
makes no difference. No form is a shell or a file system: what a program makes of a text is not decided here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, lru_cache, partial
from itertools import product
from urllib.parse import unquote

from toolloop.machine.values.names import INVISIBLE, may_mix, script_of

_ROUNDS = 8  # of decoding; a text that still changes then hides something
_UNSEEN = frozenset({"Cc", "Cs", "Co", "Cn"})
_REPLACEMENT = "\ufffd"  # bytes that are not a text
_QUOTES = str.maketrans("", "", "'\"`")
_QUOTES_AND_ESCAPES = str.maketrans("", "", "'\"`\\")
_BLANKS = frozenset("\u115f\u1160\u180e\u2800")  # they look like a space, and are none
_SPACES = re.compile(r"\s+")
_LINE_ENDS = re.compile(r"[^\S ]+")
_WORDS = re.compile(r"[^\W\d_]+")
_ROOT = re.compile(r"((?:[a-z][a-z0-9+.-]*:)?)/+")  # of an absolute path, or the scheme of an address
_EDGE = r"[ =:,;|&<>()\[\]{}@#]"  # a path may begin or end there
_SEPARATORS = re.compile(f"({_EDGE}+)")
_UNRESOLVED = re.compile(rf"/\.{{0,2}}(?=/|{_EDGE}|$)|(?:^|{_EDGE})\.{{1,2}}(?=/|{_EDGE}|$)")
_WILDCARDS = frozenset("*?")


class WideText:
    """A text of an input. Its forms are made once, when the first rule needs them, however many rules there are."""

    def __init__(self, text: str) -> None:
        self._text = text

    def why(self, pattern: str) -> str | None:
        """Return why the text matches a pattern, or could; None if it does not.

        `*` matches any characters, also none, and `?` matches any character.
        """
        for one, other in dict.fromkeys(zip(_pattern_forms(pattern), self._forms, strict=True)):
            if one is not None and _fits(one, other):
                return "it matches"
        return self._doubt

    @cached_property
    def _decoded(self) -> tuple[str, bool]:
        return _decoded(self._text)

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        return tuple(_forms(self._decoded[0], is_pattern=False))

    @cached_property
    def _doubt(self) -> str | None:
        base, is_stable = self._decoded
        if not is_stable:
            return "it is encoded many times over, so it could match"
        odd = _find_odd(base)
        return None if odd is None else f"it holds {odd}, so it could match"


def _decoded(text: str) -> tuple[str, bool]:
    """Return a text without case, invisible characters and percent-encoding, and whether nothing is left to decode."""
    for _ in range(_ROUNDS):
        before = text
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)
        text = text.casefold()
        if not text.isascii():
            text = _without_invisible(unicodedata.normalize("NFKC", text))
        if "%" in text:
            text = unquote(text)
        if text == before:
            return text, True
    return text, False


def _without_invisible(text: str) -> str:
    found = [char for char in set(text) - _BLANKS if char in INVISIBLE or unicodedata.category(char) == "Cf"]
    return text.translate(dict.fromkeys(map(ord, found))) if found else text


def _forms(base: str, *, is_pattern: bool) -> Iterator[str]:
    """Yield the forms of a decoded text: with and without quotes and line ends, and with its paths resolved."""
    yield base
    known: dict[str, tuple[str, ...]] = {}  # most texts have few different forms
    for gone, ends in product(({}, _QUOTES, _QUOTES_AND_ESCAPES), (" ", "")):
        text = _SPACES.sub(" ", _without(base, gone, ends)).strip()
        if text not in known:
            known[text] = text, *_paths(text.replace("\\", "/"), is_pattern=is_pattern)
        yield from known[text]


def _without(text: str, gone: Mapping[int, int | None], ends: str) -> str:
    """Return a decoded text without some characters, and with other line ends, also where that encodes more."""
    for _ in range(_ROUNDS):
        before = text
        text = _LINE_ENDS.sub(ends, text.translate(gone))
        if text == before:
            break
        text = _decoded(text)[0]
    return text


def _paths(text: str, *, is_pattern: bool) -> tuple[str, ...]:
    """Return a text as one path, and with paths in it: each word, from its first slash on, or between separators."""
    if _UNRESOLVED.search(text) is None:
        return (text,) * 4
    resolve = cache(partial(_resolve, is_pattern=is_pattern))  # words occur again and again
    resolve_word = cache(partial(_resolve_from_slash, is_pattern=is_pattern))
    words, parts = text.split(" "), _SEPARATORS.split(text)
    return (
        resolve(text),
        " ".join(map(resolve, words)),
        " ".join(map(resolve_word, words)),
        "".join(part if number % 2 else resolve(part) for number, part in enumerate(parts)),
    )


@lru_cache(maxsize=1024)
def _pattern_forms(pattern: str) -> tuple[str | None, ...]:
    """Return the forms of a pattern; None for one that has lost all that the pattern names."""
    first, *rest = _forms(_decoded(pattern)[0], is_pattern=True)
    is_named = _WILDCARDS.isdisjoint(pattern)
    return first, *[form if is_named or not _WILDCARDS.issuperset(_SPACES.sub("", form)) else None for form in rest]


def _resolve(path: str, *, is_pattern: bool) -> str:
    """Return a path without empty parts, `.` and `..`. Behind `https:`, the first part is the host, which stays."""
    if "/" not in path and path not in ("", ".", ".."):  # most words of a text
        return path
    found = _ROOT.match(path)
    root = "" if found is None else f"{found[1]}/"
    first = 1 if len(root) > len("c:/") and root != "file:/" else 0
    parts: list[str] = []
    for part in path[0 if found is None else found.end() :].split("/"):
        if part == "..":
            above = parts[-1] if len(parts) > first else ".."
            if above != ".." and not (is_pattern and _WILDCARDS.intersection(above)):
                parts.pop()
            elif not root or above != "..":
                parts.append(part)
        elif part not in ("", "."):
            parts.append(part)
    return root + "/".join(parts)


def _resolve_from_slash(word: str, *, is_pattern: bool) -> str:
    """Return a word with the path from its first slash on resolved, as in `if=/a/../b` or `host:/a/../b`."""
    before, slash, path = word.partition("/")
    if not slash or (is_pattern and _WILDCARDS.intersection(before)):
        return _resolve(word, is_pattern=is_pattern)
    return before + _resolve(slash + path, is_pattern=is_pattern)


def _find_odd(text: str) -> str | None:
    """Return what keeps a decoded text from being plain: what cannot be seen, or a word that mixes scripts."""
    for char in set(text):
        if char == _REPLACEMENT or char in _BLANKS or (not char.isspace() and unicodedata.category(char) in _UNSEEN):
            return f"U+{ord(char):04X}"
    for word in set() if text.isascii() else set(_WORDS.findall(text)):
        scripts = {script for char in set(word) if (script := script_of(char)) is not None}
        if not may_mix(scripts):
            return f"a word of {' and '.join(sorted(scripts))} letters"
    return None


def _fits(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a whole text, in time that does not depend on how hostile the text is."""
    first, *inner = re.split(r"\*+", pattern)
    if not inner:
        return len(first) == len(text) and _find(first, text, 0) == 0
    last = inner.pop()
    end = len(text) - len(last)
    if _find(first, text[: len(first)], 0) or _find(last, text[end:], 0):
        return False
    at = len(first)
    for part in inner:
        place = _find(part, text, at)
        if place < 0:
            return False
        at = place + len(part)
    return at <= end


def _find(part: str, text: str, start: int) -> int:
    """Return where a part without `*` begins in a text; -1: nowhere."""
    if "?" not in part:
        return text.find(part, start)
    found = _as_expression(part).search(text, start)
    return -1 if found is None else found.start()


@lru_cache(maxsize=1024)
def _as_expression(part: str) -> re.Pattern[str]:
    return re.compile("".join("." if char == "?" else re.escape(char) for char in part), re.DOTALL)
