"""The tally of a loop: what became of its calls, how long they waited, and what it cost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.kit.world import each_store, store_at
from toolloop import (
    Answer,
    Approve,
    Ask,
    AsyncInbox,
    Cost,
    Deny,
    Grant,
    Inbox,
    LoopConfig,
    MemoryStore,
    Person,
    SqliteStore,
    ToolLoopHandle,
    tool,
)
from toolloop.errors import CallerError, LoopNotFound
from toolloop.inbox import Statistics, audit, mark_restored, recount
from toolloop.prices import Price
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider, call, reply

A_DAY = 86_400.0
OUTSIDE = {"name": "outside", "description": "Elsewhere.", "input_schema": {"type": "object", "properties": {}}}


@tool
def free() -> str:
    """Do something that needs no approval."""
    return "ok"


@tool(needs_approval=True)
def gated(n: int = 0) -> str:
    """Do something that a person must approve."""
    return "ok"


@tool
def ruled(allow: bool) -> str:
    """Do what a rule allows."""
    return "ok"


def judge(call: Any, _view: Any) -> Any:
    if call.name != "ruled":
        return None
    return Approve(rule="ok") if call.input["allow"] else Deny("no", rule="never")


CALLS = {
    "free": call("free"),
    "gated": call("gated", {"n": 1}),
    "allowed": call("ruled", {"allow": True}),
    "forbidden": call("ruled", {"allow": False}),
    "outside": call("outside"),
    "unknown": call("unknown"),
    "misfit": call("gated", {"n": "x"}),
}


@define
class Desk:
    """A loop in a store, and a person at an inbox; both go by a clock of the test."""

    store: Store = field(factory=MemoryStore)
    now: float = 1_000_000.0
    config: dict[str, Any] = field(factory=dict)
    policy: Any = judge
    number: int = 0
    script: list[Any] = field(factory=list)
    handle: ToolLoopHandle = field(init=False)

    def __attrs_post_init__(self) -> None:
        store: Any = self.store
        if hasattr(store, "now"):
            store.now = lambda: self.now  # the test sets the time, also there
        self.handle = ToolLoopHandle.open(self.store, "0", **self.parts(), params=PARAMS, metadata={"desk": "a"})

    def parts(self) -> dict[str, Any]:
        prices = {"*": Price(input=1, output=0)}
        config = LoopConfig(on_tool_call=self.policy, prices=prices, max_iterations=None, **self.config)
        provider = ScriptedProvider(lambda _: self.script.pop(0) if self.script else reply("done", usage={}))
        return {"provider": provider, "tools": [free, gated, ruled], "config": config, "clock": lambda: self.now}

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.store, clock=lambda: self.now)

    def propose(self, *kinds: str) -> None:
        """Let the model make calls."""
        self.script[:] = [reply(calls=[CALLS[kind] for kind in kinds], usage={"input_tokens": 250_000})]
        self.handle.say("more")
        self.handle.run()

    def decide(self, decision: Any, tool: str | None = None) -> list[str]:
        """Decide each waiting call that takes the decision. Return their tools."""
        decided = []
        for each in self.inbox.pending(tool=tool):
            if each.loop_id == self.handle.loop_id and type(decision).__name__.lower() in each.takes:
                self.inbox.decide(each.loop_id, {each: decision})
                decided.append(each.name)
        self.handle.run()
        return decided

    def do(self, step: tuple[str, Any]) -> None:
        match step:
            case "calls", kinds:
                self.propose(*kinds)
            case "wait", seconds:
                self.now += seconds
            case "tick", _:
                self.handle.run()
            case "sleep", _:
                self.handle.close()
                self.handle = ToolLoopHandle.open(self.store, self.handle.loop_id, **self.parts())
            case "restored", _:
                self.handle.close()
                mark_restored(self.store, by="ana")
                self.handle = ToolLoopHandle.open(self.store, self.handle.loop_id, **self.parts())
            case "fork", _:
                self.number += 1
                self.handle = self.handle.fork(str(self.number))
                self.handle.run()
                self.handle.say("on")
            case "stop", _:
                self.inbox.stop(self.handle.loop_id, by="ana")
            case _, decision:
                self.decide(decision)


PARAMS = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Go"}], "tools": [OUTSIDE]}
DECISIONS = (
    Approve(by="ana"),
    Approve({"n": 2}, by="bo"),
    Approve(by="ana", remember=Grant()),
    Deny("no", by="bo"),
    Answer("so", by="cy"),
)
STEPS = st.one_of(
    st.tuples(st.just("calls"), st.lists(st.sampled_from([*CALLS]), min_size=1, max_size=3)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 40.0, 3_000.0, A_DAY])),
    st.tuples(st.sampled_from(["tick", "sleep", "fork", "stop", "restored"]), st.none()),
    st.tuples(st.just("decide"), st.sampled_from(DECISIONS)),
)


@examples(50)
@given(st.lists(STEPS, max_size=12), st.sampled_from([None, 5_000.0]), st.sampled_from(["stop", "continue"]))
def test_the_tally_in_the_row_is_that_of_the_journal(steps: list[Any], timeout: float | None, on_expiry: Any) -> None:
    """From any writer, and in any order; and the cost is that of the loop itself."""
    desk = Desk(config={"decision_timeout": timeout, "on_expiry": on_expiry})
    desk.handle.run()
    for step in steps:
        try:
            desk.do(step)
        except CallerError:
            continue
    desk.handle.close()
    for row in desk.store.list():
        assert audit(desk.store, row.loop_id) == ()
    if not desk.number:
        assert desk.inbox.statistics().cost == desk.handle.total_usage.cost


def outcomes(found: Statistics, wanted: tuple[str, ...]) -> Counter[str]:
    counted = (each for counts in found.calls.values() for each in Counter(counts).elements())
    return Counter(each for each in counted if each in wanted)


@examples(25)
@given(st.lists(STEPS.filter(lambda step: step[0] != "fork"), max_size=12), st.sampled_from(["stop", "continue"]))
def test_the_trail_has_a_line_for_each_expiry_and_each_use_of_a_grant(steps: list[Any], on_expiry: Any) -> None:
    """As many as the tally counts."""
    desk = Desk(config={"decision_timeout": 5_000.0, "on_expiry": on_expiry})
    desk.handle.run()
    for step in steps:
        try:
            desk.do(step)
        except CallerError:
            continue
    desk.handle.close()
    wanted = ("expired", "grant")
    lines = Counter(entry.kind for entry in desk.inbox.trail("0") if entry.kind in wanted)
    assert lines == outcomes(desk.inbox.statistics(), wanted)


@examples(24)
@given(st.lists(st.sampled_from(DECISIONS), min_size=1, max_size=6))
def test_each_decision_of_a_person_counts_once(decisions: list[Any]) -> None:
    """By an account of the test's own."""
    desk = Desk()
    expected: Counter[tuple[str, str]] = Counter()
    for decision in decisions:
        desk.propose("gated", "outside")
        verb = {"Approve": "approved", "Deny": "denied", "Answer": "answered"}[type(decision).__name__]
        verb = "edited" if getattr(decision, "input", None) else verb
        expected[decision.by, verb] += len(desk.decide(decision))
        while desk.inbox.pending():
            expected["di", "answered"] += len(desk.decide(Answer("so", by="di")))
            expected["di", "approved"] += len(desk.decide(Approve(by="di")))
    people = desk.inbox.statistics().people
    assert {(by, verb): count for by, counts in people.items() for verb, count in counts.items()} == {
        key: count for key, count in expected.items() if count
    }


