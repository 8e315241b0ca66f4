"""The figures of a run beside the targets of the design (section 13), as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from textwrap import fill

from attrs import frozen

MISSING = "-"
_WIDTH = 120


@frozen
class Figure:
    """A measured figure and its target.

    Attributes:
        what: what was measured.
        value: None if this run did not measure it.
        bound: the most that it may be, or the least.
        unit: of both.
        at_least: whether the bound is the least.

    """

    what: str
    value: float | None
    bound: float
    unit: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """`met`, `missed` or `not measured`."""
        if self.value is None:
            return "not measured"
        return "met" if (self.value >= self.bound if self.at_least else self.value <= self.bound) else "missed"

    def row(self) -> tuple[str, ...]:
        """Return the cells of its row."""
        # Four digits, so that a figure just beyond its bound does not look like the bound.
        value = MISSING if self.value is None else f"{self.value:,.4g} {self.unit}".rstrip()
        bound = f"{'at least' if self.at_least else 'at most'} {self.bound:g} {self.unit}".rstrip()
        return self.what, value, bound, self.verdict


def spread(values: Sequence[float]) -> str:
    """Return the median of a figure over its rounds, with the least and the most."""
    if not values:
        return MISSING
    between = f" ({min(values):,.4g} to {max(values):,.4g})" if len(values) > 1 else ""
    return f"{median(values):,.4g}{between}"


def targets(figures: Iterable[Figure]) -> str:
    """Return the table of all targets."""
    note = "Decisions, stops, tools and pages are by the wall clock; other times are CPU time."
    return table("Targets", ("what", "figure", "target", "verdict"), [each.row() for each in figures], note)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], note: str) -> str:
    """Return a section with a table: its first column holds words, the others hold figures."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    lines = "\n".join(f"| {' | '.join(line)} |" for line in (columns, marks, *rows))
    return "\n\n".join([f"## {title}", fill(note, _WIDTH), lines])
