"""What type checkers see of doors that import at first use: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import assert_type

import toolloop
from toolloop import Budget, Wrong  # type: ignore[attr-defined]
from toolloop.history import check, wrong  # type: ignore[attr-defined]


def uses() -> None:
    assert_type(Budget(requests=3), toolloop.Budget)
    assert_type(toolloop.stores.MemoryStore(), toolloop.MemoryStore)
    check([])
    toolloop.Wrong  # type: ignore[attr-defined]  # noqa: B018 - it is there to be refused
    _ = (Wrong, wrong)
