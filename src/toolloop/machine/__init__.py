"""The pure machine, for writing your own driver: loops, events, effects, `step`, `outstanding`.

Not here: I/O, clocks, randomness, threads and logging.
"""

from toolloop._public import export as _export
from toolloop.machine.machine import TRANSITIONS as TRANSITIONS, allowed as allowed
from toolloop.machine.queries import (
    LoopStatus as LoopStatus,
    answer_of as answer_of,
    driven as driven,
    driven_at as driven_at,
    everywhere as everywhere,
    implied as implied,
    is_due as is_due,
    next_deadline as next_deadline,
    outstanding as outstanding,
    status_of as status_of,
    time_left as time_left,
    under_way as under_way,
    waiting as waiting,
)
from toolloop.machine.record.effects import (
    CancelRequest as CancelRequest,
    Conclude as Conclude,
    Effect as Effect,
    EndTurn as EndTurn,
    Judge as Judge,
    RunCall as RunCall,
    SendRequest as SendRequest,
)
from toolloop.machine.record.journal_events import (
    Adopted as Adopted,
    Approved as Approved,
    Changed as Changed,
    Continued as Continued,
    Decided as Decided,
    Ended as Ended,
    Event as Event,
    FollowedUp as FollowedUp,
    GrantRevoked as GrantRevoked,
    HistoryEdited as HistoryEdited,
    HistoryTaken as HistoryTaken,
    Judged as Judged,
    LinksRevoked as LinksRevoked,
    MetadataChanged as MetadataChanged,
    Opened as Opened,
    Replied as Replied,
    Requested as Requested,
    RequestFailed as RequestFailed,
    Restored as Restored,
    Said as Said,
    Started as Started,
    Stopped as Stopped,
    Ticked as Ticked,
    TurnEnded as TurnEnded,
    Withdrawn as Withdrawn,
    Woken as Woken,
)
from toolloop.machine.record.loop import (
    Failed as Failed,
    Failure as Failure,
    Finished as Finished,
    Judging as Judging,
    Kept as Kept,
    Loop as Loop,
    Path as Path,
    Phase as Phase,
    Ready as Ready,
    Repetition as Repetition,
    Requesting as Requesting,
    Round as Round,
    Running as Running,
    State as State,
    Stopping as Stopping,
    Thread as Thread,
    TooDeep as TooDeep,
    Waiting as Waiting,
    WaitReason as WaitReason,
    is_over as is_over,
    round_of as round_of,
)
from toolloop.machine.record.replies import ParsedReply as ParsedReply, read_reply as read_reply
from toolloop.machine.record.round_calls import RoundCalls as RoundCalls
from toolloop.machine.rules.joining import join_rest as join_rest
from toolloop.machine.tree import begin as begin, fold as fold, fork as fork, step as step
from toolloop.machine.values.calls import (
    Call as Call,
    DecisionRecord as DecisionRecord,
    GrantSpec as GrantSpec,
    Outcome as Outcome,
    PolicyResult as PolicyResult,
    Reject as Reject,
    Result as Result,
    StandingGrant as StandingGrant,
    Status as Status,
    Wait as Wait,
    Why as Why,
)
from toolloop.machine.values.chain import Chain as Chain
from toolloop.machine.values.setup import (
    Approval as Approval,
    Limits as Limits,
    LoopFacts as LoopFacts,
    Setup as Setup,
    ToolFacts as ToolFacts,
)
from toolloop.machine.values.splicing import Splice as Splice
from toolloop.machine.values.stop_reasons import STOP_REASONS as STOP_REASONS, ReplyAction as ReplyAction

_export(globals(), moved={"Reply": "toolloop.machine:ParsedReply", "Standing": "toolloop.machine:LoopStatus"})
