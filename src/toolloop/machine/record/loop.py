"""The record of one loop, and its phases.

`Loop` holds the data that outlives a phase. A phase holds only the data that ends with it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import is_not
from typing import Literal, NamedTuple, overload

from attrs import field, frozen

from toolloop._usage import IterationUsage, Usage
from toolloop.machine.values.calls import Call, StandingGrant, Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.setup import Setup
from toolloop.machine.values.stop_reasons import ReplyAction
from toolloop.terminations import Termination

WaitReason = Literal["decision_required", "tools_executed", "paused"]


class RoundCalls(Sequence[Call]):
    """The calls of a round, in the model's order: an immutable sequence, indexed by id and by status.

    Each start and each end of a call makes a new version. A version copies positions and references, not calls, so an
    event stays cheap in a round of many calls.

    Args:
        calls: the calls.

    Raises:
        ValueError: two calls have the same id.

    """

    __slots__ = ("_by_status", "_calls", "_places")

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        """Index the calls."""
        self._calls = list(calls)
        self._places = {call.id: place for place, call in enumerate(self._calls)}
        self._by_status: dict[Status, list[int]] = {}  # the places of the calls in each status, ascending
        for place, call in enumerate(self._calls):
            self._by_status.setdefault(call.status, []).append(place)
        if len(self._places) < len(self._calls):
            raise ValueError("two calls of a round have the same id")

    def find(self, call_id: str) -> Call | None:
        """Return the call with this id, if there is one."""
        place = self._places.get(call_id)
        return None if place is None else self._calls[place]

    def having(self, status: Status) -> list[Call]:
        """Return the calls with a status, in the model's order."""
        return list(map(self._calls.__getitem__, self._by_status.get(status, ())))

    def replace(self, changed: Iterable[Call]) -> RoundCalls:
        """Return a new version in which these calls replace those with the same ids."""
        new = RoundCalls.__new__(RoundCalls)
        new._places = self._places  # noqa: SLF001 - it is made here
        new._calls = calls = self._calls.copy()  # noqa: SLF001 - likewise
        new._by_status = by_status = {status: places.copy() for status, places in self._by_status.items()}  # noqa: SLF001 - likewise
        for call in changed:
            place = self._places[call.id]
            before, calls[place] = calls[place].status, call
            if before is not call.status:
                del by_status[before][bisect_left(by_status[before], place)]
                insort(by_status.setdefault(call.status, []), place)
        return new

    def changes(self, older: RoundCalls) -> Iterator[tuple[Call, Call]]:
        """Return each call that differs from an older version of these calls, as (old, new)."""
        changed = compress(self, map(is_not, older, self))
        return ((older._calls[self._places[call.id]], call) for call in changed)

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls)

    @overload
    def __getitem__(self, index: int) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> list[Call]: ...
    def __getitem__(self, index: int | slice) -> Call | list[Call]:
        return self._calls[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoundCalls) and self._calls == other._calls

    def __hash__(self) -> int:
        return hash(tuple(self._calls))

    def __reduce__(self) -> tuple[type[RoundCalls], tuple[list[Call]]]:
        return RoundCalls, (self._calls,)

    def __repr__(self) -> str:
        return f"RoundCalls({self._calls})"


def _round_calls(calls: Iterable[Call]) -> RoundCalls:
    return calls if isinstance(calls, RoundCalls) else RoundCalls(calls)


@frozen
class Round:
    """An assistant message with its calls, until each call has its result.

    Attributes:
        iteration: the number of the reply, counted from 1.
        reply: the text of the assistant message that will join the history; None if no block of it may join.
        calls: in the model's order.

    """

    iteration: int
    reply: str | None
    calls: RoundCalls = field(factory=RoundCalls, converter=_round_calls)

    def find(self, call_id: str) -> Call | None:
        """Return the call with this id, if it is in this round."""
        return self.calls.find(call_id)

    def having(self, status: Status) -> list[Call]:
        """Return the calls with this status, in the model's order."""
        return self.calls.having(status)


@frozen
class Failure:
    """Why a request failed, as data. The handle makes an exception of it. `path`: of the loop that sent the request."""

    kind: Literal["model", "protocol"]
    message: str
    status: int | None = None
    error_type: str | None = None
    retryable: bool = False
    retry_after: float | None = None
    request_id: str | None = None
    path: tuple[str, ...] = ()


@frozen
class Thread:
    """The messages that the server holds, so that a request sends only new ones (source: rule 38).

    Changes of the history do not change this record. A request continues the thread only if it begins with exactly the
    messages that the server holds.

    Attributes:
        message_id: the id of the last reply that the server holds; None if requests with this prefix use no thread.
        covers: how many messages the server holds, including that reply.
        fingerprint: a digest of these messages and of the parts that a thread freezes: model, system prompt, tools and
            betas.
        refused: why the server refused the previous thread, until this one is continued.

    """

    message_id: str | None
    covers: int
    fingerprint: str
    refused: str | None = None


