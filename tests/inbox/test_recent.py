"""What the page says of a call needs only the newest events: the same as the whole journal says of it."""

from __future__ import annotations

import html
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from tests.inbox.page.visitor import Visitor
from tests.kit.effort import examples
from tests.kit.failing import Asked, FailingStore
from tests.kit.machine.worlds import World as Life, lives
from tests.kit.restoring import Backups, each_restore
from tests.kit.tools import SEND
from tests.kit.world import ID, World
from tests.measured.speed.work import Work, counting
from toolloop import Approve, Deny, Inbox, MemoryStore, Person, SqliteStore
from toolloop.errors import StoreError, UnknownCall
from toolloop.inbox.shown.cards import NEWEST, Card, card_of, cards_of, list_newest, read_loop
from toolloop.inbox.shown.keys import key_of
from toolloop.inbox.shown.recent import Recent
from toolloop.inbox.shown.story import read_story
from toolloop.inbox.trail import read_trail, trail_of
from toolloop.inbox.transcript import escape_hidden
from toolloop.machine.record.loop import round_of
from toolloop.machine.values.calls import text_of_content
from toolloop.machine.values.jsontext import decode
from toolloop.stores import Head, encode_event
from toolloop.stores.checkpoints import MEANING, read_checkpoint
from toolloop.testing import call, reply
from toolloop.types import RunningCall

ANA = Person("ana")
ROUNDS = 60
LARGE = "x" * 4000  # a checkpoint is due after 100 kB


def recent_of(life: Life, at: int | None) -> Recent:
    """The events after a place in a journal; None: all."""
    steps = tuple(zip(life.journal, life.states, strict=True))
    before = None if at is None else life.states[at]
    return Recent(before, steps if at is None else steps[at + 1 :], len(steps), "first", None)  # type: ignore[arg-type]  # nothing reads its weight


@examples(20)
@given(lives)
def test_the_newest_events_say_of_a_call_what_the_whole_journal_says(life: Life) -> None:
    """From each moment without an open round: its story, and its entries in the trail."""
    whole = read_story(recent_of(life, None))
    trail = trail_of(life.states[0], recent_of(life, 0).steps)
    for at, state in enumerate(life.states):
        if round_of(state.root) is None:
            recent = recent_of(life, at)
            story, newer = read_story(recent), trail_of(state, recent.steps)
            assert story.state == whole.state
            for path, found in whole.calls.items():
                if recent.has_all_of(path):
                    assert story.calls[path] == found
                    assert (story.calls[path].asked, story.calls[path].said) == (found.asked, found.said)
                    assert [each for each in newer if each.path == path] == [
                        each for each in trail if each.path == path
                    ]
            made = [path for path in story.calls if len(path) == 1]
            assert all(map(recent.has_all_of, made))


@examples(20)
@given(lives)
@example(Life(random.Random(8436), forks=True).live(40))  # it was given before the loop was copied
def test_the_request_beside_a_call_was_given(life: Life) -> None:
    """By a person, with an edit or as a prompt: it is not among the messages that a loop writes itself."""
    events = [*life.past, *life.journal]
    given_ = [text for event in events for text in getattr(event, "messages", ())]
    given_ += [text for event in events for splice in getattr(event, "splices", ()) for text in splice.messages]
    texts = {escape_hidden(text_of_content(decode(text)["content"])) for text in given_}
    assert {call.asked for call in read_story(recent_of(life, None)).calls.values()} <= {"", *texts}


