"""What a model takes in a history, read off its id.

Five questions, each with None for the answer "unknown": an unknown model is never refused anything. The answers
are those of the public documentation in November 2026 (pages on prefill, mid-conversation system messages, thinking
and its preservation, vision and context windows); a later version of a family is taken to do what its predecessor does.
"""

from __future__ import annotations

import re
from typing import Final

# `claude-opus-4-8`, `claude-sonnet-4-20250514`, `us.anthropic.claude-haiku-4-5-20251001-v1:0`,
# `claude-opus-5@20260301`: a number of three digits or more is a date, not a version.
_NEW: Final = re.compile(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)", re.ASCII)
# `claude-3-5-sonnet-20241022`, `claude-2.1`, `claude-instant-1.2`
_OLD: Final = re.compile(r"claude-(?:instant-)?([1-3])(?!\d)", re.ASCII)
_PREVIEW: Final = "claude-mythos-preview"

#: The most images of a request: of a model with a small context, and of one with a large context.
FEWEST_IMAGES: Final = 100
MOST_IMAGES: Final = 600
_MILLION_FROM: Final = (4, 6)  # a context of a million tokens

_Family = tuple[str, tuple[int, int]]

_NO_PREFILL_FROM: Final = (4, 6)

# From this version on a family takes system messages in mid-conversation. Below it: not.
_SYSTEM_FROM: Final = {"fable": (5, 0), "mythos": (5, 0), "opus": (4, 8)}
# Families of which it is only known that they did not take them up to this version.
_NO_SYSTEM_UP_TO: Final = {"sonnet": (5, 0), "haiku": (4, 5)}

_NO_MANUAL_FROM: Final = (4, 7)
_ADAPTIVE_FROM: Final = (4, 6)
_ALWAYS_THINK: Final = frozenset({"fable", "mythos"})

# From this version on a family binds a thinking block to all that stands before it.
_BINDS_FROM: Final = {"fable": (5, 1), "mythos": (5, 1), "opus": (5, 5), "sonnet": (5, 5), "haiku": (5, 5)}


def takes_prefill(model: object) -> bool | None:
    """Whether a request to this model may end in an assistant message that is not a paused turn.

    Source: the documentation on prefill; models from 4.6 on and Mythos Preview refuse it.
    """
    family = _family(model)
    return None if family is None else family[1] < _NO_PREFILL_FROM


def takes_system_messages(model: object) -> bool | None:
    """Whether this model takes messages of the role `system`.

    Source: the documentation on mid-conversation system messages: Fable and Mythos from 5, Opus from 4.8; not Sonnet 5.
    What later Sonnets and Haikus do is not known.
    """
    family = _family(model)
    if family is None:
        return None
    name, version = family
    if name in _SYSTEM_FROM:
        return version >= _SYSTEM_FROM[name]
    return False if version <= _NO_SYSTEM_UP_TO[name] else None


def binds_thinking(model: object) -> bool | None:
    """Whether this model binds each thinking block to the system prompt, tools and messages before it.

    Source: the documentation on preserved thinking: Fable and Mythos from 5.1, Opus, Sonnet and Haiku from 5.5.
    """
    family = _family(model)
    return None if family is None else family[1] >= _BINDS_FROM[family[0]]


def takes_thinking(model: object, kind: object) -> bool | None:
    """Whether this model takes the `thinking` parameter with this type.

    Source: rule 31, the documentation of thinking: `enabled` before 4.7, `adaptive` after 4.5, `disabled` not on Fable
    and Mythos. Of Mythos Preview and `enabled` nothing certain is known, nor of types that came later.
    """
    family = _family(model)
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


def most_images(model: object) -> int | None:
    """How many images a request to this model may have: 600, or 100 where its context has only 200,000 tokens.

    Source: the documentation of vision; that of context windows names the models, and what later Haikus have is not
    known.
    """
    family = _family(model)
    if family is None:
        return None
    if family[1] < _MILLION_FROM:
        return FEWEST_IMAGES
    return None if family[0] == "haiku" else MOST_IMAGES


def _family(model: object) -> _Family | None:
    if not isinstance(model, str):
        return None
    if found := _NEW.search(model):
        name, major, minor = found.groups()
        return name, (int(major), int(minor or 0))
    if _PREVIEW in model:
        # Older than Mythos 5, newer than 4.6: it takes no prefill, and is in neither of the other lists.
        return "mythos", (4, 9)
    if found := _OLD.search(model):
        # Of these it only matters that they are older than all that the tables name.
        return "haiku", (int(found[1]), 0)
    return None
