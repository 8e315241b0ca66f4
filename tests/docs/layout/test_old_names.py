"""Deprecated names still work, and their warning names the replacement."""

from __future__ import annotations

import importlib

import pytest

MOVED = [
    ("toolloop", "View", "toolloop", "PolicyView"),
    ("toolloop.events", "LoopDetected", "toolloop.events", "RepetitionDetected"),
    ("toolloop.events", "RequestFailed", "toolloop.events", "ModelRequestFailed"),
    *(
        ("toolloop.events", name, "toolloop.types", name)
        for name in ("AsyncReplyStream", "AsyncTurnStream", "ReplyStream", "TurnStream")
    ),
    ("toolloop.inbox", "HistoryEntry", "toolloop.inbox", "TrailEntry"),
    ("toolloop.machine", "Reply", "toolloop.machine", "ParsedReply"),
]


@pytest.mark.parametrize(("module", "old", "home", "new"), MOVED, ids=[f"{module}.{old}" for module, old, *_ in MOVED])
def test_an_old_name_is_the_new_one_with_a_warning(module: str, old: str, home: str, new: str) -> None:
    """The old name is not in `__all__`, so `import *` does not warn."""
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is now {home}.{new}"):
        found = getattr(importlib.import_module(module), old)
    assert found is getattr(importlib.import_module(home), new)
    assert old not in importlib.import_module(module).__all__


def test_the_warning_shows_the_line_of_the_caller() -> None:
    with pytest.warns(DeprecationWarning, match="RepetitionDetected") as caught:
        importlib.import_module("toolloop.events").LoopDetected  # noqa: B018
    assert caught[0].filename == __file__


@pytest.mark.parametrize("module", ["toolloop.events", "toolloop.machine"])
def test_an_unknown_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'unheard_of'"):
        importlib.import_module(module).unheard_of  # noqa: B018
