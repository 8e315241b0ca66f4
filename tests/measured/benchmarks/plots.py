"""Pictures for the page, as SVG that follows the reader's light or dark scheme."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

_WIDTH, _LEFT, _RIGHT, _TOP = 720, 190, 70, 44
_ROW, _HEIGHT = 30, 340
# Okabe and Ito's colours, which people with any colour vision tell apart. A library has its colour in each picture.
_COLOURS = {
    "toolloop": "#0072b2",
    "SDK runner": "#777777",
    "SDK runner without threads": "#777777",
    "SDK runner with threads": "#56b4e9",
    "pydantic-ai": "#d55e00",
    "openai-agents": "#009e73",
    "LangGraph": "#cc79a7",
    "LangGraph, delta channels": "#e69f00",
}
_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #222 } .title { font-weight: 600 } .small { font-size: 12px }
.axis { stroke: #8888; stroke-width: 1 } .line { fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } }
</style>"""


def _picture(title: str, height: int, parts: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    lines = [f'{head} role="img" aria-label="{escape(title)}">', _STYLE, _text(8, 20, title, "title"), *parts, "</svg>"]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, text: str, kind: str = "small", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def bars(title: str, unit: str, values: Mapping[str, float | None]) -> str:
    """Return a bar for each value, from zero; one that is missing has no bar."""
    most = max((each for each in values.values() if each is not None), default=0) or 1
    room = _WIDTH - _LEFT - _RIGHT

    def parts() -> Iterator[str]:
        for number, (label, value) in enumerate(values.items()):
            y = _TOP + _ROW * number
            yield _text(_LEFT - 8, y + 15, label, anchor="end")
            if value is None:
                yield _text(_LEFT, y + 15, "not measured")
                continue
            width = room * value / most
            yield f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_ROW - 8}" fill="{_COLOURS[label]}"/>'
            yield _text(_LEFT + width + 6, y + 15, f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")

    return _picture(f"{title}, {unit} (less is better)", _TOP + _ROW * len(values) + 8, parts())


def lines(title: str, unit: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return a curve for each series of rounds and values, with both axes logarithmic."""
    # Zero has no place on a logarithmic axis.
    curves = {label: [(x, y) for x, y in curve if y > 0] for label, curve in curves.items()}
    curves = {label: curve for label, curve in curves.items() if curve}
    points = [point for curve in curves.values() for point in curve]
    if not points:
        return _picture(f"{title}: not measured", _TOP, iter(()))
    across = _Axis([x for x, _ in points], 70, _WIDTH - _LEFT - 10)
    up = _Axis([y for _, y in points], _HEIGHT - 50, _TOP)

    def parts() -> Iterator[str]:
        for value in up.marks():
            y = up.at(value)
            yield f'<line class="axis" x1="70" x2="{_WIDTH - _LEFT - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield _text(62, y + 4, f"{value:,g}", anchor="end")
        for value in sorted({x for x, _ in points}):
            yield _text(across.at(value), _HEIGHT - 30, f"{value:,.0f}", anchor="middle")
        yield _text((_WIDTH - _LEFT + 60) / 2, _HEIGHT - 10, "rounds", anchor="middle")
        ends = _spread([(up.at(curve[-1][1]), label) for label, curve in curves.items()])
        for label, curve in curves.items():
            colour = _COLOURS[label]
            yield from _curve([(across.at(x), up.at(y)) for x, y in curve], colour)
            yield f'<circle cx="{_WIDTH - _LEFT + 2}" cy="{ends[label]:.1f}" r="4" fill="{colour}"/>'
            yield _text(_WIDTH - _LEFT + 12, ends[label] + 4, label)

    return _picture(f"{title}, {unit} (less is better; both axes are logarithmic)", _HEIGHT, parts())


def _curve(points: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline class="line" stroke="{colour}" points="{path}"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def _spread(ends: Sequence[tuple[float, str]]) -> dict[str, float]:
    """Return the height of each label, at least a line apart."""
    found: dict[str, float] = {}
    last = -math.inf
    for y, label in sorted(ends):
        found[label] = last = max(y, last + 18)
    return found


class _Axis:
    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low: float = math.log10(min(values))
        self._high: float = math.log10(max(values))
        if start > end:  # upwards, to whole powers of ten
            self._low, self._high = math.floor(self._low), math.ceil(self._high)
        if self._high <= self._low:
            self._high = self._low + 1
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Return the place of a value."""
        return self._start + (self._end - self._start) * (math.log10(value) - self._low) / (self._high - self._low)

    def marks(self) -> Iterator[float]:
        """Yield the powers of ten."""
        for power in range(math.floor(self._low), math.ceil(self._high) + 1):
            yield 10.0**power
