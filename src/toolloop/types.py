"""Types in the signatures of the other public modules, for your own annotations."""

from toolloop.face.config import Opinion, Policy, ResultFilter, StopWhen
from toolloop.face.grants import GivenGrant, Grants
from toolloop.face.loop_view import ChildView, PendingView, UsageView
from toolloop.face.results import Shown, Turn
from toolloop.face.watch_events import LoopObserver, Observer
from toolloop.loop.asynchronous import OpeningLoop
from toolloop.loop.sub_loops import ParamsOf, SubLoop
from toolloop.machine.jsontext import JSON
from toolloop.machine.setup import Execution, LoopAction
from toolloop.machine.values import Command, Decision
from toolloop.requests.params import Secrets
from toolloop.runner.runners import RunnerParts
from toolloop.tools.calls import NeedsApproval, Preview, RecordedDecision
from toolloop.tools.context import Report
from toolloop.tools.responses.content import Content

__all__ = [
    "JSON",
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
    "Report",
    "ResultFilter",
    "RunnerParts",
    "Secrets",
    "Shown",
    "StopWhen",
    "SubLoop",
    "Turn",
    "UsageView",
]
