"""A program that keeps the promises survives a crash anywhere; one that breaks them is found out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define, field

from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    LoopConfig,
    LoopContext,
    MemoryStore,
    SqliteStore,
    ToolContext,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import CallerError, Conflict, StoreError
from toolloop.stores import Entry, Head, Store
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, crash_everywhere, reply
from toolloop.testing.crash_store import CrashHistory, CrashingStore, SimulatedCrash

PARAMS: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 256,
    "messages": [{"role": "user", "content": "Pay the bill"}],
}


@tool(effect="pure")
def look(path: str, context: ToolContext) -> str:
    """Read a text file."""
    context.state.runs["look"] += 1
    return f"text of {path}"


@tool(effect="keyed")
def charge(amount: int, context: ToolContext) -> str:
    """Charge a card, under the key of the call."""
    context.state.runs["charge"] += 1
    context.state.charged[context.idempotency_key] = amount
    return f"charged {amount}"


@tool(effect="keyed")
def careless(amount: int, context: ToolContext) -> str:
    """Charge a card, without a look at the key."""
    context.state.runs["careless"] += 1
    context.state.charged[str(len(context.state.charged))] = amount
    return f"charged {amount}"


@tool(needs_approval=True)
def post(text: str, context: ToolContext) -> str:
    """Post a letter."""
    context.state.runs["post"] += 1
    return "posted"


TOOLS = (look, charge, careless, post)


@define
class Bank:
    """A bank and a letter box, which see what the tools really did."""

    names: Sequence[str]
    is_async: bool = False
    side_by_side: int = 1
    runs: Counter[str] = field(factory=Counter)
    charged: dict[str, int] = field(factory=dict)
    unknown: int = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The model: it calls the tools, and is done when it has their results."""
        if len(request["messages"]) > 1:
            return reply("done")
        inputs: dict[str, dict[str, Any]] = {
            "look": {"path": "a"},
            "charge": {"amount": 7},
            "careless": {"amount": 7},
            "post": {"text": "hi"},
        }
        return reply(calls=[call(name, inputs[name], id=name) for name in self.names])

    def decide(self, turn: Yielded) -> None:
        """The caller: it approves, and looks into the letter box where the end is unknown."""
        for each in turn.pending:
            if each.why == "uncertain":
                self.unknown += 1
                turn.answer(each, "posted" if self.runs["post"] else "not posted", by="ana")
            else:
                turn.approve(each, by="ana")

    def program(self, store: Store) -> None:
        """A worker: it opens the loop, or creates it, and drives it to its end."""
        config = LoopConfig(max_parallel_tools=self.side_by_side)
        common: dict[str, Any] = {"params": PARAMS, "tools": TOOLS, "config": config, "context": LoopContext(self)}
        if not self.is_async:
            with ToolLoopHandle.open(store, "bill", ScriptedProvider(self.answer), **common) as handle:
                handle.run(self.decide)
            return

        async def main() -> None:
            provider = AsyncScriptedProvider(self.answer)
            async with AsyncToolLoopHandle.open(store, "bill", provider, **common) as handle:
                await handle.run(self.decide)

        anyio.run(main)

    def anew(self, make_store: Callable[[], Any] = MemoryStore) -> Callable[[], Any]:
        """Return a function that makes another store and forgets what happened."""

        def make() -> Any:
            self.runs, self.charged, self.unknown = Counter(), {}, 0
            return make_store()

        return make

    def check(self, _store: Any) -> None:
        """What may not happen, whichever process dies at whatever moment."""
        assert self.runs["post"] <= 1, "two letters were posted"
        assert len(self.charged) <= 1, f"the card was charged {len(self.charged)} times"
        if "charge" in self.names or "careless" in self.names:
            assert self.charged, "the card was not charged"


def sqlite_in(folder: Path) -> Callable[[], SqliteStore]:
    """A new file each time."""
    numbers = iter(range(100_000))
    return lambda: SqliteStore(folder / f"{next(numbers)}.db")


