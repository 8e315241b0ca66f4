"""`Inbox.offers`: what a person may do with a call that waits; and the results of an open round in `show`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.concurrency import run_async
from tests.kit.each import each
from tests.kit.tools import params, transfer
from toolloop import Answer, Approve, Ask, AsyncInbox, Deny, Grant, Inbox, MemoryStore, Person, ToolLoopHandle, tool
from toolloop.errors import NotAllowed
from toolloop.stores import Store, StoredLoop
from toolloop.testing import ScriptedProvider, call, reply

ALL = {"approve", "edit", "grant", "deny", "answer"}


def offered(store: Store, person: Person | str | None = None, **rights: Any) -> dict[str, set[str]]:
    inbox = Inbox(store) if person is None else Inbox(store).as_(person, **rights)
    return {path: {*offer.kinds} for path, offer in inbox.offers("loop").items()}


def waiting_for(*asks: Ask, name: str = "pay", **options: Any) -> Store:
    """A store with a loop in which a call of one tool waits."""

    @tool(name=name, needs_approval=lambda _: list(asks) or Ask(), **options)
    def work(text: str) -> str:
        """Work."""
        return text

    store = MemoryStore()
    provider = ScriptedProvider([reply(calls=[call(name, {"text": "new"}, id="c1")])])
    with ToolLoopHandle.open(store, "loop", provider, tools=[work], params=params()) as handle:
        handle.run()
    return store


def test_without_limits_all_that_the_call_accepts_is_offered() -> None:
    store = waiting_for()
    assert offered(store) == offered(store, "ana") == {"c1": ALL}


def test_the_offer_is_about_the_call_that_is_shown() -> None:
    store = waiting_for()
    [shown] = Inbox(store).show("loop")["pending"]
    assert Inbox(store).offers("loop")["c1"].digest == shown["digest"]


@each(
    ["person", "kinds"],
    [(Person("ana"), {"deny", "answer"}), (Person("fay", ("finance",)), ALL)],
)
def test_who_cannot_meet_a_demand_may_still_deny(person: Person, kinds: set[str]) -> None:
    store = waiting_for(Ask("a lot", of=("finance",)))
    assert offered(store, person) == {"c1": kinds}
    assert Inbox(store).as_(person).offers("loop")["c1"].needs == "one of finance"


def test_the_first_of_two_approvals_gives_no_grant() -> None:
    """It would not be used: the call needs another person after it."""
    store = waiting_for(Ask("a lot", need=2))
    assert offered(store, "ana") == {"c1": ALL - {"grant"}}
    inbox = Inbox(store).as_("ana")
    inbox.decide("loop", {"c1": Approve(digest=inbox.offers("loop")["c1"].digest)})
    assert offered(store, "ana") == {"c1": {"deny", "answer"}}
    assert inbox.offers("loop")["c1"].needs == "one more person"


def test_a_fresh_demand_takes_no_grant() -> None:
    assert offered(waiting_for(Ask(fresh=True)), "ana") == {"c1": ALL - {"grant"}}


def test_hidden_values_are_not_edited() -> None:
    assert offered(waiting_for(secret=("text",)), "ana") == {"c1": ALL - {"edit"}}


@each(
    ["store", "decision", "why"],
    [
        (waiting_for(Ask(fresh=True)), Approve(remember=Grant()), "an approval of its own"),
        (waiting_for(Ask(need=2)), Approve(remember=Grant()), "others must approve"),
    ],
)
def test_what_is_not_offered_is_refused(store: Store, decision: Approve, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        Inbox(store).as_("ana").decide("loop", {"c1": decision})
    assert Inbox(store).show("loop")["pending"]


@each("allowed", [{"deny"}, {"approve"}, {"approve", "grant"}, set()])
def test_what_the_application_does_not_allow_is_not_offered(allowed: set[str]) -> None:
    def may(_person: Person, action: str, _loop: StoredLoop, _call: Any) -> bool:
        return action in allowed

    expected = allowed | ({"edit"} if "approve" in allowed else set())
    assert offered(waiting_for(), "ana", may=may) == {"c1": expected}


def test_the_async_inbox_asks_an_async_application() -> None:
    async def may(_person: Person, action: str, _loop: StoredLoop, _call: Any) -> bool:
        return action == "deny"

    async def ask() -> frozenset[str]:
        return (await AsyncInbox(waiting_for()).as_("ana", may=may).offers("loop"))["c1"].kinds

    assert run_async("asyncio", ask) == {"deny"}


def test_results_of_an_open_round_are_shown() -> None:
    """Those that join the conversation only with the others of their round."""
    store = MemoryStore()
    provider = ScriptedProvider(
        [reply(calls=[call("pay", {"to": name, "euros": 5}, id=name) for name in ("c1", "c2")])]
    )
    with ToolLoopHandle.open(store, "loop", provider, tools=[transfer], params=params()) as handle:
        handle.run()
    inbox = Inbox(store)
    inbox.decide("loop", {"c1": Answer("paid by hand")})
    assert inbox.show("loop")["results"] == {"c1": {"text": "paid by hand", "is_error": False, "outcome": "answered"}}
    inbox.decide("loop", {"c2": Deny("no")})
    assert inbox.show("loop")["results"]["c2"]["outcome"] == "denied"
