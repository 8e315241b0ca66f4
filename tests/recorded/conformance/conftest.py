"""The estimate of tokens is compared with real counts, which only recordings have."""

from __future__ import annotations

from tests.recorded.conformance.traffic import RECORDINGS

collect_ignore = [] if RECORDINGS.is_dir() else ["test_recorded_tokens.py"]
