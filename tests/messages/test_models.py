"""What a model takes is read off its id, and unknown is an answer."""

from __future__ import annotations

from toolloop._messages.models import takes_thinking
from toolloop.history import binds_thinking, takes_prefill, takes_system_messages


def test_a_family_answers() -> None:
    cases: list[tuple[str | None, bool | None, bool | None, bool | None]] = [
        ("claude-fable-5-2", False, True, True),
        ("claude-fable-5", False, True, False),
        ("claude-mythos-5-1", False, True, True),
        ("claude-mythos-5", False, True, False),
        ("claude-mythos-preview", False, False, False),
        ("claude-opus-5-5", False, True, True),
        ("claude-opus-5", False, True, False),
        ("claude-opus-4-8", False, True, False),
        ("claude-opus-4-7", False, False, False),
        ("claude-opus-4-6", False, False, False),
        ("claude-opus-4-5", True, False, False),
        ("claude-opus-4-1", True, False, False),
        ("claude-sonnet-5-5", False, None, True),
        ("claude-sonnet-5", False, False, False),
        ("claude-sonnet-4-6", False, False, False),
        ("claude-haiku-5-5", False, None, True),
        ("claude-haiku-4-5", True, False, False),
        ("claude-sonnet-4-0", True, False, False),
        ("claude-3-5-sonnet-20241022", True, False, False),
        ("claude-3-opus-20240229", True, False, False),
        ("claude-2.1", True, False, False),
        ("claude-instant-1.2", True, False, False),
        # Dated, suffixed, and as other platforms write them.
        ("claude-sonnet-4-20250514", True, False, False),
        ("claude-sonnet-4-5-20250929", True, False, False),
        ("claude-opus-5-20260301", False, True, False),
        ("claude-opus-5@20260301", False, True, False),
        ("claude-opus-4-8-fast", False, True, False),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", True, False, False),
        ("us.anthropic.claude-opus-4-6-v1:0", False, False, False),
        ("anthropic.claude-3-haiku-20240307-v1:0", True, False, False),
        ("anthropic/claude-opus-4.8", False, True, False),
        # Later versions do what their predecessors do.
        ("claude-opus-6", False, True, True),
        # Unknown.
        ("claude-x", None, None, None),
        ("gpt-9", None, None, None),
        ("", None, None, None),
        (None, None, None, None),
    ]
    for model, prefill, system, binds in cases:
        assert (prefill, system, binds) == (takes_prefill(model), takes_system_messages(model), binds_thinking(model))


def test_a_family_takes_its_kinds_of_thinking() -> None:
    """Whether it may be off depends on the effort too, where it may be at all; of other kinds nothing is known."""
    cases: list[tuple[object, bool | None, bool | None, bool | None]] = [
        ("claude-fable-5-2", False, True, False),
        ("claude-mythos-5", False, True, False),
        ("claude-mythos-preview", None, True, False),
        ("claude-opus-5", False, True, None),
        ("claude-opus-4-7", False, True, None),
        ("claude-opus-4-6", True, True, None),
        ("claude-sonnet-4-5", True, False, None),
        ("claude-3-opus-20240229", True, False, None),
        ("claude-saga-7", None, None, None),
        (7, None, None, None),
    ]
    for model, enabled, adaptive, disabled in cases:
        kinds = ("enabled", "adaptive", "disabled", "between_tools", None)
        assert [enabled, adaptive, disabled, None, None] == [takes_thinking(model, kind) for kind in kinds]
