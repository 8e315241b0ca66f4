"""The caller's decisions: those that each waiting call accepts, those it refuses, and the model's result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from tests.kit.each import each
from tests.kit.support import expect_refusal, results_in
from tests.kit.tools import TOOLS, params, user
from tests.kit.world import open_over_http
from toolloop import (
    Answer,
    Approve,
    Continue,
    Deny,
    LoopConfig,
    Rerun,
    SqliteStore,
    Stop,
    Texts,
    ToolLoopHandle,
)
from toolloop.errors import AlreadyDecided, CallerError, DecisionConflict, IllegalCommand, UndecidedCalls, UnknownCall
from toolloop.testing import ScriptedProvider, call, reply

WRITE = call("write", {"path": "a", "text": "b"}, id="toolu_w")
OTHER = call("write", {"path": "c", "text": "d"}, id="toolu_o")
ADD = call("add", {"a": 1, "b": 2}, id="toolu_a")
LOOKUP = {"name": "lookup", "description": "Look up.", "input_schema": {"type": "object", "properties": {}}}
EXTERNAL = call("lookup", {"word": "x"}, id="toolu_e")
EDITED = {"path": "z", "text": "y"}


def make_params(**more: Any) -> dict[str, Any]:
    return params(tools=[LOOKUP], **more)


def test_an_approved_call_runs_and_a_denied_one_does_not() -> None:
    """The denial is an error result with its reason; results come in the model's order."""
    with open_over_http([reply(calls=[WRITE, OTHER]), reply("fine")]) as at:
        turn = at.turn()
        turn.deny("toolu_w", "not today")
        turn.approve("toolu_o")
        turn.continue_loop()
        at.turn().continue_loop()
        at.expect_done()
        assert at.did == [("write", "c", "d")]
        denied, ran = results_in(at.list_sent()[-1])
        assert (denied["tool_use_id"], denied["is_error"]) == ("toolu_w", True)
        assert denied["content"] == Texts().denied.format(reason="not today")
        assert ran == {"type": "tool_result", "tool_use_id": "toolu_o", "content": "wrote c"}


def test_an_answer_is_the_result_and_the_tool_does_not_run() -> None:
    """Text, blocks or an error, as the caller says."""
    blocks = [{"type": "text", "text": "mine"}]
    with open_over_http([reply(calls=[WRITE, OTHER]), reply("fine")]) as at:
        turn = at.turn()
        turn.answer("toolu_w", blocks)
        turn.answer("toolu_o", "it broke", is_error=True, by="ana")
        turn.continue_loop()
        at.turn().continue_loop()
        at.expect_done()
        assert at.did == []
        first, second = results_in(at.list_sent()[-1])
        assert (first["content"], "is_error" in first) == (blocks, False)
        assert (second["content"], second["is_error"]) == ("it broke", True)


def test_an_edited_input_runs_and_the_result_mentions_the_edit() -> None:
    """History keeps the model's own words; a text block of its own says what really ran."""
    with open_over_http([reply(calls=[WRITE]), reply("fine")]) as at:
        turn = at.turn()
        turn.approve(turn.pending[0], EDITED)
        turn.continue_loop()
        at.turn().continue_loop()
        at.expect_done()
        assert at.did == [("write", "z", "y")]
        assert at.list_sent()[1]["content"][0]["input"] == {"path": "a", "text": "b"}
        (result,) = results_in(at.list_sent()[-1])
        said, told = result["content"]
        assert said == {"type": "text", "text": "wrote z"}
        assert told["type"] == "text"
        assert '{"path":"z","text":"y"}' in told["text"]


def test_approve_all_approves_what_waits_for_approval_alone() -> None:
    """External calls stay; the approvals are bound to what is shown."""
    with open_over_http([reply(calls=[WRITE, EXTERNAL, OTHER])], asked=make_params()) as at:
        turn = at.turn()
        turn.approve_all(by="ana")
        assert [call.name for call in turn.pending] == ["lookup"]
        for shown in (turn.calls[0], turn.calls[2]):
            decision = shown.decision
            assert decision is not None
            assert (decision.by, decision.digest) == ("ana", shown.digest)


def test_an_external_call_waits_for_its_answer() -> None:
    """A name that only the parameters define is not ours to run."""
    with open_over_http([reply(calls=[ADD, EXTERNAL]), reply("fine")], asked=make_params()) as at:
        turn = at.turn()
        assert [(call.name, call.why) for call in turn.pending] == [("lookup", "external")]
        turn.answer(turn.pending[0], {"found": [1, 2]})
        turn.continue_loop()
        at.turn().continue_loop()
        at.expect_done()
        assert [block["content"] for block in results_in(at.list_sent()[-1])] == ["3", '{"found":[1,2]}']


