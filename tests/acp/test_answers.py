"""What each answer of the person at the editor does. The client is the protocol's own, of npm."""

from __future__ import annotations

import pytest

from tests.acp.conftest import Desk
from toolloop import Approve, Ask, Grant, LoopConfig, Person, ToolCall, tool
from toolloop.inbox import Action
from toolloop.stores import StoredLoop
from toolloop.testing import AsyncScriptedProvider, reply


def test_a_reply_is_shown_while_it_comes(desk: Desk) -> None:
    editor = desk.open()
    assert editor.turn(editor.new(), "hello") == "end_turn"
    assert editor.said == "Done: hello"


def test_allow_once_runs_the_call_once(desk: Desk) -> None:
    """The card has the whole input, and the diff that the tool declares."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "edit a.txt")
    card = editor.card()
    assert [(each["name"], each["kind"]) for each in card.options.values()] == [
        ("Allow once", "allow_once"),
        ("Allow exactly this again, in this session", "allow_always"),
        ("Reject", "reject_once"),
    ]
    assert card.call["rawInput"] == {"path": "a.txt", "old": "old\n", "new": "new\n"}
    assert card.call["content"] == [
        {"type": "diff", "path": "/srv/project/a.txt", "oldText": "old\n", "newText": "new\n"}
    ]
    assert (card.call["kind"], card.call["locations"]) == ("edit", [{"path": "/srv/project/a.txt"}])
    card.choose("once")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert desk.ran == ["edit a.txt new"]
    assert editor.calls() == {"c1_0": ["pending", "pending", "in_progress", "completed"]}
    assert editor.kinds() == [
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ]
    [decided] = [each for each in desk.inbox.trail(session) if each.kind == "approve"]
    assert (decided.by, decided.via) == ("ana", "acp")


def test_exactly_this_again_asks_for_anything_else(desk: Desk) -> None:
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    editor.card().choose("exact")
    answer.result(30)
    assert editor.turn(session, "send bo") == "end_turn"  # nobody was asked
    answer = editor.prompt(session, "send eve")
    editor.card().choose("reject")
    answer.result(30)
    assert desk.ran == ["send bo", "send bo"]


def test_a_wider_grant_covers_what_it_says(desk: Desk) -> None:
    desk.given["always"] = {"send": Grant(match={"to": "b*"})}
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    assert card.options["wider"]["name"] == "Allow send with to = b*, in this session"
    card.choose("wider")
    answer.result(30)
    assert editor.turn(session, "send ben") == "end_turn"
    answer = editor.prompt(session, "send eve")
    editor.card().choose("reject")
    answer.result(30)
    assert desk.ran == ["send bo", "send ben"]


def test_reject_denies_and_the_model_reads_that(desk: Desk) -> None:
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "edit a.txt")
    editor.card().choose("reject")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert desk.ran == []
    assert editor.statuses() == [["pending", "pending", "failed"]]
    assert "It was rejected in the editor." in str(desk.api.requests[-1].json["messages"])


@pytest.mark.parametrize("how", ["dismiss", "unknown"])
def test_a_card_that_goes_away_decides_nothing(desk: Desk, how: str) -> None:
    """The next message asks again first, and goes out with the result."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    card.dismiss() if how == "dismiss" else card.choose("yes please")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert "Still waiting: send (one person)" in editor.said
    assert desk.waiting().name == "send"
    answer = editor.prompt(session, "hello")
    editor.card().choose("once")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert desk.ran == ["send bo"]
    assert editor.said.endswith("Done: hello")


def test_two_calls_get_different_answers(desk: Desk) -> None:
    """Both are asked about at once."""
    editor = desk.open()
    answer = editor.prompt(editor.new(), "send bo, edit a.txt, look b.txt")
    cards = {card.call["title"].partition(":")[0]: card for card in (editor.card(), editor.card())}
    cards["edit"].choose("reject")
    cards["send"].choose("once")
    answer.result(30)
    assert sorted(desk.ran) == ["look b.txt", "send bo"]


