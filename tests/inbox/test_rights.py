"""What one person may see and do: for loops that a person does not see, every answer is that of an empty store."""

from __future__ import annotations

import logging
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.inbox.support import TWO, desk, desk_of
from tests.kit.concurrency import run_async
from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.world import World, store_at
from toolloop import Answer, Approve, Ask, AsyncInbox, Deny, Grant, Inbox, Person, Rerun
from toolloop.errors import CallerError, Conflict, LoopNotFound, NotAllowed, StoreError, UnreadableSnapshot
from toolloop.inbox import Action, Sees
from toolloop.machine.values.calls import Decision
from toolloop.stores import Entry, Head, MemoryStore, PendingCall, Store

SEES_ANA: list[Mapping[str, str]] = [{"owner": "ana"}]

LINK: list[str] = [""]  # a link to the loop

# Each public method, as somebody calls it who has learnt the ids of a loop.
METHODS: dict[str, Callable[[Any], Any]] = {
    "as_": lambda inbox: inbox.as_("bo"),
    "counts": lambda inbox: inbox.counts(),
    "decide": lambda inbox: inbox.decide("loop", {"c1": Approve()}),
    "fork": lambda inbox: inbox.fork("loop", "copy"),
    "grants": lambda inbox: inbox.grants("loop"),
    "history": lambda inbox: inbox.history("loop"),
    "link": lambda inbox: inbox.link("loop", "c1", person="bo"),
    "linked": lambda inbox: inbox.linked(LINK[0]),
    "offers": lambda inbox: inbox.offers("loop"),
    "pending": lambda inbox: inbox.pending({"owner": "ana"}, limit=1, tool="pay", text="ana", sort="age"),
    "redeem": lambda inbox: inbox.redeem(LINK[0], Approve()),
    "retry": lambda inbox: inbox.retry("loop"),
    "revoke": lambda inbox: inbox.revoke("loop", "g1"),
    "revoke_links": lambda inbox: inbox.revoke_links("loop", "c1"),
    "say": lambda inbox: inbox.say("loop", "Hi", key="k"),
    "set_metadata": lambda inbox: inbox.set_metadata("loop", title="Two"),
    "show": lambda inbox: inbox.show("loop"),
    "statistics": lambda inbox: inbox.statistics(),
    "stop": lambda inbox: inbox.stop("loop", "no"),
    "trail": lambda inbox: inbox.trail("loop"),
    "wait": lambda inbox: inbox.wait("loop", "needs_decision", timeout=0.0),
    "watch": lambda inbox: inbox.watch("loop"),
    "withdraw": lambda inbox: inbox.withdraw("loop", "k"),
}


def public(kind: type) -> set[str]:
    return {name for name in vars(kind) if name[0] != "_"}


@pytest.mark.parametrize("kind", [Inbox, AsyncInbox])
def test_the_table_has_every_public_method(kind: type) -> None:
    """A new method is one more way to a loop."""
    assert public(kind) == {*METHODS}


def answer_of(inbox: Any, method: str) -> Any:
    """Return what a method answers, with all that is in it, or how it fails."""
    try:
        with pytest.deprecated_call() if method == "history" else nullcontext():
            found = METHODS[method](inbox)
            if isinstance(inbox, AsyncInbox) and method not in ("as_", "watch"):
                found = run_async("asyncio", partial(_awaited, found))
            elif method == "watch":
                found = (
                    run_async("asyncio", partial(_awaited, anext(found)))
                    if isinstance(inbox, AsyncInbox)
                    else next(found)
                )
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error), str(error), sorted(map(repr, vars(error).items())), repr(error.__cause__)
    return repr(found), getattr(found, "counts", None), getattr(found, "cursor", None)


async def _awaited(found: Any) -> Any:
    return await found