REFUSED: dict[str, tuple[Callable[[ToolLoopHandle], Any], type[CallerError], str]] = {
    "an unknown call": (lambda at: at.decide({"toolu_x": Approve()}), UnknownCall, "toolu_x"),
    "approving an external call": (lambda at: at.decide({"toolu_e": Approve()}), IllegalCommand, "answer, deny"),
    "running again what never ran": (lambda at: at.decide({"toolu_w": Rerun()}), IllegalCommand, "never ran"),
    "a call that does not wait": (lambda at: at.decide({"toolu_a": Approve()}), IllegalCommand, "does not wait"),
    "an edit that does not fit": (lambda at: at.decide({"toolu_w": Approve({"path": 5})}), IllegalCommand, "path"),
    "an edit that is not an object": (lambda at: at.decide({"toolu_w": Approve(["x"])}), IllegalCommand, "mapping"),  # type: ignore[arg-type]
    "an edit that is not JSON": (lambda at: at.decide({"toolu_w": Approve({"path": {1}})}), IllegalCommand, "path"),
    "a denial without a reason": (lambda at: at.decide({"toolu_w": Deny(None)}), IllegalCommand, "reason"),  # type: ignore[arg-type]
    "an answer that is not JSON": (
        lambda at: at.decide({"toolu_w": Answer(object())}),
        IllegalCommand,
        "cannot be converted to JSON",
    ),
    "an error without a text": (
        lambda at: at.decide({"toolu_w": Answer("", is_error=True)}),
        IllegalCommand,
        "content",
    ),
    "something else": (lambda at: at.decide({"toolu_w": "yes"}), IllegalCommand, "expected Approve"),  # type: ignore[dict-item]
    "going on undecided": (lambda at: at.resume(Continue()), UndecidedCalls, "toolu_w"),
    "one of three": (
        lambda at: at.decide({"toolu_w": Approve(), "toolu_e": Answer("x"), "toolu_o": Rerun()}),
        IllegalCommand,
        "toolu_o",
    ),
}


@each(("move", "kind", "word"), REFUSED.values())
def test_a_refused_decision_changes_nothing(move: Any, kind: type[CallerError], word: str) -> None:
    """All are checked, then all apply, or none does; the error says why and survives pickling."""
    with open_over_http([reply(calls=[WRITE, OTHER, ADD, EXTERNAL])], asked=make_params()) as at:
        turn = at.turn()
        with expect_refusal(at.handle, kind, word) as caught:
            move(at.handle)
        assert len(turn.pending) == 3
        if isinstance(caught.value, IllegalCommand):
            assert caught.value.state
            assert caught.value.asked


def test_errors_of_decisions_carry_their_parts() -> None:
    """The call, the calls that wait, what is allowed."""
    with open_over_http([reply(calls=[WRITE, OTHER, EXTERNAL])], asked=make_params()) as at:
        at.turn()
        with pytest.raises(UnknownCall) as unknown:
            at.handle.decide({"toolu_x": Approve()})
        assert (unknown.value.call, unknown.value.known) == ("toolu_x", ("toolu_w", "toolu_o", "toolu_e"))
        with pytest.raises(IllegalCommand) as illegal:
            at.handle.decide({"toolu_e": Approve()})
        assert (illegal.value.asked, illegal.value.allowed) == ("approve", ("answer", "deny"))
        with pytest.raises(UndecidedCalls) as undecided:
            at.handle.resume(Continue())
        assert undecided.value.calls == ("toolu_w", "toolu_o", "toolu_e")


