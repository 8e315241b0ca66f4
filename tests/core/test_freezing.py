"""`frozen` says and decides what `attrs.frozen` does."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from attrs import field
from hypothesis import given
from hypothesis import strategies as st

from toolloop.core.freezing import frozen

CONTENTS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"]) | st.tuples(st.integers(0, 1))


def _short(value: object) -> str:
    return f"<{value}>"


def made(decorate: Callable[..., Any], **options: Any) -> type[Any]:
    """A class with fields of every kind, and one that inherits from it."""

    @decorate(**options)
    class Base:
        first: Any
        hidden: Any = field(default=0, repr=False, kw_only=True)

    @decorate(**options)
    class Value(Base):
        second: Any = None
        told: Any = field(default=0, repr=_short, kw_only=True)
        beside: Any = field(default=0, eq=False, kw_only=True)
        late: Any = field(init=False, repr=True)

        def __attrs_post_init__(self) -> None:
            object.__setattr__(self, "late", (self.first, "late"))

    return Value


OURS, THEIRS = made(frozen), made(attrs.frozen)
ARGUMENTS = st.tuples(
    st.tuples(CONTENTS, CONTENTS),
    st.fixed_dictionaries({"hidden": CONTENTS, "told": CONTENTS, "beside": CONTENTS}),
)


@given(ARGUMENTS, ARGUMENTS)
def test_values_are_equal_as_those_of_attrs_are(one: Any, other: Any) -> None:
    """Equal or not, with hashes that agree, and never equal to a value of another class."""
    ours, theirs = ((kind(*one[0], **one[1]), kind(*other[0], **other[1])) for kind in (OURS, THEIRS))
    assert (ours[0] == ours[1]) is (theirs[0] == theirs[1])
    assert (ours[0] != ours[1]) is (theirs[0] != theirs[1])
    assert len(set(ours)) == len(set(theirs))
    assert ours[0] != theirs[0]
    assert pickle.loads(pickle.dumps(one)) == one


@given(ARGUMENTS)
def test_values_show_what_those_of_attrs_show(arguments: Any) -> None:
    """Each field as it asks to be shown."""
    ours, theirs = (kind(*arguments[0], **arguments[1]) for kind in (OURS, THEIRS))
    assert repr(theirs) == repr(ours)


def test_the_class_is_the_one_of_attrs() -> None:
    """Fields, slots, what a pattern matches, immutability."""
    assert [item.name for item in attrs.fields(THEIRS)] == [item.name for item in attrs.fields(OURS)]
    assert THEIRS.__slots__ == OURS.__slots__
    assert THEIRS.__match_args__ == OURS.__match_args__
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        OURS(1).first = 2


@pytest.mark.parametrize("decorate", [frozen, attrs.frozen])
def test_what_a_class_does_itself_stays(decorate: Callable[..., Any]) -> None:
    """Its own `__eq__`, `__hash__` and `__repr__`, or none where it wants none."""

    @decorate
    class Own:
        def __eq__(self, other: object) -> bool:
            return other is None

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "mine"

    assert (Own() == Own(), hash(Own()), repr(Own())) == (False, 7, "mine")
    bare = made(decorate, eq=False, repr=False)
    assert bare(1) != bare(1)
    assert repr(bare(1)).startswith("<")


@pytest.mark.parametrize("decorate", [frozen, attrs.frozen])
def test_a_value_without_fields_is_equal_to_its_like(decorate: Callable[..., Any]) -> None:
    """And shows nothing but its name."""

    @decorate
    class Nothing:
        pass

    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1
    assert repr(Nothing()) == "Nothing()"


@pytest.mark.parametrize("decorate", [frozen, attrs.frozen])
def test_a_value_that_holds_itself_can_be_shown(decorate: Callable[..., Any]) -> None:
    """The second time with three dots; and what cannot be hashed inside makes that a `TypeError`."""

    @decorate
    class Holder:
        inside: list[Any] = field(factory=list)

    holder = Holder()
    holder.inside.append(holder)
    assert repr(holder) == "Holder(inside=[...])"
    with pytest.raises(TypeError, match="unhashable"):
        hash(holder)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (type("Own", (), {"__annotations__": {"a": int}, "__hash__": lambda _: 7}), {}),
        (type("Own", (), {"__annotations__": {"a": int}}), {"order": True}),
        (type("Own", (), {"__annotations__": {"a": int}}), {"unsafe_hash": False}),
        (type("Own", (), {"__annotations__": {"a": str}, "a": field(eq=str.lower)}), {}),
        (type("Own", (), {"__annotations__": {"a": str}, "a": field(hash=False)}), {}),
    ],
    ids=["its own hash", "an order", "no hash", "a key", "a field without a hash"],
)
def test_what_it_does_not_know_is_refused(kind: type[Any], options: dict[str, Any]) -> None:
    """The shared methods would say something else than attrs does."""
    with pytest.raises(TypeError, match=r"Own has .*: use attrs\.frozen"):
        frozen(kind, **options)