# --- programs that keep the promises ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [pytest.param(False, marks=pytest.mark.deep), True])
def test_a_good_program_survives_a_crash_anywhere(is_async: bool) -> None:
    """A call of each effect, one of them approved; every boundary of the run is tried, and the loop always ends."""
    bank = Bank(["look", "charge", "post"], is_async)
    report = crash_everywhere(bank.program, bank.anew(), check=bank.check)
    print(report)  # noqa: T201 - the boundaries are the claim
    assert report.boundaries >= 28
    assert len(report.crashes) == report.boundaries + 1
    assert report.waiting == ()
    assert all(crash.statuses == {"bill": "ended"} for crash in report.crashes)
    assert all(crash.starts["post"] == 1 for crash in report.crashes)
    assert max(crash.starts["charge"] for crash in report.crashes) == 2
    reached = [where for crash in report.crashes for where in crash.where if where is not None]
    assert len(reached) >= 28  # a slow run stores more often, so its last boundaries may not come again


def test_a_good_program_survives_it_in_sqlite(tmp_path: Path) -> None:
    """As in memory."""
    bank = Bank(["charge", "post"])
    report = crash_everywhere(bank.program, bank.anew(sqlite_in(tmp_path)), check=bank.check)
    assert report.boundaries >= 26
    assert report.waiting == ()


def test_the_one_that_wakes_the_loop_may_die_too() -> None:
    """Two crashes, at every pair of boundaries."""
    bank = Bank(["charge"])
    report = crash_everywhere(bank.program, bank.anew(), check=bank.check, depth=2)
    assert len(report.crashes) > 10 * report.boundaries
    assert max(len(crash.at) for crash in report.crashes) == 2
    assert max(crash.starts["charge"] for crash in report.crashes) == 3


def test_calls_side_by_side_survive_it() -> None:
    """What their threads still do is ignored."""
    bank = Bank(["look", "charge", "post"], side_by_side=3)
    report = crash_everywhere(bank.program, bank.anew(), check=bank.check)
    assert report.waiting == ()


def test_a_wait_that_the_program_does_not_end_is_reported() -> None:
    """The end of the letter is not reported: the loop waits, and that is true, not broken."""
    bank = Bank(["post"])

    def program(store: Store) -> None:
        context = LoopContext(bank)
        provider = ScriptedProvider(bank.answer)
        with ToolLoopHandle.open(store, "bill", provider, params=PARAMS, tools=TOOLS, context=context) as handle:
            handle.run(lambda turn: turn.approve_all(by="ana"))

    report = crash_everywhere(program, bank.anew(), check=bank.check)
    moments = {where for crash in report.waiting for where in crash.where}
    assert moments == {
        "after append(Continued, Started post)",
        "before append(Ended post, TurnEnded, Continued, Requested)",
    }
    assert "needs_decision" in str(report)


# --- programs and stores that do not ---------------------------------------------------------------------------------


def broken(program: Callable[[Store], object], make_store: Callable[[], Any], check: Any = None) -> str:
    """What is found."""
    with pytest.raises(AssertionError) as found:
        crash_everywhere(program, make_store, check=check)
    return str(found.value)


def test_a_tool_that_is_declared_keyed_and_is_not_is_found() -> None:
    """It runs again after a crash, as it was declared, and the bank sees it twice."""
    bank = Bank(["careless"])
    told = broken(bank.program, bank.anew(), bank.check)
    assert told.startswith(("crash after append(Started careless)", "crash before append(Ended careless, TurnEnded"))
    assert "the card was charged 2 times" in told


class Forgetful(MemoryStore):
    """It says that it has stored, and has not."""

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        if any('"Ended"' in entry.body for entry in entries):
            return len(self.load(loop_id).entries) + len(entries)
        return super().append(loop_id, entries, **more)


def test_a_store_that_forgets_is_found() -> None:
    """Without any crash, even."""
    bank = Bank(["charge"])
    told = broken(bank.program, bank.anew(Forgetful))
    assert "without a crash" in told


