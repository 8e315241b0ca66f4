"""Ask the application what a person may see and do."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

from toolloop._drivers.event_loops import await_from_thread
from toolloop._interface.people import person_of
from toolloop.errors import NotAllowed, StoreError
from toolloop.machine.values.calls import Grant
from toolloop.machine.values.jsontext import describe_type
from toolloop.machine.values.names import Person
from toolloop.stores.arguments import check_metadata
from toolloop.stores.protocol import StoredLoop
from toolloop.tools.calls import ToolCall
from toolloop.tools.signature import is_async

LOG = logging.getLogger("toolloop.inbox")
Action = Literal["approve", "deny", "answer", "rerun", "say", "stop", "retry", "grant", "link", "fork", "metadata"]
Seen = Sequence[Mapping[str, str]] | None
May = Callable[[Person, Action, StoredLoop, ToolCall | None], bool | Awaitable[bool]]
Sees = Callable[[Person], Seen | Awaitable[Seen]]


@frozen
class Rights:
    """What one person may see and do.

    Attributes:
        person: the person.
        may: returns whether the person may do something; None: everything.
        sees: returns the metadata of the loops that the person sees; None: all loops.

    """

    person: Person
    may: Callable[..., bool] | None = None
    sees: Callable[[], list[dict[str, str]] | None] | None = None

    @classmethod
    def of(cls, person: str | Person, may: May | None, sees: Sees | None, *, may_wait: bool) -> Rights:
        """Check the arguments of `Inbox.as_`.

        Args:
            person: the person.
            may: see `Inbox.as_`.
            sees: likewise.
            may_wait: whether the functions may be async, because an event loop waits for this.

        Raises:
            TypeError: an argument has a wrong type, or a function is async.
            ValueError: the name of the person is refused.

        """
        name, groups = person_of(person)
        if name is None:
            raise TypeError("as_(): expected the name of a person, or a Person, got None")
        for what, function in (("may", may), ("sees", sees)):
            if not (function is None or callable(function)):
                raise TypeError(f"{what} is {describe_type(function)}; give a function")
            if function is not None and is_async(function) and not may_wait:
                raise TypeError(f"{what} is async, but Inbox is sync: use AsyncInbox, or give a sync function")
        who = Person(name, groups)
        asked = None if sees is None else _Seeing(who, with_answers(sees) if may_wait else sees)
        return cls(who, None if may is None else careful(with_answers(may) if may_wait else may), asked)

    @property
    def are_limited(self) -> bool:
        """Whether the application decides what the person may see or do."""
        return self.may is not None or self.sees is not None

    def allow(self, action: Action, loop: StoredLoop, call: ToolCall | None = None) -> bool:
        """Return whether the person may do something to a loop, or decide a call as it would run."""
        return self.may is None or self.may(self.person, action, loop, call)

    def check_grant(self, grant: Grant) -> None:
        """Refuse a grant of more than the call that `may` was asked about: this tool, with exactly this input.

        Raises:
            NotAllowed: it covers another tool, or other inputs.

        """
        if self.may is not None and (grant.tool is not None or grant.match is not None):
            raise NotAllowed(
                f"{self.person.name} may let calls run only with exactly the input that was approved: "
                "leave out `tool` and `match` of the Grant"
            )

    def check(self, action: Action, loop: StoredLoop, call: ToolCall | None = None) -> None:
        """Refuse what the person may not do.

        Raises:
            NotAllowed: the person may not do that.

        """
        if not self.allow(action, loop, call):
            what = "" if call is None else f"the call {'/'.join(call.path)!r} of "
            raise NotAllowed(f"{self.person.name} is not allowed to {_VERBS[action]} {what}the loop {loop.loop_id!r}")


_VERBS: Mapping[Action, str] = {
    "approve": "approve",
    "deny": "deny",
    "answer": "answer",
    "rerun": "run again",
    "say": "send messages to",
    "stop": "stop",
    "retry": "retry",
    "grant": "give or revoke grants in",
    "link": "make or revoke links to",
    "fork": "fork",
    "metadata": "change the metadata of",
}


def careful(may: Callable[..., Any]) -> Callable[..., bool]:
    """Return the function so that all but True means no. What it raises, and other values, are logged once."""
    if isinstance(may, _Careful):
        return may
    return _Careful(may)


class _Careful:
    def __init__(self, may: Callable[..., Any]) -> None:
        self._may = may
        self._has_failed = False

    def __call__(self, person: Person, action: Action, loop: StoredLoop, call: ToolCall | None = None) -> bool:
        try:
            answer = self._may(person, action, loop, call)
            if isinstance(answer, bool):
                return answer
            raise TypeError(f"may: expected True or False, got {answer!r:.80}")  # noqa: TRY301 - one log
        except Exception:
            if not self._has_failed:
                LOG.exception("may= failed, which counts as no; further failures are not logged")
            self._has_failed = True
            return False


@frozen
class _Seeing:
    person: Person
    asked: Callable[[Person], Any]

    def __call__(self) -> list[dict[str, str]] | None:
        """Return the metadata of the loops that the person sees.

        Raises:
            StoreError: the function failed, so that it is not known.

        """
        try:
            return seen_of(self.asked(self.person))
        except Exception as error:
            what = f"it is not known which loops {self.person.name} sees: sees= failed"
            raise StoreError(f"{what}: {type(error).__name__}: {error}") from error


def seen_of(answer: object) -> list[dict[str, str]] | None:
    """Check what `sees` returned.

    Raises:
        TypeError, ValueError: it is neither None nor a list of metadata.

    """
    if answer is None:
        return None
    if isinstance(answer, str | Mapping) or not isinstance(answer, Sequence):
        raise TypeError(f"sees: expected None or a list of mappings, got {describe_type(answer)}")
    if None in answer:  # it would fit every loop
        raise TypeError("sees: expected a list of mappings, got None in it")
    return [check_metadata(each) for each in answer]


def with_answers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for a thread. It waits for what the function returns, in the event loop of its caller."""

    def ask(*given: Any) -> Any:
        answer = function(*given)
        return await_from_thread(answer) if inspect.isawaitable(answer) else answer

    return ask
