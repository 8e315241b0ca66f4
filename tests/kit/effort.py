"""How many cases a test takes: few in `make test`; all of them, and ten times the random ones, in `make deep`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import settings

T = TypeVar("T")

# `make test` is to end within five minutes on two cores, so it draws one of so many of the examples that a test asks
# for, though at least so few.
ONE_OF = 5
FEWEST = 3
IS_DEEP = settings.get_current_profile_name() == "deep"


def examples(count: int, deep: int | None = None, **more: Any) -> settings:
    """Return settings with `deep`, or ten times so many, examples in `make deep`, a part of them in `make test`.

    `more` goes to Hypothesis.
    """
    few = min(count, max(count // ONE_OF, FEWEST))
    return settings(max_examples=(deep or 10 * count) if IS_DEEP else few, **more)


def some(cases: Sequence[T], every: int) -> Sequence[T]:
    """Return one case of so many case in `make test`, and all of them in `make deep`."""
    return cases if IS_DEEP else cases[::every]


def stride(every: int) -> int:
    """Return how far apart the places are at which a sweep strikes: so many in `make test`, one in `make deep`."""
    return 1 if IS_DEEP else every