@examples(20)
@given(lives, st.data())
def test_a_trail_that_is_read_on_is_that_of_the_whole_journal(life: Life, data: st.DataObject) -> None:
    """Wherever it was read before; and what was returned then may be changed."""
    loop_id = life.state.root.setup.loop_id
    entries = [encode_event(str(number), event) for number, event in enumerate(life.journal)]
    store = MemoryStore()
    inbox, head = Inbox(store), Head("running")
    rev = store.create(loop_id, entries[:1], head=head)
    while rev < len(entries):
        for entry in inbox.trail(loop_id):
            for value in (entry.input, entry.content, entry.remember):
                if isinstance(value, dict | list):
                    value.clear()
        until = data.draw(st.integers(rev + 1, len(entries)))
        rev = store.append(loop_id, entries[rev:until], expected_rev=rev, head=head)
    with counting() as work:
        found = inbox.trail(loop_id)
    assert found == read_trail(entries, store.secret)
    assert work.events < len(entries) or len(entries) == 1
    with counting() as work:
        assert inbox.trail(loop_id) == found
    assert work.events == 0


# --- how much is read ------------------------------------------------------------------------------------------------


def waiting_world(store: Any, rounds: int = ROUNDS) -> World:
    """A loop of some rounds, each with a text, and then a call that waits."""
    script = [reply(LARGE, calls=[call("look", {"path": "a.txt"}, id=f"t{number}")]) for number in range(rounds)]
    script += [reply("I send it.", calls=[call("send", {"to": "ana"}, id="last")]), reply("done")]
    return World("sync", store, script=script, config={"max_iterations": rounds + 3})


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a loop whose call `last` waits, which no test changes."""
    path = tmp_path_factory.mktemp("driven") / "loops.db"
    with SqliteStore(path) as store:
        waiting_world(store).drive()
    return path


@pytest.fixture
def path(driven: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(driven, tmp_path))


class Begins(SqliteStore):
    """Remembers after which revision each reading of a journal began."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begins: list[int] = []

    def load(self, loop_id: str, *, after: int = 0, **more: Any) -> Any:
        self.begins.append(after)
        return super().load(loop_id, after=after, **more)


def card_in(store: Any, *ids: str) -> tuple[Card, Work]:
    """The card of a call, and the work that it takes."""
    with counting() as work:
        card = card_of(store, key_of(ID, ids or ("last",)), ANA, 0.0)
    return card, work


def test_a_call_of_a_long_loop_is_read_from_its_checkpoint(path: Path) -> None:
    """And from the events after it; the next time, no event is read, and nothing but its round is decoded."""
    with SqliteStore(path) as store:
        body, rev = store.checkpoint(ID, meaning=MEANING), store.head(ID).rev
        kept = read_checkpoint(ID, body or b"")
        assert round_of(kept.state.root) is None
        card, work = card_in(store)
        assert (card.asked, card.said, card.waits) == ("hello", "I send it.", True)
        assert work.events == work.folded == rev - kept.rev < rev / 3
        again, work = card_in(store)
        assert (work.events, work.folded) == (0, 0)
        assert work.decoded.total() < ROUNDS
        assert again.story == card.story == read_loop(store, ID)[1].calls["last",]


def test_a_decided_call_is_found_after_its_round(path: Path) -> None:
    """What is new is read, and no more. A call that was made long before is read from the whole journal."""
    with SqliteStore(path) as store:
        card_in(store)
        Inbox(store).decide(ID, {"last": Approve(by="ana")})
        card, work = card_in(store)
        assert (card.fate, work.events) == ("It starts now.", 2)  # `Decided`, `Continued`
        waiting_world(store).drive()
        card, work = card_in(store)
        assert card.fate == "It ended."
        assert work.events < 10
        early, work = card_in(store, "t1")
        assert work.events == store.head(ID).rev
        assert early.story == read_loop(store, ID)[1].calls["t1",]
        with pytest.raises(UnknownCall):
            card_in(store, "none")
        keys = [key_of(ID, (name,)) for name in ("last", "none", "t1", "t0")]
        assert [each.path for each in cards_of(store, ["?", *keys, key_of("none", ("a",))], ANA, 0.0)] == [
            ("last",),
            ("t1",),
            ("t0",),
        ]


