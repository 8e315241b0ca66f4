"""What both drivers have in common for the rooms above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from toolloop._engine.engine import Engine


class AnyNotifier(Protocol):
    """Notifies a driver: a `Notifier` or an `AsyncNotifier`."""

    def notify(self) -> None:
        """Notify the driver, from any thread."""


class Driver(Protocol):
    """The driver that performs the operations of an engine: a `SyncDriver` or an `AsyncDriver`."""

    is_async: ClassVar[bool]

    @property
    def notifier(self) -> AnyNotifier:
        """Notifies it while it waits."""
        ...

    def __init__(
        self, engine: Engine, notifier: Any, when_late: Callable[[], None], *, leaves_behind: bool = False
    ) -> None:
        """Drive with an engine.

        Args:
            engine: decides which operation comes next.
            notifier: made by `make_notifier`.
            when_late: called in the thread of a tool that ends between two turns.
            leaves_behind: see `DriveOptions`.

        """

    @staticmethod
    def make_notifier(engine: Engine, /) -> AnyNotifier:
        """Return a notifier for a driver of this engine."""
        ...

    def drive(self, result: Callable[[], Any], unread: Any = None) -> Any:
        """Drive until it is the caller's turn.

        Args:
            result: returns the result of the turn; None while it is not over.
            unread: the `Unread` or `AsyncUnread` of the turn's reader; None means that the turn is not streamed.

        """


D = TypeVar("D", bound=Driver)
