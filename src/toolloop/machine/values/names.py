"""Names that people give: when two are of one person, and which are refused where they are given."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable

from attrs import field, frozen

from toolloop._public import set_module

# Letters and marks that no font shows, beside those of the categories below.
INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2800\u3164\uffa0\U0001d159\U00016fe4"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# The scripts that one name may mix: "highly restrictive" of UTS 39.
_MIXES = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
_WIDTHS = ("HALFWIDTH", "FULLWIDTH")
_COMMON = ("KATAKANA-HIRAGANA", "MODIFIER")  # letters that several scripts share


def to_text_tuple(texts: str | Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple. One text is a tuple of one, not of its letters."""
    return (texts,) if isinstance(texts, str) else tuple(texts)


@set_module("toolloop")
@frozen
class Person:
    """A person who decides, with the groups that the person is in now.

    Names and groups are what your program says: take them from your login, never from a request.
    """

    name: str
    groups: tuple[str, ...] = field(default=(), converter=to_text_tuple)


def to_name_key(name: str | None) -> str:
    """Return the text by which names are compared: normalized, without case and outer spaces. Empty: no name."""
    if name is None:
        return ""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def is_of_a_rule(name: str) -> bool:
    """Return whether a name is one that only decisions of rules have: `rule: ` and the rule."""
    first, colon, _ = to_name_key(name).partition(":")
    return first.strip() == "rule" and bool(colon)


def find_name_flaw(name: str) -> str | None:
    """Return why a name is refused; None if it is accepted. Names in old journals are read as they are."""
    key = to_name_key(name)
    if not key:
        return "it is empty"
    if is_of_a_rule(name):
        return "names that begin with 'rule:' are those of rules"
    for char in (*name, *key):
        if char in INVISIBLE or unicodedata.category(char) in UNSEEN:
            return f"it holds U+{ord(char):04X}, which cannot be seen"
    scripts = {script for char in unicodedata.normalize("NFKC", name) if (script := script_of(char)) is not None}
    if not may_mix(scripts):
        return f"it mixes {' and '.join(sorted(scripts))} letters"
    return None


def may_mix(scripts: Collection[str]) -> bool:
    """Return whether one name may hold letters of these scripts."""
    return len(scripts) <= 1 or any(mix.issuperset(scripts) for mix in _MIXES)


def script_of(letter: str) -> str | None:
    """Return the script of a letter, by the first word of its name in Unicode; None for other characters."""
    if not letter.isalpha():
        return None
    first = next(word for word in unicodedata.name(letter, "UNKNOWN").split() if word not in _WIDTHS)
    if first in _COMMON:
        return None
    return "CJK" if first in ("IDEOGRAPHIC", "KANGXI") else first
