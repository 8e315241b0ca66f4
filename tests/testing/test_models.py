"""What the fake API knows of the models, by name."""

from __future__ import annotations

import pytest

from toolloop.testing.models import Model, model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("claude-opus-5-5", Model("opus", (5, 5))),
        ("claude-sonnet-4-5-20250929", Model("sonnet", (4, 5))),
        ("claude-opus-4-20250514", Model("opus", (4, 0))),
        ("claude-opus-4-1@20250805", Model("opus", (4, 1))),
        ("claude-3-5-sonnet-20241022", Model("sonnet", (3, 5))),
        ("claude-fable-5", Model("fable", (5, 0))),
        ("claude-mythos-preview", Model("mythos", (4, 6))),
        ("claude-2.1", Model("", (2, 1))),
        ("claude-instant-1.2", Model("", (1, 2))),
        ("claude-saga-1", Model("", (99, 0))),
        ("claude-opus-latest", Model("opus", (99, 0))),
    ],
)
def test_a_name_says_family_and_version(name: str, expected: Model) -> None:
    assert model(name) == expected


FEATURES = {
    # name: prefill, system messages, binding, manual thinking, adaptive thinking
    "claude-haiku-4-5": (True, False, False, True, False),
    "claude-sonnet-4-6": (False, False, False, True, True),
    "claude-opus-4-7": (False, False, False, False, True),
    "claude-opus-4-8": (False, True, False, False, True),
    "claude-sonnet-5": (False, False, False, False, True),
    "claude-opus-5": (False, True, False, False, True),
    "claude-opus-5-5": (False, True, True, False, True),
    "claude-sonnet-5-5": (False, True, True, False, True),
    "claude-fable-5": (False, True, False, False, True),
    "claude-fable-5-1": (False, True, True, False, True),
    "claude-mythos-5-2": (False, True, True, False, True),
    "claude-mythos-preview": (False, False, False, True, True),
    "claude-saga-1": (False, True, True, False, True),
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_model_can_do_what_the_documentation_says(name: str) -> None:
    known = model(name)
    assert FEATURES[name] == (
        known.takes_prefill,
        known.takes_system_messages,
        known.binds_thinking,
        known.takes_manual_thinking,
        known.takes_adaptive_thinking,
    )
