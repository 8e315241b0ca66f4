"""Which characters of a text are shown as chips, so that two texts that differ never look the same.

A chip is text between the brackets U+27E6 and U+27E7, such as the code point of a character. A text that holds one of
these brackets shows it as a chip, too, so nothing in a text can imitate a chip. Not all odd characters are chips: a
no-break space, a joiner or a decomposed letter that a language needs is framed, so its text reads as written and
still differs from the text without it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import groupby, pairwise

from attrs import field, frozen

from toolloop.machine.values.names import INVISIBLE, UNSEEN, may_mix, script_of

TIMES = "\u00d7"
OPEN, CLOSE, TAB = "\u27e6", "\u27e7", "\u21e5"  # what the page writes itself, so a text cannot hold them unmarked
_OWN = frozenset((OPEN, CLOSE, TAB))
_ALIKE = frozenset("\u2010\u2011\u2212\u2215\u2044\u2216\u2024\u2236\ua789\u02d0\u01c3\u2223\u01c0\u2219\u02bc")
# Letters that most fonts draw like Latin ones: Cyrillic, Greek and Armenian.
_LATIN_LIKE = frozenset("асеорхуіјѕԁһӏԛԝАВЕЅІЈКМНОРСТХУҮԌԚԜονρυιϲϳΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսոհցՏՍՕ")
_MOST_MARKS = 3  # the marks that a letter of these may bear, with itself
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
_SENTENCE_END = ".:;!?,)]\"'\u00bb\u201d\u2019\u203a"
_WORD, _PART = re.compile(r"[^ \t]+"), re.compile(r"[^\W_]+")
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
            written, in a frame; `gap` for spaces that are dotted; `tab` for the sign of a tab; `rtl`, `ltr`, `number`
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
    return shown_line(quoted(text) if not text or text[0] == '"' or text.strip(" \t") != text else text)


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
    odd = Counter(char for char, kind in zip(text, kinds, strict=True) if kind == "o") if "o" in kinds else Counter()
    turns, direction = _turns(text, kinds, prose=prose)
    return ShownText(tuple(_pieces(text, kinds, turns)), direction, odd)


def legend(texts: Iterable[ShownText]) -> tuple[Odd, ...]:
    """Return the legend of the odd characters in texts, in their order."""
    odd = Counter[str]()
    for text in texts:
        odd.update(text.odd)
    return tuple(Odd(code_point(char), _name(char), _why(char), count) for char, count in odd.items())


def _name(char: str) -> str:
    return _CONTROLS.get(char) or unicodedata.name(char, "character without a name").lower()


def _why(char: str) -> str:
    category = unicodedata.category(char)
    reasons = (
        (char in _OWN, "used here to mark characters"),
        (char in _TURNS, "changes the direction of the text"),
        (category == "Zs", "looks like a space"),
        (char in INVISIBLE or category in UNSEEN, "cannot be seen"),
        (
            category[0] == "M" or unicodedata.normalize("NFC", char) != char,
            "drawn as part of another letter, or like it",
        ),
        (_imitates(char), "looks like another character"),
        (True, "a letter of another script than those beside it, or one that looks like a letter of another"),
    )
    return next(reason for holds, reason in reasons if holds)


# --- what each character is ---

# One letter for each character: as written, odd, soft, gap, tab; mark, joiner or no-break space, letter of Hangul in
# parts, and letter that is not normalized, which the characters beside it decide; odd but in prose.
_WORDS = {".": "", "o": "odd", "s": "soft", "g": "gap", "t": "tab"}
_CLUSTER = re.compile(r"j+m*|\?m*|[^m]m+|^m+|n")


def _kinds(text: str, *, prose: bool) -> str:
    """Return the kind of each character, as its letter."""
    alone = "".join(map(_alone, text)).replace("i", "." if prose else "o")
    kinds = list(alone)
    for match in (*_HIDDEN.finditer(text), *(each for each in _BESIDE.finditer(text) if _wraps(text, each.start()))):
        kinds[match.start() : match.end()] = "g" * len(match[0])
    if not text.isascii():
        _mark_scripts(text, kinds, prose=prose)
        _mark_clusters(text, alone, kinds, prose=prose)
        for match in _EMOJI.finditer(text):
            if _SELECTED.search(match[0]):
                kinds[match.start() : match.end()] = "s" * len(match[0])
    return "".join(kinds)


@cache
def _alone(char: str) -> str:
    """Return the kind of a character by itself."""
    category = unicodedata.category(char)
    if " " <= char <= "~" or char == "\t":
        return "t" if char == "\t" else "."
    if char in _SPACES or char in _JOINERS:
        return "?"
    if char in _OWN or char in INVISIBLE or category in UNSEEN or category == "Zs":
        return "o"
    if category[0] == "M" or "\u1100" <= char <= "\u11ff":
        return "m" if category[0] == "M" else "j"
    if unicodedata.normalize("NFC", char) != char:
        return "n"
    return "i" if _imitates(char) else "."


def _imitates(char: str) -> bool:
    """Return whether a character looks like another one, or like several."""
    compat = unicodedata.normalize("NFKC", char)
    is_like = unicodedata.decomposition(char).startswith(("<font>", "<compat>")) and compat.isascii()
    is_ligature = "LIGATURE" in unicodedata.name(char, "")
    return char in _ALIKE or (is_like and compat.isalnum() and (len(compat) == 1 or is_ligature))


@cache
def _script(char: str) -> str:
    """Return the script of a letter; empty for other characters, and for signs of several scripts."""
    script = script_of(char) if char.isalnum() else None
    return "" if script is None or script in _NO_SCRIPT else script


def _code_in(word: str) -> str:
    """Return a word without the signs that end a sentence; empty if nothing in it is code."""
    inner = word.rstrip(_SENTENCE_END)
    return inner if _CODE.search(inner) else ""


def _mark_scripts(text: str, kinds: list[str], *, prose: bool) -> None:
    """Mark letters of a second script in a part of a word, and a part that could be one of Latin letters."""
    certain = _certain_scripts(text)
    for word in _WORD.finditer(text):
        code = _code_in(word[0])
        if word[0].isascii() or (prose and not code):
            continue
        for part in (each for each in _PART.finditer(word[0]) if not each[0].isascii()):
            for index in _imitating(part[0], _certain_scripts(part[0]) if code else certain):
                kinds[word.start() + part.start() + index] = "o"


def _certain_scripts(text: str) -> set[str]:
    """Return the scripts of letters that do not look like Latin ones."""
    return {_script(char) for char in {*text} - _LATIN_LIKE}


def _imitating(part: str, certain: set[str]) -> list[int]:
    """Return which letters of a part of a word are not of its script, or could be Latin."""
    scripts = [_script(char) for char in part]
    present = dict.fromkeys(filter(None, scripts))  # in the order of the text
    if not may_mix(present):
        main = max(present, key=lambda script: (scripts.count(script), script == "LATIN"))
        return [index for index, script in enumerate(scripts) if script not in ("", main)]
    is_like = certain.isdisjoint(present) and not _LATIN_LIKE.isdisjoint(part)
    return [index for index, script in enumerate(scripts) if script] if is_like else []


def _mark_clusters(text: str, alone: str, kinds: list[str], *, prose: bool) -> None:
    """Decide about marks, decomposed letters, spaces and joiners."""
    code = set[int]()
    if prose:
        code.update(*(range(*word.span()) for word in _WORD.finditer(text) if _code_in(word[0])))
    for match in _CLUSTER.finditer(alone):
        start, end = match.span()
        cluster = text[start:end]
        is_free = prose and start not in code and start > 0 and end < len(text)
        if kinds[start] == "o":
            fixed = "o" * len(cluster)
        elif alone[start] == "?":
            is_needed = is_free and _needs(cluster[0], text[start - 1], text[start + 1])
            fixed = ("s" if is_needed else "o") * len(cluster)
            if is_needed and cluster[0] in _JOINERS:  # it cannot be seen without the letter before it
                kinds[start - 1] = "s"
        else:
            fixed = _cluster(cluster, is_free=is_free)
        if kinds[start] in "gt" and fixed[0] == ".":  # a dotted space and a tab stay what they are under a mark
            fixed = kinds[start] + fixed[1:]
        kinds[start:end] = fixed


@lru_cache(maxsize=4096)
def _cluster(cluster: str, *, is_free: bool) -> str:
    """Return the kinds of a character with its marks."""
    base, size = cluster[0], len(cluster)
    if unicodedata.category(base)[0] == "M":
        return "o" * size
    if unicodedata.normalize("NFC", cluster) != cluster:
        if is_free and base.isalpha():
            return "s" * size
        return "o" if size == 1 else "." + "o" * (size - 1)
    overlays = any(unicodedata.combining(char) == 1 or unicodedata.category(char) == "Me" for char in cluster)
    is_letter = base.isalpha() and not overlays and (script_of(base) not in _ACCENTED or size <= _MOST_MARKS)
    return "." + ("." if is_letter else "o") * (size - 1)


def _needs(char: str, before: str, after: str) -> bool:
    """Return whether the language around a no-break space or a joiner needs it."""
    if char in _JOINERS:
        scripts = {unicodedata.name(each, "UNKNOWN").split()[0] for each in (before, after)}
        return len(scripts) == 1 and scripts <= _JOINED
    beside = before + after
    if any(each.isspace() or each == '"' for each in beside) or unicodedata.category(after)[0] == "M":
        return False
    return any(unicodedata.category(each)[0] in "LMN" for each in beside)


def _wraps(text: str, space: int) -> bool:
    """Return whether a line could be wrapped at a space if the space were not there."""
    before, after, last = text[space - 1], text[space + 1], space - 1
    while last and (unicodedata.category(before)[0] == "M" or before in _JOINERS):
        last -= 1
        before = text[last]
    if not after.isascii() and (before == "/" or text.rfind(" ", 0, space) < space - _WIDE):
        return True
    if any(_is_loose(each) for each in (before, after) if not each.isascii()):
        return True
    beside = ((before, after), (after, before))
    return any(unicodedata.east_asian_width(wide) in "WF" and not other.isalnum() for wide, other in beside)


@lru_cache(maxsize=4096)
def _is_loose(char: str) -> bool:
    if unicodedata.category(char)[0] not in "LMN":
        return char not in _QUOTES  # a line is never wrapped beside one of these
    script = unicodedata.name(char, "UNKNOWN").split()[0]
    wide = unicodedata.east_asian_width(char) in "WF"
    return script in _UNSPACED or (wide and script != "HANGUL")


# --- in which direction, and in which pieces ---


@cache
def _side(char: str) -> str:
    """Return R for a letter written from right to left, L for another letter, N for a digit, M for marks."""
    found = unicodedata.bidirectional(char)
    if found in ("R", "AL", "NSM", "BN"):
        return "R" if found in ("R", "AL") else "M"
    return {"L": "L", "EN": "N", "AN": "N"}.get(found, "P" if char in ".,:/+-" else "S")


# Text of the other direction in a line, and numbers in a line from right to left.
_RUN = re.compile(r"t|([^t])\1*")
_DOTTED = 200  # dotted spaces of a line that are elements of their own
_LEFT = re.compile(r"R(?:[RMPS]*[RM])?")
_RIGHT = re.compile(r"(?P<ltr>L(?:[LNMPS]*[LNM])?)|(?P<number>N(?:P?N)*)")


def _turns(text: str, kinds: str, *, prose: bool) -> tuple[dict[int, str], str]:
    """Return where text of another direction begins and ends, and the direction of the line.

    The bidirectional algorithm draws `a XY 1` and `a 1 XY` alike. Here all texts of the other direction are isolated
    and marked, so the line follows its stored order.
    """
    if text.isascii() or "R" not in (sides := "".join(map(_side, text))):
        return {}, ""
    if "o" in kinds or "t" in kinds:  # a chip is a text of its own
        sides = "".join("C" if kind in "ot" else side for side, kind in zip(sides, kinds, strict=True))
    left, right = sides.find("L"), sides.find("R")
    if right < 0:
        return {}, ""
    is_right = left < 0 or (prose and right < left)
    turns: dict[int, str] = {}
    for match in (_RIGHT if is_right else _LEFT).finditer(sides):
        turns[match.start()] = (match.lastgroup or "ltr") if is_right else "rtl"
        turns.setdefault(match.end(), "stop")
    return turns, "rtl" if is_right else ""


def _pieces(text: str, kinds: str, turns: dict[int, str]) -> Iterator[Piece]:
    """Yield the pieces: runs of one kind, between the turns."""
    # Each element costs a browser time: a line with many dotted spaces is dotted.
    kinds = kinds.replace(".", "g") if kinds.count("g") > _DOTTED else kinds
    is_open = False
    for start, end in pairwise(sorted({0, len(text), *turns})):
        if start in turns:
            if is_open:
                yield Piece("", "stop")
            if is_open := turns[start] != "stop":
                yield Piece("", turns[start])
        for run in _RUN.finditer(kinds, start, end):
            yield _piece(text[slice(*run.span())], _WORDS[run[0][0]])
    if is_open:
        yield Piece("", "stop")


def _piece(part: str, kind: str) -> Piece:
    """Return the piece for characters of one kind."""
    if kind == "odd":
        return chip(_counted(part), kind, part)
    return Piece(TAB if kind == "tab" else part, kind, part)


@lru_cache(maxsize=4096)
def _counted(chars: str) -> str:
    """Return the labels of a run of characters: such as U+200B U+200D."""
    labels = {" ": "SP", "\t": "TAB", "\n": "NL"}
    found = ((labels.get(char) or code_point(char), len(list(group))) for char, group in groupby(chars))
    return " ".join(label if count == 1 else f"{label}{TIMES}{count}" for label, count in found)


def end_chip(chars: str) -> Piece:
    """Return the chip for white space at the end of a line."""
    return chip(_counted(chars), "end")
