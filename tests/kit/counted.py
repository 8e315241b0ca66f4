"""What tests count, for a summary of the whole run: by section, then by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

COUNTS: defaultdict[str, Counter[str]] = defaultdict(Counter)


def read_counts() -> dict[str, dict[str, int]]:
    """The counts of this process."""
    return {section: dict(counts) for section, counts in COUNTS.items()}


def hear(others: Mapping[str, Mapping[str, int]]) -> None:
    """Add the counts of another process."""
    for section, counts in others.items():
        COUNTS[section].update(counts)
