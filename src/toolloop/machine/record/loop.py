"""The record of one loop and its phases, and the state: a loop with the loops inside its calls.

`Loop` holds the data that outlives a phase. A phase holds only the data that ends with it; its `round` is the open one,
or None. `State` is a flat map of loops, by path of call ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

from attrs import evolve, field, frozen

from toolloop._usage import IterationUsage, Usage
from toolloop.machine.record.round_calls import NO_CALLS, RoundCalls
from toolloop.machine.values.calls import Call, StandingGrant, Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.setup import Setup
from toolloop.machine.values.stop_reasons import ReplyAction
from toolloop.terminations import Termination

Path = tuple[str, ...]
WaitReason = Literal["decision_required", "tools_executed", "paused"]


def _to_round_calls(calls: Iterable[Call]) -> RoundCalls:
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
    calls: RoundCalls = field(factory=RoundCalls, converter=_to_round_calls)

    @property
    def reply_messages(self) -> tuple[str, ...]:
        """Return the reply as messages: none if no block of it may join the history."""
        return () if self.reply is None else (self.reply,)

    def find(self, call_id: str) -> Call | None:
        """Return the call with this id, if it is in this round."""
        return self.calls.find(call_id)

    def having(self, status: Status) -> list[Call]:
        """Return the calls with this status, in the model's order."""
        return self.calls.having(status)

    def replace(self, changed: Iterable[Call]) -> Round:
        """Return a new version in which these calls replace those with the same ids."""
        return Round(self.iteration, self.reply, self.calls.replace(changed))

    def is_settled(self) -> bool:
        """Return whether every call has its result."""
        return len(self.calls.having(Status.SETTLED)) == len(self.calls)


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

    round: ClassVar[None] = None


@frozen
class Requesting:
    """A request is in progress. `stopping`: the caller stopped it, with `reason`. `is_priced`: see `Requested`."""

    stopping: bool = False
    reason: str | None = None
    is_priced: bool = False
    round: ClassVar[None] = None


@frozen
class Judging:
    """The reply has arrived. `stop_when` and the policies are called before any call of its round runs."""

    round: Round
    action: ReplyAction = ReplyAction.RUN


@frozen
class Running:
    """Calls of the round run, or may start."""

    round: Round


@frozen
class Waiting:
    """It is the caller's turn.

    Attributes:
        round: the open round; None unless its calls wait for a decision.
        closed: the round that closed at the end of the turn.

    """

    reason: WaitReason
    round: Round | None = None
    closed: Round | None = None


@frozen
class Stopping:
    """The loop is to end with `termination`. Nothing starts any more, and the calls that run are waited for."""

    termination: Termination
    round: Round


@frozen
class Finished:
    """The loop has ended. After a limit nothing has joined the history, so that the loop can resume.

    Attributes:
        round: the open round with which it resumes. Its calls may still run.
        ended_with: that round as the limit found it, if its calls have changed since. The history has these results.

    """

    termination: Termination
    round: Round | None = None
    ended_with: Round | None = None


@frozen
class Failed:
    """A request failed, of this loop or inside a call of its round. Nothing was consumed; the caller can retry it."""

    failure: Failure
    round: Round | None = None


@frozen
class TooDeep:
    """The loop is nested too deep to run at all."""

    round: ClassVar[None] = None


Phase = Ready | Requesting | Judging | Running | Waiting | Stopping | Finished | Failed | TooDeep