@each_store
def test_each_outcome_has_its_name(where: str, tmp_path: Path) -> None:
    """And a call that waited is in the bucket of its wait; in every store."""
    desk = Desk(store_at(where, tmp_path), config={"decision_timeout": 10 * A_DAY})
    desk.propose("free", "gated", "allowed", "forbidden", "outside", "unknown", "misfit")
    desk.now += 7
    desk.decide(Answer("so", by="cy"), "outside")
    desk.now += 100
    desk.decide(Approve(by="ana", remember=Grant()))
    desk.propose("gated")  # as granted
    desk.propose("outside", "outside")
    desk.now += 11 * A_DAY
    desk.handle.run()
    desk.propose("outside")
    desk.inbox.stop("0", by="ana")
    found = desk.inbox.statistics()
    assert {tool: dict(counts) for tool, counts in found.calls.items()} == {
        "free": {"unasked": 1},
        "gated": {"approved": 1, "grant": 1, "invalid": 1},
        "outside": {"answered": 1, "expired": 2, "not_run": 1},
        "ruled": {"rule_approved": 1, "rule_denied": 1},
        "unknown": {"invalid": 1},
    }
    assert [(name, dict(counts)) for name, counts in found.people.items()] == [
        ("ana", {"approved": 1}),
        ("cy", {"answered": 1}),
    ]
    waits = {tool: (each.count, each.median, each.ninety) for tool, each in found.waits.items()}
    assert waits == {"gated": (1, 120, 120), "outside": (4, 10, 30 * A_DAY)}
    assert found.cost == Cost(Decimal(1))
    assert audit(desk.store, "0") == ()


