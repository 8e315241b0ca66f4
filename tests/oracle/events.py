"""What happened: the only input of the machine, and the journal of a loop.

Every event may say when (`at`, seconds since the epoch) and how many active seconds it took (`seconds`, measured by the
driver; never the difference of two wall clocks). What happened in a loop inside a call says where: `path` has the ids
of the calls that lead there, from the outermost down. Messages, inputs and contents are JSON texts.
"""

from __future__ import annotations

from attrs import frozen

from tests.oracle.replies import Reply
from tests.oracle.setup import Limits, Setup
from tests.oracle.splicing import Splice
from tests.oracle.states import Failure, State
from tests.oracle.usage import IterationUsage
from tests.oracle.values import Result, Ruling, Verdict


@frozen(kw_only=True)
class Event:
    """Something that happened."""

    at: float = 0.0
    seconds: float = 0.0
    path: tuple[str, ...] = ()


@frozen
class Opened(Event):
    """A loop was set up: the first event of every journal. With a path: inside that call, which starts with it."""

    setup: Setup
    messages: tuple[str, ...]


@frozen
class Adopted(Event):
    """A loop was taken over as it stands, from a snapshot or as a fork: another first event of a journal."""

    state: State


@frozen
class Requested(Event):
    """A request goes out. Recorded before it happens. `summary`: it asks for a summary of the history, for itself."""

    summary: bool = False


@frozen
class Replied(Event):
    """A request was answered. `took`: seconds of its own, if other things were under way beside it; 0.0 is as long."""

    reply: Reply
    took: float = 0.0


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
    """The caller decided calls: all of these, or none. One inside of a call is named by its path, joined by "/"."""

    rulings: tuple[tuple[str, Ruling], ...]


@frozen
class Started(Event):
    """A call was started. Recorded before it happens. `digest`: of the call as it starts, for those who audit."""

    call_id: str
    digest: str | None = None


@frozen
class Ended(Event):
    """A call came to its end.

    Attributes:
        took: seconds of its own, beside others that ran at the same time.
        iteration, attempt: which run of which call it was, both counted from 1, so that an end that comes late does no
            harm; 0 and 0 is the run that is running now.
        above: the same of each call in `path`, for ids may come again.

    """

    call_id: str
    result: Result
    took: float = 0.0
    iteration: int = 0
    attempt: int = 0
    above: tuple[tuple[int, int], ...] = ()


@frozen
class Spent(Event):
    """The tool of a call drives a loop of its own, and a request of that was answered. `usage`: what it used."""

    call_id: str
    usage: IterationUsage


@frozen
class Cancelled(Event):
    """A call was seen to end by cancellation."""

    call_id: str


@frozen
class Ticked(Event):
    """Time passed."""


@frozen
class TurnEnded(Event):
    """A turn came to its end: the round closed, calls wait, or a limit was met."""


@frozen
class Continued(Event):
    """The caller said: go on."""


@frozen
class Injected(Event):
    """The caller added messages, and said: go on."""

    messages: tuple[str, ...]


@frozen
class Stopped(Event):
    """The caller said: stop."""

    reason: str | None = None


@frozen
class HistoryEdited(Event):
    """The caller put another history in the place of the closed one.

    Attributes:
        messages: the whole of it, where there are no splices.
        splices: what changed in it.

    """

    messages: tuple[str, ...] = ()
    splices: tuple[Splice, ...] = ()


@frozen
class ReplyDiscarded(Event):
    """The caller's own history counts, and the open round or pause is none of it: it is gone, with all its calls.

    Attributes:
        splices: what changed in the closed history.
        keeps_tail: what waited beside the history before that reply stays there.

    """

    splices: tuple[Splice, ...] = ()
    keeps_tail: bool = False


@frozen
class RoundAdopted(Event):
    """The caller's own history counts, and it ends with calls that are not all answered: they are the open round.

    Attributes:
        splices: what changed in the closed history, which ends before that round.
        reply: the assistant message with the calls.
        results: by call id, what the caller answered.
        after: the messages of the caller that follow these.
        keeps_tail: what waited beside the history before the open reply stays there, before the round.

    """

    splices: tuple[Splice, ...]
    reply: str
    results: tuple[tuple[str, Result], ...] = ()
    after: tuple[str, ...] = ()
    keeps_tail: bool = False


@frozen
class CallsReopened(Event):
    """The caller wants calls run again that ran and have their results: these are gone."""

    call_ids: tuple[str, ...]


@frozen
class Compacted(Event):
    """The closed history was compacted. It ends the request for a summary, if the driver made one.

    Attributes:
        strategy: which one did it.
        splices: what changed in it; none where nothing did.
        before, after: about how many tokens there were, and are.
        summary: what the request for a summary used, if that was answered.
        problem: why nothing changed.
        by_hand: the caller did it, and not the driver between turns.

    """

    strategy: str
    splices: tuple[Splice, ...] = ()
    before: int = 0
    after: int = 0
    summary: IterationUsage | None = None
    problem: str | None = None
    by_hand: bool = False


@frozen
class ParamsChanged(Event):
    """The caller changed the request parameters. `params`: all of them; `changed`: the names of those given."""

    params: str
    changed: tuple[str, ...] = ()


@frozen
class GrantRevoked(Event):
    """The caller took a grant back: later calls do not run by it. `by`: who, for the record."""

    grant_id: str
    by: str | None = None


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

    Attributes:
        setup: what the loop is set up with from here on, where that is another.
        driver: who took it up, for the record.

    """

    setup: Setup | None = None
    driver: str | None = None


@frozen
class Forked(Event):
    """This loop is a copy of another, from here on a loop of its own."""

    loop_id: str