class Unfenced(MemoryStore):
    """It takes every event, whatever it follows."""

    def append(self, loop_id: str, entries: Sequence[Entry], **more: Any) -> int:
        return super().append(loop_id, entries, expected_rev=None)


def test_a_store_that_ignores_the_revision_is_found() -> None:
    """Two people at two desks decide one call, each in their own way, and it takes both words."""
    bank = Bank(["post"])

    def program(store: Store) -> None:
        common: dict[str, Any] = {"params": PARAMS, "tools": TOOLS, "context": LoopContext(bank)}
        with ToolLoopHandle.open(store, "bill", ScriptedProvider(bank.answer), **common) as handle:
            turn = handle.run()
            if isinstance(turn, Yielded) and [each.why for each in turn.pending] == ["approval"]:
                with ToolLoopHandle.open(store, "bill", ScriptedProvider(bank.answer), **common) as another:
                    another.decide({"post": Approve(by="ana")})
                with suppress(CallerError):
                    turn.deny("post", "no", by="bo")
            handle.run(bank.decide)

    assert crash_everywhere(program, bank.anew(), check=bank.check).waiting == ()
    assert "the call 'post' was decided already (approve by ana" in broken(program, bank.anew(Unfenced))


def test_a_program_that_does_not_get_on_is_found() -> None:
    """Its loop could be driven, and is not."""
    bank = Bank(["post"])

    def program(store: Store) -> None:
        ToolLoopHandle.open(store, "bill", ScriptedProvider(bank.answer), params=PARAMS, tools=TOOLS)

    told = broken(program, bank.anew())
    assert told == "without a crash: the loop 'bill' is runnable, and running the program again changes nothing"


# --- the dead --------------------------------------------------------------------------------------------------------


def test_nothing_that_a_dead_process_does_reaches_the_store() -> None:
    """Its calls raise, and its threads are notified; what it would give back it has lost already."""
    store, history = MemoryStore(), CrashHistory()
    mortal = CrashingStore(store, history, crash_at=4)
    mortal.create("a", [Entry("1", "{}")], head=Head("x"))
    lease = mortal.acquire("a", "me", until=1.0)
    with pytest.raises(SimulatedCrash, match=r"before append\(an event\)"):
        mortal.append("a", [Entry("2", "{}")], expected_rev=1)
    asking: list[Callable[[], object]] = [
        lambda: mortal.append("a", [Entry("2", "{}")], expected_rev=1),
        lambda: mortal.create("b", [Entry("1", "{}")], head=Head("x")),
        lambda: mortal.load("a"),
        mortal.list,
        lambda: mortal.head("a").lease,
        lambda: mortal.acquire("a", "me", until=1.0),
        lambda: mortal.delete("a"),
    ]
    for each in asking:
        with pytest.raises(SimulatedCrash):
            each()
    with pytest.raises(Conflict, match="its lease is void"):
        mortal.renew(lease, until=2.0)
    mortal.release(lease)
    told: list[BaseException] = []

    def late() -> None:
        try:
            mortal.append("a", [Entry("2", "{}")], expected_rev=1)
        except BaseException as error:  # noqa: BLE001 - whatever it is told
            told.append(error)

    thread = threading.Thread(target=late, name="toolloop-call")
    thread.start()
    thread.join()
    assert [type(error) for error in told] == [StoreError]
    assert store.load("a").rev == 1
    assert store.head("a").lease == lease


def test_the_lease_of_a_dead_process_is_free_and_that_of_a_living_one_is_not() -> None:
    """The one that wakes the loop need not wait."""
    store, history = MemoryStore(), CrashHistory()
    dead, alive = CrashingStore(store, history), CrashingStore(store, history)
    dead.create("a", [Entry("1", "{}")], head=Head("x"))
    dead.acquire("a", "one", until=1e12)
    with pytest.raises(Conflict):
        alive.acquire("a", "two", until=1e12)
    dead.die()
    assert alive.acquire("a", "two", until=1e12).owner == "two"
