"""Who may run: the policy of the configuration, the tool's own, and calls that cannot run at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

from pydantic import AfterValidator

from tests.kit.each import each
from tests.kit.support import expect_yielded, results_in
from tests.kit.tools import params
from tests.kit.world import open_over_http
from toolloop import (
    Answer,
    Approve,
    Ask,
    Deny,
    Grant,
    LoopConfig,
    PolicyView,
    ToolCall,
    ToolContext,
    ToolLoopHandle,
    sub_loop,
    tool,
)
from toolloop.testing import ScriptedProvider, call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
EDITED = {"path": "z", "text": "y"}


def test_without_a_policy_the_tool_decides() -> None:
    """`needs_approval` of a tool asks; without it the tool runs."""
    with open_over_http([reply(calls=[ADD, WRITE])]) as at:
        assert [call.name for call in at.turn().pending] == ["write"]


def test_needs_approval_may_look_at_the_call() -> None:
    """A predicate is asked with the call."""

    @tool(needs_approval=lambda call: call.input["number"] > 5)
    def spend(number: int) -> str:
        """Spend."""
        return f"spent {number}"

    calls = [call("spend", {"number": 3}), call("spend", {"number": 7})]
    with open_over_http([reply(calls=calls)], tools=[spend]) as at:
        assert [call.input["number"] for call in at.turn().pending] == [7]


@each("opinion", [None, Approve(), Deny("no"), Answer("mine"), Ask("why")])
@each("asked", [WRITE, ADD])
def test_the_configuration_goes_before_the_tool(opinion: Any, asked: dict[str, Any]) -> None:
    """`on_tool_call` is final in all it says; no opinion leaves it to the tool."""
    with open_over_http([reply(calls=[asked])], on_tool_call=lambda call, view: opinion) as at:
        turn = at.turn()
        waits = isinstance(opinion, Ask) or (opinion is None and asked is WRITE)
        assert (turn.reason == "decision_required") == waits
        assert (len(at.did) == 1) == (opinion == Approve() or (opinion is None and asked is ADD))


def test_a_policy_sees_the_call_and_the_loop() -> None:
    """It is asked for each call of the round, in order, before any runs."""
    seen: list[Any] = []

    def policy(asked: ToolCall, view: PolicyView) -> None:
        seen.append((asked.name, asked.input, view.iteration, len(view.messages), view.reply["stop_reason"]))

    with open_over_http([reply(calls=[ADD, WRITE])], on_tool_call=policy) as at:
        at.turn()
        assert seen == [
            ("add", {"a": 1, "b": 2}, 1, 1, "tool_use"),
            ("write", {"path": "a", "text": "b"}, 1, 1, "tool_use"),
        ]
        assert at.did == []


@each("answer", ["yes", True, 0, object()])
def test_a_policy_that_says_nonsense_asks(answer: Any) -> None:
    """A policy that returns something else lets nothing run."""
    with open_over_http([reply(calls=[ADD])], on_tool_call=lambda call, view: answer) as at:
        (call,) = at.turn().pending
        assert call.reason is not None
        assert type(answer).__name__ in call.reason


def test_a_policy_that_raises_asks() -> None:
    """It fails closed, and says what was raised, not its contents."""

    def policy(call: ToolCall, view: PolicyView) -> None:
        raise LookupError("key sk-secret")

    with open_over_http([reply(calls=[ADD])], on_tool_call=policy) as at:
        (call,) = at.turn().pending
        assert (call.why, call.reason) == ("approval", "the policy raised LookupError")


def test_a_predicate_that_raises_asks() -> None:
    """Likewise for a tool's own."""

    @tool(needs_approval=lambda call: call.input["nothing"])
    def spend(number: int) -> str:
        """Spend."""
        return "spent"

    with open_over_http([reply(calls=[("spend", {"number": 3})])], tools=[spend]) as at:
        assert [call.why for call in at.turn().pending] == ["approval"]


BOOK = call("book", {"day": "2026-12-24", "seats": [1, 2]}, id="toolu_b")


