"""Events: the only input of the machine, and the entries of its journal.

Each event may have two times: `at`, when it happened, in seconds since the epoch; and `seconds`, the active time since
the last event that has one. The driver measures `seconds`; it is never the difference of two wall clocks. Drivers omit
both in events that follow from others: `Requested`, `Started`, `TurnEnded`, and a `Judged` that lets every call run.
A command that a person gives elsewhere has `said_at` instead: the clock of a person does not advance the time of the
loop. Decisions have a time each, which counts for their own calls only.
An event of a loop inside a call has the `path` of that loop: the ids of the calls from the outermost down. Messages,
inputs and contents are JSON texts.
"""

from __future__ import annotations

from attrs import frozen

from toolloop._usage import Cost, IterationUsage
from toolloop.machine.record.loop import Failure, State, Thread
from toolloop.machine.record.replies import ParsedReply
from toolloop.machine.values.calls import DecisionRecord, PolicyResult, Result
from toolloop.machine.values.setup import Limits, Setup
from toolloop.machine.values.splicing import Splice


@frozen(kw_only=True)
class Event:
    """Something that happened."""

    at: float = 0.0
    seconds: float = 0.0
    path: tuple[str, ...] = ()
    said_at: float = 0.0


@frozen
class Opened(Event):
    """A loop was set up: the first event of a journal. With a path, it also starts the call that the loop is inside."""

    setup: Setup
    messages: tuple[str, ...]


@frozen
class Adopted(Event):
    """A loop was copied from a snapshot or a fork: the other possible first event of a journal.

    Attributes:
        forked_from: the id of the loop that it is a fork of; None for a snapshot.
        iteration, message: the iteration after which, or the id of the message before which it begins; 0 and None: it
            is a copy of that loop as it was.
        by, via: who forked it, and where, for the record.

    """

    state: State
    forked_from: str | None = None
    iteration: int = 0
    message: str | None = None
    by: str | None = None
    via: str | None = None


@frozen
class Requested(Event):
    """A request is about to be sent. Recorded before it is sent.

    `is_priced`: whether its loop has prices. Then a request whose end is never known has a cost that is not known.
    """

    is_priced: bool = False


@frozen
class Replied(Event):
    """A request was answered.

    Attributes:
        took: its duration in seconds.
        thread: the messages that the server holds now; None if the request did not use a thread.
        costs: the costs of the reply's parts, in their order; empty if no prices were set.

    """

    reply: ParsedReply
    took: float = 0.0
    thread: Thread | None = None
    costs: tuple[Cost, ...] = ()


@frozen
class RequestFailed(Event):
    """A request was not answered.

    Attributes:
        failure: the reason; None if it was cancelled, or if it is repeated without the thread that the server refused.
        thread: the new state of that thread, with the reason; None if no thread was refused.
        spent: the usage of a request that was given up, as far as it is known.
        response: the JSON text of the part of its reply that had arrived.

    """

    failure: Failure | None = None
    thread: Thread | None = None
    spent: IterationUsage | None = None
    response: str | None = None


@frozen
class Judged(Event):
    """The policies judged the calls. A call without a policy result may run.

    Attributes:
        results: by call id, in the model's order.
        stop: `stop_when` ended the loop, with `reason`.
        problems: why the answer is not one of the class of the result, with a text for each field.
        only: the calls that were judged, in a round with members of toolsets; empty: all that had to be.

    """

    results: tuple[tuple[str, PolicyResult], ...] = ()
    stop: bool = False
    reason: str | None = None
    problems: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


@frozen
class Decided(Event):
    """The caller decided calls: all decisions apply, or none. A call in a nested loop is named by its path: `p1/c1`."""

    decisions: tuple[tuple[str, DecisionRecord], ...]


@frozen
class Approved(Decided):
    """The caller decided calls, and at least one of them needs more approvals. Else it is a `Decided`."""


@frozen
class Started(Event):
    """A call was started. Recorded before its tool runs. `digest`: the first characters of the call's digest."""

    call_id: str
    digest: str | None = None


