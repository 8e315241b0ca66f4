"""Which characters of a text are shown as chips, so that two texts that differ never look the same.

A chip is text between the brackets U+27E6 and U+27E7, such as the code point of a character. A text that holds one of
these brackets shows it as a chip, too, so nothing in a text can imitate a chip. Not all odd characters are chips: a
no-break space, a joiner or a decomposed letter that a language needs is underlined, so its text reads as written and
still differs from the text without it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby, pairwise

from attrs import field, frozen

from toolloop.machine.values.names import INVISIBLE, UNSEEN, may_mix, script_of

TIMES = "\u00d7"
OPEN, CLOSE, TAB = "\u27e6", "\u27e7", "\u21e5"  # what the page writes itself, so a text cannot hold them unmarked
_OWN = frozenset((OPEN, CLOSE, TAB))
_ALIKE = frozenset("\u2010\u2011\u2212\u2215\u2044\u2216\u2024\u2236\ua789\u02d0\u01c3\u2223\u01c0\u2219\u02bc")
# Letters that most fonts draw like Latin ones.
_LATIN_LIKE = {
    "CYRILLIC": frozenset("асеорхуіјѕԁһӏԛԝАВЕЅІЈКМНОРСТХУҮԌԚԜ"),
    "GREEK": frozenset("ονρυιϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"),  # noqa: RUF001 - likewise
    "ARMENIAN": frozenset("օսոհցՏՍՕ"),  # noqa: RUF001 - likewise
}
_ACCENTED = ("LATIN", "GREEK", "CYRILLIC")  # scripts whose accents are part of a letter, where there is such a letter
_JOINED = frozenset((
    *("ARABIC", "SYRIAC", "NKO", "MONGOLIAN", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL"),
    *("TELUGU", "KANNADA", "MALAYALAM", "SINHALA", "KHMER", "MYANMAR"),
))  # fmt: skip
_NO_SCRIPT = ("MICRO", "FEMININE", "MASCULINE")  # letters of Unicode that are signs of several scripts
_SPACES, _JOINERS = "\u00a0\u202f\u3000", "\u200c\u200d"
_UNSPACED = ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")  # scripts that a line wraps in without a space
_QUOTES = "\u00ab\u00bb\u2018\u2019\u201c\u201d\u2039\u203a"
_WIDE = 24  # characters: a longer word may be wrapped inside

_CODE = re.compile(r"[/\\@:.=\-_$|&;]")
_WORD = re.compile(r"[^ \t\n]+")
_PART = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"[.:;!?,)\]\"'\u00bb\u201d\u2019\u203a]+$")
_PLAIN = re.compile(r"[ -~]*")
_PICTURE = (
    r"[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u2199\u21a9\u21aa\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u24c2\u25aa"
    r"\u25ab\u25b6\u25c0\u25fb-\u25fe\u2600-\u27bf\u2934\u2935\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d\u3297"
    r"\u3299\U0001f000-\U0001faff]"
)
_ONE = rf"{_PICTURE}[\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?"
_EMOJI = re.compile(rf"[0-9#*]\ufe0f\u20e3|{_ONE}(?:\u200d{_ONE})*")
_SELECTED = re.compile(r"[\ufe0e\ufe0f\u200d]")
# Spaces that a wrapped line hides: without them, the line could be wrapped at the same place (Chromium, `keep-all`).
_HIDDEN = re.compile(r"^ +(?=\S{16})|(?<=\S) {2,}|(?<=[-?]) (?=\S)|(?<=[!-/:-@\[-`{-~]) (?=[(<\[{])")
_BESIDE = re.compile(r"(?<=[^\x00-\x7f]) (?=\S)|(?<=\S) (?=[^\x00-\x7f])")
_CONTROLS = {
    "\0": "null", "\a": "bell", "\b": "backspace", "\n": "line feed", "\v": "line tabulation", "\f": "form feed",
    "\r": "carriage return", "\x1b": "escape", "\x7f": "delete", "\x85": "next line",
}  # fmt: skip
_TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@frozen
class Piece:
    """A part of a text as the page shows it.

    Attributes:
        text: what is shown.
        kind: "" for text as written; `odd`, `secret` and `end` (white space at an end) for a chip; `soft` for text as
            written, underlined; `gap` for spaces that are dotted; `tab` for the sign of a tab; `rtl`, `ltr`, `number`
            and `stop` around text in a direction of its own; `literal` for JSON; `changed` in a diff.
        source: the characters that it stands for.

    """

    text: str
    kind: str = ""
    source: str = ""


@frozen
class Odd:
    """A character in a legend: the code point, the name in Unicode, the reason, and how many there are."""

    code: str
    name: str
    why: str
    count: int


@frozen
class ShownText:
    """A text as pieces, with its direction, `rtl` or "", and the odd characters in it."""

    pieces: tuple[Piece, ...]
    direction: str = ""
    odd: Counter[str] = field(factory=Counter)


def chip(text: str, kind: str = "odd", source: str = "") -> Piece:
    """Return a chip."""
    return Piece(f"{OPEN}{text}{CLOSE}", kind, source)


def code_point(char: str) -> str:
    """Return the code point of a character, such as U+200B."""
    return f"U+{ord(char):04X}"


def shown_text(text: str) -> ShownText:
    """Return how a name, an id or another short text of one line is shown: quoted if an end of it could be missed."""
    return shown_line(quoted(text) if not text or text[0] == '"' or text.strip() != text else text)


def quoted(text: str) -> str:
    """Return a text in quotes, with quotes and backslashes escaped."""
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def shown_line(text: str, *, prose: bool = False) -> ShownText:
    """Return how one line is shown. A line feed in it is a chip.

    Args:
        text: the line.
        prose: whether its schema says that it is prose.

    """
    if _PLAIN.fullmatch(text) and not _HIDDEN.search(text):
        return ShownText((Piece(text, "", text),))
    kinds = _kinds(text, prose=prose)
    odd = Counter(char for char, kind in zip(text, kinds, strict=True) if kind == "odd")
    turns, direction = _turns(text, kinds, prose=prose)
    return ShownText(tuple(_pieces(text, kinds, turns)), direction, odd)


def legend(odd: Counter[str]) -> tuple[Odd, ...]:
    """Return the legend of odd characters, in the order of the text."""
    return tuple(Odd(code_point(char), _name(char), _why(char), count) for char, count in odd.items())


def _name(char: str) -> str:
    return _CONTROLS.get(char) or unicodedata.name(char, "character without a name").lower()


def _why(char: str) -> str:
    if char in _OWN:
        return "used by this page to mark characters"
    if char in _TURNS:
        return "changes the direction of the text"
    if unicodedata.category(char) == "Zs":
        return "looks like a space"
    if char in INVISIBLE or unicodedata.category(char) in UNSEEN:
        return "cannot be seen"
    if unicodedata.category(char)[0] == "M" or unicodedata.normalize("NFC", char) != char:
        return "drawn as part of another letter, or like another letter"
    return "a letter of another script, or easily taken for another character"


def _kinds(text: str, *, prose: bool) -> list[str]:
    """Return the kind of each character."""
    kinds = ["" if " " <= char <= "~" else _alone(char, prose=prose) for char in text]
    for match in (*_HIDDEN.finditer(text), *(each for each in _BESIDE.finditer(text) if _wraps(text, each.start()))):
        kinds[match.start() : match.end()] = ["gap"] * len(match[0])
    if text.isascii():
        return kinds
    code, words = set[int](), list(_WORD.finditer(text))
    for word in words:
        inner = _SENTENCE_END.sub("", word[0])
        if is_code := _CODE.search(inner) is not None:
            code.update(range(*word.span()))
        if (is_code or not prose) and not inner.isascii():
            _mark_scripts(text, kinds, word.start(), inner, is_code=is_code)
    _mark_clusters(text, kinds, frozenset() if not prose else frozenset(range(len(text))) - code)
    for match in _EMOJI.finditer(text):
        if _SELECTED.search(match[0]):
            kinds[match.start() : match.end()] = ["soft"] * len(match[0])
    return kinds


@lru_cache(maxsize=4096)
def _alone(char: str, *, prose: bool) -> str:
    """Return the kind of a character by itself; `soft?` if its neighbours decide."""
    category = unicodedata.category(char)
    if char == "\t":
        return "tab"
    if char in _SPACES or char in _JOINERS:
        return "soft?"
    if char in _OWN or char in INVISIBLE or category in UNSEEN or category == "Zs":
        return "odd"
    if category[0] == "M":
        return "mark?"
    if prose:
        return ""
    compat = unicodedata.normalize("NFKC", char)
    imitates = unicodedata.decomposition(char).startswith(("<font>", "<compat>")) and compat.isascii()
    is_ligature = "LIGATURE" in unicodedata.name(char, "")
    return "odd" if char in _ALIKE or (imitates and compat.isalnum() and (len(compat) == 1 or is_ligature)) else ""


def _script(char: str) -> str | None:
    script = script_of(char)
    return None if script in _NO_SCRIPT else script


def _mark_scripts(text: str, kinds: list[str], start: int, word: str, *, is_code: bool) -> None:
    """Mark letters of a second script in a part of a word, and a part that could be one of Latin letters."""
    for part in _PART.finditer(word):
        letters = [(start + part.start() + index, _script(char)) for index, char in enumerate(part[0])]
        counts = Counter(script for _, script in letters if script is not None)
        if not may_mix(counts.keys()):
            main = max(counts, key=lambda script: (counts[script], script == "LATIN"))
            others = [index for index, script in letters if script not in (None, main)]
        elif len(counts) == 1 and (script := next(iter(counts))) in _LATIN_LIKE:
            whole = part[0] if is_code else "".join(char for char in text if _script(char) == script)
            likes = _LATIN_LIKE[script]
            others = [index for index, _ in letters] if all(c in likes or not c.isalpha() for c in whole) else []
        else:
            continue
        for index in others:
            kinds[index] = "odd"


def _mark_clusters(text: str, kinds: list[str], free: frozenset[int]) -> None:
    """Decide about marks, decomposed letters, spaces and joiners; `free` are the places where prose may have them."""
    start = 0
    for index in range(1, len(text) + 1):
        if index < len(text) and (kinds[index] == "mark?" or _is_jamo(text[index - 1 : index + 1])):
            continue
        cluster = text[start:index]
        if not cluster.isascii():
            fixed = _cluster(text, start, cluster, is_free=start in free and start > 0 and index < len(text))
            if kinds[start] == "odd":
                fixed = ["odd"] * len(cluster)
            for offset, kind in enumerate(fixed):
                kinds[start + offset] = kinds[start + offset] if kind is None else kind
        start = index


def _is_jamo(pair: str) -> bool:
    return all("\u1100" <= char <= "\u11ff" for char in pair)


def _cluster(text: str, start: int, cluster: str, *, is_free: bool) -> list[str | None]:
    """Return the kinds of a character with its marks; None leaves the kind as it is."""
    base, size = cluster[0], len(cluster)
    if base in _SPACES or base in _JOINERS:
        before, after = text[start - 1 : start], text[start + size : start + size + 1]
        is_needed = is_free and size == 1 and _needs(base, before, after)
        return ["soft" if is_needed else "odd", *["odd"] * (size - 1)]
    if unicodedata.normalize("NFC", cluster) != cluster:
        if is_free and base.isalpha():
            return ["soft"] * size
        return ["odd"] if size == 1 else [None, *["odd"] * (size - 1)]
    if unicodedata.category(base)[0] == "M":
        return ["odd"] * size
    overlays = any(unicodedata.combining(char) == 1 or unicodedata.category(char) == "Me" for char in cluster)
    is_letter = base.isalpha() and not overlays and (script_of(base) not in _ACCENTED or size <= 3)  # noqa: PLR2004
    return [None, *["" if is_letter else "odd"] * (size - 1)]


def _needs(char: str, before: str, after: str) -> bool:
    """Return whether the language around a no-break space or a joiner needs it."""
    if char in _JOINERS:
        scripts = {unicodedata.name(each, "UNKNOWN").split()[0] for each in (before, after)}
        return len(scripts) == 1 and scripts <= _JOINED
    beside = before + after
    return not any(map(str.isspace, beside)) and any(unicodedata.category(each)[0] in "LMN" for each in beside)


def _wraps(text: str, space: int) -> bool:
    """Return whether a line could be wrapped at a space if the space were not there."""
    before, after = text[space - 1], text[space + 1]
    if (before == "/" and not after.isascii()) or (not after.isascii() and text[:space].rfind(" ") < space - _WIDE):
        return True
    return any(_is_loose(each) for each in (before, after) if not each.isascii())


@lru_cache(maxsize=4096)
def _is_loose(char: str) -> bool:
    if unicodedata.category(char)[0] not in "LMN":
        return char not in _QUOTES  # a line is never wrapped beside one of these
    script = unicodedata.name(char, "UNKNOWN").split()[0]
    wide = unicodedata.east_asian_width(char) in "WF"
    return script in _UNSPACED or (wide and script != "HANGUL")


@lru_cache(maxsize=4096)
def _side(char: str) -> str:
    """Return R for a letter written from right to left, L for another letter, N for a digit, P or S for the others."""
    found = unicodedata.bidirectional(char)
    if found in ("R", "AL", "NSM", "BN"):
        return "R" if found in ("R", "AL") else "M"
    return {"L": "L", "EN": "N", "AN": "N"}.get(found, "P" if char in ".,:/+-" else "S")


# Text of the other direction in a line, and numbers in a line from right to left. M: marks and joiners.
_LEFT = re.compile(r"R(?:[RMPS]*[RM])?")
_RIGHT = re.compile(r"(?P<ltr>L(?:[LNMPS]*[LNM])?)|(?P<number>N(?:P?N)*)")


def _turns(text: str, kinds: list[str], *, prose: bool) -> tuple[dict[int, str], str]:
    """Return where text of another direction begins and ends, and the direction of the line.

    The bidirectional algorithm draws `a XY 1` and `a 1 XY` alike. Here all texts of the other direction are isolated
    and underlined, so the line follows its stored order.
    """
    if text.isascii():
        return {}, ""
    sides = "".join("C" if kind in ("odd", "tab") else _side(char) for char, kind in zip(text, kinds, strict=True))
    if "R" not in sides:
        return {}, ""
    first = sides.find("R") < sides.find("L") if prose else False
    is_right = first or "L" not in sides
    turns: dict[int, str] = {}
    for match in (_RIGHT if is_right else _LEFT).finditer(sides):
        turns[match.start()] = (match.lastgroup or "ltr") if is_right else "rtl"
        turns[match.end()] = turns.get(match.end(), "stop")
    return turns, "rtl" if is_right else ""


def _pieces(text: str, kinds: list[str], turns: dict[int, str]) -> Iterator[Piece]:
    """Yield the pieces: runs of one kind, between the turns."""
    is_open = False
    cuts = sorted({0, len(text), *turns})
    for start, end in pairwise(cuts):
        if is_open and start in turns:
            yield Piece("", "stop")
            is_open = False
        if turns.get(start, "stop") != "stop":
            yield Piece("", turns[start])
            is_open = True
        index = start
        for kind, group in groupby(kinds[start:end]):
            part = text[index : (index := index + len(list(group)))]
            yield from [_piece(char, kind) for char in part] if kind == "tab" else [_piece(part, kind)]
    if is_open:
        yield Piece("", "stop")


def _piece(part: str, kind: str) -> Piece:
    if kind == "odd":
        return chip(_counted(part), source=part)
    if kind == "tab":
        return Piece(TAB, "tab", part)
    return Piece(part, kind, part)


def _counted(chars: str) -> str:
    """Return the labels of a run of characters: such as U+200B U+200D."""
    labels = {" ": "SP", "\t": "TAB", "\n": "NL"}
    found = ((labels.get(char) or code_point(char), len(list(group))) for char, group in groupby(chars))
    return " ".join(label if count == 1 else f"{label}{TIMES}{count}" for label, count in found)


def end_chip(chars: str) -> Piece:
    """Return the chip for white space at the end of a line."""
    return chip(_counted(chars), "end")
