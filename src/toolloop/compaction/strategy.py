"""The base classes of strategies. A strategy reads outlines and returns a plan; it changes nothing.

The caller, a loop or `__call__` with a plain list, applies the plan or drops it. So a failure changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from attrs import evolve, field, frozen
from attrs.validators import optional

from toolloop.compaction.tokens import Outline, outline_of
from toolloop.errors import OutsideError
from toolloop.machine.values.jsontext import decode, describe_type, encode, to_plain


class SummaryFailed(OutsideError):
    """A summary could not be used, and the history is unchanged. The message has the reason."""


@frozen(eq=False)
class Edit:
    """A compacted history.

    Attributes:
        outlines: the outlines of its messages, in order. Unchanged messages keep their outlines.
        before, after: the estimated tokens of the messages before and after.

    """

    outlines: tuple[Outline, ...]
    before: int
    after: int

    @property
    def texts(self) -> list[str]:
        """The JSON text of each message. Unchanged messages keep their text objects."""
        return [outline.text for outline in self.outlines]


def edit_of(old: Sequence[Outline], new: Iterable[Outline]) -> Edit:
    """Return the edit that replaces one history with another."""
    outlines = tuple(new)
    return Edit(outlines, live_tokens(old), live_tokens(outlines))


def live_tokens(outlines: Sequence[Outline]) -> int:
    """Estimate the total tokens of messages. Messages before the API's own compaction do not count."""
    start = max((at for at, outline in enumerate(outlines) if outline.compacts), default=0)
    return sum(outline.tokens for outline in outlines[start:])


def last_reply(outlines: Sequence[Outline]) -> int:
    """Return the index of the last assistant message, at which the last round begins; 0 without any."""
    return next((at for at in range(len(outlines) - 1, -1, -1) if outlines[at].role == "assistant"), 0)


def at_least(least: int) -> Callable[[Any, Any, Any], None]:
    """Return a validator for a field that holds an int."""

    def check(_strategy: Any, attribute: Any, value: Any) -> None:
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{attribute.name}: expected an int of at least {least}, got {value!r}")

    return check


def _target(strategy: Any, attribute: Any, value: Any) -> None:
    if value is None:
        return
    at_least(1)(strategy, attribute, value)
    # A loop compacts again when its history has grown by a quarter: this is then not before `at_tokens`.
    most = 0 if strategy.at_tokens is None else strategy.at_tokens * 4 // 5
    if value > most:
        limit = f"at_tokens, that is {most}" if most else "at_tokens, which is missing"
        raise ValueError(f"to_tokens: expected at most four fifths of {limit}, got {value}")


@frozen(eq=False, kw_only=True)
class Strategy(ABC):
    """Shorten a history. A strategy has no state, so many loops can share one.

    Attributes:
        at_tokens: histories with fewer tokens are not changed; None means no threshold.
        to_tokens: with `at_tokens`, the tokens to which a history is folded: fewer rounds are kept until it has at most
            so many, down to one. At most four fifths of `at_tokens`; None means half of it.

    """

    #: The field with the number of rounds to keep, if the strategy has one.
    _rounds: ClassVar[str | None] = None

    at_tokens: int | None = field(default=None, validator=optional(at_least(1)))
    to_tokens: int | None = field(default=None, validator=_target)

    @property
    def target(self) -> int:
        """The tokens to which a history is folded: `to_tokens`, or half of `at_tokens`; 0 without both."""
        return (self.at_tokens or 0) // 2 if self.to_tokens is None else self.to_tokens

    def for_reading(self) -> Strategy:
        """Return the strategy for a loop whose results stay readable by name."""
        return self

    @abstractmethod
    def plan(self, outlines: Sequence[Outline]) -> Any:
        """Return a plan for a history of any size; None if there is nothing to do."""

    def least(self, outlines: Sequence[Outline]) -> int:
        """Return a number of tokens that every plan leaves. It reads no message, so that it may be asked often."""
        return live_tokens(outlines[last_reply(outlines) :])

    def fold(self, outlines: Sequence[Outline], beside: int = 0) -> Any:
        """Return a plan that reaches `to_tokens`. If none does, return the one that leaves the fewest tokens.

        Args:
            outlines: the outlines of the messages.
            beside: the tokens of the request besides these messages.

        """
        plan = self.plan(outlines)
        if self._rounds is None or self.at_tokens is None:
            return plan
        room = self.target - beside
        least, most = 1, min(getattr(self, self._rounds), sum(each.role == "assistant" for each in outlines)) - 1
        while least <= most and not (least == 1 and _left(plan) <= room):
            rounds = (least + most) // 2
            fewer = evolve(self, **{self._rounds: rounds}).plan(outlines)
            if (fits := _left(fewer) <= room) or _left(fewer) < _left(plan):
                plan = fewer
            least, most = (rounds + 1, most) if fits else (least, rounds - 1)
        return plan

    def _read(self, messages: Any) -> tuple[list[Outline], Any]:
        """Read a plain list of messages, which may be SDK objects.

        Returns:
            The outlines of the messages, and the plan for them. The plan is None below the threshold.

        Raises:
            TypeError: the value is not a list of messages, or a message is not JSON.

        """
        if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
            raise TypeError(f"{type(self).__name__}: expected a list of messages, got {describe_type(messages)}")
        outlines = [outline_of(_as_json(each, f"messages[{index}]")) for index, each in enumerate(messages)]
        return outlines, self.fold(outlines) if live_tokens(outlines) >= (self.at_tokens or 0) else None


def _left(plan: Any) -> float:
    """Return the tokens that a plan leaves."""
    return float("inf") if plan is None else float(plan.after)


def _as_json(message: Any, where: str) -> Any:
    """Return a copy of a message, with SDK objects converted to JSON."""
    try:
        return decode(encode(message))  # keeps lone surrogates, which the model may have sent
    except (TypeError, ValueError):
        return to_plain(message, where)


def applied(edit: Edit | None, messages: Sequence[Any], outlines: Sequence[Outline]) -> list[Any]:
    """Return a new list with the edit applied. Unchanged messages are the given objects."""
    given = dict(zip(map(id, outlines), messages, strict=True))
    edited = outlines if edit is None else edit.outlines
    return [given[id(each)] if id(each) in given else each.message() for each in edited]


@frozen(eq=False, kw_only=True)
class EditStrategy(Strategy):
    """A strategy that needs no model. Its plan is an `Edit`."""

    def __call__(self, messages: Sequence[Any]) -> list[Any]:
        """Compact a list of messages.

        Args:
            messages: the history, for example `handle.messages`. It is not modified.

        Returns:
            A new list. Unchanged messages are the same objects.

        Raises:
            TypeError: the value is not a list of messages.

        """
        outlines, edit = self._read(messages)
        return applied(edit, messages, outlines)
