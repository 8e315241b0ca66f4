"""What type checkers see of a caller's functions: mypy and pyright check this file, nothing runs it."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolloop import Approve, Ask, Deny, LoopConfig, PolicyView, Tool, ToolCall, tool
from toolloop.compaction import DropRounds, MaskResults
from toolloop.events import WatchedLoop, WatchEvent
from toolloop.otel import OpenTelemetry
from toolloop.responses import TruncateResults


def policy(call: ToolCall, view: PolicyView) -> Approve | Ask | None:
    return Ask(call.name) if view.iteration else Approve()


async def asynchronous_policy(call: ToolCall, _view: PolicyView) -> Deny | None:
    return Deny(call.name)


def policy_of_a_view(view: PolicyView) -> Deny:
    return Deny(str(view))


def policy_with_a_word(_call: ToolCall, _view: PolicyView) -> str:
    return "approve"


def stops(view: PolicyView) -> str | None:
    return "enough" if view.total_usage.output_tokens else None


async def stops_later(view: PolicyView) -> bool:
    return view.iteration > 1


def stops_by_number(view: PolicyView) -> float:
    return view.iteration / 2


def shorten(call: ToolCall, content: Any) -> Any:
    return content if call.input else None


def shorten_text(content: str) -> str:
    return content[:10]


class Watcher:
    def for_loop(self, loop: WatchedLoop) -> Callable[[WatchEvent], object]:
        return lambda event: repr((loop.loop_id, event.iteration))


def counts(number: int) -> int:
    return number


def risky(call: ToolCall) -> bool:
    return "rm" in call.input


async def asks(call: ToolCall) -> Ask | None:
    return Ask("why") if call.input else None


def risky_name(name: str) -> bool:
    return name == "rm"


def work(path: str) -> str:
    """Work."""
    return path


def callables_are_typed(events: list[WatchEvent]) -> None:
    LoopConfig(on_tool_call=policy, stop_when=stops, result_filters=[shorten, TruncateResults(1000)])
    LoopConfig(on_tool_call=asynchronous_policy, stop_when=stops_later)
    LoopConfig(on_tool_call=lambda call, view: Ask() if call.name == "rm" and view.iteration else None)
    LoopConfig(observers=[events.append, Watcher(), OpenTelemetry(), lambda event: event.path])
    LoopConfig(observers=(print,), compaction=[MaskResults(), DropRounds(3)])
    needing: list[Tool[..., Any]] = [tool(work, needs_approval=risky), tool(work, needs_approval=asks)]
    needing.append(tool(work, needs_approval=True))


def others_are_refused() -> None:
    LoopConfig(on_tool_call=policy_of_a_view)  # type: ignore[arg-type]
    LoopConfig(on_tool_call=policy_with_a_word)  # type: ignore[arg-type]
    LoopConfig(on_tool_call=lambda call, _: Ask(call.nam))  # type: ignore[attr-defined]
    LoopConfig(stop_when=stops_by_number)  # type: ignore[arg-type]
    LoopConfig(stop_when=policy)  # type: ignore[arg-type]
    LoopConfig(result_filters=[shorten_text])  # type: ignore[list-item]
    LoopConfig(result_filters=shorten)  # type: ignore[arg-type]
    LoopConfig(observers=[counts])  # type: ignore[list-item]
    LoopConfig(compaction=["drop"])  # type: ignore[list-item]
    LoopConfig(execution="soon")  # type: ignore[arg-type]
    tool(work, needs_approval=risky_name)  # type: ignore[arg-type]
    tool(work, needs_approval=policy)  # type: ignore[arg-type]