@pytest.mark.parametrize(("where", "kind"), [("sqlite", Inbox), ("memory", AsyncInbox)])
@each("method", METHODS)
def test_for_loops_that_are_not_seen_every_answer_is_that_of_an_empty_store(
    where: str, method: str, kind: Any, tmp_path: Path
) -> None:
    """Rows, counts, cursors, filters, errors; and nothing is stored."""
    if method == "as_":
        return
    (tmp_path / "full").mkdir()
    (tmp_path / "empty").mkdir()
    full, empty = desk(where, tmp_path / "full"), desk(where, tmp_path / "empty")
    full.drive(metadata={"owner": "ana"})
    full.inbox.decide("loop", {"c2": Deny("no")})  # one is settled, one waits
    LINK[0] = Inbox(full.store, "s", clock=full.clock).link("loop", "c1", person="bo")
    before = full.store.load("loop")
    for seen in ([], [{"owner": "bo"}], [{"owner": "ana", "team": "x"}, {"owner": "Ana"}]):
        answers = [
            answer_of(kind(each.store, "s", clock=each.clock).as_("bo", sees=lambda _, seen=seen: seen), method)
            for each in (full, empty)
        ]
        assert answers[0] == answers[1]
    seen = answer_of(kind(full.store, "s", clock=full.clock).as_("bo", sees=lambda _: SEES_ANA), method)
    assert full.store.load("loop") == before or method in (
        "decide",
        "redeem",
        "revoke_links",
        "say",
        "set_metadata",
        "stop",
        "withdraw",
    )
    assert seen != answers[0]


def seeing(seen: Sequence[Mapping[str, str]]) -> Sees:
    return lambda _: seen


@each("method", METHODS)
def test_damage_in_a_loop_that_is_not_seen_changes_no_answer(method: str, tmp_path: Path) -> None:
    """In its calls, its metadata or its journal; a person who sees the loop gets an error."""
    if method == "as_":
        return
    for folder in ("full", "empty"):
        (tmp_path / folder).mkdir()
    full, empty = desk("sqlite", tmp_path / "full"), desk("sqlite", tmp_path / "empty")
    full.drive(metadata={"owner": "ana"})
    LINK[0] = Inbox(full.store, "s", clock=full.clock).link("loop", "c1", person="bo")
    for damage in ("loops SET pending = 'x'", "loops SET metadata = '{'", "events SET body = 'x'"):
        with closing(sqlite3.connect(tmp_path / "full" / "loops.db")) as file, file:
            file.execute(f"UPDATE {damage}")
        for seen in ([], [{"owner": "bo"}], [{"owner": "bo"}, {"team": "x"}]):
            inboxes = [Inbox(each.store, "s", clock=each.clock).as_("bo", sees=seeing(seen)) for each in (full, empty)]
            assert answer_of(inboxes[0], method) == answer_of(inboxes[1], method), damage
        if "pending" in damage and method in ("show", "trail", "decide", "wait"):
            with pytest.raises(UnreadableSnapshot):
                METHODS[method](Inbox(full.store, "s", clock=full.clock).as_("ana", sees=lambda _: SEES_ANA))


def test_a_row_says_nothing_of_other_loops() -> None:
    """No number of it counts the rows, or the leases of all loops."""
    alone, beside = desk_of(MemoryStore()), desk_of(MemoryStore())
    beside.drive("first", metadata={"owner": "bo"})
    rows = []
    for place in (alone, beside):
        place.drive(metadata={"owner": "ana"})
        place.store.acquire("loop", "driver", until=place.now + 60)
        rows.append(Inbox(place.store, clock=place.clock).as_("ana", sees=lambda _: SEES_ANA).wait("loop"))
    assert rows[0].lease == rows[1].lease
    assert rows[0].cursor == rows[1].cursor == ""


METADATA = st.dictionaries(st.sampled_from(["owner", "team"]), st.sampled_from(["a", "b", ""]))
CALL = PendingCall(("c1",), ("pay",), "approval", ("approve",), "12ab", input_text='{"to":"ana"}')