def test_the_page_of_a_long_loop_has_its_newest_steps(path: Path) -> None:
    """All that waits is among them. It is read once; another address has all steps. A short loop has all at once."""
    with Begins(path) as store:
        visitor = Visitor(waiting_world(store))
        visitor.open("/loop", id=ID)
        trail = visitor.text.partition("Trail</h2>")[2].partition("<form")[0]
        assert trail.count("<details>") == NEWEST / 2  # a text and a call in each round
        assert "I send it." in trail
        assert "hello" not in trail
        store.begins.clear()
        for _ in range(2):
            card_in(store)  # it shortens what is remembered
            visitor.open("/loop", id=ID)
        assert {*store.begins} == {store.head(ID).rev}
        assert visitor.text.partition("Trail</h2>")[2].partition("<form")[0] == trail
        Inbox(store).say(ID, "And then?")
        visitor.open("/loop", id=ID)
        assert "Kept for the next request" in visitor.text
        (link,) = re.findall(r'href="([^"]*whole=1)"', visitor.text)
        visitor.open(html.unescape(link))
        assert "hello" in visitor.text
        assert visitor.text.count('<b class="tool">') == ROUNDS + 1
    short = waiting_world(MemoryStore(), rounds=12)
    visitor = Visitor(short)
    short.create(ID)
    visitor.open("/loop", id=ID)
    assert "hello" in visitor.text
    assert short.journal() == ["Opened"]
    short.drive()
    for _ in range(2):
        visitor.open("/loop", id=ID)
        assert "hello" in visitor.text
        assert "whole=1" not in visitor.text


def test_a_call_that_runs_is_among_the_newest_steps(path: Path) -> None:
    """Also one that was proposed before them, with many others."""
    with SqliteStore(path) as store:
        _, story = read_loop(store, ID)
    story.running = {("t7",): RunningCall("t7", "look", None)}
    call, *newest = list_newest(story)
    assert (call, newest) == (story.calls["t7",], story.steps[-NEWEST:])


@examples(20)
@given(lives)
def test_the_newest_steps_of_a_loop_are_the_last_of_all(life: Life) -> None:
    """From each moment without an open round."""
    whole = read_story(recent_of(life, None)).steps
    for at, state in enumerate(life.states):
        if round_of(state.root) is None and (newer := read_story(recent_of(life, at)).steps):
            assert newer == whole[-len(newer) :]


# --- one read, of one revision ---------------------------------------------------------------------------------------


def read_by_inbox(store: Any) -> tuple[str, str | None]:
    """The status of the loop, and the reason with which `send` was denied."""
    shown = Inbox(store).show(ID)
    return shown["status"], shown["results"]["t2"]["text"].rpartition(": ")[-1]


def read_by_page(store: Any) -> tuple[str, str | None]:
    """Likewise, as the page has it."""
    card = card_of(store, key_of(ID, ("t2",)), ANA, 0.0)
    return card.row.status, "" if card.decision is None else card.decision[0].reason or ""


@each_restore
@pytest.mark.parametrize("read", [read_by_inbox, read_by_page])
def test_a_row_and_its_journal_are_of_one_branch(read: Callable[[Any], Any], way: str, tmp_path: Path) -> None:
    """The store is restored between the reads of the two, and goes on elsewhere."""
    backups = Backups(way, tmp_path)
    world = World("sync", backups.store, script=(reply(calls=[SEND]), reply("done")))
    world.drive()
    restore = backups.back_up()
    Inbox(backups.store).decide(ID, {"t2": Approve(by="ana")})
    world.drive()
    shown = Inbox(backups.store).show(ID)
    assert shown["status"] == "ended"

    def go_elsewhere(asked: Asked) -> None:
        if asked.name == "load":
            store.before = lambda _: None
            restore()
            Inbox(backups.other).decide(ID, {"t2": Deny("no", by="bo")})

    store = FailingStore(backups.store, before=go_elsewhere, is_whole=True)
    if way == "replaced":
        with pytest.raises(StoreError, match="The next call opens the file"):
            read(store)
    assert read(store) == ("runnable", "no")
    backups.close()