class Loop(NamedTuple):
    """One loop. A named tuple, because each event copies it and C code copies tuples: `loop._replace(phase=Ready())`.

    Attributes:
        messages: the closed history, each message as its JSON text.
        unjoined: messages after the history, where the API allows only a resumption: paused replies, and rounds with
            open server calls. They join when the model ends its turn.
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
        epoch: how often the store of the loop was restored from a backup.
        revoked_links: the calls whose links were revoked, by their paths joined with "/"; None: all links.
        ids: the ids of the messages, the unjoined messages and the open reply: see `message_ids`.
        requests: how many requests were sent, including those that failed.
        named: how many messages were given a number as an id.
        metadata: the metadata that was changed since the loop was created, by key; None: removed.
        misfit: whether an answer of this user turn did not fit the class of the result.
        results: the whole texts of results that the history has only in part, each after the id of its call.
        own: digests of the user messages that the loop itself wrote: see `queue_own`.

    """

    setup: Setup
    messages: Chain[str]
    phase: Phase = Ready()
    unjoined: tuple[str, ...] = ()
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
    epoch: int = 0
    revoked_links: tuple[str | None, ...] = ()
    ids: Chain[str] = Chain()
    requests: int = 0
    named: int = 0
    metadata: tuple[tuple[str, str | None], ...] = ()
    misfit: bool = False
    results: Chain[tuple[str, str]] = Chain()
    own: tuple[str, ...] = ()

    @property
    def round(self) -> Round | None:
        """Return the open round of a loop that has not ended."""
        return None if isinstance(self.phase, Finished) else self.phase.round

    @property
    def calls(self) -> RoundCalls:
        """Return the calls of the open round; none if no round is open."""
        return NO_CALLS if isinstance(self.phase, Finished) else find_round_calls(self)

    @property
    def open_messages(self) -> tuple[str, ...]:
        """Return the messages after the history: the unjoined ones, and the reply that is open (see `round_of`)."""
        round_ = self.phase.round
        return self.unjoined if round_ is None else (*self.unjoined, *round_.reply_messages)


def round_of(loop: Loop) -> Round | None:
    """Return the open round; after a limit, the round with which the loop resumes."""
    return loop.phase.round


def find_round_calls(loop: Loop) -> RoundCalls:
    """Return the calls of the round that `round_of` returns; none without it."""
    round_ = loop.phase.round
    return NO_CALLS if round_ is None else round_.calls


def replace_calls(loop: Loop, changed: Sequence[Call]) -> Loop:
    """Return the loop in which these calls replace those with the same ids in the round that `round_of` returns."""
    phase = loop.phase
    if not changed or isinstance(phase, (Ready, Requesting, TooDeep)) or phase.round is None:
        return loop
    round_ = phase.round.replace(changed)
    if isinstance(phase, Finished):
        return loop._replace(phase=evolve(phase, round=round_, ended_with=phase.ended_with or phase.round))
    return loop._replace(phase=evolve(phase, round=round_))


def is_over(loop: Loop) -> bool:
    """Return whether a loop inside a call has ended. A failure that can be retried is not an end."""
    match loop.phase:
        case Failed(failure=failure):
            return not failure.retryable
        case Finished() | TooDeep():
            return True
    return False


def list_messages(loop: Loop) -> list[str]:
    """Return the messages in which positions are counted: the history, the unjoined messages and the open reply."""
    return [*loop.messages, *loop.open_messages]


def count_messages(loop: Loop) -> int:
    """Return the number of `list_messages`, without a copy of the history."""
    return len(loop.messages) + len(loop.open_messages)


@frozen
class State:
    """A tree of loops as one immutable value. `loops`: by path, parents before children; () is the outermost loop."""

    loops: Mapping[Path, Loop] = field(repr=False)

    @property
    def root(self) -> Loop:
        """Return the outermost loop."""
        return self.loops[()]

    def at(self, path: Path) -> Loop | None:
        """Return the loop at a path, or None."""
        return self.loops.get(path)

    def calls_along(self, path: Path) -> list[Call | None]:
        """Return the calls that lead to the loop at a path, from the outermost down; None for each that is gone."""
        return [self.find_call(path[:length]) for length in range(1, len(path) + 1)]

    def find_call(self, path: Path) -> Call | None:
        """Return the call at a path, if its round is open or a loop after a limit resumes with it."""
        loop = self.at(path[:-1])
        return None if loop is None else find_round_calls(loop).find(path[-1])


def find_round_at(state: State, path: Path) -> Round | None:
    """Return the open round of the loop at a path, if there is one."""
    loop = state.at(path)
    return None if loop is None else loop.phase.round
