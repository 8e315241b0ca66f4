"""What happened: the only input of the machine, and the journal of a loop.

Every event may say when (`at`, seconds since the epoch) and how many active seconds it took (`seconds`, measured by the
driver; never the difference of two wall clocks). Messages, inputs and contents are JSON texts.
"""

from __future__ import annotations

from attrs import frozen

from toolloop.core.replies import Reply
from toolloop.core.setup import Limits, Setup
from toolloop.core.states import Failure
from toolloop.core.values import Result, Ruling, Verdict


@frozen(kw_only=True)
class Event:
    """Something that happened."""

    at: float = 0.0
    seconds: float = 0.0


@frozen
class Opened(Event):
    """A loop was set up: the first event of every journal."""

    setup: Setup
    messages: tuple[str, ...]


@frozen
class Replied(Event):
    """A request was answered."""

    reply: Reply


@frozen
class RequestFailed(Event):
    """A request was not answered."""

    failure: Failure


@frozen
class RequestCancelled(Event):
    """A request was given up before its reply came."""


@frozen
class Judged(Event):
    """The policies had their say. A call without a verdict may run.

    Attributes:
        verdicts: by call id, in the model's order.
        stop: `stop_when` ended the loop, for `reason`.

    """

    verdicts: tuple[tuple[str, Verdict], ...] = ()
    stop: bool = False
    reason: str | None = None


@frozen
class Decided(Event):
    """The caller decided calls: all of these, or none."""

    rulings: tuple[tuple[str, Ruling], ...]


@frozen
class Started(Event):
    """A call was started. Recorded before it happens."""

    call_id: str


@frozen
class Ended(Event):
    """A call came to its end. `took`: seconds of its own, beside others that ran at the same time."""

    call_id: str
    result: Result
    took: float = 0.0


@frozen
class Cancelled(Event):
    """A call was seen to end by cancellation."""

    call_id: str


@frozen
class TurnEnded(Event):
    """A turn came to its end: the round closed, calls wait, or a limit was met."""


@frozen
class Continued(Event):
    """The caller said: go on."""


@frozen
class Injected(Event):
    """The caller added messages, and said: go on. `hold`: a request is under way, so they come after its reply."""

    messages: tuple[str, ...]
    hold: bool = False


@frozen
class Stopped(Event):
    """The caller said: stop."""

    reason: str | None = None


@frozen
class HistoryEdited(Event):
    """The caller put another history in the place of the closed one."""

    messages: tuple[str, ...]


@frozen
class ParamsChanged(Event):
    """The caller changed the request parameters. `params`: all of them; `changed`: the names of those given."""

    params: str
    changed: tuple[str, ...] = ()


@frozen
class FollowedUp(Event):
    """The caller began a further user turn. `replace_last`: in the place of the last one."""

    messages: tuple[str, ...]
    replace_last: bool = False


@frozen
class Extended(Event):
    """The caller set other limits."""

    limits: Limits


@frozen
class Retried(Event):
    """The caller wants the failed request made again."""


@frozen
class Woken(Event):
    """Another driver took the loop up: whatever ran in the old one, nobody will see end.

    `setup`: what the loop is set up with from here on, where that is another.
    """

    setup: Setup | None = None


@frozen
class Forked(Event):
    """This loop is a copy of another, from here on a loop of its own."""

    loop_id: str
