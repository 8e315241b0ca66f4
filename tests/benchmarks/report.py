"""What the benchmark prints: ratios first, each beside its target, then the figures they are made of."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

# Seconds of CPU per turn: by contestant, then by the length of the conversation.
Figures = Mapping[str, Mapping[int, float]]

_NAMES = {
    "toolloop_handle": "toolloop",
    "client_post": "the SDK client's post",
    "floor": "floor",
    "bare_post": "bare post",
    "sdk_runner": "SDK runner, no threads",
}


def report(figures: Figures, machine: Mapping[int, float], import_seconds: float) -> str:
    """The whole report as text.

    Args:
        figures: seconds of CPU per turn.
        machine: seconds of CPU that the pure machine takes for a turn, by the round it is at.
        import_seconds: what `import toolloop` takes.

    """
    lengths = list(figures["floor"])
    parts = (
        _ratios(figures, lengths),
        _others(figures, machine, import_seconds),
        _milliseconds(figures, lengths),
        [made_on()],
    )
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _ratios(figures: Figures, lengths: list[int]) -> Iterator[str]:
    def line(above: str, below: str, verdict: str = "") -> str:
        ratios = [f"{ratio:.2f}" for ratio in _ratio(figures, above, below).values()]
        return row(f"{_NAMES[above]} / {_NAMES[below]}", ratios, verdict)

    over_post = _ratio(figures, "toolloop_handle", "client_post")
    runner_over = _ratio(figures, "sdk_runner", "toolloop_handle")
    yield row("CPU per turn, ratios at turns", lengths, "target")
    yield line("toolloop_handle", "client_post", at_most(1.25, max(over_post.values())))
    yield line("toolloop_handle", "floor")
    yield line("client_post", "floor")
    yield line("floor", "bare_post")
    # The runner pays for the length of the history, so its target is for a long one.
    yield line("sdk_runner", "toolloop_handle", at_least(10, runner_over[400]) if 400 in runner_over else "")


def _others(figures: Figures, machine: Mapping[int, float], import_seconds: float) -> Iterator[str]:
    own = figures["toolloop_handle"]
    if {100, 400} <= own.keys():
        growth = own[400] / own[100]
        yield row("toolloop, a turn at 400 / at 100", [f"{growth:.2f}"], at_most(1.3, growth))
    microseconds = [seconds * 1e6 for seconds in machine.values()]
    label = f"the machine alone, us at rounds {' and '.join(f'{round_:,}' for round_ in machine)}"
    yield row(label, [f"{figure:.0f}" for figure in microseconds], at_most(100, max(microseconds)))
    yield row("import toolloop, ms", [f"{import_seconds * 1e3:.0f}"], at_most(150, import_seconds * 1e3))


def _milliseconds(figures: Figures, lengths: list[int]) -> Iterator[str]:
    yield row("CPU per turn, ms at turns", lengths)
    for name, by_length in figures.items():
        yield row(_NAMES[name], [f"{seconds * 1e3:.3f}" for seconds in by_length.values()])


def _ratio(figures: Figures, above: str, below: str) -> dict[int, float]:
    return {turns: seconds / figures[below][turns] for turns, seconds in figures[above].items()}


def at_most(target: float, figure: float) -> str:
    """Whether a figure is within its target."""
    return f"at most {target}: {'met' if figure <= target else 'missed'}"


def at_least(target: float, figure: float) -> str:
    """Whether a figure reaches its target."""
    return f"at least {target}: {'met' if figure >= target else 'missed'}"


def row(label: str, columns: Sequence[object], note: str = "") -> str:
    """A line of a report: what it is about, figures in columns, a verdict."""
    return f"{label:<46}{''.join(f'{column:>9}' for column in columns):<27}   {note}".rstrip()


def made_on() -> str:
    """The machine and the versions that the figures are of."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{_cpu()}; {python}; anthropic {version('anthropic')}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
