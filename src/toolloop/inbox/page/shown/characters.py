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
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
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


def legend(odd: Counter[str]) -> tuple[Odd, ...]:
    """Return the legend of odd characters, in the order of the text."""
    return tuple(Odd(code_point(char), _name(char), _why(char), count) for char, count in odd.items())


def _name(char: str) -> str:
    return _CONTROLS.get(char) or unicodedata.name(char, "character without a name").lower()


def _why(char: str) -> str:
    category = unicodedata.category(char)
    reasons = (
        (char in _OWN, "used by this page to mark characters"),
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

# One letter for each character, by tables that fill up: as written, odd, soft, gap, tab; mark, joiner or no-break
# space, letter of Hangul in parts, and letter that is not normalized, which the characters beside it decide.
_KINDS = {"": ".", "odd": "o", "soft": "s", "gap": "g", "tab": "t"}
_WORDS = {letter: kind for kind, letter in _KINDS.items()}
_CLUSTER = re.compile(r"[^m]m+|^m+|j{2,}|[?n]")
_tables: tuple[dict[int, str], dict[int, str]] = ({}, {})
_sides: dict[int, str] = {}
_scripts: dict[int, str] = {}
_script_letters: dict[str, str] = {"LATIN": "L", "CYRILLIC": "C", "GREEK": "G", "ARMENIAN": "A"}
_script_names: dict[str, str] = {letter: script for script, letter in _script_letters.items()}


def _classes(text: str, table: dict[int, str], classify: Callable[[str], str]) -> str:
    """Return the class of each character, one letter each."""
    for char in set(text):
        if ord(char) not in table:
            table[ord(char)] = classify(char)
    return text.translate(table)


def _kinds(text: str, *, prose: bool) -> str:
    """Return the kind of each character, as its letter."""
    alone = _classes(text, _tables[prose], partial(_alone, prose=prose))
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


def _alone(char: str, *, prose: bool) -> str:
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
    return "o" if not prose and _imitates(char) else "."


def _imitates(char: str) -> bool:
    """Return whether a character looks like another one, or like several."""
    compat = unicodedata.normalize("NFKC", char)
    is_like = unicodedata.decomposition(char).startswith(("<font>", "<compat>")) and compat.isascii()
    is_ligature = "LIGATURE" in unicodedata.name(char, "")
    return char in _ALIKE or (is_like and compat.isalnum() and (len(compat) == 1 or is_ligature))


def _script(char: str) -> str:
    """Return a letter for a script, small if the character looks Latin; for others `0`, `/`, a space or a point."""
    if _CODE.match(char):
        return "/"
    if char in " \t" or not char.isalnum():
        return " " if char in " \t" else "."
    script = script_of(char)
    if script is None or script in _NO_SCRIPT:
        return "0"
    letter = _script_letters.setdefault(script, chr(0xE000 + len(_script_letters)))
    _script_names[letter] = script
    return letter.lower() if char in _LATIN_LIKE.get(script, ()) else letter


def _mark_scripts(text: str, kinds: list[str], *, prose: bool) -> None:
    """Mark letters of a second script in a part of a word, and a part that could be one of Latin letters."""
    classes = _classes(text, _scripts, _script)
    for word in re.finditer(r"[^ ]+", classes):
        present = set(word[0]) - set("/.0")
        scripts = {each.upper() for each in present}
        if not present or (len(scripts) == 1 and present & scripts and "/" not in word[0]) or present == {"L"}:
            continue
        end = _SENTENCE_END.search(text, *word.span())
        inner = classes[word.start() : end.start() if end else word.end()]
        is_code = "/" in inner
        if prose and not is_code:
            continue
        for part in re.finditer(r"[^/.]+", inner):
            for index in _imitating(part[0], part[0] if is_code else classes):
                kinds[word.start() + part.start() + index] = "o"


def _imitating(part: str, around: str) -> list[int]:
    """Return which letters of a part of a word, given by their scripts, are not of its script or could be Latin."""
    counts = Counter(each.upper() for each in part if each != "0")
    if not may_mix([_script_names[each] for each in counts]):
        main = max(counts, key=lambda script: (counts[script], script == "L"))
        return [index for index, each in enumerate(part) if each.upper() not in ("0", main)]
    is_like = any(each.islower() for each in part) and not any(each in around for each in counts)
    return [index for index, each in enumerate(part) if each != "0"] if is_like else []


def _mark_clusters(text: str, alone: str, kinds: list[str], *, prose: bool) -> None:
    """Decide about marks, decomposed letters, spaces and joiners."""
    code = set[int]()
    found = list(_CLUSTER.finditer(alone))
    if found and prose:
        for word in re.finditer(r"[^ \t]+", text):
            if _CODE.search(_SENTENCE_END.sub("", word[0])):
                code.update(range(*word.span()))
    for match in found:
        start, end = match.span()
        cluster = text[start:end]
        is_free = prose and start not in code and start > 0 and end < len(text)
        if kinds[start] == "o":
            fixed = "o" * len(cluster)
        elif match[0] == "?":
            fixed = "s" if is_free and _needs(cluster, text[start - 1], text[end]) else "o"
            if fixed == "s" and cluster in _JOINERS:  # it cannot be seen without the letter before it
                kinds[start - 1] = "s"
        else:
            fixed = _cluster(cluster, is_free=is_free)
        kinds[start:end] = [
            old if new == "." and old == "g" else new for old, new in zip(kinds[start:end], fixed, strict=True)
        ]
    if "j" in alone:
        kinds[:] = ["." if kind == "j" else kind for kind in kinds]


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
    return not any(each.isspace() or each == '"' for each in beside) and any(
        unicodedata.category(each)[0] in "LMN" for each in beside
    )


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


def _side(char: str) -> str:
    """Return R for a letter written from right to left, L for another letter, N for a digit, M for marks."""
    found = unicodedata.bidirectional(char)
    if found in ("R", "AL", "NSM", "BN"):
        return "R" if found in ("R", "AL") else "M"
    return {"L": "L", "EN": "N", "AN": "N"}.get(found, "P" if char in ".,:/+-" else "S")


# Text of the other direction in a line, and numbers in a line from right to left.
_RUN, _MERGED = re.compile(r"t|([^t])\1*"), re.compile(r"t|[.o]+|([^t.o])\1*")
_MANY = 8  # odd characters of a line that are marked one by one
_DOTTED = 200  # dotted spaces of a line that are elements of their own
_LEFT = re.compile(r"R(?:[RMPS]*[RM])?")
_RIGHT = re.compile(r"(?P<ltr>L(?:[LNMPS]*[LNM])?)|(?P<number>N(?:P?N)*)")


def _turns(text: str, kinds: str, *, prose: bool) -> tuple[dict[int, str], str]:
    """Return where text of another direction begins and ends, and the direction of the line.

    The bidirectional algorithm draws `a XY 1` and `a 1 XY` alike. Here all texts of the other direction are isolated
    and marked, so the line follows its stored order.
    """
    if text.isascii() or "R" not in (sides := _classes(text, _sides, _side)):
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
    # Each element costs a browser time: a line with many chips is one chip, and one with many dotted spaces is dotted.
    run = _MERGED if kinds.count("o") > _MANY else _RUN
    kinds = kinds.replace(".", "g") if kinds.count("g") > _DOTTED else kinds
    is_open = False
    for start, end in pairwise(sorted({0, len(text), *turns})):
        if is_open and start in turns:
            yield Piece("", "stop")
            is_open = False
        if turns.get(start, "stop") != "stop":
            yield Piece("", turns[start])
            is_open = True
        for match in run.finditer(kinds, start, end):
            yield _piece(text[slice(*match.span())], match[0])
    if is_open:
        yield Piece("", "stop")


def _piece(part: str, kinds: str) -> Piece:
    """Return the piece for characters that one element shows."""
    kind = _WORDS["o" if "o" in kinds else kinds[0]]
    if kind == "odd":
        spans = (slice(*match.span()) for match in re.finditer(r"o+|[^o]+", kinds))
        texts = (f"{OPEN}{_counted(part[span])}{CLOSE}" if kinds[span.start] == "o" else part[span] for span in spans)
        return Piece("".join(texts), kind, part)
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