@frozen
class Ended(Event):
    """A call ended.

    Attributes:
        result: None if it was cancelled, so that its effects are unknown.
        took: the duration of the call in seconds.
        iteration, attempt: the run of the call, both counted from 1, so that a late end is recognized; 0 and 0 mean
            the run in progress.
        above: the same for each call in `path`, because ids may repeat.
        spent: the usage of requests made by loops that the tool itself drove.

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
    """The turn ended: the round closes, calls wait, or a limit was reached.

    Attributes:
        previews: of uncertain calls that have none, by call id.
        waits: whether a limit waits for the calls that run; false in old journals, which settle them as cancelled.

    """

    previews: tuple[tuple[str, str], ...] = ()
    waits: bool = False


@frozen
class Continued(Event):
    """The caller continued the loop, or retried a failed request.

    Attributes:
        messages: injected messages.
        by: who did it, and `via` where, for the record.

    """

    messages: tuple[str, ...] = ()
    by: str | None = None
    via: str | None = None


@frozen
class Stopped(Event):
    """The caller stopped the loop.

    Attributes:
        by, via: who and where, for the record.
        waits: whether the calls that run are waited for, because a driver may run them. If not, they are settled as
            cancelled, as in old journals.
        is_abandoned: whether no driver is left that could end the request in progress.

    """

    reason: str | None = None
    by: str | None = None
    via: str | None = None
    waits: bool = False
    is_abandoned: bool = False


@frozen
class HistoryEdited(Event):
    """The closed history was replaced: by the caller, or by a compaction.

    Attributes:
        splices: the changes; empty if a compaction changed nothing.
        strategy: the name of the compaction strategy; None for an edit by the caller.
        before, after: the estimated tokens of a request, before and after.
        spent: the usage of the request for a summary.
        problem: the reason why a compaction changed nothing.

    """

    splices: tuple[Splice, ...] = ()
    strategy: str | None = None
    before: int = 0
    after: int = 0
    spent: IterationUsage | None = None
    problem: str | None = None


@frozen
class HistoryTaken(Event):
    """The caller of a runner edited its history, which replaces the loop's history, open round and pause.

    Attributes:
        splices: the changes of the closed history.
        reply: the assistant message with calls at its end, which is the open round; None if there is none.
        keeps_unjoined: whether unjoined messages before the open reply are kept.
        beside: the number of messages at the end that stay unjoined, because only a resumption may follow them.
        rerun: the ids of calls of the round that must run again; their results are dropped.
        via: where the caller ordered that, for the record; None in old journals, where no policy judged it.

    """

    splices: tuple[Splice, ...] = ()
    reply: str | None = None
    keeps_unjoined: bool = False
    rerun: tuple[str, ...] = ()
    via: str | None = None
    beside: int = 0


@frozen
class Changed(Event):
    """The caller changed parameters or limits. `names`: the parameters that were given. `by`, `via`: who and where."""

    params: str | None = None
    names: tuple[str, ...] = ()
    limits: Limits | None = None
    by: str | None = None
    via: str | None = None


@frozen
class GrantRevoked(Event):
    """The caller revoked a grant. `by`, `via`: who and where, for the record."""

    grant_id: str
    by: str | None = None
    via: str | None = None


@frozen
class LinksRevoked(Event):
    """A person revoked links.

    Attributes:
        call: the links to this call, its path joined with slashes; None: all links of the loop.
        by, via: who and where, for the record.

    """

    call: str | None = None
    by: str | None = None
    via: str | None = None


@frozen
class MetadataChanged(Event):
    """The metadata of the loop was changed. The row of the loop has all of it.

    Attributes:
        changes: for each key, the value before and after, or None without one.
        by, via: who and where, for the record.

    """

    changes: tuple[tuple[str, str | None, str | None], ...]
    by: str | None = None
    via: str | None = None


@frozen
class FollowedUp(Event):
    """The caller began another user turn. `replace_last`: it replaces the last one. `by`, `via`: who and where."""

    messages: tuple[str, ...]
    replace_last: bool = False
    by: str | None = None
    via: str | None = None


@frozen
class Said(Event):
    """A person said something: it begins a user turn, or is kept until the API allows it.

    Attributes:
        id: its id in this loop, which is also the id of this event in a store.
        by, via: who and where.
        tools: the definitions of tools that it brings, as JSON texts. A person's front end answers their calls.

    """

    id: str
    messages: tuple[str, ...]
    by: str | None = None
    via: str | None = None
    tools: tuple[str, ...] = ()


@frozen
class Withdrawn(Event):
    """A person withdrew kept messages. `id`: that of their `Said`. `by`, `via`: who and where."""

    id: str
    by: str | None = None
    via: str | None = None


@frozen
class Woken(Event):
    """Another driver took the loop over. Calls that were running are interrupted.

    Attributes:
        setup: the setup of the loop from now on; None if it is unchanged.
        driver: the new driver, for the record.
        changed_tools: the names of tools whose change this driver accepted. Calls of them that persons decide lose
            their approvals. In a nested loop, the names of the outer tools precede them, joined with slashes.
        rebinds: whether open calls of these tools get another digest, so that decisions on the old definition are
            refused. False in old journals, whose decisions have the digests that stayed.

    """

    setup: Setup | None = None
    driver: str | None = None
    changed_tools: tuple[str, ...] = ()
    rebinds: bool = False


@frozen
class Restored(Event):
    """The store was restored from a backup: nothing goes on before a person has decided about it.

    Attributes:
        runs: the runs of calls that a driver had started and that this journal lacks, each with the path of its call
            joined with slashes, its iteration and its attempt.
        by, via: who said that the store was restored, and where, for the record; None if a driver noticed it.

    """

    runs: tuple[tuple[str, int, int], ...] = ()
    by: str | None = None
    via: str | None = None


@frozen
class Ticked(Event):
    """Time passed."""
