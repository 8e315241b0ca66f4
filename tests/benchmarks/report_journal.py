"""What the benchmark of the stores prints: each figure beside its target, and beside the peer's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tests.benchmarks.report import at_most, made_on, row

if TYPE_CHECKING:
    from tests.benchmarks.journal import Kept
    from tests.benchmarks.peers import Checkpoints

PER_EVENT = 250
_WAKING_ROUNDS, _WAKING_MS = 1000, 50
_GROWTH = 1.05


def report(own: Kept, cpu: Mapping[str, float], others: Mapping[str, Checkpoints]) -> str:
    """The whole report as text.

    Args:
        own: the conversation as toolloop keeps it.
        cpu: seconds of CPU per turn, by the store.
        others: the same conversation as the peer keeps it, by the kind of channel; none where it was not measured.

    """
    versions = [other.version for other in others.values()][:1] or ["LangGraph was not measured: `make bench` does"]
    parts = (_size(own, others), _growth(own, others), _time(own, cpu, others), ["; ".join([made_on(), *versions])])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _size(own: Kept, others: Mapping[str, Checkpoints]) -> Iterator[str]:
    yield row(f"a conversation of {own.rounds:,} rounds, kept", ["MB", "x raw"], "target")
    yield _bytes("raw JSON of its messages", own.raw, own)
    yield _bytes("toolloop, SqliteStore", own.file, own, at_most(_mb(own.raw + PER_EVENT * own.events), _mb(own.file)))
    yield _bytes(f"  its {own.events:,} events", own.bodies, own)
    yield _bytes("  their names", own.names, own)
    yield _bytes("  indexes, and room in pages", own.file - own.bodies - own.names, own)
    yield row("  per event beyond raw", [f"{(own.file - own.raw) / own.events:.0f}"])
    for kind, other in others.items():
        yield _bytes(_name(kind), other.file, own)


def _growth(own: Kept, others: Mapping[str, Checkpoints]) -> Iterator[str]:
    yield row("KB per turn at round", list(own.handed))
    growth = max(own.handed.values()) / min(own.handed.values())
    yield row("toolloop, handed to the store", _kb(own.handed), f"growth {growth:.3f}, {at_most(_GROWTH, growth)}")
    if own.written:
        yield row("toolloop, written by the process", _kb(own.written))
    for kind, other in others.items():
        if other.written:
            yield row(f"{_name(kind)}, written", _kb(other.written))


def _time(own: Kept, cpu: Mapping[str, float], others: Mapping[str, Checkpoints]) -> Iterator[str]:
    waking = own.waking * 1e3
    verdict = at_most(_WAKING_MS, waking) if own.rounds == _WAKING_ROUNDS else ""
    yield row(f"waking after {own.rounds:,} rounds, ms of CPU", [f"{waking:.1f}"], verdict)
    for kind, other in others.items():
        yield row(_name(kind), [f"{other.waking * 1e3:.1f}"])
    yield row("CPU per turn, ms", [])
    for name, seconds in cpu.items():
        yield row(f"toolloop, {name}", [f"{seconds * 1e3:.3f}"])
    for kind, other in others.items():
        yield row(_name(kind), [f"{other.cpu * 1e3:.3f}"])


def _bytes(label: str, size: int, own: Kept, verdict: str = "") -> str:
    return row(label, [f"{_mb(size):.3f}", f"{size / own.raw:.2f}"], verdict)


def _mb(size: int) -> float:
    return round(size / 1e6, 3)


def _kb(figures: Mapping[int, float]) -> list[str]:
    return [f"{figure / 1e3:.3f}" for figure in figures.values()]


def _name(kind: str) -> str:
    return f"LangGraph, {kind} channels"