class OwnStore:
    """A store of others: it has what the protocol demands, and no more."""

    def __init__(self, store: Store) -> None:
        for name in ("create", "append", "load", "head", "acquire", "secret"):
            setattr(self, name, getattr(store, name))
        self.lists = store.list

    def list(self, status: Any = None, *, metadata: Mapping[str, str] | None = None, **page: Any) -> Any:
        assert isinstance(metadata, Mapping | None)
        return self.lists(status, metadata=metadata, **page)


@pytest.mark.parametrize("where", ["memory", "sqlite", "own"])
@examples(20)
@given(
    st.lists(st.tuples(METADATA, st.sampled_from(["needs_decision", "failed", "ended"])), max_size=6),
    st.none() | st.lists(METADATA, max_size=3),
    st.none() | METADATA,
    st.integers(1, 3),
)
def test_a_person_reads_what_a_store_would_have_without_the_other_loops(
    where: str, loops: Any, seen: Any, metadata: Any, limit: int
) -> None:
    """Page by page, and counted."""
    with tempfile.TemporaryDirectory() as folder:
        made = [store_at("memory" if where == "own" else where, Path(tempfile.mkdtemp(dir=folder))) for _ in range(2)]
        for number, (of, status) in enumerate(loops):
            is_seen = seen is None or any(each.items() <= of.items() for each in seen)
            for store in made if is_seen else made[:1]:
                pending = () if status == "ended" else (CALL, evolve(CALL, path=("c2",), expires_at=number - 1.0))
                head = Head(status, None, pending, changed=float(number))
                store.create(f"{number}", [Entry("e", "{}")], head=head, metadata=of)
        stores: list[Any] = [OwnStore(each) if where == "own" else each for each in made]
        mine = Inbox(stores[0], clock=lambda: 2.0).as_("ana", sees=lambda _: seen)
        other = Inbox(stores[1], clock=lambda: 2.0)
        assert mine.counts(metadata) == other.counts(metadata)
        pages = [_pages(each, metadata, limit) for each in (mine, other)]
        assert pages[0] == pages[1]
        for store in made:
            getattr(store, "close", lambda: None)()


def _pages(inbox: Inbox, metadata: Any, limit: int) -> list[Any]:
    page = inbox.pending(metadata, limit=limit)
    found: list[Any] = [[*page], page.counts, page.cursor]
    while page.cursor is not None:
        page = inbox.pending(metadata, limit=limit, cursor=page.cursor)
        found += [[*page], page.counts, page.cursor]
    return found


# How somebody does each thing that `may` is asked about.
ACTIONS: dict[Action, Callable[[Inbox], object]] = {
    "approve": lambda inbox: inbox.decide("loop", {"c1": Approve()}),
    "deny": lambda inbox: inbox.decide("loop", {"c1": Deny("no")}),
    "answer": lambda inbox: inbox.decide("loop", {"c1": Answer("5")}),
    "rerun": lambda inbox: inbox.decide("loop", {"c1": Rerun()}),
    "grant": lambda inbox: inbox.decide("loop", {"c1": Approve(remember=Grant())}),
    "say": lambda inbox: inbox.say("loop", "Hi"),
    "stop": lambda inbox: inbox.stop("loop"),
    "retry": lambda inbox: inbox.retry("loop"),
    "link": lambda inbox: inbox.link("loop", "c1", person="bo"),
    "fork": lambda inbox: inbox.fork("loop"),
    "metadata": lambda inbox: inbox.set_metadata("loop", title="Two"),
}


def test_the_table_has_every_action() -> None:
    """`may` gets no other."""
    assert {*ACTIONS} == {*get_args(Action)}