def test_a_call_with_which_its_loop_ends_has_expired() -> None:
    """In the statistics and in the trail. The journal has no result of it then."""
    desk = Desk(config={"decision_timeout": 60.0, "on_expiry": "stop"})
    desk.propose("gated")
    desk.now += 60
    desk.handle.run()
    assert desk.inbox.statistics().calls == {"gated": {"expired": 1}}
    assert [(entry.kind, entry.name) for entry in desk.inbox.trail("0")][-1] == ("expired", "gated")


def test_a_restored_loop_whose_request_is_lost_costs_at_least_what_is_known() -> None:
    """The tally in the row says so, too."""
    desk, copy = Desk(), MemoryStore()

    def answer(_: Any) -> Any:
        copy.create("0", desk.store.load("0").entries, head=desk.store.head("0").head)  # the backup
        return reply("done", usage={"input_tokens": 250_000})

    desk.handle.close()
    parts = {**desk.parts(), "provider": ScriptedProvider(answer)}
    with ToolLoopHandle.open(desk.store, "0", **parts) as handle:
        handle.say("more")
        handle.run()
    assert str(desk.inbox.statistics().cost) == "$0.2500"
    mark_restored(copy, by="ana")
    assert str(Inbox(copy).statistics().cost) == "at least $0.00"
    assert audit(copy, "0") == ()


def test_a_cost_with_a_model_that_has_no_price_is_counted_as_it_is_stored() -> None:
    store = MemoryStore()
    parts = [{"type": "message", "input_tokens": 1, "output_tokens": 2, "model": model} for model in ("m", "other")]
    answer = reply("done", usage={"input_tokens": 2, "output_tokens": 4, "iterations": parts}, model="m")
    config = LoopConfig(prices={"m": Price(input=1, output=1)})
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    with ToolLoopHandle.open(store, "loop", ScriptedProvider([answer]), params=asked, config=config) as handle:
        handle.run()
    assert audit(store, "loop") == ()
    assert not recount(store, "loop")


def test_days_and_metadata_bound_what_counts() -> None:
    """`since` is a day in UTC."""
    desk = Desk()
    desk.propose("free")
    desk.now += 3 * A_DAY
    desk.propose("gated")
    desk.decide(Deny("no", by="bo"))
    first, last = (datetime.fromtimestamp(at, UTC) for at in (desk.now - 3 * A_DAY, desk.now))
    everything, late = desk.inbox.statistics(), desk.inbox.statistics(since=last)
    assert [*everything.days] == [first.date(), last.date()]
    assert (len(everything.calls), [*late.calls], late.days) == (2, ["gated"], {last.date(): Cost(Decimal("0.25"))})
    assert desk.inbox.statistics(since=last.date()) == late
    assert desk.inbox.statistics(since=date(2999, 1, 1)) == Statistics()
    assert desk.inbox.statistics(metadata={"desk": "a"}) == everything
    assert desk.inbox.statistics(metadata={"desk": "b"}) == Statistics()
    assert late.to_json() == {
        "calls": {"gated": {"denied": 1}},
        "waits": {"gated": {"count": 1, "median": 1, "ninety": 1}},
        "people": {"bo": {"denied": 1}},
        "days": {last.date().isoformat(): {"dollars": "0.25", "is_partial": False}},
        "loops": {"0": {"dollars": "0.25", "is_partial": False}},
        "cost": {"dollars": "0.25", "is_partial": False},
        "uncounted": 0,
    }
    with pytest.raises(TypeError, match="since"):
        desk.inbox.statistics(since="today")  # type: ignore[arg-type]


def test_a_wait_may_be_longer_than_all_buckets() -> None:
    """Then its end is not known."""
    desk = Desk()
    desk.propose("gated")
    desk.now += 400 * A_DAY
    desk.decide(Approve())
    found = desk.inbox.statistics()
    assert found.waits["gated"].median == inf
    assert found.to_json()["waits"]["gated"]["median"] is None
    assert found.people == {"": {"approved": 1}}


@pytest.mark.anyio
async def test_the_async_inbox_has_them_too() -> None:
    desk = Desk()
    desk.propose("free")
    assert await AsyncInbox(desk.store).statistics() == desk.inbox.statistics()


class Bare:
    """A store of a user, without the optional methods."""

    def __init__(self, inner: Store) -> None:
        for name in ("create", "append", "load", "head", "list", "delete", "acquire", "renew", "secret", "release"):
            setattr(self, name, getattr(inner, name))


