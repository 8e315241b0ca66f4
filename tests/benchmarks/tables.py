"""A table of the report, as text for the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill

from attrs import field, frozen

Row = tuple[str, ...]

_WIDTH = 120


def _row(cells: Iterable[str]) -> Row:
    return tuple(cells)


def _rows(rows: Iterable[Iterable[str]]) -> tuple[Row, ...]:
    return tuple(tuple(row) for row in rows)


@frozen
class Table:
    """A table; its first column is words, the others are figures.

    Attributes:
        title: what it shows.
        columns: their heads, the first one's too.
        rows: as many cells each.
        note: how to read it.

    """

    title: str
    columns: Row = field(converter=_row)
    rows: tuple[Row, ...] = field(converter=_rows)
    note: str = ""

    def text(self) -> str:
        """For the terminal."""
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        said = [
            "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))])
            for line in lines
        ]
        return "\n".join([self.title, "-" * len(self.title), *said])

    def markdown(self) -> str:
        """For a page."""
        marks = ["---", *["---:"] * (len(self.columns) - 1)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in (self.columns, marks, *self.rows))
        return "\n\n".join([f"## {self.title}", *([fill(self.note, _WIDTH)] if self.note else []), table])
