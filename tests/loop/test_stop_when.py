"""`stop_when`: what it sees, and when the loop ends by it."""

from __future__ import annotations

from typing import Any

from tests.each import each
from tests.loop.support import HUNDRED, scene
from toolloop import LoopConfig, View
from toolloop.terminations import NaturalEnd
from toolloop.testing import reply

ADD = reply(calls=[("add", {"a": 2, "b": 3})], usage=HUNDRED)


def test_the_repr_of_a_view_shows_no_contents() -> None:
    """What `stop_when` sees has a repr without contents."""
    seen: list[str] = []
    with scene([reply("secret")], stop_when=lambda view: seen.append(repr(view))) as at:
        at.handle.run()
        assert seen == ["<View of iteration 1>"]


def test_the_repr_of_a_configuration_shows_that_a_callable_is_set() -> None:
    """The repr of a configuration shows that a callable is set, not which."""
    assert "stop_when=None" in repr(LoopConfig())
    assert "stop_when=set" in repr(LoopConfig(stop_when=lambda view: False))
    assert "observers=1 set" in repr(LoopConfig(observers=[list[object]().append]))


def test_stopped_at_the_first_reply_its_calls_do_not_run() -> None:
    """Stopped at the first reply, the response still holds the calls, which did not run."""
    with scene([ADD], stop_when=lambda view: True) as at:
        done = at.handle.run().unwrap()
        assert done.response is not None
        assert (done.iterations, done.response["content"][0]["name"], at.ran) == (1, "add", [])


def test_it_can_count_the_calls_that_ran() -> None:
    """`stop_when` can count the calls that ran."""
    with scene([ADD, ADD], stop_when=lambda view: len(view.calls) >= 1) as at:
        assert at.handle.run().unwrap().iterations == 2
        assert at.ran == [("add", 2, 3)]


def test_it_sees_iteration_calls_results_and_usage() -> None:
    """It sees iteration, calls and results so far, and usage with this reply."""
    seen: list[Any] = []

    def look(view: View) -> None:
        results = [result.content for result in view.results]
        seen.append((view.iteration, len(view.calls), results, view.total_usage.input_tokens))

    with scene([ADD, reply("end", usage=HUNDRED)], stop_when=look) as at:
        at.handle.run()
        assert seen == [(1, 0, [], 100), (2, 1, ["5"], 200)]


def test_a_call_of_a_certain_name_can_end_the_loop() -> None:
    """The pattern of a final answer: a call of a certain name ends the loop, and is there in the response."""
    final = reply(calls=[("final_answer", {"text": "42"})])

    def named(view: View) -> bool:
        return any(block.get("name") == "final_answer" for block in view.reply["content"])

    with scene([ADD, final], stop_when=named) as at:
        done = at.handle.run().unwrap()
        assert done.response is not None
        assert (done.iterations, done.response["content"][0]["input"]) == (2, {"text": "42"})


@each("word", [None, False])
def test_none_and_false_do_not_stop(word: object) -> None:
    """None and False are neutral."""
    with scene([ADD, reply("end")], stop_when=lambda view: word) as at:
        assert at.handle.run().unwrap().termination == NaturalEnd()


def test_no_further_request_goes_out_and_the_end_is_told_once() -> None:
    """Stopped after the second reply, the third is never asked for, and the end is told once."""
    seen: list[object] = []
    with scene([ADD, ADD], stop_when=lambda view: view.iteration == 2, observers=[seen.append]) as at:
        at.handle.run()
        assert (at.count, [type(event).__name__ for event in seen].count("LoopFinished")) == (2, 1)
