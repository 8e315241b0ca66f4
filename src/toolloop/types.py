"""Types in the signatures of the other public modules, for your own annotations."""

from toolloop._drivers.streaming import AsyncTurnStream, TurnStream
from toolloop._engine.sub_loops import ParamsOf, SubLoop
from toolloop._handles.asynchronous import OpeningLoop
from toolloop._interface.config import Opinion, Policy, ResultFilter, StopWhen
from toolloop._interface.grants import GivenGrant, Grants
from toolloop._interface.loop_view import ChildView, PendingView, UsageView
from toolloop._interface.results import Shown, Turn
from toolloop._requests.params import Secrets
from toolloop._runner.runners import RunnerParts
from toolloop._runner.streams import AsyncReplyStream, ReplyStream
from toolloop.events import LoopObserver, Observer
from toolloop.machine.values.calls import Command, Decision
from toolloop.machine.values.jsontext import JSON
from toolloop.machine.values.setup import Execution, LoopAction
from toolloop.tools.calls import NeedsApproval, Preview, RecordedDecision
from toolloop.tools.context import Report
from toolloop.tools.responses.content import Content

__all__ = [
    "JSON",
    "AsyncReplyStream",
    "AsyncTurnStream",
    "ChildView",
    "Command",
    "Content",
    "Decision",
    "Execution",
    "GivenGrant",
    "Grants",
    "LoopAction",
    "LoopObserver",
    "NeedsApproval",
    "Observer",
    "OpeningLoop",
    "Opinion",
    "ParamsOf",
    "PendingView",
    "Policy",
    "Preview",
    "RecordedDecision",
    "ReplyStream",
    "Report",
    "ResultFilter",
    "RunnerParts",
    "Secrets",
    "Shown",
    "StopWhen",
    "SubLoop",
    "Turn",
    "TurnStream",
    "UsageView",
]
