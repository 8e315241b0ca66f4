"""An input as rows: all of it can be read from them, and no two inputs have the same rows. No browser is needed.

`test_read_back.py` makes the same claims of a real page.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given

from tests.effort import examples
from tests.inbox.inputs import inputs
from tests.inbox.reader import exact, meaning, rows_of
from toolloop.inbox.page.values import shown_input


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@given(inputs())
@examples(200)
def test_the_rows_give_the_input_back(value: dict[str, Any]) -> None:
    """Each key and value, type by type, in order."""
    assert meaning(rows_of(shown_input(text_of(value)))) == exact(text_of(value))
