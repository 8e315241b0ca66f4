"""What an open page receives: which of its calls are decided, by whom, and how many are new."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from hypothesis import given, strategies as st
from starlette.requests import Request
from starlette.testclient import TestClient

from tests.inbox.support import desk
from tests.kit.world import World
from toolloop import Answer, Approve, Ask, Deny, Inbox, Rerun, SqliteStore, ToolLoopHandle, tool
from toolloop.inbox import inbox_app
from toolloop.inbox.shown.keys import from_key, key_of
from toolloop.testing import ScriptedProvider, call, reply

PARTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from([".", "..", ".2E"])
ONE, TWO = key_of("loop", ("c1",)), key_of("loop", ("c2",))
SHOWN = f"{ONE} {TWO}"


@define
class Tab:
    """An open page, which asks what changed."""

    desk: World
    by: str | None = "ana"
    version: str = ""
    refresh: float = 0.0
    http: TestClient = field(init=False)

    def __attrs_post_init__(self) -> None:
        app = inbox_app(self.desk.store, who=lambda _: self.by, clock=self.desk.clock, refresh=self.refresh)
        self.http = TestClient(app)

    def ask(self, calls: str = SHOWN, **query: str) -> Any:
        """The answer, or the status if there is none."""
        answer = self.http.get("/changes", params={"since": self.version, "calls": calls, **query})
        if answer.status_code != 200:
            return answer.status_code
        self.version = answer.json()["v"]
        return answer.json()


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    """A page of a loop in which two calls wait."""
    found = desk("memory", tmp_path)
    found.drive()
    opened = Tab(found)
    with opened.http:
        yield opened


# --- keys ------------------------------------------------------------------------------------------------------------


@given(st.lists(PARTS, min_size=2, max_size=4), st.lists(PARTS, min_size=2, max_size=4))
def test_a_key_names_one_call(one: list[str], other: list[str]) -> None:
    """Of any loop, in characters that addresses keep as they are."""
    key = key_of(one[0], tuple(one[1:]))
    assert from_key(key) == (one[0], tuple(one[1:]))
    assert re.fullmatch(r"[A-Za-z0-9._-]+", key)
    assert (key == key_of(other[0], tuple(other[1:]))) == (one == other)


@pytest.mark.parametrize("key", ["", "loop", "loop..", "..c1", "a.zz..c1", "a.2f..c1", "a/b..c1", "a.FF..c1", "\udcff"])
def test_another_text_is_not_a_key(key: str) -> None:
    """It is refused, and nothing is guessed."""
    with pytest.raises(ValueError, match="expected the key of a call"):
        from_key(key)


def test_a_bad_key_in_an_address_is_refused(tab: Tab) -> None:
    """422."""
    assert tab.ask("loop") == 422


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "more"), [("/", {}), ("/loop?id=loop", {"loop": "loop"})])
def test_a_page_has_the_version_that_it_was_made_with(tab: Tab, path: str, more: dict[str, str]) -> None:
    """204 as long as nothing changed; each version is answered once."""
    (tab.version,) = re.findall(r'data-version="(\w+)"', tab.http.get(path).text)
    assert tab.ask(**more) == 204
    tab.desk.inbox.decide("loop", {"c1": Deny("no", by="bo")})
    assert tab.ask(**more)["calls"][ONE] == {"state": "denied", "by": "bo", "at": tab.desk.now}
    assert tab.ask(**more) == 204


@pytest.mark.parametrize(
    ("decision", "state"),
    [(Approve(by="bo"), "approved"), (Deny("no", by="bo"), "denied"), (Answer("done", by="bo"), "answered")],
)
@pytest.mark.parametrize("closes", [False, True])
def test_a_decision_is_reported_with_its_person_and_time(tab: Tab, decision: Any, state: str, closes: bool) -> None:
    """Also after the loop has gone on, when its round is closed. The other call still waits."""
    tab.ask()
    tab.desk.now += 5
    tab.desk.inbox.decide("loop", {"c1": decision})
    if closes:
        tab.desk.inbox.decide("loop", {"c2": Deny("no", by="ana")})
        tab.desk.drive()
    answer = tab.ask()
    assert answer["calls"][ONE] == {"state": state, "by": "bo", "at": tab.desk.now}
    assert answer["calls"][TWO]["state"] == ("denied" if closes else "waiting")
    assert (answer["new"], answer["now"]) == (0, tab.desk.now)


def test_a_call_that_waits_again_has_another_digest(tmp_path: Path) -> None:
    """It was approved and started, and its end is unknown; then a person lets it run again."""
    found = desk("memory", tmp_path)

    @tool(needs_approval=True)
    def pay(to: str, euros: int) -> str:
        """Pay."""
        raise KeyboardInterrupt

    script = ScriptedProvider([reply(calls=[call("pay", {"to": "ana", "euros": 5}, id="c1")]), reply("Paid")])
    params = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay"}]}
    with ToolLoopHandle.open(found.store, "loop", script, tools=[pay], params=params) as handle:
        handle.run()
    tab = Tab(found)
    first = tab.ask(ONE)["calls"][ONE]
    found.inbox.decide("loop", {"c1": Approve()})
    with ToolLoopHandle.open(found.store, "loop", script, tools=[pay]) as handle, pytest.raises(KeyboardInterrupt):
        handle.run()
    again = tab.ask(ONE)["calls"][ONE]
    assert (first["state"], first["why"]) == ("waiting", "approval")
    assert (again["state"], again["why"]) == ("waiting", "uncertain")
    assert again["digest"] != first["digest"]
    found.inbox.decide("loop", {"c1": Rerun(by="bo")})
    assert tab.ask(ONE)["calls"][ONE]["state"] == "rerun"


def test_the_first_of_two_approvals_is_a_change(tmp_path: Path) -> None:
    """The call still waits, with the same digest, and one approval is missing."""
    found = desk("memory", tmp_path)

    @tool(needs_approval=lambda _: Ask("much", need=2))
    def pay(to: str, euros: int) -> str:
        """Pay."""
        return f"{to} {euros}"

    found.drive("loop", tools=[pay])
    tab = Tab(found)
    first = tab.ask(ONE)["calls"][ONE]
    assert (first["approvals"], first["missing"]) == (0, 2)
    found.inbox.decide("loop", {found.inbox.pending()[0]: Approve(by="ana")})
    assert tab.ask(ONE)["calls"][ONE] == first | {"approvals": 1, "missing": 1}
    found.inbox.decide("loop", {found.inbox.pending()[0]: Approve(by="bo")})
    assert tab.ask(ONE)["calls"][ONE] == {"state": "approved", "by": "bo", "at": found.now}


@pytest.mark.parametrize("is_noticed", [False, True])
def test_an_expiry_is_a_change(tmp_path: Path, is_noticed: bool) -> None:
    """At the deadline by the clock of the server, whether or not a driver has noticed it."""
    found = desk("memory", tmp_path, config={"decision_timeout": 60.0})
    found.drive()
    tab = Tab(found)
    tab.ask()
    found.now += 59
    assert tab.ask() == 204
    found.now += 1
    if is_noticed:
        found.drive()
    answer = tab.ask()
    assert answer["calls"][ONE] == {"state": "expired", "by": None, "at": found.now}


def test_a_call_without_a_loop_is_gone(tab: Tab) -> None:
    """Its loop was deleted, or stopped."""
    tab.desk.inbox.stop("loop")
    assert tab.ask()["calls"][ONE] == {"state": "closed", "by": None, "at": None}
    tab.desk.store.delete("loop")
    assert tab.ask()["calls"] == {key: {"state": "gone", "by": None, "at": None} for key in (ONE, TWO)}
    assert tab.ask(loop="loop")["calls"][ONE]["state"] == "gone"


def test_new_calls_are_counted(tab: Tab) -> None:
    """Those that the page would show and does not: of all loops in the queue, of its own loop on a loop's page."""
    assert tab.ask(ONE)["new"] == 1
    tab.desk.drive("a loop/of another name")
    assert tab.ask()["new"] == 2
    assert tab.ask(f"{ONE} {key_of('a loop/of another name', ('c2',))}") == 204
    tab.version = ""
    assert tab.ask(f"{ONE} {key_of('a loop/of another name', ('c2',))}")["new"] == 2
    tab.version = ""
    assert tab.ask(loop="loop")["new"] == 0


