"""The features that each model accepts in a history.

Each function returns None if the answer is unknown, so `check` refuses nothing for an unknown model. The source is the
public documentation of November 2026 (pages on prefill, mid-conversation system messages, thinking and its
preservation). Later versions of a family are assumed to behave like their predecessors.
"""

from __future__ import annotations

import re
from typing import Final

from toolloop._public import set_module

# `claude-opus-4-8`, `claude-sonnet-4-20250514`, `us.anthropic.claude-haiku-4-5-20251001-v1:0`,
# `claude-opus-5@20260301`: a number of three or more digits is a date, not a version.
_NEW: Final = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)", re.ASCII)
# `claude-3-5-sonnet-20241022`, `claude-2.1`, `claude-instant-1.2`
_OLD: Final = re.compile(r"claude-(?:instant-)?([1-3])(?!\d)", re.ASCII)
_PREVIEW: Final = "claude-mythos-preview"

_Family = tuple[str, tuple[int, int]]

_NO_PREFILL_FROM: Final = (4, 6)

# A family accepts system messages in mid-conversation from this version on.
_SYSTEM_FROM: Final = {"fable": (5, 0), "mythos": (5, 0), "opus": (4, 8)}
# Families that do not accept them up to this version; later versions are unknown.
_NO_SYSTEM_UP_TO: Final = {"sonnet": (5, 0), "haiku": (4, 5)}

_NO_MANUAL_FROM: Final = (4, 7)
_ADAPTIVE_FROM: Final = (4, 6)
_ALWAYS_THINK: Final = frozenset({"fable", "mythos"})

# A family binds a thinking block to everything before it from this version on.
_BINDS_FROM: Final = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}


@set_module("toolloop.history")
def takes_prefill(model: object) -> bool | None:
    """Return whether a request to this model may end in an assistant message other than a paused turn.

    Source: the documentation on prefill. Models from 4.6 on and Mythos Preview refuse it.
    """
    family = _find_family(model)
    return None if family is None else family[1] < _NO_PREFILL_FROM


@set_module("toolloop.history")
def takes_system_messages(model: object) -> bool | None:
    """Return whether this model accepts messages of the role `system`.

    Source: the documentation on mid-conversation system messages: Fable and Mythos from 5, Opus from 4.8; not Sonnet 5.
    Later Sonnets and Haikus are unknown.
    """
    family = _find_family(model)
    if family is None:
        return None
    name, version = family
    if name in _SYSTEM_FROM:
        return version >= _SYSTEM_FROM[name]
    return False if version <= _NO_SYSTEM_UP_TO[name] else None


@set_module("toolloop.history")
def binds_thinking(model: object) -> bool | None:
    """Return whether this model binds each thinking block to the system prompt, tools and messages before it.

    Source: the documentation on preserved thinking: Fable and Mythos from 5.1, Opus, Sonnet and Haiku from 5.5.
    """
    family = _find_family(model)
    return None if family is None else family[1] >= _BINDS_FROM[family[0]]


def takes_thinking(model: object, kind: object) -> bool | None:
    """Return whether this model accepts the `thinking` parameter with this type.

    Source: rule 31, the documentation on thinking: `enabled` before 4.7, `adaptive` after 4.5, `disabled` except on
    Fable and Mythos. Mythos Preview with `enabled` is unknown, and so are later types.
    """
    family = _find_family(model)
    if family is None:
        return None
    name, version = family
    match kind:
        case "enabled":
            return None if _PREVIEW in str(model) else version < _NO_MANUAL_FROM
        case "adaptive":
            return version >= _ADAPTIVE_FROM
        case "disabled" if name in _ALWAYS_THINK:
            return False
    return None


def _find_family(model: object) -> _Family | None:
    if not isinstance(model, str):
        return None
    if found := _NEW.search(model):
        name, major, minor = found.groups()
        return name, (int(major), int(minor or 0))
    if _PREVIEW in model:
        # Older than Mythos 5, newer than 4.6: it refuses a prefill, and is in neither of the other lists.
        return "mythos", (4, 9)
    if found := _OLD.search(model):
        # Older than all models in the tables, so any old version works here.
        return "haiku", (int(found[1]), 0)
    return None