@pytest.mark.parametrize(("to", "gist"), [("é\nbo", "é bo"), ("x" * 80, "x" * 56 + "…")])
def test_the_title_of_a_card_has_the_values_as_json(desk: Desk, to: str, gist: str) -> None:
    """In one line. One that is cut says so."""

    @tool(needs_approval=True)
    def pay(urgent: bool, why: str | None, days: list[str], to: str) -> str:
        """Pay."""
        return f"paid {to} {urgent} {why} {days}"

    call = "pay", {"urgent": True, "why": None, "days": ["mo"], "to": to}
    desk.given.update(tools=[pay], provider=AsyncScriptedProvider([reply(calls=[call]), reply("paid")]))
    editor = desk.open()
    answer = editor.prompt(editor.new(), "pay")
    card = editor.card()
    assert card.call["title"] == f'pay: true · null · ["mo"] · {gist}'
    card.choose("once")
    assert answer.result(30) == {"stopReason": "end_turn"}


def test_a_secret_is_not_shown(desk: Desk) -> None:
    """Neither in the card, nor when the session is loaded."""
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    assert card.call["rawInput"]["token"].startswith("hidden, 6 characters")
    card.choose("once")
    answer.result(30)
    editor.load(session)
    assert "s3cret" not in str(editor.updates)
    assert desk.ran == ["send bo"]


def test_an_approval_that_is_not_enough_waits_for_others(desk: Desk) -> None:
    """The message says for whom. The next prompt goes on once they have approved."""
    desk.given["config"] = LoopConfig(on_tool_call=lambda call, _: Ask("much", need=2, of="finance"))
    desk.given["person"] = Person("ana", ["finance"])
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    assert [*card.options] == ["once", "reject"]
    card.choose("once")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert "Still waiting: send (one more of finance)" in editor.said
    assert editor.turn(session, "hurry") == "end_turn"  # and asks nobody
    assert desk.ran == []
    call = desk.waiting()
    desk.inbox.decide(session, {call: Approve(by=Person("bo", ["finance"]), digest=call.digest)})
    assert editor.turn(session, "hello") == "end_turn"
    assert desk.ran == ["send bo"]


def test_a_person_who_cannot_approve_is_not_asked(desk: Desk) -> None:
    desk.given["config"] = LoopConfig(on_tool_call=lambda call, _: Ask("much", of="finance"))
    editor = desk.open()
    assert editor.turn(editor.new(), "send bo") == "end_turn"
    assert "Still waiting: send (one of finance)" in editor.said
    assert editor.cards.empty()


def test_what_a_person_may_not_do_is_not_offered(desk: Desk) -> None:
    """Nor is a wider grant, which would be more than what was asked about."""
    refused: set[Action] = {"grant", "deny"}

    async def may(person: Person, action: Action, loop: StoredLoop, call: ToolCall | None = None) -> bool:
        return action not in refused

    desk.given |= {"may": may, "always": {"send": Grant(match={"to": "b*"})}}
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    assert [*card.options] == ["once"]
    card.choose("exact")  # of a client that makes it up: nothing is decided
    answer.result(30)
    assert desk.ran == []
    refused.add("approve")
    assert editor.turn(session, "hello") == "end_turn"
    assert editor.cards.empty()


def test_a_person_who_may_only_deny_can_reject(desk: Desk) -> None:
    desk.given["may"] = lambda person, action, *_: action not in ("approve", "grant")
    editor = desk.open()
    session = editor.new()
    answer = editor.prompt(session, "send bo")
    card = editor.card()
    assert [*card.options] == ["reject"]
    card.choose("reject")
    assert answer.result(30) == {"stopReason": "end_turn"}
    assert [each.kind for each in desk.inbox.trail(session) if each.path] == ["deny"]


def test_a_call_in_a_nested_loop_is_asked_about(desk: Desk) -> None:
    """It is a call of this session, named by its path."""
    editor = desk.open()
    answer = editor.prompt(editor.new(), "research send bo")
    card = editor.card()
    assert card.call["toolCallId"] == "c1_0/c1_0"
    card.choose("once")
    answer.result(30)
    assert desk.ran == ["send bo"]
    assert editor.calls() == {
        "c1_0": ["pending", "in_progress", "completed"],
        "c1_0/c1_0": ["pending", "pending", "in_progress", "completed"],
    }
