"""What the processes of the tests went through, for the summary."""

from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()