def make_booking(needs_approval: Callable[..., Any]) -> Any:
    """A tool whose predicate takes the arguments. It notes nothing: `open_over_http` reads its results."""

    @tool(needs_approval=needs_approval, preview=lambda day, seats: f"{day:%d %b}: {len(seats)}", typed=True)
    def book(day: date, seats: set[int], note: str = "") -> str:
        """Book seats."""
        return f"{sorted(seats)} on {day.isoformat()}"

    return book


def test_a_typed_predicate_gets_the_arguments_of_the_function() -> None:
    """Objects instead of JSON; an edit is judged with its own. What it does to them does not reach the tool."""
    seen: list[Any] = []

    def is_large(day: date, seats: set[int]) -> bool:
        seen.append((day, set(seats)))
        seats.clear()
        return True

    with open_over_http([reply(calls=[BOOK]), reply("fine")], tools=[make_booking(is_large)]) as at:
        turn = at.turn()
        assert turn.pending[0].preview == "24 Dec: 2"
        turn.approve("toolu_b", {"day": "2026-12-25", "seats": [3]})
        at.handle.run()
        assert seen == [(date(2026, 12, 24), {1, 2}), (date(2026, 12, 25), {3})]
        assert results_in(at.list_sent()[-1])[0]["content"][0]["text"] == "[3] on 2026-12-25"


@each("bad", [{"day": "tomorrow", "seats": []}, {"day": "2026-12-24"}, {"day": "2026-12-24", "seats": "12"}])
def test_a_typed_predicate_is_not_asked_about_an_input_that_does_not_fit(bad: dict[str, Any]) -> None:
    """The model gets the problems, as for any other tool."""
    asked: list[Any] = []
    with open_over_http(
        [reply(calls=[call("book", bad, id="toolu_b")]), reply("fine")],
        tools=[make_booking(lambda **all: asked.append(all))],
    ) as at:
        turn = at.turn()
        assert (turn.pending, asked) == ((), [])
        assert turn.results[0] is not None
        assert turn.results[0].is_error


def test_where_a_typed_predicate_has_no_arguments_approval_is_needed() -> None:
    """A validator may accept an input once and refuse it the next time."""
    times: list[str] = []

    def once(text: str) -> str:
        times.append(text)
        if len(times) == 2:
            raise ValueError("not again")
        return text

    @tool(needs_approval=lambda to: False, typed=True)
    def send(to: Annotated[str, AfterValidator(once)]) -> str:
        """Send."""
        return f"sent to {to}"

    with open_over_http([reply(calls=[("send", {"to": "ana"})])], tools=[send]) as at:
        assert [(call.why, call.reason) for call in at.turn().pending] == [
            ("approval", "the policy raised InvalidInput")
        ]


def test_a_policy_that_approves_an_input_that_does_not_fit_asks() -> None:
    """An input that the schema refuses never runs."""
    with open_over_http([reply(calls=[ADD])], on_tool_call=lambda call, view: Approve({"a": "x"})) as at:
        assert [call.why for call in at.turn().pending] == ["approval"]


def test_a_policy_runs_once_for_each_proposed_or_edited_input() -> None:
    """Once when proposed; once more after a human edit; never because a person approved."""
    seen: list[Any] = []

    def policy(asked: ToolCall, view: PolicyView) -> Ask:
        seen.append((asked.id, asked.effective_input["path"]))
        return Ask()

    other = call("write", {"path": "c", "text": "d"}, id="toolu_o")
    with open_over_http([reply(calls=[WRITE, other]), reply("fine")], on_tool_call=policy) as at:
        turn = at.turn()
        turn.approve("toolu_w", EDITED)
        turn.approve("toolu_o")
        assert seen == [("toolu_w", "a"), ("toolu_o", "c")]
        at.handle.run()
        assert seen == [("toolu_w", "a"), ("toolu_o", "c"), ("toolu_w", "z")]
        assert at.did == [("write", "z", "y"), ("write", "c", "d")]


