"""`evolve`, `evolver` and `quick`: what attrs does, only sooner."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from typing import Any

import attrs
import pytest
from hypothesis import given

import toolloop.core
from tests.core.test_machine_laws import lives
from tests.core.worlds import World
from toolloop.core.evolving import evolve, evolver, quick, twin_of


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


def classes() -> list[type[Any]]:
    """Every frozen class of the core that has fields."""
    modules = (
        importlib.import_module(f"toolloop.core.{each.name}") for each in pkgutil.iter_modules(toolloop.core.__path__)
    )
    found = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return sorted(
        (kind for kind in found if attrs.has(kind) and attrs.fields(kind)), key=lambda kind: kind.__qualname__
    )


def made(kind: type[Any], fill: Any) -> Any:
    """A value of a class, as attrs makes one, with the same in every field."""
    value = object.__new__(kind)
    for item in attrs.fields(kind):
        object.__setattr__(value, item.name, fill)
    return value


@pytest.mark.parametrize("kind", classes())
def test_a_twin_can_take_the_place_of_its_class(kind: type[Any]) -> None:
    """For every class of the core: one layout, and once it is the class it is frozen and like any other value."""
    names = [item.name for item in attrs.fields(kind)]
    value = evolver(kind, *names)(made(kind, 1), *names)
    assert type(value) is kind
    assert [getattr(value, name) for name in names] == names
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(value, names[0], 2)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        delattr(value, names[0])
    assert twin_of(kind).__basicsize__ == kind.__basicsize__
    assert twin_of(kind) is twin_of(kind)


@pytest.mark.parametrize("kind", classes())
def test_a_constructor_takes_what_that_of_attrs_takes(kind: type[Any]) -> None:
    """For every class of the core: the same parameters with the same defaults, in the same order."""
    usual = attrs.make_class(kind.__name__, dict(_fields_of(kind)), frozen=True, slots=True)
    items = attrs.fields(kind)
    kind(*(1 for item in items if not item.kw_only), **{item.name: 1 for item in items if item.kw_only})
    assert _parameters(kind) == _parameters(usual)


def _parameters(kind: type[Any]) -> list[tuple[Any, ...]]:
    """Of the very function that is the constructor: it may have been compiled when it was first used."""
    constructor = inspect.signature(vars(kind)["__init__"], follow_wrapped=False)
    return [(each.name, each.kind, each.default) for each in constructor.parameters.values()]


def _fields_of(kind: type[Any]) -> list[tuple[str, Any]]:
    items = attrs.fields(kind)
    return [(item.name, attrs.field(default=item.default, kw_only=item.kw_only)) for item in items]


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


@attrs.frozen
class Curious:
    one: int = 1

    def __attrs_post_init__(self) -> None:
        """More than to fill the slots."""


@attrs.frozen
class Own:
    one: int = 1
    two: int = attrs.field(default=attrs.Factory(lambda self: self.one, takes_self=True))


def test_fields_of_a_base_class_and_keywords_are_fields_too() -> None:
    """The place of a field in the constructor does not matter."""
    assert evolve(Heir(one=5), two=7) == Heir(one=5, two=7)
    assert evolve(Heir(), one=3) == Heir(one=3)


@pytest.mark.parametrize("value", [Careful(), Loose(), Curious(), Own()])
def test_a_class_that_does_more_is_refused(value: Any) -> None:
    """Its validator, or whatever it does, would be passed over."""
    with pytest.raises(TypeError, match=r"use attrs\.evolve"):
        evolve(value, one=2)
    with pytest.raises(TypeError, match="the constructor of attrs"):
        quick(type(value))()


def test_an_unknown_field_is_refused() -> None:
    """And named."""
    fields: dict[str, Any] = {"three": 3}
    with pytest.raises(TypeError, match="Heir has no field three"):
        evolve(Heir(), **fields)


def test_what_was_made_stays_frozen() -> None:
    """It is a value like any other of its class."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        evolve(Heir(), two=3).two = 4  # type: ignore[misc]  # that is the point


def test_an_evolver_takes_all_its_fields_and_no_other() -> None:
    """It is made for one change."""
    change = evolver(Heir, "one", "two")
    assert change(Heir(), one=3, two=4) == change(Heir(), 3, 4) == Heir(one=3, two=4)
    with pytest.raises(TypeError, match="two"):
        change(Heir(), one=3)


# --- constructors ----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class When:
    at: float = 0.0


@quick
@attrs.frozen
class Quick(When):
    """A class with all kinds of fields."""

    name: str
    size: int = 3
    parts: list[int] = attrs.field(factory=list)


@attrs.frozen
class Usual(When):
    name: str
    size: int = 3
    parts: list[int] = attrs.field(factory=list)


class Narrow(Quick):
    """An heir of the same layout."""

    __slots__ = ()


class Wide(Quick):
    """An heir with a `__dict__`."""


@pytest.mark.parametrize(
    ("args", "named"),
    [(("a",), {}), (("a", 1), {"at": 2.0}), (("a", 1, [1]), {}), ((), {"name": "a", "parts": [2], "at": 1.0})],
)
def test_a_quick_constructor_makes_what_that_of_attrs_makes(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """By place and by name, with and without the defaults."""
    assert attrs.asdict(Quick(*args, **named)) == attrs.asdict(Usual(*args, **named))
    assert type(Quick(*args, **named)) is Quick


@pytest.mark.parametrize(("args", "named"), [((), {}), (("a", 1, [], 2.0), {}), (("a",), {"other": 1})])
def test_it_refuses_what_that_of_attrs_refuses(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Too little, too much, and what is no field."""
    for kind in (Usual, Quick):
        with pytest.raises(TypeError):
            kind(*args, **named)


def test_a_default_that_is_made_is_made_anew() -> None:
    """Two values share no list."""
    assert Quick("a").parts is not Quick("a").parts


def test_a_value_of_a_quick_class_is_frozen() -> None:
    """Like any other."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Quick("a").size = 4  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize("kind", [Narrow, Wide])
def test_an_heir_stays_one(kind: type[Quick]) -> None:
    """It has no constructor of its own, and is of its own class."""
    value = kind("a", at=1.0)
    assert type(value) is kind
    assert (value.name, value.size, value.parts, value.at) == ("a", 3, [], 1.0)


def test_an_heir_may_have_a_constructor_of_its_own() -> None:
    """It runs once, also where the one above it is compiled by it."""

    @quick
    @attrs.frozen
    class Above:
        one: int

    calls: list[int] = []

    class Below(Above):
        def __init__(self, one: int) -> None:
            calls.append(one)
            super().__init__(one)

    assert Below(1).one == 1
    assert calls == [1]


def test_a_quick_class_is_one_of_attrs_otherwise() -> None:
    """Equal, hashable, shown, copied, pickled and changed like any."""
    value = Quick("a", 5, at=1.0)
    assert value == Quick("a", 5, at=1.0) != Quick("b", 5, at=1.0)
    assert repr(value) == "Quick(at=1.0, name='a', size=5, parts=[])"
    assert value == copy.copy(value) == copy.deepcopy(value) == pickle.loads(pickle.dumps(value))
    assert attrs.evolve(value, size=6) == Quick("a", 6, at=1.0)
    assert str(inspect.signature(Quick)) == str(inspect.signature(Usual))
    assert hash(evolve(value, parts=())) == hash(evolve(value, parts=()))  # type: ignore[arg-type]  # no list