@frozen
class Repetition:
    """How often the last closed round was repeated in this user turn.

    Attributes:
        calls: a digest of its calls.
        results: a digest of its calls with their results.
        count: how many times in a row it occurred.
        warning: the last warning message to the model.

    """

    calls: str = ""
    results: str = ""
    count: int = 0
    warning: str | None = None


@frozen
class Kept:
    """Messages that a person said and that have not joined the history yet. Until then they can be withdrawn.

    Attributes:
        id: their id in the loop; empty for messages that a command injected after others were kept.
        by: who said them.
        at: when they were said, in seconds since the epoch.

    """

    id: str
    messages: tuple[str, ...]
    by: str | None = None
    at: float = 0.0


@frozen
class Ready:
    """The next step is a request."""


@frozen
class Requesting:
    """A request is in progress. `stopping`: the caller has stopped the loop meanwhile, with `reason`."""

    stopping: bool = False
    reason: str | None = None


@frozen
class Judging:
    """The reply has arrived. `stop_when` and the policies are called before any call runs."""

    action: ReplyAction = ReplyAction.RUN


@frozen
class Running:
    """Calls run, or may start."""


@frozen
class Waiting:
    """It is the caller's turn. `closed`: the round that closed at the end of the turn."""

    reason: WaitReason
    closed: Round | None = None


@frozen
class ResumePoint:
    """The point at which a limit ended the loop. `extend` continues here. Calls of its round may still run.

    Attributes:
        kept: how many messages of the history to keep; the later ones joined when the loop ended.
        parted: the system messages after them, which were moved because a system message must be last.

    """

    kept: int
    parted: tuple[str, ...]
    unjoined: tuple[str, ...]
    queued: tuple[str, ...]
    round: Round | None
    container: str | None


@frozen
class Stopping:
    """The loop is to end with `termination`. Nothing starts any more, and the calls that run are waited for."""

    termination: Termination


@frozen
class Finished:
    """The loop has ended. `resume_point`: only after a limit."""

    termination: Termination
    resume_point: ResumePoint | None = None


@frozen
class Failed:
    """A request failed. Nothing was consumed, and the caller can retry it."""

    failure: Failure


@frozen
class TooDeep:
    """The loop is nested too deep to run at all."""


Phase = Ready | Requesting | Judging | Running | Waiting | Stopping | Finished | Failed | TooDeep


class Loop(NamedTuple):
    """One loop. A named tuple, because each event copies it and C code copies tuples: `loop._replace(phase=Ready())`.

    Attributes:
        messages: the closed history, each message as its JSON text.
        unjoined: messages after the history, where the API allows only a resumption: paused replies, and rounds with
            open server calls. They join when the model ends its turn.
        round: the open round.
        queued: injected messages, until the API allows them.
        response: the last reply, verbatim.
        container: the id of the container that runs the code of the model's open turn.
        started: the ids of the calls that were started; for calls of nested loops, their paths joined with "/".
        iterations: answered requests. `turn_iterations` and `active` (seconds) count since the last user turn.
        pauses: how many times in a row the model paused.
        now: the latest time of any event, in seconds since the epoch; it never decreases.
        grants: in the order in which they were given. Used and expired grants stay; revoked ones are removed.
        repetition: how often the model repeated its last round in this user turn.
        stale_thinking: in this many messages (history, unjoined messages and open reply), thinking is stale: its prefix
            has changed since it was produced.
        edited_at: the number of answered requests when the history was last replaced.
        compacted: the tokens left by the last run of each compaction strategy, by its name.
        thread: the messages that the server holds; None if no request used a thread.
        kept: what persons said, until the API allows it. It joins after `queued`, and outlives the end of the loop.
        said: the ids of all that persons said, so that nothing is said twice.

    """

    setup: Setup
    messages: Chain[str]
    phase: Phase = Ready()
    unjoined: tuple[str, ...] = ()
    round: Round | None = None
    queued: tuple[str, ...] = ()
    response: str | None = None
    container: str | None = None
    usage_log: Chain[IterationUsage] = Chain()
    total_usage: Usage = Usage()
    started: Chain[str] = Chain()
    iterations: int = 0
    turn_iterations: int = 0
    pauses: int = 0
    active: float = 0.0
    now: float = 0.0
    grants: tuple[StandingGrant, ...] = ()
    repetition: Repetition = Repetition()
    stale_thinking: int = 0
    edited_at: int = 0
    compacted: tuple[tuple[str, int], ...] = ()
    thread: Thread | None = None
    kept: tuple[Kept, ...] = ()
    said: Chain[str] = Chain()


def round_of(loop: Loop) -> Round | None:
    """Return the open round; after a limit, the round with which the loop resumes."""
    if isinstance(loop.phase, Finished):
        return loop.phase.resume_point.round if loop.phase.resume_point else None
    return loop.round


def is_over(loop: Loop) -> bool:
    """Return whether a loop inside a call has ended. A failure that can be retried is not an end."""
    match loop.phase:
        case Failed(failure=failure):
            return not failure.retryable
        case Finished() | TooDeep():
            return True
    return False
