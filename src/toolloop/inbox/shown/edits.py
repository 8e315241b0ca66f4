"""An edit before it is sent: what a person changed in an input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolloop.inbox.shown.values import ShownInput, shown_input


def changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, ShownInput]]:
    """Return the changed fields of an edit, each as one diff with all lines before and after."""
    names = dict.fromkeys((*old, *new))
    pairs = {name: [_text(each[name]) if name in each else "" for each in (old, new)] for name in names}
    return [
        (name, shown_input({"before": before, "after": after}, diff=("before", "after")))
        for name, (before, after) in pairs.items()
        if before != after or (name in old) != (name in new)
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