def test_after_an_edit_a_denial_of_the_policy_wins_and_its_ask_is_satisfied() -> None:
    """The policy judges again when the round is about to run."""

    def policy(asked: ToolCall, view: PolicyView) -> Any:
        return Deny("never there") if asked.effective_input["path"] == "z" else Ask()

    with open_over_http([reply(calls=[WRITE]), reply("fine")], on_tool_call=policy) as at:
        at.turn().approve("toolu_w", EDITED)
        at.handle.run()
        (result,) = results_in(at.list_sent()[-1])
        assert ("never there" in result["content"], result["is_error"], at.did) == (True, True, [])


def test_an_unknown_tool_is_settled_first_with_the_names_there_are() -> None:
    """No decision is asked for a call that cannot run."""
    asked: list[str] = []
    with open_over_http(
        [reply(calls=[call("nothing", {}), ADD]), reply("fine")], on_tool_call=lambda c, _: asked.append(c.name)
    ) as at:
        at.turn().continue_loop()
        at.expect_done()
        unknown, added = results_in(at.list_sent()[-1])
        assert unknown["is_error"] is True
        assert all(name in unknown["content"] for name in ("nothing", "add", "broken", "look", "picture", "write"))
        assert (added["content"], asked) == ("3", ["add"])


def test_input_that_does_not_fit_is_reported_one_field_a_line() -> None:
    """The model reads each bad field with its value, and the words of a validator; the tool does not run."""

    def full(path: str) -> str:
        if not path.startswith("/"):
            raise ValueError("give the whole path, from the root")
        return path

    @tool
    def save(path: Annotated[str, AfterValidator(full)], size: int) -> str:
        """Save a file."""
        raise AssertionError("it must not run")

    bad = call("save", {"path": "a.txt", "size": "5", "extra": 1})
    with open_over_http([reply(calls=[bad]), reply("fine")], tools=[save]) as at:
        turn = at.turn()
        assert turn.reason == "tools_executed"
        turn.continue_loop()
        at.expect_done()
        (result,) = results_in(at.list_sent()[-1])
        assert result["is_error"] is True
        assert result["content"].splitlines() == [
            "The input does not fit the schema of save, so the call did not run:",
            '- path: Value error, give the whole path, from the root, got "a.txt"',
            '- size: Input should be a valid integer, got "5"',
            "- extra: Unexpected keyword argument, got 1",
        ]


def _refuses(_value: Any) -> Any:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    raise Silent


@tool
def check_number(a: Annotated[int, AfterValidator(_refuses)]) -> int:
    """Take a number."""
    return a


