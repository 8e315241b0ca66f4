"""A sequence that only grows, and whose older versions stay as they were.

A state is a value, so a longer history is a new sequence; copying the old one would make a turn cost what the whole
conversation costs. Versions share one list, and each sees only its own length of it. Appending to the newest version
adds to that list; appending to an older one copies it first. So the usual append costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Chain(Sequence[T], Generic[T]):
    """An immutable sequence with a cheap `append`."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        """Start from the given items."""
        self._items = list(items)
        self._length = len(self._items)

    def append(self, item: T) -> Chain[T]:
        """A chain that is longer by one item; this one stays as it is."""
        return self.extend((item,))

    def extend(self, more: Sequence[T]) -> Chain[T]:
        """A chain that is longer by some items; this one stays as it is."""
        if not more:
            return self
        items = self._items
        if (
            len(items) != self._length or not items
        ):  # a sibling has grown past this version already, or may: the empty one
            items = items[: self._length]
        items.extend(more)
        return _chain(items)

    def since(self, older: Chain[T]) -> list[T] | None:
        """What this chain has beyond an older version of it; None where it is not known to have grown from that one."""
        if self._items is not older._items or self._length < older._length:
            return None
        return self._items[older._length : self._length]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return iter(self._items[: self._length])

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._items[start:stop:step] if step > 0 else self._items[: self._length][index]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chain) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal by content, which may be long: not a key

    def __reduce__(self) -> tuple[Any, ...]:
        return Chain, (list(self),)

    def __repr__(self) -> str:
        return f"Chain({self._length} items)"


def _chain(items: list[T]) -> Chain[T]:
    """The chain of all items of a list, which it does not copy."""
    chain: Chain[T] = Chain.__new__(Chain)
    chain._items = items  # noqa: SLF001 - it is made here
    chain._length = len(items)  # noqa: SLF001 - likewise
    return chain
