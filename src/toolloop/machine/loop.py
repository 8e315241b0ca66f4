"""One loop: everything that is known of it, and the phase it is in.

`Loop` holds what outlives a phase. A phase holds only what ends with it.
"""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from toolloop.machine.chain import Chain
from toolloop.machine.setup import Setup
from toolloop.machine.stop_reasons import ReplyAction
from toolloop.machine.terminations import Termination
from toolloop.machine.usage import IterationUsage, Usage
from toolloop.machine.values import Call, StandingGrant, Status

WaitReason = Literal["decision_required", "tools_executed", "paused"]


@frozen
class Round:
    """An assistant message with its calls, until each call has its result.

    Attributes:
        iteration: the number of the reply, counted from 1.
        reply: the text of the assistant message as it will join the history; None if nothing of it may join.
        calls: in the model's order.

    """

    iteration: int
    reply: str | None
    calls: tuple[Call, ...] = ()

    def find(self, call_id: str) -> Call | None:
        """Return the call with this id, if it is in this round."""
        return next((call for call in self.calls if call.id == call_id), None)

    def having(self, *statuses: Status) -> list[Call]:
        """Return the calls in one of these statuses, in the model's order."""
        return [call for call in self.calls if call.status in statuses]


@frozen
class Failure:
    """Why a request failed, as data; the handle makes an exception of it. `path`: of the loop that made the request."""

    kind: Literal["model", "protocol"]
    message: str
    status: int | None = None
    error_type: str | None = None
    retryable: bool = False
    retry_after: float | None = None
    request_id: str | None = None
    path: tuple[str, ...] = ()


@frozen
class Repetition:
    """How often the last closed round was repeated in this user turn.

    Attributes:
        calls: a digest of its calls.
        results: a digest of its calls with their results.
        count: how many times in a row it came.
        warning: the message that last warned the model.

    """

    calls: str = ""
    results: str = ""
    count: int = 0
    warning: str | None = None


@frozen
class Ready:
    """A request is next."""


@frozen
class Requesting:
    """A request is in progress. `stopping`: the caller stopped the loop meanwhile, for `reason`."""

    stopping: bool = False
    reason: str | None = None


@frozen
class Judging:
    """The reply is there. `stop_when` and the policies are asked before any call runs."""

    action: ReplyAction = ReplyAction.RUN


@frozen
class Running:
    """The calls that may run do."""


@frozen
class Waiting:
    """It is the caller's turn. `closed`: the round that the turn ended with."""

    reason: WaitReason
    closed: Round | None = None


@frozen
class ResumePoint:
    """Where a limit ended the loop: `extend` continues from here. Calls of its round may still run."""

    messages: Chain[str]
    unjoined: tuple[str, ...]
    queued: tuple[str, ...]
    round: Round | None
    container: str | None


@frozen
class Finished:
    """The loop has ended. `resume_point`: only after a limit."""

    termination: Termination
    resume_point: ResumePoint | None = None


@frozen
class Failed:
    """A request failed. Nothing was consumed, and it can be tried again."""

    failure: Failure


@frozen
class TooDeep:
    """The loop is nested too deep to run at all."""


Phase = Ready | Requesting | Judging | Running | Waiting | Finished | Failed | TooDeep


@frozen(slots=False)  # attrs copies a large frozen class a sixth faster without slots, and each event copies the loop
class Loop:
    """One loop.

    Attributes:
        messages: the closed history, each message as its JSON text.
        unjoined: messages after the history that only a resumption may follow: paused replies, rounds with open server
            calls. They join when the model ends its turn.
        round: the open round.
        queued: messages that were injected, and wait for a place where the API allows them.
        response: the last reply, verbatim.
        container: the id of the container in which the code of the model's open turn runs.
        started: the ids of the calls that were started; of calls in loops inside calls, their paths joined with "/".
        iterations: answered requests. `turn_iterations` and `active` (seconds) count since the last user turn.
        pauses: how many times in a row the model paused.
        now: the latest time in any event, in seconds since the epoch; it never decreases.
        grants: in the order in which they were given. Used up and expired ones stay, revoked ones do not.
        repetition: how often the model repeated its last round in this user turn.
        stale_thinking: thinking in this many messages (of the history, the unjoined and the open reply) was produced
            after other words than those before it now.
        edited_at: how many requests had been answered when the history was last replaced.
        compacted: how many tokens each compaction left the last time, by its name.

    """

    setup: Setup
    messages: Chain[str]
    phase: Phase = Ready()
    unjoined: tuple[str, ...] = ()
    round: Round | None = None
    queued: tuple[str, ...] = ()
    response: str | None = None
    container: str | None = None
    usage_log: Chain[IterationUsage] = field(factory=Chain)
    total_usage: Usage = field(factory=Usage)
    started: Chain[str] = field(factory=Chain)
    iterations: int = 0
    turn_iterations: int = 0
    pauses: int = 0
    active: float = 0.0
    now: float = 0.0
    grants: tuple[StandingGrant, ...] = ()
    repetition: Repetition = field(factory=Repetition)
    stale_thinking: int = 0
    edited_at: int = 0
    compacted: tuple[tuple[str, int], ...] = ()


def round_of(loop: Loop) -> Round | None:
    """Return the open round, or after a limit the one with which the loop resumes."""
    if isinstance(loop.phase, Finished):
        return loop.phase.resume_point.round if loop.phase.resume_point else None
    return loop.round
