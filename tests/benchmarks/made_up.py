"""Figures that nobody measured, for the tests of the report."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.contest import CONTESTANTS
from tests.benchmarks.figures import Checkpoints, Counted, Figures, Kept, PerTurn
from tests.benchmarks.imports import STATEMENTS
from tests.benchmarks.journal import BY_HAND


def thrice(cpu: PerTurn) -> dict[str, tuple[Mapping[int, float], ...]]:
    """Three runs that all took the same."""
    return {name: (each,) * 3 for name, each in cpu.items()}


GOOD = Figures(
    samples=thrice(
        {
            **{each.name: {20: 0.001, 100: 0.001, 400: 0.001} for each in CONTESTANTS},
            "toolloop_handle": {20: 0.001, 100: 0.001, 400: 0.0012},
            "sdk_runner_threads": {20: 0.001, 100: 0.001, 400: 0.0012},
            "sdk_runner": {20: 0.002, 100: 0.004, 400: 0.0125},
            "langgraph_agent": {20: 0.01, 100: 0.03, 400: 0.125},
        }
    ),
    is_short=False,
    left_out={},
    counted=Counted(
        by="made up",
        turns={"client_post": 3_000_000, "toolloop_handle": 3_600_000, "toolloop_async": 4_500_000},
        again=3_609_000,
        machine={10: 300_000, 10_000: 301_000},
        imports={STATEMENTS[0]: 500_000_000},
    ),
    machine={10: 70e-6, 10_000: 75e-6},
    imports=dict(zip(STATEMENTS, (0.025, 0.18), strict=True)),
    kept=Kept(
        rounds=1000,
        raw=1_000_000,
        events=6000,
        file=2_500_000,
        bodies=2_200_000,
        names=20_000,
        handed={10: 100, 1000: 104},
        written={10: 1000, 1000: 1050},
        by_hand={10: 2000, 1000: 2000},
        waking=0.1,
        commits=3,
    ),
    stores={"no store": 0.001, BY_HAND: 0.002},
    store_turns=200,
    repeats=5,
    starts=15,
    checkpoints={"default": Checkpoints(file=4_000_000, written={10: 5000}, waking=0.1, cpu=0.02)},
    folding=0.04,
    listing=0.03,
    listed=10_000,
    made_on=("a machine, 2 cores", "toolloop 0.1.0", "langgraph 1.2.22"),
    day="2026-11-22",
)
BAD = Figures(
    samples=thrice(
        {
            **GOOD.cpu,
            "toolloop_handle": {20: 0.001, 100: 0.001, 400: 0.00131},
            "sdk_runner": {400: 0.0104},
            "langgraph_agent": {400: 0.078},
        }
    ),
    is_short=False,
    left_out={"pydantic_ai_agent": "could not be installed"},
    counted=Counted(
        by="made up",
        turns={"client_post": 3_000_000, "toolloop_handle": 3_780_000, "toolloop_async": 4_530_000},
        again=3_780_000,
        machine={10: 300_000, 10_000: 366_000},
        imports={STATEMENTS[0]: 500_000_000},
    ),
    machine={10: 76e-6, 10_000: 92e-6},
    imports=dict(zip(STATEMENTS, (0.026, 0.181), strict=True)),
    kept=Kept(
        rounds=1000,
        raw=1_000_000,
        events=6000,
        file=2_500_001,
        bodies=2_200_000,
        names=20_000,
        handed={10: 100, 1000: 106},
        written={10: 1000, 1000: 1051},
        by_hand={},
        waking=0.101,
        commits=3.1,
    ),
    stores={"no store": 0.001, BY_HAND: 0.002},
    store_turns=200,
    repeats=5,
    starts=15,
    checkpoints={"default": "it failed"},
    folding=0.04,
    listing=0.101,
    listed=10_000,
    made_on=("a machine, 2 cores",),
    day="2026-11-22",
)
