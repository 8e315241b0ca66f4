"""Lists of waiting calls: filters, orders, pages and counts, and what an item says beside the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.inbox.support import PARAMS, PAY, SEND, desk, desk_of
from tests.kit.effort import examples
from tests.kit.world import each_store
from toolloop import Answer, Approve, AsyncInbox, Inbox, MemoryStore, ToolLoopHandle, sub_loop, tool
from toolloop.inbox import InboxCall
from toolloop.stores import Head, PendingCall
from toolloop.testing import ScriptedProvider, call, reply

NOW = 1_800_000_000.0


def item(loop_id: str, number: int, **parts: Any) -> PendingCall:
    """A waiting call as a store keeps it."""
    known: dict[str, Any] = {"names": ("agent", "pay"), "why": "approval", "takes": (), **parts}
    return PendingCall(path=("p", f"c{number}"), digest=f"{loop_id} {number}", **known)


def stored(loops: list[tuple[str, str, list[dict[str, Any]]]]) -> Inbox:
    """An inbox over loops with these owners, statuses and calls, each a second younger than the one before it."""
    store = MemoryStore()
    for at, (owner, status, calls) in enumerate(loops):
        loop_id = f"loop-{at}"
        pending = tuple(item(loop_id, number, **parts) for number, parts in enumerate(calls))
        store.create(loop_id, [], head=Head(status, pending=pending, changed=at), metadata={"owner": owner})
    return Inbox(store, clock=lambda: NOW)


CALLS = st.fixed_dictionaries(
    {
        "names": st.sampled_from([("agent", "pay"), ("agent", "mail")]),
        "why": st.sampled_from(["approval", "external", "uncertain"]),
        "expires_at": st.sampled_from([None, NOW, NOW + 5, NOW + 9]),
        "input_text": st.sampled_from(["{}", '{"to":"Ana"}', '{"deep":[{"to":["x","ANA B."]}],"n":17}']),
        "reason": st.sampled_from([None, "ana asks"]),
        "named": st.sampled_from([{}, {"since": 5.0}, {"since": 2.0, "asked": "Pay Ana", "said": "17 euros"}]),
    }
)
LOOPS = st.lists(
    st.tuples(
        st.sampled_from(["ana", "bo"]),
        st.sampled_from(["needs_decision", "needs_decision", "failed", "ended"]),
        st.lists(CALLS, max_size=3),
    ),
    max_size=5,
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.sampled_from([{"owner": "ana"}, {"owner": "cy"}]),
        "tool": st.sampled_from(["pay", "mail", "agent", "x"]),
        "why": st.sampled_from(["approval", "external", "uncertain"]),
        "text": st.sampled_from(["ana", "ANA b.", "17", "to", "loop-1", "euros", "x", "ß", ""]),
    },
)


def _is_wanted(each: InboxCall, metadata: Any = None, tool: Any = None, why: Any = None, text: Any = None) -> bool:
    words = [each.loop_id, *each.metadata.values(), *each.names, each.reason or "", each.asked or "", each.said or ""]
    found = text is None or text.casefold() in "\n".join([*words, str(each.input)]).casefold()
    owner = None if metadata is None else metadata["owner"]
    return found and tool in (None, each.name) and why in (None, each.why) and owner in (None, each.metadata["owner"])


def _place(sort: str) -> Callable[[InboxCall], Any]:
    def place(each: InboxCall) -> Any:
        at = float(each.loop_id[-1])
        deadline = float("inf") if each.expires_at is None else each.expires_at.timestamp()
        since = at if each.since is None else each.since.timestamp()
        return (deadline if sort == "deadline" else since, at, each.path)

    return place


@examples(200)
@given(LOOPS, FILTERS, st.sampled_from(["deadline", "age"]), st.integers(1, 4))
def test_pages_have_exactly_the_calls_that_match_in_their_order(
    loops: list[Any], filters: dict[str, Any], sort: Any, limit: int
) -> None:
    """Whatever is asked for; each page says how many there are in all."""
    inbox = stored(loops)
    everything = [
        InboxCall.of(row, each)
        for row in inbox._store.list(("needs_decision", "failed"))
        for each in row.pending
        if each.expires_at is None or each.expires_at > NOW
    ]
    expected = sorted((each for each in everything if _is_wanted(each, **filters)), key=_place(sort))
    owner = filters.get("metadata", {}).get("owner")
    failed = sum(status == "failed" and owner in (None, of) for of, status, _ in loops)
    seen, cursor = list[InboxCall](), None
    while True:
        page = inbox.pending(**filters, sort=sort, limit=limit, cursor=cursor)
        assert page.counts == {"waiting": len(expected), "failed": failed}
        seen += page
        if (cursor := page.cursor) is None:
            break
    assert seen == expected
    metadata = filters.get("metadata")
    rows = inbox._store.list(metadata=metadata, limit=1000)
    counts = inbox.counts(metadata)
    assert counts.waiting == inbox.pending(metadata).counts["waiting"]
    assert {status: count for status, count in counts.loops.items() if count} == Counter(row.status for row in rows)
    assert len(counts.loops) == 7
    assert anyio.run(_listed, inbox, {**filters, "sort": sort}) == expected


async def _listed(inbox: Inbox, arguments: dict[str, Any]) -> list[InboxCall]:
    return [*await AsyncInbox(inbox._store, clock=lambda: NOW).pending(**arguments)]


def test_bad_filters_are_refused_by_name() -> None:
    """And a cursor is of one order."""
    inbox = stored([("ana", "needs_decision", [{}, {}])])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"why": "x"}, "why: expected one of approval, external, uncertain, got 'x'"),
        ({"sort": "name"}, "sort: expected one of deadline, age, got 'name'"),
        ({"tool": 1}, "tool is an int"),
        ({"text": b"a"}, "text is a bytes"),
        ({"sort": "age", "cursor": inbox.pending(limit=1).cursor}, "cursor: it is of a page with sort='deadline'"),
    ]
    for arguments, says in cases:
        with pytest.raises((TypeError, ValueError), match=says):
            inbox.pending(**arguments)


def test_limit_and_cursor_are_still_positional() -> None:
    inbox = stored([("ana", "needs_decision", [{}, {}])])
    first = inbox.pending(None, 1)
    assert [each.id for each in inbox.pending(None, 1, first.cursor)] == ["c1"]


# --- what an item says ------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@examples(60)
@given(st.dictionaries(st.text(max_size=5), JSON | st.text(min_size=60), max_size=8))
def test_a_gist_is_one_short_line(fields: dict[str, Any]) -> None:
    """Whatever the input."""
    shown, text = _waiting(fields)
    assert len(shown.gist) <= 80
    assert len(shown.gist.splitlines()) <= 1
    assert shown.size == len(text)


def _waiting(fields: dict[str, Any]) -> tuple[InboxCall, str]:
    """The item of a call with this input, and the input as JSON."""
    store = MemoryStore()
    params = {**PARAMS, "tools": [{"name": "do", "input_schema": {"type": "object"}}]}
    provider = ScriptedProvider([reply(calls=[call("do", fields, id="c1")])])
    with ToolLoopHandle.open(store, "loop", provider, params=params) as handle:
        handle.run()
        (shown,) = handle.pending
    (found,) = Inbox(store).pending()
    return found, shown.effective_input_text


@pytest.mark.parametrize(
    ("fields", "gist"),
    [
        ({}, ""),
        ({"order": "A-9917", "euros": 2400.5, "urgent": True, "note": None}, "A-9917 · 2400.5 · true · null"),
        ({"script": "\n set -euo\tpipefail \nrm -rf /", "n": 2}, "set -euo pipefail · 2"),
        ({"to": ["a", "b"], "by": {"x": 1}, "empty": ""}, "2 values · 1 value"),
        ({"a": "x" * 60, "b": "y" * 60}, "x" * 60 + " · " + "y" * 16 + "…"),
    ],
)
def test_a_gist_has_the_values(fields: dict[str, Any], gist: str) -> None:
    """The first line of a text, and how many there are of a list."""
    assert _waiting(fields)[0].gist == gist


def test_an_input_is_whole_up_to_4000_characters() -> None:
    """A longer one is shortened, and its size is that of the whole."""
    whole, longer = (_waiting({"a": "x" * size})[0] for size in (4000 - 8, 4000 - 7))
    assert (whole.truncated, whole.size, whole.input) == (False, 4000, {"a": "x" * 3992})
    assert (longer.truncated, longer.size) == (True, 4001)
    assert longer.input["a"].startswith("xx")


@each_store
def test_a_call_waits_since_it_began_to_wait(where: str, tmp_path: Path) -> None:
    """Also after another call was decided, by another process, and after a message was refused or added."""
    at = desk(where, tmp_path)
    began = at.now
    at.drive()
    at.now += 100
    first, second = at.inbox.pending()
    assert first.since == second.since == datetime.fromtimestamp(began, UTC)
    at.inbox.decide("loop", {first: Approve(by="ana")})
    at.now += 100
    with at.open(take_over=True) as handle:
        handle.run()
        assert at.inbox.pending()[0].since == second.since
        handle.decide({handle.pending[0]: Approve({"to": "cy", "euros": 1}, by="ana")})
    assert len(at.inbox.pending()) == 0


def test_a_link_shows_since_when_its_call_waits() -> None:
    at = desk_of(MemoryStore())
    at.drive()
    (call_, _) = at.inbox.pending()
    shown = at.inbox.linked(at.inbox.link("loop", call_))
    assert (shown.since, shown.asked, shown.usage) == (call_.since, call_.asked, call_.usage)
    assert shown.since is not None


def test_an_item_has_the_request_and_the_reply_that_it_belongs_to() -> None:
    """The user's last message, not the results after it, and the text of the reply with the call."""
    script = (reply("Let me see.", calls=[PAY]), reply("First ana, now bo.", calls=[SEND]), reply("Done."))
    at = desk_of(MemoryStore(), script=script)
    at.drive()
    (first,) = at.inbox.pending()
    assert (first.asked, first.said) == ("Pay the bills", "Let me see.")
    assert first.usage == {"input_tokens": 10, "total_input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    at.inbox.decide("loop", {first: Answer("paid")})
    at.drive()
    (second,) = at.inbox.pending()
    assert (second.asked, second.said) == ("Pay the bills", "First ana, now bo.")
    assert second.usage == {"input_tokens": 20, "total_input_tokens": 20, "output_tokens": 10, "total_tokens": 30}


@pytest.mark.parametrize(
    ("messages", "asked"),
    [
        ([{"content": "Keys in another order", "role": "user"}], "Keys in another order"),
        (
            [{"role": "user", "content": [{"type": "text", "text": " two "}, {"type": "text", "text": "texts"}]}],
            "two \ntexts",
        ),
        ([{"role": "user", "content": "x" * 400}], "x" * 300 + "…"),
        (
            [
                {"role": "user", "content": "First"},
                {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": "Then"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "pay", "input": {}}]},
                {"role": "user", "content": [{"content": "paid", "tool_use_id": "a", "type": "tool_result"}]},
            ],
            "Then",
        ),
    ],
)
def test_the_request_is_the_last_message_of_the_user(messages: list[Any], asked: str) -> None:
    """Its first 300 characters, in whatever form it was given."""
    at = desk_of(MemoryStore(), script=(reply(calls=[PAY]),) * 3)
    at.drive(params={**PARAMS, "messages": messages})
    (shown,) = at.inbox.pending()
    assert (shown.asked, shown.said) == (asked, None)


def test_a_nested_call_has_the_request_to_the_outermost_loop() -> None:
    """And the text of the agent that made the call."""

    @tool(needs_approval=True)
    def pay(to: str) -> str:
        """Pay."""
        return to

    clerk = sub_loop("clerk", "Pays.", params={"model": "claude-opus-5-5", "max_tokens": 9}, tools=[pay])

    def answer(request: Any) -> Any:
        if "Send 5" in str(request["messages"][0]):
            return reply("I pay bo.", calls=[call("pay", {"to": "bo"}, id="c1")])
        return reply("I ask the clerk.", calls=[call("clerk", {"prompt": "Send 5 to bo"}, id="a1")])

    store = MemoryStore()
    with ToolLoopHandle.open(store, "loop", ScriptedProvider(answer), tools=[clerk], params=PARAMS) as handle:
        handle.run()
    (shown,) = Inbox(store).pending()
    assert (shown.path, shown.asked, shown.said) == (("a1", "c1"), "Pay the bills", "I pay bo.")
    assert shown.usage == {"input_tokens": 20, "total_input_tokens": 20, "output_tokens": 10, "total_tokens": 30}


def test_the_row_of_an_earlier_version_lacks_what_it_did_not_store() -> None:
    """All else is as ever, and such a call is as old as its loop."""
    at = desk_of(MemoryStore())
    at.drive()
    row = at.store.head("loop")
    old = evolve(row.head, pending=tuple(evolve(each, named={}) for each in row.pending))
    at.store.append("loop", [], expected_rev=row.rev, head=old)
    first, second = at.inbox.pending(sort="age")
    assert (first.id, second.id) == ("c1", "c2")
    assert (first.since, first.asked, first.said, first.usage) == (None, None, None, None)
    counted = {"usage": {"input_tokens": 20, "output_tokens": 10, "total_tokens": 30}}  # with cached tokens
    older = evolve(row.head, pending=tuple(evolve(each, named=counted) for each in row.pending))
    assert [InboxCall.of(evolve(row, head=older), each).usage for each in older.pending] == [None, None]
    assert (first.gist, first.size) == ("ana · 5", len('{"to":"ana","euros":5}'))
    at.now += 60
    at.inbox.decide("loop", {first: Approve(by="ana")})
    assert at.inbox.pending()[0].since is None
