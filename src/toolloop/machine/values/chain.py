"""An immutable sequence with a cheap append.

A state is a value, so a longer history is a new sequence. Copying the old one would make the cost of a turn grow with
the conversation. So versions share one list, and each sees only its own length of it. Appending to the newest version
extends that list; appending to an older version copies it first. Two threads may do that to one version at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Generic, TypeVar, overload

T = TypeVar("T")


class Chain(Sequence[T], Generic[T]):
    """An immutable sequence with a cheap `append`."""

    __slots__ = ("_items", "_length", "_right")

    def __init__(self, items: Iterable[T] = ()) -> None:
        """Start from the given items."""
        self._items = list(items)
        self._length = len(self._items)
        # The right to extend the list: one item, which the first version that extends it takes. Empty chains have none.
        self._right = [True] if self._items else []

    def append(self, item: T) -> Chain[T]:
        """Return a chain with one more item. This chain is unchanged."""
        return self.extend((item,))

    def extend(self, more: Sequence[T]) -> Chain[T]:
        """Return a chain with more items. This chain is unchanged."""
        if not more:
            return self
        items = self._items
        try:
            self._right.pop()
        except IndexError:  # another version extended the list
            items = items[: self._length]
        items.extend(more)
        new: Chain[T] = Chain.__new__(Chain)
        new._items, new._length, new._right = items, len(items), [True]
        return new

    def since(self, older: Chain[T]) -> list[T] | None:
        """Return the items after those of an older version; None if the chains do not share a list."""
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
        if not isinstance(other, Chain):
            return False
        if self._items is other._items:  # two versions of one history, which may be long
            return self._length == other._length
        return list(self) == list(other)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # equal by content, which may be long: not a key

    def __reduce__(self) -> tuple[Any, ...]:
        return Chain, (list(self),)

    def __repr__(self) -> str:
        return f"Chain({self._length} items)"
