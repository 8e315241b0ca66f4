"""`frozen`: a class of values that never change.

It is `attrs.frozen` at half the price. attrs compiles the source of `__repr__`, `__eq__` and `__hash__` for each class
when it is made, that is at import, and most of them never run in a program: of the 2.9 million instructions that a
class of four fields costs, these three are 1.5 million. So they are shared here: one function each, which asks the
class for its fields. They say and decide the same, but that a NaN is equal to itself where both values hold the very
same one. What they do not know (a hash or an order of its own, fields that are compared by a key) is refused when the
class is made. The type checker sees the original.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

import attrs
from attrs import NOTHING, fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from attrs import frozen
else:

    def frozen(kind: type[Any] | None = None, /, **options: Any) -> Any:
        """`attrs.frozen`, with shared methods where attrs would write some: its options, and its meaning."""
        if kind is None:
            return partial(frozen, **options)
        has_own_hash = "__hash__" in vars(kind) and "__eq__" not in vars(kind)
        if has_own_hash or options.keys() & {"hash", "unsafe_hash", "order", "cmp"}:
            raise TypeError(f"{kind.__name__} has a hash or an order of its own: use attrs.frozen")
        if options.get("eq", True) and "__eq__" not in vars(kind):
            kind.__eq__, kind.__hash__ = _equal, _hash
        if options.get("repr", True) and "__repr__" not in vars(kind):
            kind.__repr__ = _repr
        made = attrs.frozen(kind, **options)
        if any(item.eq_key is not None or item.hash is not None for item in fields(made)):
            raise TypeError(f"{kind.__name__} has a field that is compared or hashed in its own way: use attrs.frozen")
        return made


# What a value is compared by, for each class.
_KEYS: dict[type[Any], Callable[[Any], Any]] = {}


def _equal(self: Any, other: object) -> Any:
    kind = self.__class__
    if other.__class__ is not kind:
        return NotImplemented
    key = _KEYS.get(kind) or _key(kind)
    return key(self) == key(other)


def _hash(self: Any) -> int:
    kind = self.__class__
    return hash((kind.__qualname__, (_KEYS.get(kind) or _key(kind))(self)))


def _key(kind: type[Any]) -> Callable[[Any], Any]:
    names = [item.name for item in fields(kind) if item.eq]
    key = _KEYS[kind] = attrgetter(*names) if names else _nothing
    return key


def _nothing(_: object) -> None:
    """What values without fields are compared by."""


@recursive_repr()
def _repr(self: Any) -> str:
    kind = self.__class__
    shown = [
        f"{item.name}={(repr if item.repr is True else item.repr)(getattr(self, item.name, NOTHING))}"
        for item in fields(kind)
        if item.repr
    ]
    return f"{kind.__qualname__.rpartition('>.')[2]}({', '.join(shown)})"


__all__ = ["frozen"]
