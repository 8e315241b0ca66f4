"""The examples of event loops are small: a reader sees each of them at once."""

from __future__ import annotations

from tests.docs.examples.programs import EXAMPLES


def test_an_example_of_an_event_loop_is_under_seventy_lines() -> None:
    """All lines count."""
    for name in ("trio_program", "thread_queue"):
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 70
