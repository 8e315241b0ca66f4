"""An observer that makes a span for each loop, model request and tool run.

`around` starts the span of a request or tool in the thread or task that sends the request or runs the tool, so it is
the current span there. The result arrives as an event. Events alone never start a span: in a stored loop, they may come
from other processes.

The attributes follow open-telemetry/semantic-conventions-genai, `model/gen-ai/spans.yaml` and the pages "Anthropic" and
"Agent spans" (all in development). Other attributes begin with `toolloop.`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import define, field
from opentelemetry import context as contexts, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from toolloop._usage import Usage
from toolloop.errors import ModelError
from toolloop.events import (
    CallFinished,
    CallStarted,
    CallWaiting,
    Delta,
    LoopFinished,
    ModelRequestFailed,
    RequestAnswered,
    RequestStarted,
    WatchedLoop,
    WatchEvent,
)
from toolloop.machine.record.loop import Failed, Loop, Path, Round, Waiting
from toolloop.machine.values.jsontext import JSON, decode

_REQUESTED = {
    "model": "gen_ai.request.model",
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "stop_sequences": "gen_ai.request.stop_sequences",
}


class OpenTelemetry:
    """An observer that makes spans following the GenAI conventions: `LoopConfig(observers=[OpenTelemetry()])`.

    One instance can observe any number of loops. It makes a span for each loop (`invoke_agent`), each model request
    (`chat MODEL`) and each run of a tool (`execute_tool NAME`). While a request is sent or a tool runs, its span is the
    current span of that thread or task.

    The span of a loop is a child of the span that is current when the loop begins in this process.
    `gen_ai.conversation.id`, the loop id, connects the traces of a loop that several processes drive.

    Args:
        tracer_provider: makes the spans; None means the global provider at the time when a loop begins.

    """

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        """Store the provider."""
        self._tracer_provider = tracer_provider

    def for_loop(self, loop: WatchedLoop) -> Callable[[WatchEvent], None]:
        """Return the observer of one loop. The loop calls it once."""
        return _LoopSpans(loop, trace.get_tracer("toolloop", tracer_provider=self._tracer_provider))


@define(eq=False)
class _Open:
    """A span that has not ended."""

    span: Span
    error: str | None = None
    usage: Usage = field(factory=Usage)
    begun: int = field(factory=time.time_ns)
    is_streamed: bool = False

    def end(self) -> None:
        if self.error is not None:
            self.span.set_status(Status(StatusCode.ERROR))
            self.span.set_attribute("error.type", self.error)
        self.span.end()


class _LoopSpans:
    """The spans of one loop and its nested loops, by the path of the loop or of the call."""

    def __init__(self, loop: WatchedLoop, tracer: trace.Tracer) -> None:
        self._loop = loop
        self._tracer = tracer
        self._loops: dict[Path, _Open] = {}
        self._requests: dict[Path, _Open] = {}
        self._tools: dict[Path, _Open] = {}
        self._lock = threading.RLock()

    def __call__(self, event: WatchEvent) -> None:
        with self._lock:
            match event:
                case Delta():
                    self._streamed(event)
                case RequestAnswered():
                    self._answered(event)
                case ModelRequestFailed():
                    self._failed(event)
                case CallFinished() if (*event.path, event.call_id) in self._tools:
                    self._end_tool((*event.path, event.call_id), event.outcome, is_error=event.is_error)
                case CallWaiting() if (*event.path, event.call_id) in self._tools:  # its end is unknown
                    self._end_tool((*event.path, event.call_id), "uncertain", is_error=True)
                case LoopFinished():
                    self._finished(event)

    def close(self) -> None:
        """End all spans, because the handle was closed."""
        with self._lock:
            self._end_below(())

    @contextmanager
    def around(self, event: RequestStarted | CallStarted) -> Generator[None, None, None]:
        """Make the span of a request or tool the current span while the request is sent or the tool runs."""
        is_request = isinstance(event, RequestStarted)
        key = event.path if isinstance(event, RequestStarted) else (*event.path, event.call_id)
        opened = self._requests if is_request else self._tools
        with self._lock:
            work = self._begin_request(event) if isinstance(event, RequestStarted) else self._tool(key)
        token = contexts.attach(set_span_in_context(work.span))
        try:
            yield
        except BaseException as error:
            kind = error.kind if isinstance(error, ModelError) else None  # the API's error type
            work.error = kind or type(error).__qualname__
            raise
        finally:
            if trace.get_current_span() is work.span:  # not if the task is closed from another one
                contexts.detach(token)
            with self._lock:
                if is_request and work.error is not None and opened.get(key) is work:
                    opened.pop(key).end()
                    if key in self._loops:
                        self._loops[key].error = work.error

    # --- events ---

    def _streamed(self, event: Delta) -> None:
        work = self._requests.get(event.path)
        if work is not None and not work.is_streamed:
            work.is_streamed = True
            seconds = (time.time_ns() - work.begun) / 1e9
            work.span.set_attributes({"gen_ai.request.stream": True, "gen_ai.response.time_to_first_chunk": seconds})

    def _answered(self, event: RequestAnswered) -> None:
        work = self._requests.pop(event.path, None)
        if work is None:
            return  # another process sent it
        for loop in self._above(event.path):
            loop.usage += event.usage
            loop.error = None
        work.span.set_attribute("gen_ai.response.finish_reasons", [str(event.stop_reason)])
        work.span.set_attributes(_of_usage(event.usage))
        answered = self._loop.at(event.path)
        if answered is not None and answered.usage_log and (model := answered.usage_log[-1].model) is not None:
            work.span.set_attribute("gen_ai.response.model", model)
        if answered is not None and answered.response is not None and not event.summary:
            work.span.set_attribute("gen_ai.response.id", str(decode(answered.response).get("id")))
        work.end()

    def _failed(self, event: ModelRequestFailed) -> None:
        loops = self._above(event.path)
        error = loops[0].error if loops else None
        if (work := self._requests.pop(event.path, None)) is not None:  # the reply was invalid
            error = work.error = "ProtocolError"
            work.end()
        for loop in loops:
            loop.error = error or "ModelError"
        root = self._loop.at(())
        if root is not None and isinstance(root.phase, Failed):
            self._end_below(())

    def _finished(self, event: LoopFinished) -> None:
        if (work := self._loops.get(event.path)) is not None:
            work.span.set_attribute("toolloop.termination", event.termination.kind)
            work.span.set_attribute("toolloop.iterations", event.iteration)
            work.error = None
            self._end_below(event.path)

    # --- spans ---

    def _begin_loop(self, path: Path) -> _Open:
        """Return the span of the loop at a path. It begins with the first request or tool run in this process."""
        if path in self._loops:
            return self._loops[path]
        found = {**_common("invoke_agent", self._loop.loop_id), "gen_ai.provider.name": "anthropic"}
        model = self._params(path).get("model")
        if isinstance(model, str):
            found["gen_ai.request.model"] = model
        name = "invoke_agent"
        if path:
            found["gen_ai.agent.name"] = self._name(path)
            name += f" {found['gen_ai.agent.name']}"
        context = set_span_in_context(self._tool(path).span) if len(path) > self._loop.depth else None
        self._loops[path] = _Open(self._tracer.start_span(name, context, attributes=found))
        return self._loops[path]

    def _begin_request(self, event: RequestStarted) -> _Open:
        loop = self._begin_loop(event.path)
        found = {**_common("chat", self._loop.loop_id), "gen_ai.provider.name": "anthropic"}
        found["toolloop.iteration"] = event.iteration
        # A summary may use another model.
        found |= {"toolloop.summary": True} if event.summary else _of_request(self._params(event.path))
        name = " ".join(["chat", *([found["gen_ai.request.model"]] if "gen_ai.request.model" in found else [])])
        span = self._tracer.start_span(name, set_span_in_context(loop.span), SpanKind.CLIENT, found)
        if event.path in self._requests:
            self._requests.pop(event.path).end()  # the loop no longer waits for it
        self._requests[event.path] = work = _Open(span)
        return work

    def _tool(self, path: Path) -> _Open:
        """Return the span of the call at a path."""
        if path not in self._tools:
            loop, name = self._begin_loop(path[:-1]), self._name(path)
            found = _common("execute_tool", self._loop.loop_id)
            found |= {"gen_ai.tool.name": name, "gen_ai.tool.type": "function", "gen_ai.tool.call.id": path[-1]}
            context = set_span_in_context(loop.span)
            self._tools[path] = _Open(self._tracer.start_span(f"execute_tool {name}", context, attributes=found))
        return self._tools[path]

    def _end_tool(self, path: Path, outcome: str, *, is_error: bool) -> None:
        self._end_below(path)  # if the call is a loop
        work = self._tools.pop(path)
        known = None if outcome == "timed_out" else work.error  # a timeout cancels the tool
        work.error = (known or outcome) if is_error else None
        work.span.set_attribute("toolloop.outcome", outcome)
        work.end()

    def _end_below(self, path: Path) -> None:
        """End the spans of the loop at a path and of everything inside it, innermost first."""
        for opened, least in ((self._requests, 0), (self._tools, 1), (self._loops, 0)):
            inside = [key for key in opened if key[: len(path)] == path and len(key) >= len(path) + least]
            for key in sorted(inside, key=len, reverse=True):
                work = opened.pop(key)
                if opened is self._loops:
                    work.span.set_attributes(_of_usage(work.usage))
                work.end()

    def _above(self, path: Path) -> list[_Open]:
        """Return the open spans of the loop at a path and of the loops around it, innermost first."""
        paths = (path[:depth] for depth in range(len(path), -1, -1))
        return [self._loops[each] for each in paths if each in self._loops]

    # --- the current loop ---

    def _params(self, path: Path) -> dict[str, Any]:
        loop = self._loop.at(path)
        return {} if loop is None else decode(loop.setup.params)

    def _name(self, path: Path) -> str:
        """Return the tool name of the call at a path."""
        loop = self._loop.at(path[:-1])
        round_ = None if loop is None else loop.phase.round or _closed_round(loop)
        call = None if round_ is None else round_.calls.find(path[-1])
        return "" if call is None else call.name


def _closed_round(loop: Loop) -> Round | None:
    return loop.phase.closed if isinstance(loop.phase, Waiting) else None


def _common(operation: str, loop_id: str) -> dict[str, Any]:
    """Return the attributes that each span has."""
    return {"gen_ai.operation.name": operation, "gen_ai.conversation.id": loop_id}


def _of_request(params: Mapping[str, JSON]) -> dict[str, Any]:
    """Return the attributes for the parameters of a request."""
    found: dict[str, Any] = {name: params[key] for key, name in _REQUESTED.items() if params.get(key) is not None}
    if (params.get("output_config") or {}).get("format") is not None:
        found["gen_ai.output.type"] = "json"
    return found


def _of_usage(usage: Usage) -> dict[str, int]:
    """Return the token counts. Input includes tokens read from a cache or written to it."""
    counts = {
        "gen_ai.usage.input_tokens": usage.total_input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
    }
    if usage.thinking_tokens:
        counts["gen_ai.usage.reasoning.output_tokens"] = usage.thinking_tokens
    return counts
