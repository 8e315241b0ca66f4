"""What the processes of the tests went through, for the summary."""

from __future__ import annotations

from tests.kit import counted

COUNTS = counted.COUNTS["processes"]
