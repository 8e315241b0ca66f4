"""What all strategies of compaction have in common: what they are asked, and what they answer.

A strategy gets outlines and answers with a plan; it changes nothing. So whoever drives it, a loop or a call with a
plain list, may carry the plan out or let it be, and a failure costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar, overload
from weakref import WeakKeyDictionary

from attrs import field

from toolloop.core.errors import OutsideError
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode, plain
from toolloop.history.outline import Outline, outline_of

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class SummaryFailed(OutsideError):
    """A summary was of no use; nothing changed. The message says why."""


class Compactable(Protocol[R_co]):
    """What a strategy hands itself over to: a loop, which compacts its own history."""

    def _compact_now(self, strategy: Any) -> R_co: ...


@frozen(eq=False)
class Edit:
    """A compacted history.

    Attributes:
        outlines: of its messages, in order; those of messages that did not change are the ones that were given.
        before, after: how many tokens the messages had, and have now, about.

    """

    outlines: tuple[Outline, ...]
    before: int
    after: int

    @property
    def texts(self) -> list[str]:
        """The JSON text of each message; of those that did not change the very object that was given."""
        return [outline.text for outline in self.outlines]


def edit_of(old: Sequence[Outline], new: Iterable[Outline]) -> Edit:
    """The edit that makes one history of another."""
    outlines = tuple(new)
    return Edit(outlines, live_tokens(old), live_tokens(outlines))


def live_tokens(outlines: Sequence[Outline]) -> int:
    """How many tokens messages have together, about: what stands before the API's own compaction does not count."""
    start = next((at for at in range(len(outlines) - 1, -1, -1) if outlines[at].compacts), 0)
    return sum(outlines[at].tokens for at in range(start, len(outlines)))


def whole_from(least: int, *, or_none: bool = False) -> Callable[[Any, Any, Any], None]:
    """A check for fields that are whole numbers."""

    def check(_strategy: Any, attribute: Any, value: Any) -> None:
        if value is None and or_none:
            return
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            none = ", or None" if or_none else ""
            raise ValueError(f"{attribute.name} is {value!r}; give a whole number from {least} up{none}")

    return check


def _pinned(_strategy: Any, attribute: Any, value: Any) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{attribute.name} is {value!r}; give a callable that takes one message, or None")
    if iscoroutinefunction(value) or iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004 - not whether
        raise TypeError(f"{attribute.name} is async; give a function that answers at once")


Pinned = Callable[[dict[str, Any]], object]


@frozen(eq=False, kw_only=True)
class Strategy(ABC):
    """A way to make a history shorter. Strategies hold no state of a loop: one may serve many.

    Attributes:
        at_tokens: with fewer tokens nothing is done; None sets no threshold.
        pinned: says of a message, as plain JSON values, whether it must stay. Asked once for each message.

    """

    at_tokens: int | None = field(default=None, validator=whole_from(1, or_none=True))
    pinned: Pinned | None = field(default=None, validator=_pinned)
    _verdicts: WeakKeyDictionary[Outline, bool] = field(init=False, factory=WeakKeyDictionary, repr=False)

    @property
    def name(self) -> str:
        """By which a loop's events and its journal call it: the name of the class."""
        return type(self).__name__

    @abstractmethod
    def plan(self, outlines: Sequence[Outline]) -> Any:
        """What is to be done with a history, whatever its size; None: nothing."""

    def is_due(self, tokens: int) -> bool:
        """Whether a history of so many tokens has reached the threshold, if there is one."""
        return self.at_tokens is None or tokens >= self.at_tokens

    def is_pinned(self, outline: Outline) -> bool:
        """Whether the caller wants a message to stay."""
        if self.pinned is None:
            return False
        verdict = self._verdicts.get(outline)
        if verdict is None:
            verdict = self._verdicts[outline] = bool(self.pinned(decode(outline.text)))
        return verdict


@frozen(eq=False)
class Listed:
    """A plain list of messages, and their outlines."""

    messages: list[Any]
    outlines: list[Outline]

    def after(self, edit: Edit | None) -> list[Any]:
        """The list after an edit, a new one; messages that did not change are the objects that were given."""
        if edit is None:
            return list(self.messages)
        given = dict(zip(map(id, self.outlines), self.messages, strict=True))
        return [given[id(each)] if id(each) in given else each.message() for each in edit.outlines]


def listed(messages: Any, strategy: Strategy) -> Listed:
    """A plain list of messages, which may be SDK objects, read once.

    Raises:
        TypeError: it is no list of messages.

    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise TypeError(f"{strategy.name} got a {type(messages).__name__}; give a list of messages, or a handle")
    given = list(messages)
    return Listed(given, [_outline(each, f"messages[{index}]") for index, each in enumerate(given)])


def _outline(message: Any, where: str) -> Outline:
    value = plain(message, where)
    try:
        return outline_of(value)
    except ValueError as error:  # a number with thousands of digits
        raise TypeError(f"{where} is not JSON: {error}") from error


def plan_for(strategy: Strategy, of: Listed) -> JSON:
    """What a strategy would do with a plain list: nothing below its threshold."""
    return strategy.plan(of.outlines) if strategy.is_due(live_tokens(of.outlines)) else None


@frozen(eq=False, kw_only=True)
class EditStrategy(Strategy):
    """A strategy that needs nobody to make its plan true."""

    @abstractmethod
    def plan(self, outlines: Sequence[Outline]) -> Edit | None:
        """The compacted history; None: there is nothing to do."""

    @overload
    def __call__(self, target: Sequence[Any]) -> list[Any]: ...
    @overload
    def __call__(self, target: Compactable[R]) -> R: ...
    def __call__(self, target: Any) -> Any:
        """Compact a loop's history, or a plain list of messages.

        Args:
            target: a handle; or a list of messages, which stays as it is.

        Returns:
            For a list: a new one; messages that did not change are the same objects.

        Raises:
            TypeError: it is neither.

        """
        if (compact := getattr(target, "_compact_now", None)) is not None:
            return compact(self)
        of = listed(target, self)
        return of.after(plan_for(self, of))
