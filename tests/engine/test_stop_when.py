"""`stop_when`: what it sees, and when the loop ends by it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.each import each
from tests.kit.tools import HUNDRED, user
from tests.kit.world import open_over_http
from toolloop import LoopConfig, PolicyView
from toolloop.terminations import NaturalEnd, StopCondition
from toolloop.testing import call, reply

ADD = reply(calls=[("add", {"a": 2, "b": 3})], usage=HUNDRED)


def test_the_repr_of_a_view_shows_no_contents() -> None:
    """What `stop_when` sees has a repr without contents."""
    seen: list[str] = []
    with open_over_http([reply("secret")], stop_when=lambda view: seen.append(repr(view))) as at:
        at.handle.run()
        assert seen == ["<PolicyView of iteration 1>"]


def test_the_repr_of_a_configuration_shows_that_a_callable_is_set() -> None:
    """The repr of a configuration shows that a callable is set, not which."""
    assert "stop_when=None" in repr(LoopConfig())
    assert "stop_when=set" in repr(LoopConfig(stop_when=lambda view: False))
    assert "observers=1 set" in repr(LoopConfig(observers=[list[object]().append]))


def test_stopped_at_the_first_reply_its_calls_do_not_run() -> None:
    """Stopped at the first reply, the response still holds the calls, which did not run."""
    with open_over_http([ADD], stop_when=lambda view: True) as at:
        done = at.handle.run().unwrap()
        assert done.response is not None
        assert (done.iterations, done.response["content"][0]["name"], at.did) == (1, "add", [])


def test_it_sees_iteration_calls_results_and_usage() -> None:
    """It sees iteration, calls and results so far, and usage with this reply."""
    seen: list[Any] = []

    def look(view: PolicyView) -> None:
        results = [result.content for result in view.results]
        seen.append((view.iteration, len(view.calls), results, view.total_usage.input_tokens))

    with open_over_http([ADD, reply("end", usage=HUNDRED)], stop_when=look) as at:
        at.handle.run()
        assert seen == [(1, 0, [], 100), (2, 1, ["5"], 200)]


def test_no_further_request_goes_out_and_the_end_is_reported_once() -> None:
    """Stopped after the second reply, the third is never asked for, and the end is reported once."""
    seen: list[object] = []
    with open_over_http([ADD, ADD], stop_when=lambda view: view.iteration == 2, observers=[seen.append]) as at:
        at.handle.run()
        assert (at.count, [type(event).__name__ for event in seen].count("LoopFinished")) == (2, 1)


ADD_CALL = call("add", {"a": 1, "b": 2}, id="toolu_a")


@each("said", [None, False, 0, 0.0, "", [], {}])
def test_a_stop_when_that_says_nothing_lets_the_loop_go_on(said: Any) -> None:
    """A falsy value does not stop the loop."""
    with open_over_http([reply("fine")], stop_when=lambda view: said) as at:
        assert at.expect_done().termination == NaturalEnd()


@each(("said", "reason"), [(True, None), (1, None), (["x"], None), ("enough", "enough")])
def test_a_stop_when_that_says_something_ends_the_loop(said: Any, reason: str | None) -> None:
    """A text is the reason; nothing of the reply runs."""
    with open_over_http([reply(calls=[ADD_CALL])], stop_when=lambda view: said) as at:
        assert (at.expect_done().termination, at.did) == (StopCondition(reason), [])


@each("error", [LookupError("no"), GeneratorExit()])
def test_what_stop_when_raises_comes_through_as_it_is(error: BaseException) -> None:
    """The state is unchanged, and the next turn asks once more."""
    asked = [error]

    def stop_when(view: Any) -> bool:
        if asked:
            raise asked.pop()
        return False

    with open_over_http([reply("fine")], stop_when=stop_when) as at:
        with pytest.raises(type(error)) as caught:
            at.handle.next_turn()
        assert caught.value is error
        assert at.expect_done().text == "fine"
        assert at.count == 1


def test_a_message_may_be_added_after_stop_when_raised() -> None:
    """Nothing is requested of a reply that is only judged: an edit meanwhile is adopted, and stays."""
    asked = [LookupError("no")]

    def stop_when(view: Any) -> bool:
        if asked:
            raise asked.pop()
        return False

    with open_over_http([reply("fine"), reply("more")], stop_when=stop_when) as at:
        with pytest.raises(LookupError):
            at.handle.next_turn()
        at.handle.messages_mut().append(user("and then?"))
        assert at.expect_done().text == "fine"
        assert at.handle.messages[:2] == (user(), user("and then?"))
        at.handle.follow_up([user("go on")])
        assert at.expect_done().text == "more"
