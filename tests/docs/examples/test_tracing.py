"""The example of traces: a program that sleeps in between, and what it prints of itself."""

from __future__ import annotations

import pytest

from tests.docs.examples.programs import EXAMPLES, environment
from tests.kit.warm_python import run
from toolloop.testing import FakeMessagesAPI, reply

REFUND = reply(calls=[("refund", {"order": 7})])


def lines(api: FakeMessagesAPI, keys: str) -> list[list[str]]:
    """What the program prints, line by line, in words; without what it asks."""
    done = run([str(EXAMPLES / "tracing.py")], keys, env=environment(api))
    assert (done.returncode, done.stderr) == (0, "")
    return [text.rpartition("[y/n] ")[2].split("  ") for text in done.stdout.splitlines()]


def test_each_handle_of_a_loop_makes_a_trace() -> None:
    """Each half has a span of the loop; the transfer is inside of the tool's run, and ends before it."""
    with FakeMessagesAPI([REFUND, reply("Done.", usage={"input_tokens": 9, "output_tokens": 4})]) as api:
        *spans, last = lines(api, "y\n")
    assert last == ["Done."]
    named = [[part for part in span if part and not part.endswith(" ms")] for span in spans]
    assert [rest for _, *rest in named] == [
        ["chat claude-opus-5-5", "5 tokens out"],
        ["invoke_agent", "5 tokens out"],
        ["bank transfer"],
        ["execute_tool refund"],
        ["chat claude-opus-5-5", "4 tokens out"],
        ["invoke_agent", "4 tokens out"],
    ]
    traces = [trace for trace, *_ in named]
    assert traces == [traces[0]] * 2 + [traces[2]] * 4
    assert traces[0] != traces[2]


@pytest.mark.deep
def test_a_call_that_is_denied_has_no_span() -> None:
    """Nothing ran."""
    with FakeMessagesAPI([REFUND, reply("I may not.")]) as api:
        *spans, last = lines(api, "n\n")
    assert last == ["I may not."]
    assert [span for span in spans if "execute_tool refund" in span] == []