@pytest.mark.parametrize("action", ACTIONS)
def test_what_may_does_not_allow_is_refused_and_changes_nothing(action: Action) -> None:
    """And only that. It gets the person with the groups of this moment, and the row of the loop."""
    at, asked = desk_of(MemoryStore()), list[Any]()
    at.drive(metadata={"owner": "ana"})
    if action == "rerun":
        _kill(at)
    ana = Person("ana", "finance")

    def may(person: Person, what: str, loop: Any, call: Any) -> bool:
        asked.append((person, what, loop.loop_id, dict(loop.metadata), call and call.name))
        return what != action

    before = at.store.load("loop")
    with pytest.raises(NotAllowed, match="ana is not allowed to"):
        ACTIONS[action](at.inbox.as_(ana, may=may))
    assert at.store.load("loop") == before
    of_call = "pay" if action in ("approve", "deny", "answer", "rerun", "grant", "link") else None
    assert asked[-1] == (ana, action, "loop", {"owner": "ana"}, of_call)
    if action == "retry":
        return  # it has not failed
    ACTIONS[action](at.inbox.as_(ana, may=lambda _, what, *__: what in (action, "approve")))
    assert at.store.load("loop") != before or action == "link" or len(at.store.list()) > 1


@pytest.mark.parametrize("grant", [Grant(tool="add", match={}), Grant(match={}), Grant(match={"to": "*"})])
def test_a_grant_covers_only_what_may_was_asked_about(grant: Grant) -> None:
    """This tool with exactly this input: another call may be one that the person may not decide."""
    at = desk_of(MemoryStore())
    at.drive()
    ana, before = at.inbox.as_("ana", may=lambda *_: True), at.store.load("loop")
    with pytest.raises(NotAllowed, match="exactly the input that was approved"):
        ana.decide("loop", {"c1": Approve(remember=grant)})
    assert at.store.load("loop") == before
    ana.decide("loop", {"c1": Approve(remember=Grant(uses=2))})
    assert len(at.inbox.grants("loop")) == 1


@pytest.mark.parametrize("action", ["say", "stop", "grant", "link", "fork", "metadata"])
def test_may_is_asked_about_the_loop_that_is_changed(action: Action) -> None:
    """And not about one that is deleted meanwhile, under whose id another person begins a loop."""
    at = desk_of(MemoryStore())
    at.drive(metadata={"owner": "ana"})

    def may(_person: Person, _what: str, loop: Any, _call: Any) -> bool:
        if loop.metadata["owner"] == "bo":
            return False
        at.store.delete("loop")
        at.drive(metadata={"owner": "bo"})
        return True

    acts = ACTIONS | {
        "grant": lambda inbox: inbox.revoke("loop", "g1"),
        "link": lambda inbox: inbox.revoke_links("loop"),
        "fork": lambda inbox: inbox.fork("loop"),
    }
    with pytest.raises((LoopNotFound, Conflict, NotAllowed)):
        acts[action](at.inbox.as_("ana", may=may))
    (row,) = at.store.list()
    assert (row.metadata, row.status) == ({"owner": "bo"}, "needs_decision")
    assert not at.state().root.revoked_links


def _kill(at: World) -> None:
    class Killed(list[str]):
        def append(self, _: str) -> None:
            raise KeyboardInterrupt

    at.inbox.decide("loop", {"c1": Approve(), "c2": Deny("no")})
    at.ran = Killed()
    with pytest.raises(KeyboardInterrupt):
        at.drive()
    at.drive(take_over=True)


def test_an_edit_is_asked_about_with_the_edited_input() -> None:
    """As it would run, with the secrets that came back hidden; the model's own input is still there."""
    at = desk_of(MemoryStore())
    at.drive()
    asked = list[Any]()

    def may(_: Person, __: str, ___: Any, call: Any) -> bool:
        asked.append((call.effective_input, call.input))
        return call.effective_input["euros"] <= 3  # type: ignore[no-any-return]  # JSON

    mine = at.inbox.as_("ana", may=may)
    for euros in (None, 4):
        with pytest.raises(NotAllowed):
            mine.decide("loop", {"c1": Approve(None if euros is None else {"to": "ana", "euros": euros})})
    mine.decide("loop", {"c1": Approve({"to": "ana", "euros": 3})})
    assert [each["euros"] for each, _ in asked] == [5, 4, 3]
    assert {given["euros"] for _, given in asked} == {5}