def test_a_store_without_tallies_has_its_journals_read() -> None:
    """The statistics are the same."""
    desk, inner = Desk(), MemoryStore()
    bare: Any = Bare(inner)
    other = Desk(bare)
    for each in (desk, other):
        each.propose("free", "gated")
        each.decide(Approve(by="ana"))
    assert inner.tallies() == [("0", None)]
    assert other.inbox.statistics() == desk.inbox.statistics()
    assert audit(bare, "0") == ()


def drop_tally(path: Path) -> None:
    """As an earlier version leaves a file."""
    import sqlite3  # noqa: PLC0415 - only here

    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE loops SET tally = NULL")


def test_a_loop_of_an_earlier_version_is_counted_from_its_journal(tmp_path: Path) -> None:
    """At its next event; until then, `audit` says what is missing."""
    path = tmp_path / "loops.db"
    desk = Desk(SqliteStore(path))
    desk.propose("gated")
    desk.handle.close()
    drop_tally(path)
    assert "statistics" in str(audit(desk.store, "0"))
    assert desk.inbox.statistics() == Statistics(uncounted=1)
    desk.inbox.decide("0", {each: Deny("no", by="bo") for each in desk.inbox.pending()})
    assert audit(desk.store, "0") == ()
    assert desk.inbox.statistics().calls == {"gated": {"denied": 1}}


def test_an_ended_loop_of_an_earlier_version_can_be_counted_again(tmp_path: Path) -> None:
    """It has no next event. A loop that changes meanwhile is not overwritten."""
    path = tmp_path / "loops.db"
    desk = Desk(SqliteStore(path))
    desk.propose("gated")
    desk.decide(Approve(by="ana"))
    desk.inbox.stop("0", by="ana")
    desk.handle.close()
    before = desk.inbox.statistics()
    drop_tally(path)
    assert desk.inbox.statistics() == Statistics(uncounted=1)
    assert recount(desk.store, "0")
    assert not recount(desk.store, "0")
    assert desk.inbox.statistics() == before
    assert audit(desk.store, "0") == ()
    with pytest.raises(LoopNotFound):
        recount(desk.store, "another")


def judge_several(call: Any, _view: Any) -> Any:
    return [Ask(need=3), Ask(of="staff")] if call.name == "gated" else None


@examples(20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ana", "bo", "cy", "di"]),
            st.sampled_from([Approve(), Approve(), Approve(), Approve({"n": 2}), Approve({"n": 3}), Deny("no")]),
        ),
        max_size=14,
    )
)
def test_each_approval_of_a_quorum_counts_for_its_person(decisions: list[tuple[str, Any]]) -> None:
    """Once, also if it does not complete the call; a repetition changes nothing. By the entries of the trail."""
    desk = Desk(policy=judge_several)
    desk.propose("gated")
    for name, decision in decisions:
        for each in desk.inbox.pending():
            try:
                desk.inbox.decide("0", {each: evolve(decision, by=Person(name, "staff" if name < "c" else ()))})
            except CallerError:
                continue
            desk.handle.run()
        if not desk.inbox.pending():
            desk.propose("gated")
    verbs = {"approve": "approved", "deny": "denied"}
    expected = Counter(
        (entry.by, "edited" if entry.kind == "approve" and entry.content else verbs[entry.kind])
        for entry in desk.inbox.trail("0")
        if entry.kind in verbs
    )
    people = desk.inbox.statistics().people
    assert {(by, verb): count for by, counts in people.items() for verb, count in counts.items()} == expected
    desk.handle.close()
    assert audit(desk.store, "0") == ()


def cpu_of(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_ten_thousand_loops_take_at_most_two_seconds(tmp_path: Path) -> None:
    """Of three decisions each, in a SQLite file."""
    import sqlite3  # noqa: PLC0415 - only here

    path = tmp_path / "loops.db"
    desk = Desk(SqliteStore(path))
    for decision in DECISIONS[:3]:
        desk.propose("gated")
        desk.now += 60
        desk.decide(decision)
    desk.handle.close()
    with closing(sqlite3.connect(path)) as db, db:
        names = [row[1] for row in db.execute("PRAGMA table_info(loops)") if row[1] not in ("number", "loop_id")]
        kept = ", ".join(names)
        copied = f"INSERT INTO loops (loop_id, {kept}) SELECT ?, {kept} FROM loops WHERE loop_id = '0'"
        db.executemany(copied, [(f"copy {number}",) for number in range(9_999)])
    found: list[Statistics] = []
    assert cpu_of(lambda: found.append(desk.inbox.statistics())) < 2
    assert sum(found[0].calls["gated"].values()) == 30_000
