"""Properties of the spans of any loop."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st
from opentelemetry.sdk.trace import ReadableSpan

from tests.kit.concurrency import make, turn
from tests.kit.loop_trees import kid
from tests.kit.tools import TOOLS, add
from tests.otel.traced import Traces
from toolloop import Completed, Error, Yielded
from toolloop.errors import ModelError
from toolloop.testing import call, reply

# Calls, and whether each runs once it is approved.
CALLS: dict[str, tuple[dict[str, Any], bool]] = {
    "add": ({"a": 1, "b": 2}, True),
    "write": ({"path": "a", "text": "b"}, True),
    "broken": ({}, True),
    "unknown": ({}, False),
    "look": ({"path": 7}, False),
}
rounds = st.lists(st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=4), max_size=4)


def drive(kind: str, handle: Any, answers: list[bool]) -> int:
    """Drive to the end. Return the number of denied calls."""
    denied = 0
    while True:
        result: Yielded | Completed | Error = turn(kind, handle)
        match result:
            case Completed():
                return denied
            case Error():
                handle.retry()
            case Yielded():
                for waiting in result.pending:
                    if answers.pop(0) if answers else True:
                        result.approve(waiting)
                    else:
                        denied += 1
                        result.deny(waiting, "no")
                result.continue_loop()


@settings(max_examples=20, deadline=None)
@given(
    kind=st.sampled_from(["sync", "asyncio", "trio"]),
    asked=rounds,
    failing=st.sets(st.integers(0, 4), max_size=2),
    answers=st.lists(st.booleans(), max_size=8),
)
def test_each_request_and_each_run_has_one_span_inside_its_loop(
    kind: str, asked: list[list[str]], failing: set[int], answers: list[bool]
) -> None:
    """Each span has ended, and its time is within that of its parent."""
    script: list[Any] = []
    for number, names in enumerate([*asked, []]):
        if number in failing:
            script.append(ModelError("it is down", retryable=True))
        calls = [call(name, CALLS[name][0], id=f"t{number}-{place}") for place, name in enumerate(names)]
        script.append(reply("so", calls=calls))
    traces = Traces()
    handle = make(kind, script, [*TOOLS, kid([add])], observers=[traces.observer])
    denied = drive(kind, handle, list(answers))
    names = [name.partition(" ")[0] for name in traces.names]
    ran = sum(CALLS[name][1] for names_ in asked for name in names_) - denied
    assert names.count("chat") == len(script)
    assert names.count("execute_tool") == ran
    assert names.count("invoke_agent") == 1 + sum(isinstance(said, ModelError) for said in script)
    known = {span.context.span_id: span for span in traces.spans}
    for span in traces.spans:
        if span.name == "invoke_agent":
            assert span.parent is None
        else:
            assert span.parent is not None
            assert_within(span, known[span.parent.span_id])


def assert_within(span: ReadableSpan, outer: ReadableSpan) -> None:
    assert outer.name == "invoke_agent"
    assert (outer.start_time or 0) <= (span.start_time or 0) <= (span.end_time or 0) <= (outer.end_time or 0)
