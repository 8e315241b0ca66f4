"""The targets of the design (section 13), and whether the figures meet them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from tests.benchmarks.figures import Figures, Kept
from tests.benchmarks.imports import STATEMENTS

PER_EVENT = 250
_LONG = 400
# The journal of a shorter loop has its fixed pages beside few events.
_ROUNDS = 1000
# What "does not grow" and "the same" allow for: lengths of numbers, and the noise of times.
_NO_GROWTH, _SAME = 1.05, 1.2
# Of a turn: before its request, before its tools, and at its end.
_STEPS = 3


@frozen
class Target:
    """A figure beside what it should be.

    Attributes:
        what: what was measured.
        figure: None if it was not, in this run.
        bound: the most it may be, or the least.
        unit: of both.
        at_least: whether the bound is the least.
        is_short: whether the run was too short to say.

    """

    what: str
    figure: float | None
    bound: float
    unit: str = ""
    at_least: bool = False
    is_short: bool = False

    @property
    def verdict(self) -> str:
        """`met`, `missed`, `not measured` or `too short to say`."""
        if self.figure is None:
            return "not measured"
        if self.is_short:
            return "too short to say"
        return "met" if (self.figure >= self.bound if self.at_least else self.figure <= self.bound) else "missed"


def targets(figures: Figures) -> Iterator[Target]:
    """Every target, in the order of the design."""
    yield from _turns(figures)
    yield from _journal(figures.kept)
    machine = figures.machine
    rounds = " and ".join(f"{round_:,}" for round_ in machine)
    yield Target(f"the pure machine, a turn with one call, at rounds {rounds}", max(machine.values()) * 1e6, 75, "us")
    counted = figures.counted  # which noise does not move, where there are some
    spread = _spread(machine)
    if not isinstance(counted, str) and counted.machine:
        spread = _spread(counted.machine)
    yield Target("the same, the dearer round over the cheaper", spread, _SAME, "x", is_short=figures.is_short)
    for statement, bound in zip(STATEMENTS, (25, 180), strict=True):
        yield Target(f"`{statement}`", figures.imports[statement] * 1e3, bound, "ms")
    yield Target(f"listing {figures.listed:,} loops that wait for a human", figures.listing * 1e3, 100, "ms")


def _turns(figures: Figures) -> Iterator[Target]:
    own, short = "toolloop_handle", figures.is_short
    counted = {} if isinstance(figures.counted, str) else figures.counted.turns
    for name, label, bound in ((own, "", 1.25), ("toolloop_async", ", async handle", 1.5)):
        what = f"instructions per turn{label}, over those of a loop over the SDK client's post"
        is_counted = counted.keys() >= {name, "client_post"}
        yield Target(what, counted[name] / counted["client_post"] if is_counted else None, bound, "x")
    for name, label, bound in (
        ("sdk_runner", "the SDK's runner without threads", 8),
        ("langgraph_agent", "LangGraph", 60),
        ("sdk_runner_threads", "the SDK's runner with threads", 1),
    ):
        what = f"CPU per turn of {label} over toolloop's, at {_LONG} turns"
        yield Target(what, figures.ratio(name, own, _LONG), bound, "x", at_least=True, is_short=short)
    growth = figures.growth(own, _LONG, 100)
    yield Target(f"growth: CPU per turn at {_LONG} turns over that at 100", growth, 1.3, "x", is_short=short)


def _journal(kept: Kept) -> Iterator[Target]:
    is_long = kept.rounds == _ROUNDS
    beyond = (kept.file - kept.raw) / kept.events if is_long else None
    yield Target(f"journal of {_ROUNDS:,} rounds: bytes beyond the raw JSON, per event", beyond, PER_EVENT, "bytes")
    first, last = min(kept.handed), max(kept.handed)
    for what, sizes in (("handed to the store", kept.handed), ("written by the process", kept.written)):
        growth = sizes[last] / sizes[first] if first < last and sizes else None
        yield Target(f"bytes {what} per turn, at round {last:,} over round {first:,}", growth, _NO_GROWTH, "x")
    yield Target("store: writing transactions per turn, which has three steps", kept.commits, _STEPS)
    waking = kept.waking * 1e3 if is_long else None
    yield Target(f"waking a loop of {_ROUNDS:,} rounds, CPU", waking, 100, "ms")


def _spread(figures: Mapping[int, float]) -> float:
    return max(figures.values()) / min(figures.values())
