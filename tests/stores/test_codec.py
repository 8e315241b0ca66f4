"""A state as JSON, and back: any state, and nothing but a state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.core import making as m
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core import events as ev
from toolloop.errors import UnreadableSnapshot
from toolloop.stores import FORMAT, dump, load


@given(lives)
def test_any_state_comes_back_as_it_was(world: World) -> None:
    """Through real JSON, which knows no tuples, no enums and no classes."""
    assert load(json.loads(json.dumps(dump(world.state)))) == world.state


@given(lives)
def test_a_snapshot_says_its_format_first(world: World) -> None:
    """So a reader can refuse what it does not know before it reads anything else."""
    assert next(iter(dump(world.state).items())) == ("format", FORMAT)


def test_a_snapshot_survives_a_json_with_one_kind_of_number() -> None:
    """Much of the world's JSON writes 60.0 as 60."""
    state = m.after(ev.RequestCancelled(at=60.0, seconds=2.0))
    text = json.dumps(dump(state)).replace("60.0", "60").replace("2.0", "2")
    assert load(json.loads(text)) == state


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": FORMAT + 1}, "newer"),
        ({"format": True}, "format"),
        ({"state": "Dreaming"}, "damaged"),
        ({"extra": 1}, "damaged"),
        ({"digest": "0"}, "damaged"),
    ],
)
def test_what_is_no_snapshot_is_refused_by_name(change: dict[str, Any], says: str) -> None:
    """Nothing of it is guessed."""
    with pytest.raises(UnreadableSnapshot, match=says):
        load(dump(m.after()) | change)