def test_a_decision_of_a_call_that_is_settled_says_by_whom_how_and_when() -> None:
    """While its round is open, after it was closed, and when the history alone knows the call."""
    with open_over_http([reply(calls=[WRITE, OTHER]), reply("end"), reply("and more")]) as at:
        turn = at.turn()
        turn.deny("toolu_w", "not today", by="ana")
        turn.deny("toolu_w", "not today", by="ana")  # it says the same again
        turn.approve("toolu_o", by="bob")
        with pytest.raises(AlreadyDecided, match="deny by ana at") as open_:
            turn.approve("toolu_w", by="bob")
        with pytest.raises(DecisionConflict, match="cannot be changed") as other:
            turn.deny("toolu_o", "no")
        assert (type(other.value), other.value.decision, other.value.by) == (DecisionConflict, "approve", "bob")
        turn.continue_loop()
        at.turn()
        with pytest.raises(AlreadyDecided, match=r"approve by bob at .*returned") as closed:
            at.handle.decide({"toolu_o": Deny("no")})
        for caught, decision, by in ((open_, "deny", "ana"), (closed, "approve", "bob")):
            assert (caught.value.decision, caught.value.by) == (decision, by)
            assert caught.value.at is not None
            assert abs(caught.value.at - datetime.now(UTC)) < timedelta(minutes=5)
        at.handle.resume(Continue())
        at.expect_done()
        with pytest.raises(AlreadyDecided, match="deny by ana at") as past:
            at.handle.decide({"toolu_w": Approve()})
        assert (past.value.decision, past.value.by, past.value.at) == ("deny", "ana", open_.value.at)
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=[])
        with pytest.raises(AlreadyDecided, match="already has a result"):  # a snapshot has no decisions
            copy.decide({"toolu_w": Approve()})
        with pytest.raises(UnknownCall):
            at.handle.decide({"toolu_x": Approve()})


def test_a_handle_that_opens_a_stored_loop_later_says_so_too(tmp_path: Path) -> None:
    """Of a call that was decided, of one that expired, and with each=True."""
    store, now = SqliteStore(tmp_path / "loops.db"), [1000.0]
    parts: dict[str, Any] = {"tools": TOOLS, "clock": lambda: now[0]}
    script = ScriptedProvider([reply(calls=[WRITE, {**WRITE, "id": "toolu_v"}]), reply("so"), reply("more")])
    config = LoopConfig(decision_timeout=60.0)
    with ToolLoopHandle.open(store, "loop", script, params=params(), config=config, **parts) as handle:
        handle.run()
        handle.decide({"toolu_w": Deny("no", by="ana")})
        now[0] += 61
        assert handle.run().unwrap().text == "so"
        handle.follow_up("and?")
        assert handle.run().unwrap().text == "more"
    with ToolLoopHandle.open(store, "loop", script, **parts) as later:
        with pytest.raises(AlreadyDecided, match=r"deny by ana at 1970-01-01T00:16:40\+00:00") as past:
            later.decide({"toolu_w": Approve(by="bo")})
        assert (past.value.decision, past.value.by, past.value.at) == ("deny", "ana", datetime.fromtimestamp(1000, UTC))
        late = later.decide({"toolu_v": Approve(by="bo")}, each=True)["toolu_v"]
        assert isinstance(late, AlreadyDecided)
        assert "expired at 1970-01-01T00:17:40+00:00 without a decision" in str(late)


def test_a_decision_is_bound_to_what_was_shown() -> None:
    """By the call as it was shown, or by its digest; by id alone it is bound to nothing."""
    other = reply(calls=[call("write", {"path": "a", "text": "else"}, id="toolu_w")])
    with open_over_http([reply(calls=[WRITE])]) as at, open_over_http([other]) as elsewhere:
        (shown,) = at.turn().pending
        (foreign,) = elsewhere.turn().pending
        for bound in ({foreign: Approve()}, {"toolu_w": Approve(digest=foreign.digest)}):
            with expect_refusal(at.handle, DecisionConflict, "digest"):
                at.handle.decide(bound)
        at.handle.decide({shown: Deny("no")})
        elsewhere.handle.decide({"toolu_w": Deny("no")})


