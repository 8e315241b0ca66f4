"""What happened to a loop: the only input of the machine, and the entries of its journal.

Each event may say when it happened (`at`, seconds since the epoch) and how many active seconds passed since the last
event that says so (`seconds`, as measured by the driver, never the difference of two wall clocks). Drivers leave both
out of what follows by itself: `Requested`, `Started`, `TurnEnded`, and a `Judged` that lets every call run. An event of
a loop inside a call has the `path` to it: the ids of the calls from the outermost down. Messages, inputs and contents
are JSON texts.
"""

from __future__ import annotations

from attrs import frozen

from toolloop.machine.loop import Failure, Thread
from toolloop.machine.replies import Reply
from toolloop.machine.setup import Limits, Setup
from toolloop.machine.splicing import Splice
from toolloop.machine.state import State
from toolloop.machine.usage import IterationUsage
from toolloop.machine.values import DecisionRecord, PolicyResult, Result


@frozen(kw_only=True)
class Event:
    """Something that happened."""

    at: float = 0.0
    seconds: float = 0.0
    path: tuple[str, ...] = ()


@frozen
class Opened(Event):
    """A loop was set up: the first event of a journal. With a path: inside that call, which starts with it."""

    setup: Setup
    messages: tuple[str, ...]


@frozen
class Adopted(Event):
    """A loop was taken over as it is, from a snapshot or as a fork: the other possible first event of a journal."""

    state: State


@frozen
class Requested(Event):
    """A request goes out. Recorded before it is sent."""


@frozen
class Replied(Event):
    """A request was answered.

    Attributes:
        took: how many seconds it took.
        thread: what the server holds from now on; None if the request was of no thread.

    """

    reply: Reply
    took: float = 0.0
    thread: Thread | None = None


@frozen
class RequestFailed(Event):
    """A request was not answered.

    Attributes:
        failure: why; None if it was cancelled, or is made again without the thread that the server refused.
        thread: what is known of that thread from now on, with the reason; None if no thread was refused.

    """

    failure: Failure | None = None
    thread: Thread | None = None


@frozen
class Judged(Event):
    """The policies were asked. A call without a result of a policy may run.

    Attributes:
        results: by call id, in the model's order.
        stop: `stop_when` ended the loop, for `reason`.

    """

    results: tuple[tuple[str, PolicyResult], ...] = ()
    stop: bool = False
    reason: str | None = None


@frozen
class Decided(Event):
    """The caller decided calls: all of these, or none. A call in a nested loop is named by its path, joined by "/"."""

    decisions: tuple[tuple[str, DecisionRecord], ...]


@frozen
class Started(Event):
    """A call was started. Recorded before its tool runs. `digest`: how the digest of the call as it starts begins."""

    call_id: str
    digest: str | None = None


@frozen
class Ended(Event):
    """A call ended.

    Attributes:
        result: None if it was cancelled, so that its effects are not known.
        took: how many seconds this call took.
        iteration, attempt: which run of which call it was, both counted from 1, so that a late end does no harm; 0 and
            0 mean the run in progress.
        above: the same of each call in `path`, because ids may repeat.
        spent: the usage of requests that loops driven by the tool itself made.

    """

    call_id: str
    result: Result | None
    took: float = 0.0
    iteration: int = 0
    attempt: int = 0
    above: tuple[tuple[int, int], ...] = ()
    spent: tuple[IterationUsage, ...] = ()


@frozen
class TurnEnded(Event):
    """Nothing more can be done in this turn: the round closes, calls wait, or a limit was met."""


@frozen
class Continued(Event):
    """The caller continued the loop, or retries a failed request. `messages`: what they inject. `by`: who did."""

    messages: tuple[str, ...] = ()
    by: str | None = None


@frozen
class Stopped(Event):
    """The caller stopped the loop. `by`: who, for the record."""

    reason: str | None = None
    by: str | None = None


@frozen
class HistoryEdited(Event):
    """The closed history was replaced: by the caller, or by a compaction.

    Attributes:
        splices: what changed; empty if a compaction changed nothing.
        strategy: the name of the compaction.
        before, after: about how many tokens a request had, and has now.
        spent: the usage of the request for a summary.
        problem: why a compaction changed nothing.

    """

    splices: tuple[Splice, ...] = ()
    strategy: str | None = None
    before: int = 0
    after: int = 0
    spent: IterationUsage | None = None
    problem: str | None = None


@frozen
class HistoryTaken(Event):
    """The caller of a runner edited its history, which replaces that of the loop with its open round and pause.

    Attributes:
        splices: what changed in the closed history.
        reply: the assistant message with calls that it ends with, which is the open round; None if it has none.
        keeps_unjoined: what was beside the history before the open reply stays there.
        rerun: ids of calls of the round that are to run again; their results are gone.

    """

    splices: tuple[Splice, ...] = ()
    reply: str | None = None
    keeps_unjoined: bool = False
    rerun: tuple[str, ...] = ()


@frozen
class Changed(Event):
    """The caller changed parameters or limits. `names`: the parameters that were given."""

    params: str | None = None
    names: tuple[str, ...] = ()
    limits: Limits | None = None


@frozen
class GrantRevoked(Event):
    """The caller revoked a grant. `by`: who, for the record."""

    grant_id: str
    by: str | None = None


@frozen
class FollowedUp(Event):
    """The caller began a further user turn. `replace_last`: it replaces the last one. `by`: who, for the record."""

    messages: tuple[str, ...]
    replace_last: bool = False
    by: str | None = None


@frozen
class Woken(Event):
    """Another driver took the loop over: the ends of runs in the old one will not be recorded.

    Attributes:
        setup: of the loop from here on; None if it is the same.
        driver: who took it over, for the record.

    """

    setup: Setup | None = None
    driver: str | None = None


@frozen
class Ticked(Event):
    """Time passed."""
