"""What an `Ask` may say, and that a wrong one is refused where it is made."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from toolloop.machine.values.demands import Ask
from toolloop.machine.values.names import Person


def test_one_group_is_a_group_and_not_its_letters() -> None:
    """In an `Ask` and in a `Person`, as a text or as a list."""
    assert Ask(of="finance", not_by="ana") == Ask(of=["finance"], not_by=("ana",))
    assert Ask(of="finance").of == Person("ana", "finance").groups == ("finance",)
    assert Ask(remind_after=[60, 600.0]).remind_after == (60, 600.0)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        *(({"need": need}, ValueError, "need must be an int from 1 to") for need in (0, -1, 1.0, True, "2", 10**5000)),
        ({"of": (1,)}, TypeError, r"of is \(1,\); give names"),
        ({"not_by": (None,)}, TypeError, r"not_by is \(None,\); give names"),
        *(({"remind_after": (at,)}, ValueError, "must be numbers of seconds") for at in (-1, inf, nan, "60", 10**400)),
    ],
)
def test_a_wrong_ask_is_refused(wrong: dict[str, Any], error: type[Exception], says: str) -> None:
    """With the field and its value. A policy that makes one raises, and so it asks."""
    with pytest.raises(error, match=says):
        Ask(**wrong)
