"""What makes spans and counts of one loop, and of those inside of its calls.

A span belongs to what does the work. It begins in the thread or task that sends a request or runs a tool, through
`around`, so that what is done in there is inside of it; what came of it is told by events. Events alone begin no span:
of a stored loop they may tell what other processes do.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import finalize

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from toolloop.core.errors import ModelError
from toolloop.core.jsontext import decode, encode
from toolloop.core.states import Failed, Requesting
from toolloop.core.tree import round_of
from toolloop.core.values import Call
from toolloop.handle import tracing_words as words
from toolloop.handle.observing import WatchedLoop, said_of, title_of
from toolloop.handle.recording import Path
from toolloop.handle.tracing_spans import LEFT, Instruments, UnderWay, Work, sweep
from toolloop.handle.watching import (
    CallFinished,
    CallProposed,
    CallStarted,
    CallWaiting,
    Delta,
    LoopFinished,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    WatchEvent,
)


class LoopTracer:
    """Watches one loop, and those inside of its calls."""

    def __init__(self, loop: WatchedLoop, tracer: trace.Tracer, counts: Instruments, *, contents: bool) -> None:
        self._loop = loop
        self._tracer = tracer
        self._counts = counts
        self._contents = contents
        self._params: tuple[str, dict[str, Any]] = ("", {})
        self._open = UnderWay()
        # Where nobody says that the handle is closed, the spans end with it.
        finalize(self, LEFT.put, self._open).atexit = False

    # --- what is told ---

    def __call__(self, event: WatchEvent) -> None:
        """Something happened."""
        sweep()
        with self._open.lock:
            self._open.last = time.time_ns()
            match event:
                case CallStarted():
                    self._open.started[*event.path, event.call_id] = event.name
                case Delta():
                    self._heard(event)
                case RequestAnswered():
                    self._answered(event)
                case RequestFailed():
                    self._failed(event)
                case CallFinished() if (*event.path, event.call_id) in self._open.tools:
                    self._finished(event)
                case LoopFinished():
                    self._ended(event)
                case RequestStarted() | CallProposed():
                    pass
                case _:
                    self._note(event)

    def close(self) -> None:
        """The handle was closed."""
        self._open.end_loop(())

    def _note(self, event: WatchEvent) -> None:
        """An event in the span of its loop."""
        name, said = f"toolloop.{title_of(event)}", words.noted(said_of(event))
        work = self._open.loops.get(event.path)
        if work is not None:
            work.span.add_event(name, said)
        else:
            self._open.early.append((event.path, (name, said, time.time_ns())))
        if isinstance(event, CallWaiting):  # a run whose end nobody saw waits for a word
            run = self._open.tools.get((*event.path, event.call_id))
            if run is not None and not run.inside:
                self._end_tool((*event.path, event.call_id), "uncertain")

    def _heard(self, event: Delta) -> None:
        """The first piece of a streamed reply counts."""
        work = self._open.requests.get(event.path)
        if work is not None and not work.is_streamed:
            work.is_streamed = True
            seconds = (time.time_ns() - work.begun) / 1e9
            work.span.set_attributes({words.STREAM: True, words.FIRST_CHUNK: seconds})
            self._counts.first.record(seconds, work.common, context=set_span_in_context(work.span))

    def _answered(self, event: RequestAnswered) -> None:
        work = self._open.requests.pop(event.path, None)
        if work is None:
            return  # another process sent it, and that one counts it
        for loop in self._open.above(event.path):
            loop.usage += event.usage
            loop.error = None
        work.span.set_attributes({words.FINISH_REASONS: [str(event.stop_reason)], **words.used(event.usage)})
        state = self._loop.at(event.path)
        if state is not None and state.ledger.usage_log:
            if (model := state.ledger.usage_log[-1].model) is not None:
                work.common[words.RESPONSE_MODEL] = model
                work.span.set_attribute(words.RESPONSE_MODEL, model)
            if state.ledger.response is not None and not event.summary:
                reply = decode(state.ledger.response)
                work.span.set_attribute(words.RESPONSE_ID, str(reply.get("id")))
                if self._tells(work.span):
                    work.span.set_attribute(words.OUTPUT, encode([words.message(reply)]))
        context = set_span_in_context(work.span)
        counts = {"input": event.usage.total_input_tokens, "output": event.usage.output_tokens}
        for kind, count in counts.items():
            self._counts.tokens.record(count, {**work.common, words.TOKEN_TYPE: kind}, context=context)
        work.end()

    def _failed(self, event: RequestFailed) -> None:
        work = self._open.requests.pop(event.path, None)
        if work is not None:  # an answer came, and made no sense
            error = work.error = "ProtocolError"
            work.end()
        else:
            error = next((loop.error for loop in self._open.above(event.path)), None) or "ModelError"
        for loop in self._open.above(event.path):
            loop.error = error
        if isinstance(self._loop.at(()), Failed):
            self._open.end_loop(())

    def _finished(self, event: CallFinished) -> None:
        path = (*event.path, event.call_id)
        self._open.started.pop(path, None)
        span, call = self._open.tools[path].span, self._call(path)
        if self._tells(span) and call is not None and call.result is not None:
            span.set_attribute(words.RESULT, call.result.content)
        self._end_tool(path, event.outcome, is_error=event.is_error)
        self._open.before.pop(path, None)

    def _end_tool(self, path: Path, outcome: str, *, is_error: bool = True) -> None:
        work = self._open.tools.pop(path)
        known = None if outcome == "timed_out" else work.error  # that it was cancelled is only how that is done
        work.error = known or outcome if is_error else None
        work.span.set_attribute(words.OUTCOME, outcome)
        self._open.end_loop(path)  # of a call that is a loop
        work.end()

    def _ended(self, event: LoopFinished) -> None:
        if (work := self._open.loops.get(event.path)) is not None:
            said: dict[str, str | int] = {words.TERMINATION: event.termination.kind, words.ITERATIONS: event.iteration}
            work.span.set_attributes(said)
            work.error = None
            self._open.end_loop(event.path)

    # --- what is put around ---

    @contextmanager
    def around(self, event: RequestStarted | CallStarted) -> Generator[None, None, None]:
        """A request is sent, or a tool runs, in here."""
        with self._open.lock:
            work = self._request(event) if isinstance(event, RequestStarted) else self._tool(event.path, event.call_id)
            work.inside, self._open.last = True, time.time_ns()
        token = contexts.attach(set_span_in_context(work.span))
        try:
            yield
        except BaseException as error:
            kind = error.kind if isinstance(error, ModelError) else None  # the API's own word for what failed
            work.error = kind or type(error).__qualname__
            raise
        finally:
            if trace.get_current_span() is work.span:  # else the task is closed from somewhere else
                contexts.detach(token)
            with self._open.lock:
                self._left(event, work)

    def _left(self, event: RequestStarted | CallStarted, work: Work) -> None:
        """Nobody is at work on it any more. What came of it is told soon, if the loop still waits for it."""
        work.inside = False
        if isinstance(event, RequestStarted) and event.path in self._open.loops:
            self._open.loops[event.path].error = work.error
        work.left = self._open.last = time.time_ns()
        is_request = isinstance(event, RequestStarted)
        kept = self._open.requests if is_request else self._open.tools
        where = event.path if isinstance(event, RequestStarted) else (*event.path, event.call_id)
        awaited = kept.get(where) is work and event.path in self._open.loops and not (is_request and work.error)
        if not awaited:
            if kept.get(where) is work:
                del kept[where]
            work.end()

    # --- the spans ---

    def _enter(self, path: Path) -> Work:
        """The span of the loop at a path; it begins with the first thing that is done here."""
        if path in self._open.loops:
            return self._open.loops[path]
        inside = len(path) > self._loop.depth
        attributes = {**self._common("invoke_agent", path), words.CONVERSATION: self._loop.loop_id}
        name = "invoke_agent"
        if path:
            attributes[words.AGENT] = self._name(path)
            name += f" {attributes[words.AGENT]}"
        links: list[Link] = []
        if inside:
            context = set_span_in_context(self._tool(path[:-1], path[-1]).span)
        else:
            context, links = self._outside(name, attributes)
        if path in self._open.before:
            links.append(Link(self._open.before[path]))
        common = {key: attributes[key] for key in (words.OPERATION, words.AGENT, words.MODEL) if key in attributes}
        work = self._begin(name, context, attributes, (common, self._counts.loops), links=links)
        for early in self._open.take_early(path):
            work.span.add_event(*early)
        self._open.loops[path] = work
        return work

    def _begin(  # noqa: PLR0913 - what a span is made of
        self,
        name: str,
        context: Context,
        attributes: dict[str, Any],
        counted: tuple[dict[str, Any], metrics.Histogram],
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> Work:
        """A new span."""
        begun = time.time_ns()
        return Work(self._tracer.start_span(name, context, kind, attributes, links, begun), *counted, begun)

    def _tells(self, span: trace.Span) -> bool:
        """Whether what people, models and tools said goes into a span."""
        return self._contents and span.is_recording()

    def _outside(self, name: str, attributes: dict[str, Any]) -> tuple[Context, list[Link]]:
        """In what the outermost loop's span is, and what it links to."""
        trace_id, span_id = words.ids_of(self._loop.loop_id)
        if trace.get_current_span().get_span_context().is_valid:
            own = SpanContext(trace_id, span_id, is_remote=True)
            return contexts.get_current(), [Link(own)]
        flags = TraceFlags.SAMPLED
        # A sampler sees a parent here, and would believe what that says. So it is asked first, as if there were none.
        if (sampler := getattr(self._tracer, "sampler", None)) is not None:
            drawn = sampler.should_sample(Context(), trace_id, name, SpanKind.INTERNAL, attributes)
            flags = TraceFlags.SAMPLED if drawn.decision.is_sampled() else TraceFlags.DEFAULT
        own = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        return set_span_in_context(NonRecordingSpan(own)), []

    def _request(self, event: RequestStarted) -> Work:
        """The span of a request."""
        loop = self._enter(event.path)
        if (earlier := self._open.requests.pop(event.path, None)) is not None and not earlier.inside:
            earlier.end()  # nothing was told of it
        common = self._common("chat", event.path)
        if event.summary:
            common.pop(words.MODEL, None)  # it may be another one, and the reply says which
        params = self._asked(event.path)
        attributes = {**common, words.CONVERSATION: self._loop.loop_id, words.ITERATION: event.iteration}
        if event.summary:
            attributes[words.SUMMARY] = True
        else:
            attributes |= words.asked(params)
        name = " ".join(["chat", *([common[words.MODEL]] if words.MODEL in common else [])])
        counted = (common, self._counts.requests)
        work = self._begin(name, set_span_in_context(loop.span), attributes, counted, kind=SpanKind.CLIENT)
        state = self._loop.at(event.path)
        if self._tells(work.span) and isinstance(state, Requesting) and not event.summary:
            work.span.set_attribute(words.INPUT, words.messages([*state.ledger.messages, *state.tail]))
            if params.get("system"):
                work.span.set_attribute(words.SYSTEM, encode(words.parts(params["system"])))
        self._open.requests[event.path] = work
        return work

    def _tool(self, path: Path, call_id: str) -> Work:
        """The span of a call of the loop at a path, that is begun with it if it was not."""
        where = (*path, call_id)
        if where in self._open.tools:
            return self._open.tools[where]
        loop, name = self._enter(path), self._name(where)
        common = {words.OPERATION: "execute_tool", words.TOOL: name}
        attributes: dict[str, Any] = {**common, "gen_ai.tool.type": "function", words.CALL_ID: call_id}
        attributes[words.CONVERSATION] = self._loop.loop_id
        context = set_span_in_context(loop.span)
        work = self._begin(f"execute_tool {name}", context, attributes, (common, self._counts.tools))
        if self._tells(work.span) and (call := self._call(where)) is not None:
            work.span.set_attribute(words.ARGUMENTS, call.effective_input)
        self._open.tools[where] = work
        return work

    # --- what is known of the loop ---

    def _common(self, operation: str, path: Path) -> dict[str, Any]:
        common = {words.OPERATION: operation, "gen_ai.provider.name": words.PROVIDER}
        model = self._asked(path).get("model")
        return {**common, words.MODEL: model} if isinstance(model, str) else common

    def _asked(self, path: Path) -> dict[str, Any]:
        """The parameters of a loop."""
        state = self._loop.at(path)
        if state is None:
            return {}
        text = state.ledger.setup.params
        if self._params[0] is not text:
            self._params = text, decode(text)
        return self._params[1]

    def _name(self, path: Path) -> str:
        """The name of the tool that a call is of."""
        if path in self._open.started:
            return self._open.started[path]
        call = self._call(path)
        return "" if call is None else call.name

    def _call(self, path: Path) -> Call | None:
        state = self._loop.at(path[:-1])
        round_ = None if state is None else round_of(state) or getattr(state, "round", None)
        return None if round_ is None else round_.find(path[-1])
