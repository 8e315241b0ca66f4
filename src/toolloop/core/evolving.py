"""`evolve`: a frozen value with some fields changed.

It is `attrs.evolve`, at a third of the cost: a turn makes some twenty of them, and they lead its profile. For each
class and set of names one function is compiled, as attrs compiles a constructor: it fills the slots of a new value. The
type checker sees the original, which knows the fields of each class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import fields

if TYPE_CHECKING:
    from attrs import evolve
else:
    _MAKERS: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def evolve(value: Any, /, **changes: Any) -> Any:
        """The value with some fields changed; its class must have slots, and neither converters nor validators.

        Raises:
            TypeError: the class has no such field, or does more than fill its slots.

        """
        key = (value.__class__, *changes)
        make = _MAKERS.get(key)
        if make is None:
            make = _MAKERS[key] = _compiled(*key)
        return make(value, **changes)


def _compiled(kind: type[Any], *changed: str) -> Callable[..., Any]:
    """A function of a value and its changed fields."""
    items = fields(kind)
    names = [item.name for item in items]
    if unknown := [name for name in changed if name not in names]:
        raise TypeError(f"{kind.__name__} has no field {', '.join(unknown)}")
    if any(item.converter or item.validator for item in items) or not all(name in _slots(kind) for name in names):
        raise TypeError(f"{kind.__name__} does more than fill its slots: use attrs.evolve")
    lines = [f"def make(_value, {', '.join(changed)}):", " _made = _new(_kind)"]
    lines += [f" _set_{name}(_made, {name if name in changed else f'_value.{name}'})" for name in names]
    scope: dict[str, Any] = {f"_set_{name}": getattr(kind, name).__set__ for name in names}
    scope.update(_new=object.__new__, _kind=kind)
    exec("\n".join([*lines, " return _made"]), scope)  # noqa: S102 - made of the names of our own fields
    make: Callable[..., Any] = scope["make"]
    return make


def _slots(kind: type[Any]) -> set[str]:
    return {name for owner in kind.__mro__ for name in getattr(owner, "__slots__", ())}


__all__ = ["evolve"]
