"""Types in the signatures of the other public modules, for your own annotations."""

from toolloop._drivers.streaming import AsyncTurnStream as AsyncTurnStream, TurnStream as TurnStream
from toolloop._engine.sub_loops import ParamsOf as ParamsOf, SubLoop as SubLoop
from toolloop._handles.asynchronous import OpeningLoop as OpeningLoop
from toolloop._interface.calls import RunningCall as RunningCall
from toolloop._interface.config import (
    Opinion as Opinion,
    Policy as Policy,
    ResultFilter as ResultFilter,
    StopWhen as StopWhen,
)
from toolloop._interface.grants import GivenGrant as GivenGrant, Grants as Grants
from toolloop._interface.heads import CostView as CostView, UsageView as UsageView
from toolloop._interface.loop_view import (
    AnnotationsView as AnnotationsView,
    ChildView as ChildView,
    KeptView as KeptView,
    MessageView as MessageView,
    PendingView as PendingView,
    RunningView as RunningView,
)
from toolloop._interface.results import Turn as Turn
from toolloop._interface.shown import Shown as Shown
from toolloop._interface.standing import Standing as Standing
from toolloop._public import export as _export
from toolloop._requests.params import Secrets as Secrets
from toolloop._runner.runners import RunnerParts as RunnerParts
from toolloop._runner.streams import AsyncReplyStream as AsyncReplyStream, ReplyStream as ReplyStream
from toolloop._worker.base import WorkerHealth as WorkerHealth
from toolloop.events import LoopObserver as LoopObserver, Observer as Observer
from toolloop.machine.values.calls import Command as Command, Decision as Decision
from toolloop.machine.values.demands import Demand as Demand
from toolloop.machine.values.jsontext import JSON as JSON
from toolloop.machine.values.setup import (
    Execution as Execution,
    LoopAction as LoopAction,
    ToolAnnotations as ToolAnnotations,
)
from toolloop.providers.anthropic import AsyncSdkClient as AsyncSdkClient, SdkClient as SdkClient
from toolloop.tools.calls import (
    NeedsApproval as NeedsApproval,
    Preview as Preview,
    RecordedDecision as RecordedDecision,
)
from toolloop.tools.context import Report as Report
from toolloop.tools.registry import Tools as Tools
from toolloop.tools.responses.content import Content as Content
from toolloop.tools.sdk_tools import SdkTool as SdkTool, ServerTools as ServerTools

_export(globals())