def test_a_decision_in_an_old_loop_that_failed_is_a_change(tmp_path: Path) -> None:
    """Its calls are among those that wait, also if newer loops fill the list."""
    found = desk("memory", tmp_path)
    for number in range(31):
        found.drive(f"loop {number}")
    row = found.store.head("loop 0")
    found.store.append("loop 0", [], expected_rev=row.rev, head=evolve(row.head, status="failed"))
    tab = Tab(found)
    tab.ask("")
    assert tab.ask("") == 204
    found.inbox.decide("loop 0", {"c1": Approve()})
    assert tab.ask(key_of("loop 0", ("c1",)))["calls"][key_of("loop 0", ("c1",))]["state"] == "approved"


def test_a_person_who_may_no_longer_see_it_learns_so_at_the_next_poll(tab: Tab) -> None:
    """The person is judged at each request, also while nothing changes."""
    tab.ask()
    tab.by = None
    assert tab.ask() == 403
    tab.by = "ana"
    assert tab.ask() == 204


class Counting:
    """A store that counts how often its rows and journals are read."""

    def __init__(self, store: Any) -> None:
        self.store, self.reads = store, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        return self._counted(found) if name in ("list", "head", "load") else found

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any, **kwargs: Any) -> Any:
            self.reads += 1
            return method(*args, **kwargs)

        return read


@pytest.mark.parametrize("query", ["", "&loop=loop"])
def test_fifty_tabs_share_one_read(tab: Tab, query: str) -> None:
    """Of the rows in an interval, and of the journal of a call that was decided."""
    store = Counting(tab.desk.store)

    def who(request: Request) -> str:
        return request.headers["x-user"]

    with TestClient(inbox_app(store, who=who, clock=tab.desk.clock, refresh=3600.0)) as client:
        tab.desk.inbox.decide("loop", {"c1": Approve(by="bo")})

        def ask(number: int) -> Any:
            return client.get(f"/changes?calls={ONE}{query}", headers={"x-user": f"person {number}"}).json()["calls"]

        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(ask, range(50)))
    assert all(each[ONE]["state"] == "approved" for each in answers)
    assert store.reads <= 3


def test_while_the_store_rests_nothing_is_read(tmp_path: Path) -> None:
    """Though the interval passes again and again; and a change by another process is shown soon after."""
    found = desk("sqlite", tmp_path)
    found.drive()
    other = SqliteStore(tmp_path / "loops.db")
    store = Counting(found.store)
    tab = Tab(evolve(found, store=store), refresh=0.2)
    with tab.http:
        version = tab.ask()["v"]
        begun, answers = time.monotonic(), list[Any]()
        while time.monotonic() < begun + 0.9:
            answers.append(tab.ask())
        assert {*answers} == {204}
        assert store.reads <= 4  # at first, and after the first look for changes; each reads two lists
        Inbox(other).decide("loop", {"c1": Approve(by="bo")})
        while (answer := tab.ask()) == 204:
            assert time.monotonic() < begun + 60
        assert answer["v"] != version
        assert answer["calls"][ONE]["state"] == "approved"