def test_a_call_is_named_by_its_id_or_by_itself() -> None:
    """Anything else is a mistake of type."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        turn = at.turn()
        with pytest.raises(TypeError, match="ToolCall"):
            turn.approve(5)  # type: ignore[arg-type]


def test_no_decision_at_all_is_none() -> None:
    """Nothing to decide changes nothing, wherever the loop is."""
    with open_over_http([reply("fine")]) as at:
        before = at.handle.snapshot()
        at.handle.decide({})
        assert at.handle.snapshot() == before


@each("reason", ["use {braces} instead", "a\ud800b", ""])
def test_any_reason_reaches_the_model(reason: str) -> None:
    """A reason is text, not a format; half a surrogate pair becomes U+FFFD."""
    with open_over_http([reply(calls=[WRITE]), reply("fine")]) as at:
        at.turn().deny("toolu_w", reason)
        at.handle.run()
        (result,) = results_in(at.list_sent()[-1])
        assert result["content"] == Texts().denied.format(reason=reason.replace("\ud800", "\ufffd"))


def test_stop_settles_what_is_open() -> None:
    """Every end with open calls settles them as not run; the history takes a follow-up."""
    with open_over_http([reply(calls=[WRITE, ADD]), reply("fine")]) as at:
        at.turn().stop("enough")
        at.expect_done()
        told = results_in(at.handle.messages[-1])
        assert [(block["is_error"], block["content"]) for block in told] == [(True, Texts().not_run)] * 2
        at.handle.follow_up([user("go on")])
        assert at.handle.run().unwrap().text == "fine"
        assert at.did == []


NO_WORDS: dict[str, tuple[Callable[[ToolLoopHandle], Any], type[Exception], str]] = {
    "a list of pairs": (lambda at: at.decide([("toolu_w", Approve())]), TypeError, "mapping"),  # type: ignore[call-overload]
    "a single decision": (lambda at: at.decide(Approve()), TypeError, "mapping"),  # type: ignore[call-overload]
    "nothing": (lambda at: at.decide(None), TypeError, "mapping"),  # type: ignore[call-overload]
    "approved by a number": (lambda at: at.decide({"toolu_w": Approve(by=5)}), IllegalCommand, "by"),  # type: ignore[arg-type]
    "denied by a list": (lambda at: at.decide({"toolu_w": Deny("no", by=["ana"])}), IllegalCommand, "by"),  # type: ignore[arg-type]
    "answered by a number": (lambda at: at.decide({"toolu_w": Answer("x", by=5)}), IllegalCommand, "by"),  # type: ignore[arg-type]
    "approved for a number": (lambda at: at.decide({"toolu_w": Approve(reason=5)}), IllegalCommand, "reason"),  # type: ignore[arg-type]
    "bound to a number": (lambda at: at.decide({"toolu_w": Approve(digest=5)}), IllegalCommand, "digest"),  # type: ignore[arg-type]
    "stopped for a number": (lambda at: at.resume(Stop(5)), TypeError, "reason"),  # type: ignore[arg-type]
}


@each(("move", "kind", "word"), NO_WORDS.values())
def test_a_word_of_another_type_is_refused(move: Any, kind: type[Exception], word: str) -> None:
    """It would be in the record as something else than it is; the calls wait as before."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        turn = at.turn()
        before = at.handle.snapshot()
        with pytest.raises(kind, match=word):
            move(at.handle)
        assert (at.handle.snapshot(), len(turn.pending), turn.is_spent) == (before, 1, False)


NAMES = [field.name for field in fields(Texts)]


def test_the_texts_are_distinct() -> None:
    """A model can tell one fate from another."""
    assert len({getattr(Texts(), name) for name in NAMES}) == len(NAMES)


def test_what_a_tool_raised_can_be_worded() -> None:
    """The error is one place in the text."""
    with open_over_http([reply(calls=[("broken", {})]), reply("fine")], texts=Texts(failed="Sorry: {error}.")) as at:
        assert at.handle.run().unwrap().text == "fine"
        (result,) = results_in(at.list_sent()[-1])
        assert (result["content"], result["is_error"]) == ("Sorry: OSError: the disk is gone.", True)


@each("braces", ["{", "}", "{0}", "{name}", "{reason}"])
def test_braces_in_what_is_filled_in_are_only_text(braces: str) -> None:
    """A reason, an input and an error may say anything."""
    edited = {"path": braces, "text": braces}
    with open_over_http([reply(calls=[WRITE, {**WRITE, "id": "toolu_2"}]), reply("fine")]) as at:
        turn = at.turn()
        turn.approve("toolu_w", edited)
        turn.deny("toolu_2", braces)
        assert at.handle.run().unwrap().text == "fine"
        ran, denied = results_in(at.list_sent()[-1])
        assert f'{{"path":"{braces}","text":"{braces}"}}' in str(ran["content"])
        assert denied["content"].endswith(braces)


def test_texts_are_part_of_a_snapshot() -> None:
    """A loop that is restored without a configuration says what it said before."""
    with open_over_http([reply(calls=[WRITE]), reply("fine")], texts=Texts(denied="Not allowed: {reason}")) as at:
        at.turn()
        copy = ToolLoopHandle.restore(at.handle.snapshot(), at.api.client(), tools=TOOLS)
        assert copy.pending_turn is not None
        copy.pending_turn.deny("toolu_w", "no")
        assert copy.run().unwrap().text == "fine"
        assert results_in(at.list_sent()[-1])[0]["content"] == "Not allowed: no"


def test_a_call_still_waits_after_an_answer_of_none() -> None:
    """It is refused before anything is recorded."""
    with open_over_http([reply(calls=[WRITE])]) as at:
        turn = at.turn()
        with pytest.raises(TypeError, match="the content of an answer is None"):
            turn.answer("toolu_w", None)
        assert [waiting.id for waiting in at.handle.pending] == ["toolu_w"]