def test_each_call_is_refused_by_itself_or_all_are() -> None:
    """With `each`, the error stands beside what the others got."""
    at = desk_of(MemoryStore())
    at.drive()
    mine: Any = at.inbox.as_(
        "ana", may=lambda _, __, ___, call: call is not None and call.effective_input["to"] == "bo"
    )
    with pytest.raises(NotAllowed):
        mine.decide("loop", {"c1": Approve(), "c2": Approve()})
    assert at.inbox.trail("loop") == ()
    found = mine.decide("loop", {"c1": Approve(), "c2": Approve()}, each=True)
    assert isinstance(found["c1"], NotAllowed)
    assert (found["c2"].by, found["c2"].is_yours) == ("ana", True)


@pytest.mark.parametrize("bad", ["raise", None, 1, "yes"])
def test_all_but_true_is_a_no_and_logged_once(bad: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A function that fails opens nothing."""
    at = desk_of(MemoryStore())
    at.drive()

    def may(*_: Any) -> Any:
        if bad == "raise":
            raise RuntimeError("the directory is down")
        return bad

    mine = at.inbox.as_("ana", may=may)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with pytest.raises(NotAllowed):
                mine.stop("loop")
    assert [record.name for record in caplog.records] == ["toolloop.inbox"]


@pytest.mark.parametrize("bad", ["raise", {"owner": "ana"}, "ana", [None], [{"owner": 7}], 7])
def test_what_sees_cannot_say_is_an_error_of_the_store(bad: Any) -> None:
    """Nothing is shown then, and nothing is taken for "all"."""
    at = desk_of(MemoryStore())
    at.drive(metadata={"owner": "ana"})

    def sees(_: Person) -> Any:
        if bad == "raise":
            raise RuntimeError("the directory is down")
        return bad

    mine = at.inbox.as_("ana", sees=sees)
    for ask in (mine.pending, mine.counts, lambda: mine.show("loop"), lambda: mine.decide("loop", {"c1": Deny("no")})):
        with pytest.raises(StoreError, match="it is not known which loops ana sees"):
            ask()


def test_rights_count_at_each_call() -> None:
    """Withdrawn between two approvals, between two reads, and while a person follows a loop."""
    at = desk_of(MemoryStore(), config={"on_tool_call": lambda *_: Ask(need=2)})
    at.drive(metadata={"owner": "ana"})
    seen, allowed = [*SEES_ANA], {"ana", "bo"}
    as_ = {
        name: at.inbox.as_(name, may=lambda who, *_: who.name in allowed, sees=lambda _: seen) for name in ("ana", "bo")
    }
    shown = as_["bo"].pending()[0]
    as_["ana"].decide("loop", {"c1": Approve(digest=shown.digest)})
    allowed.remove("bo")
    with pytest.raises(NotAllowed):
        as_["bo"].decide("loop", {shown: Approve()})
    follows = as_["ana"].watch("loop")
    next(follows)
    seen.clear()
    at.inbox.say("loop", "Hi")
    with pytest.raises(LoopNotFound):
        next(follows)
    for gone in (as_["ana"].show, as_["ana"].trail, as_["ana"].stop):
        with pytest.raises(LoopNotFound):
            gone("loop")
    assert [each.by for each in at.inbox.trail("loop") if each.kind == "approve"] == ["ana"]


def test_what_is_done_is_done_by_the_person() -> None:
    """With the groups and the place; `by` cannot be given, neither here nor in a decision."""
    at = desk_of(MemoryStore())
    at.drive()
    mine = at.inbox.as_(Person("ana", "finance"), via="x-desk")
    for act in (
        lambda: mine.decide("loop", {"c1": Approve(by="bo")}),
        lambda: mine.say("loop", "Hi", by="bo"),
        lambda: mine.stop("loop", by="ana"),
        lambda: mine.retry("loop", by="bo"),
        lambda: mine.revoke("loop", "g", by="bo"),
        lambda: mine.withdraw("loop", "k", by="bo"),
    ):
        with pytest.raises(TypeError, match="by: leave it out, for this inbox is that of 'ana'"):
            act()
    mine.decide("loop", {"c1": Deny("no")})
    mine.say("loop", "Hi")
    assert [(each.by, each.via) for each in at.inbox.trail("loop")] == [("ana", "x-desk")] * 2
    assert at.inbox.trail("loop")[0].groups == ("finance",)


def test_arguments_that_are_wrong_are_refused_at_once() -> None:
    """An async function under a sync inbox would be a yes or a no by chance."""

    async def slowly(*_: Any) -> Any:
        return True

    inbox: Any = Inbox(MemoryStore())
    wrong: tuple[dict[str, Any], ...] = ({"may": slowly}, {"sees": slowly}, {"may": True}, {"sees": [{}]})
    for more in wrong:
        with pytest.raises(TypeError, match=r"use AsyncInbox|give a function"):
            inbox.as_("ana", **more)
    for person, error in ((None, TypeError), (" ", ValueError), ("rule: x", ValueError), (7, TypeError)):
        with pytest.raises(error):
            inbox.as_(person)
    with pytest.raises(ValueError, match="via"):
        inbox.as_("ana", via="phone")
    with pytest.raises(TypeError, match="that of 'ana'"):
        inbox.as_("ana").as_("bo")


@pytest.mark.parametrize("event_loop", ["asyncio", "trio"])
def test_the_functions_of_an_async_inbox_may_be_async(event_loop: str) -> None:
    """They run in the event loop of the caller, while the store works in a thread."""
    import anyio  # noqa: PLC0415 - the event loops

    at = desk_of(MemoryStore())
    at.drive(metadata={"owner": "ana"})

    async def may(_: Person, action: str, *__: Any) -> bool:
        await anyio.lowlevel.checkpoint()
        return action == "deny"

    async def sees(_: Person) -> list[Mapping[str, str]]:
        await anyio.lowlevel.checkpoint()
        return SEES_ANA

    async def decide(decision: Decision) -> Any:
        mine = AsyncInbox(at.store, clock=at.clock).as_("ana", may=may, sees=sees)
        assert len(await mine.pending()) == 2
        return await mine.decide("loop", {"c1": decision})

    with pytest.raises(NotAllowed):
        anyio.run(decide, Approve(), backend=event_loop)
    assert anyio.run(decide, Deny("no"), backend=event_loop)["c1"].by == "ana"


NAMES = st.sampled_from(["ana", "bo", "cy"])
SAID = st.lists(st.tuples(NAMES, st.sampled_from(["c1", "c2"]), st.booleans()), max_size=6)


@examples(30)
@given(SAID, st.sets(st.tuples(NAMES, st.sampled_from(["approve", "deny"]))))
def test_no_decision_stands_of_a_person_who_may_not_make_it(said: Sequence[Any], rights: Any) -> None:
    """Any persons and commands, in any order, with more than one approval needed."""
    at = desk_of(MemoryStore(), script=TWO, config={"on_tool_call": lambda *_: Ask(need=2)})
    at.drive()
    for name, call, is_yes in said:
        mine = at.inbox.as_(name, may=lambda who, action, *_: (who.name, action) in rights)
        try:
            shown = next((each for each in mine.pending() if each.id == call), call)
            mine.decide("loop", {shown: Approve() if is_yes else Deny("no")})
        except CallerError:
            continue
    assert {(each.by, each.kind) for each in at.inbox.trail("loop")} <= rights
