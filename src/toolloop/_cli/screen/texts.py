"""Texts and inputs as lines of a terminal: with the characters of the page, so that different inputs look different.

A line begins with a margin, which no text can reach. A line that the window wraps has a mark in its margin.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from attrs import frozen
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from toolloop.inbox.shown.characters import Odd, ShownText, chip, code_point, shown_line
from toolloop.inbox.shown.diffs import MINUS
from toolloop.inbox.shown.values import Row, ShownInput, shown_text

_STYLES = {
    "odd": "bold black on yellow",
    "end": "dim",
    "tab": "dim",
    "secret": "italic",
    "literal": "magenta",
    "changed": "bold underline",
}
_UNSEEN = ("Mn", "Mc", "Me", "Cf", "Zs")
_SIGNS = {"+": "green", MINUS: "red"}
_DEEPEST = 12  # levels that are indented
_INDENT = "  "


@frozen
class Line:
    """A line: its margin, and its text. `wraps`: whether it may be wrapped between words; a value may not."""

    text: Text
    margin: str = _INDENT
    wraps: bool = False


def text_of(shown: ShownText, style: str = "") -> Text:
    """Return a text as a terminal shows it. What the page shows in a frame is a chip here."""
    found = Text(style=style)
    for piece in shown.pieces:
        if piece.kind == "soft":
            for char in piece.text:
                part = chip(code_point(char)).text if _needs_chip(char) else char
                found.append(part, _STYLES["odd"] if part != char else "")
        else:
            found.append(piece.text, _STYLES.get(piece.kind, ""))
    return found


def _needs_chip(char: str) -> bool:
    is_part = unicodedata.normalize("NFC", char) != char or "\u1100" <= char <= "\u11ff"
    return is_part or (char > "~" and unicodedata.category(char) in _UNSEEN)


def exact(text: str, style: str = "") -> Text:
    """Return a name, an id or another short text."""
    return text_of(shown_text(text), style)


def prose_lines(text: str) -> list[Text]:
    """Return the lines of a text that a person or a model wrote."""
    return [text_of(shown_line(line, prose=True)) for line in text.removesuffix("\n").split("\n")]


def input_lines(shown: ShownInput) -> Iterator[Line]:
    """Yield the lines of a whole input, or why it is not shown."""
    if shown.too_long:
        yield Line(Text(shown.too_long, "bold red"))
    elif not shown.rows:
        yield Line(Text("{}  no values"))
    for row in shown.rows:
        yield from row_lines(row)


def row_lines(row: Row) -> Iterator[Line]:
    """Yield the lines of a row: its name with a short value or the size, its value, and the legend."""
    margin = _INDENT * (1 + min(row.depth, _DEEPEST))
    head = text_of(row.name, "cyan")
    if row.kind in ("literal", "short"):
        yield Line(Text.assemble(head, "  ", text_of(row.lines[0])), margin)
    else:
        yield Line(Text.assemble(head, (f"  {row.size}" if row.size else "", "dim")), margin)
        yield from _block(row, margin)
    yield from (Line(Text(note, "yellow"), f"{margin}  ^ ") for note in _notes(row.odd))


def change_lines(changes: Iterable[tuple[str, ShownInput]]) -> Iterator[Line]:
    """Yield each changed field of an edit, with all lines before and after."""
    for name, shown in changes:
        yield Line(exact(name, "cyan"))
        if shown.is_whole:
            yield from _block(shown.rows[0], _INDENT)
        else:
            yield Line(Text(f"Too long to show the change: {shown.words}."))


def _block(row: Row, margin: str) -> Iterator[Line]:
    if row.kind == "diff":
        for each in row.diff:
            numbers = f"{each.old or '':>4} {each.new or '':>4} {each.sign or ' '} "
            yield Line(text_of(each.shown, _SIGNS.get(each.sign, "")), margin + numbers)
        return
    edge = " " if row.kind == "list" else "│"
    is_one = len(row.lines) == 1 and row.kind != "list"
    for number, shown in enumerate(row.lines, 1):
        yield Line(text_of(shown), f"{margin}{'' if is_one else number:>4} {edge} ")


def _notes(odd: Iterable[Odd]) -> Iterator[str]:
    for each in odd:
        times = f" ({each.count} times)" if each.count > 1 else ""
        yield f"{each.code} {each.name}{times}: {each.why}"


def print_lines(console: Console, lines: Iterable[Line]) -> None:
    """Print lines. A terminal wraps them at its width; in a pipe each stays one line."""
    width = console.width if console.is_terminal else 0
    folded = (part for line in lines for part in _folded(line, width))
    console.print(Text("\n").join(folded), soft_wrap=True)


def _folded(line: Line, width: int) -> Iterator[Text]:
    more = f"{line.margin[:-2]}↪ " if line.margin[:-2].isspace() else f"{' ' * (len(line.margin) - 2)}↪ "
    ends = _ends(line.text.plain, max(1, width - len(line.margin)), wraps=line.wraps) if width else []
    parts = line.text.divide(ends) if ends else [line.text]
    for number, part in enumerate(parts):
        yield Text.assemble((more if number else line.margin, "dim"), part)


def _ends(text: str, width: int, *, wraps: bool) -> list[int]:
    """Return where a text is cut so that each part fits into a number of columns."""
    if text.isascii() and not wraps:
        return list(range(width, len(text), width))
    ends, filled, space = list[int](), 0, 0
    for at, char in enumerate(text):
        size = cell_len(char)
        if filled + size > width:
            end = space if wraps and space else at
            ends.append(end)
            filled, space = cell_len(text[end:at]), 0
        filled += size
        space = at + 1 if char == " " else space
    return ends
