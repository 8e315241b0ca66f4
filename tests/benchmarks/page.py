"""The report: as text for the terminal, and as the page and the plot in `docs`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.benchmarks.contest import LABELS
from tests.benchmarks.figures import Figures, PerTurn
from tests.benchmarks.report import tables

PLOT = "benchmarks.svg"

_HEAD = f"""\
# Benchmarks

Written by `make bench` and by nothing else; `make bench-quick` prints a shorter run and writes nothing.
Where the time of a turn goes is in [Performance](performance.md).

Each contestant holds the same conversation in a process of its own: one call of one tool a turn, about 1.1 KB more of
history each time, over HTTP on loopback, with a server in another process. Runs take turns, and a figure is the median
of its runs; how many these are, each table says. CPU time is that of the contestant's process, user and system, without
imports and the first turns.

The floor is a hand-written loop of `httpx2` and the standard `json` that keeps encoded messages. The bare post sends
the same ready bytes and reads no reply. pydantic-ai is one agent under asyncio. LangGraph is a graph of a model and its
tools over langchain-anthropic, without a checkpointer. Less is better, but where a target says "at least".

![CPU per turn over the turns of a conversation]({PLOT})
"""


def text(figures: Figures) -> str:
    """The report for the terminal."""
    parts = [table.text() for table in tables(figures)]
    return "\n\n".join([*parts, "\n".join(figures.made_on)]) + "\n"


def markdown(figures: Figures) -> str:
    """The page."""
    parts = [table.markdown() for table in tables(figures)]
    made_on = [f"Measured on {figures.day}.", *(f"- {line}" for line in figures.made_on)]
    machine = "\n".join(["## The machine and the versions", "", made_on[0], "", *made_on[1:]])
    return "\n\n".join([_HEAD.rstrip(), *parts, machine]) + "\n"


def write(figures: Figures, folder: Path) -> None:
    """Write the page and its plot."""
    draw(figures.cpu, folder / PLOT)
    (folder / "benchmarks.md").write_text(markdown(figures), encoding="utf-8")


def draw(cpu: PerTurn, path: Path) -> None:
    """Draw milliseconds of CPU per turn over turns, a line for each contestant: the same bytes for the same figures.

    Raises:
        ModuleNotFoundError: matplotlib is not installed (`make bench` does that).

    """
    # By name, for its types are there only where the group `bench` is installed.
    matplotlib, plots = import_module("matplotlib"), import_module("matplotlib.figure")
    with matplotlib.rc_context({"svg.hashsalt": "toolloop", "svg.fonttype": "none"}):
        figure = plots.Figure(figsize=(9, 5.5), layout="constrained")
        axes = figure.subplots()
        axes.set_prop_cycle(color=(*matplotlib.colormaps["tab10"].colors, "black"))
        # The dearest first, as the lines are from above.
        for name, by_length in sorted(cpu.items(), key=lambda each: -max(each[1].values())):
            width = 3 if name.startswith("toolloop") else 1.5
            figures = [seconds * 1e3 for seconds in by_length.values()]
            axes.plot(list(by_length), figures, label=LABELS[name], marker="o", linewidth=width)
        turns = sorted({turns for by_length in cpu.values() for turns in by_length})
        axes.set(xscale="log", yscale="log", xlabel="turns of the conversation", ylabel="ms of CPU per turn")
        axes.set_xticks(turns, labels=[f"{each}" for each in turns])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})