PRICE = sub_loop(
    "price",
    "Find a price",
    params={"model": "claude-opus-5-5", "max_tokens": 9},
    tools=[],
    input_schema={"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.01}}},
)


@each(("gated", "value"), [(check_number, 1), (PRICE, 10**400)])
def test_whatever_is_raised_while_an_input_is_checked_makes_it_invalid(gated: Any, value: int) -> None:
    """The model gets an error result, and the loop goes on."""
    with open_over_http([reply(calls=[call(gated.name, {"a": value})]), reply("fine")], tools=[gated]) as at:
        at.turn().continue_loop()
        assert at.expect_done().text == "fine"
        (result,) = results_in(at.list_sent()[-1])
        assert result["is_error"] is True
        assert "did not run" in result["content"]


def test_a_tool_that_raises_is_an_error_result_and_harms_no_other() -> None:
    """One error does not affect the other call; the result says what was raised."""
    with open_over_http([reply(calls=[call("broken"), ADD]), reply("fine")]) as at:
        at.turn().continue_loop()
        at.expect_done()
        failed, added = results_in(at.list_sent()[-1])
        assert (failed["is_error"], failed["content"]) == (True, "OSError: the disk is gone")
        assert added["content"] == "3"


def test_a_tool_that_returns_what_cannot_be_sent_is_an_error_result() -> None:
    """An input that is not JSON becomes an error result for the model, and the loop goes on."""

    @tool
    def odd() -> object:
        """Return something odd."""
        return object()

    with open_over_http([reply(calls=[("odd", {})]), reply("fine")], tools=[odd]) as at:
        at.turn().continue_loop()
        assert at.expect_done().text == "fine"
        (result,) = results_in(at.list_sent()[-1])
        assert (result["is_error"], "cannot be converted to JSON" in result["content"]) == (True, True)


def test_a_tool_may_know_its_call() -> None:
    """What a `ToolContext` says of loop, call, iteration and depth."""
    seen: list[Any] = []

    @tool
    def who(context: ToolContext) -> str:
        """Tell."""
        seen.append((context.loop_id, context.call_id, context.iteration, context.depth, context.cancelled))
        return "ok"

    with open_over_http([reply(calls=[call("who", id="toolu_x")]), reply("fine")], tools=[who], depth=1) as at:
        at.handle.run()
        assert seen == [("loop", "toolu_x", 1, 2, False)]


@each("answer", [Answer(object()), Answer("", is_error=True), Deny(None), Approve(["x"])])  # type: ignore[arg-type]
def test_a_decision_of_a_policy_that_cannot_be_used_asks(answer: Any) -> None:
    """The policy fails closed: the caller sees what was wrong with it."""
    with open_over_http([reply(calls=[ADD])], on_tool_call=lambda call, view: answer) as at:
        (pending,) = at.turn().pending
        assert (pending.why, at.did) == ("approval", [])
        assert "policy" in str(pending.reason)


UNUSABLE = ["yes", Approve(digest="of another"), Approve(remember=Grant()), Approve({"a": "x"}), Answer(object())]


@each("answer", [*UNUSABLE, LookupError()])
def test_a_grant_does_not_help_a_policy_whose_answer_cannot_be_used(answer: Any) -> None:
    """The call waits for a person, also for one who granted all calls like this one."""

    def policy(shown: ToolCall, _view: PolicyView) -> Any:
        if shown.iteration > 1 and isinstance(answer, Exception):
            raise answer
        return answer if shown.iteration > 1 else Ask("why")

    again = call("add", {"a": 1, "b": 2}, id="toolu_b")
    with open_over_http([reply(calls=[ADD]), reply(calls=[again])], on_tool_call=policy) as at:
        turn = at.turn()
        turn.approve("toolu_a", by="ana", remember=Grant())
        turn.continue_loop()
        at.turn().continue_loop()
        assert [each.id for each in at.turn().pending] == ["toolu_b"]


class Vague:
    """An answer that is neither true nor false, such as an array of numbers."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


def spend_with(predicate: Callable[..., Any]) -> Any:
    @tool(needs_approval=predicate)
    def spend() -> str:
        """Spend."""
        return "spent"

    return spend


def test_a_predicate_whose_answer_is_neither_true_nor_false_asks() -> None:
    """It fails closed, as one that raises does: a grant does not help."""
    script = [reply(calls=[("spend", {})]), reply(calls=[("spend", {})]), reply("fine")]
    with open_over_http(script, tools=[spend_with(lambda call: Vague())]) as at:
        for _ in range(2):
            turn = expect_yielded(at.handle.run())
            (pending,) = turn.pending
            assert pending.why == "approval"
            assert "ValueError" in str(pending.reason)
            turn.approve(pending, by="ana", remember=Grant())
        assert at.handle.run().unwrap().text == "fine"


@each("word", [Ask(reason=5), Ask(reason=["a"])])  # type: ignore[arg-type]
@each("who", ["policy", "predicate"])
def test_the_reason_of_an_ask_is_shown_as_a_text(word: Ask, who: str) -> None:
    """Whatever a policy gave as a reason, a page can show it and a snapshot can hold it."""
    script = [reply(calls=[("spend", {})])]
    config = LoopConfig(on_tool_call=(lambda call, view: word) if who == "policy" else None)
    tools = [spend_with(lambda call: word)]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params(), tools=tools, config=config)
    (pending,) = expect_yielded(handle.next_turn()).pending
    assert pending.reason == str(word.reason)
    copy = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]), tools=tools, config=config)
    assert [call.reason for call in copy.pending] == [pending.reason]
