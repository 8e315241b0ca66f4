"""`evolve`: what `attrs.evolve` does, only sooner."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given

from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core.evolving import evolve


def values(value: Any) -> list[Any]:
    """A value, and the values in its fields."""
    if not attrs.has(type(value)):
        return [each for item in value for each in values(item)] if isinstance(value, tuple) else []
    return [value, *(each for item in attrs.fields(type(value)) for each in values(getattr(value, item.name)))]


@given(lives)
def test_it_gives_what_attrs_gives(world: World) -> None:
    """For every class of a state, whichever fields change."""
    for value in values(world.state):
        for item in attrs.fields(type(value)):
            changed = evolve(value, **{item.name: 1})
            assert changed == attrs.evolve(value, **{item.name: 1})
            assert type(changed) is type(value)
            assert hash(type(changed)) == hash(type(value))
        assert evolve(value) == value


@attrs.frozen
class Base:
    one: int = 1


@attrs.frozen(kw_only=True)
class Heir(Base):
    two: int = 2


@attrs.frozen
class Careful:
    one: int = attrs.field(default=1, validator=attrs.validators.instance_of(int))


@attrs.frozen(slots=False)
class Loose:
    one: int = 1


def test_fields_of_a_base_class_and_keywords_are_fields_too() -> None:
    """The place of a field in the constructor does not matter."""
    assert evolve(Heir(one=5), two=7) == Heir(one=5, two=7)
    assert evolve(Heir(), one=3) == Heir(one=3)


@pytest.mark.parametrize("value", [Careful(), Loose()])
def test_a_class_that_does_more_is_refused(value: Any) -> None:
    """Its validator, or whatever it does, would be passed over."""
    with pytest.raises(TypeError, match=r"use attrs\.evolve"):
        evolve(value, one=2)


def test_an_unknown_field_is_refused() -> None:
    """And named."""
    fields: dict[str, Any] = {"three": 3}
    with pytest.raises(TypeError, match="Heir has no field three"):
        evolve(Heir(), **fields)


def test_what_was_made_stays_frozen() -> None:
    """It is a value like any other of its class."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        evolve(Heir(), two=3).two = 4  # type: ignore[misc]  # that is the point
