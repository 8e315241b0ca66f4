"""Who may start a call, over handles, inboxes, links, the page and the command, with drivers that die.

Each driver is a process of its own. The rules change between drivers, and a judge that knows no rule of the machine
reads the journal. In `make test` a few lives over SQLite; in `make deep` twenty times as many, and over PostgreSQL.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.inbox.page.visitor import Visitor
from tests.inbox.support import desk_of
from tests.kit.effort import IS_DEEP
from tests.kit.fork_server import ForkServer
from tests.kit.machine.voting import Judge, add_omitted
from tests.kit.postgres import database, needs_postgres
from tests.kit.warm_python import warm
from tests.promises.processes.office import opened
from tests.promises.processes.programs import store_of
from toolloop import Answer, Approve, Deny, Grant, Inbox, Person, Rerun
from toolloop._cli.commands import toolloop
from toolloop.errors import CallerError, LoopNotFound
from toolloop.inbox.shown.keys import key_of
from toolloop.stores.codec import decode_event

SEEDS = range(40) if IS_DEEP else (0, 3)  # few lives in which each way of deciding occurs
OCCUR = (
    *("died", "at_a_handle: decided", "in_an_inbox: decided"),
    *("with_a_link: decided", "on_the_page: 303", "by_command: 0"),
)
GROUPS = {"ana": ("finance",), "Ana ": ("finance",), "bo": ("legal",), "Bo": (), "cy": ("finance", "legal")}
ASKS: tuple[Any, ...] = (
    [{"need": 2}],
    [{"need": 2}],
    [{"of": "finance", "fresh": True}],
    [{"of": "finance"}, {"of": "legal"}],
    [{"not_by": "ana"}],
    [{"need": 3}],
    [{}],
    [{}],
    "raises",
    "deny",
    None,
)


@pytest.fixture(scope="module")
def drivers() -> Iterator[ForkServer]:
    with ForkServer(warm("tests.promises.processes.office")) as fork_server:
        yield fork_server


class Office:
    """A loop in a store, its drivers, and the persons who decide, each wherever they are."""

    def __init__(self, drivers: ForkServer, place: str, rng: random.Random) -> None:
        self.drivers, self.place, self.rng = drivers, place, rng
        self.store = store_of(place)
        self.inbox = Inbox(self.store)
        self.day: dict[str, Any] = {}
        self.said: Counter[str] = Counter()
        self.digests: list[str | None] = [None]
        self.change_rules()
        self.drive()

    def go_on(self) -> None:
        """Mostly what gets the loop on: persons decide while calls wait, and else it is driven."""
        decides, drives = (17, 4) if self.inbox.pending() else (3, 9)
        self.rng.choice((*(self.decide,) * decides, *(self.drive,) * drives, self.change_rules))()

    def change_rules(self) -> None:
        self.day = {str(amount): self.rng.choice(ASKS) for amount in (1, 2, 3, 50)}

    def drive(self) -> None:
        dies = [amount for amount in (1, 2, 3, 50) if self.rng.randrange(4) == 0]
        child = self.drivers.start("drive", path=self.place, day=self.day, dies=dies, take_over=True)
        try:
            self.said[child.hear("end")["end"]] += 1
        except EOFError:
            self.said["died"] += 1

    # --- the persons ------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        way = self.rng.choice(
            (self.at_a_handle, self.in_an_inbox, self.in_an_inbox, self.with_a_link, self.on_the_page, self.by_command)
        )
        try:
            way()
        except (CallerError, LoopNotFound) as error:
            self.said[f"{way.__name__} refused: {type(error).__name__}"] += 1
        else:
            self.said[way.__name__] += 1

    def decision(self, *, remembers: bool = False) -> Any:
        name = self.rng.choice(tuple(GROUPS))
        by = Person(name, GROUPS[name]) if self.rng.randrange(5) else None
        digest = self.rng.choice(self.digests)
        return self.rng.choice(
            (
                *(Approve(by=by),) * 20,
                *(Approve(by=by, digest=digest),) * 2,
                *(Approve({"amount": self.rng.choice((1, 50))}, by=by),) * 2,
                *(Rerun(by=by),) * 6,
                Deny("no", by=by),
                Answer("by hand", by=by),
                *(Approve(by=by, remember=Grant()),) * remembers,
            )
        )

    def waiting(self) -> Any:
        shown = self.inbox.pending()
        self.digests += [each.digest for each in shown]
        return shown

    def at_a_handle(self) -> None:
        with opened(self.place, {}, [], take_over=False) as handle:
            for shown in handle.pending[:2]:
                handle.decide({shown: self.decision(remembers=True)})
                self.said["at_a_handle: decided"] += 1

    def in_an_inbox(self) -> None:
        shown = self.waiting()
        keys = [*shown] if self.rng.randrange(3) else [call.id for call in shown]
        self.inbox.decide("loop", {key: self.decision() for key in keys}, each=bool(self.rng.randrange(4)))
        self.said["in_an_inbox: decided"] += len(keys)

    def with_a_link(self) -> None:
        if shown := self.waiting():
            name = self.rng.choice(tuple(GROUPS))
            person = Person(name, GROUPS[name]) if self.rng.randrange(3) else None
            call = self.rng.choice(shown)
            token = self.inbox.link("loop", call, call.takes, person=person)
            if self.rng.randrange(4) == 0:
                self.in_an_inbox()
            for _ in range(2):
                self.inbox.redeem(token, self.rng.choice((Approve(), Approve(), Rerun(), Deny("no"))))
                self.said["with_a_link: decided"] += 1

    def on_the_page(self) -> None:
        if shown := self.waiting():
            call = self.rng.choice(shown)
            kind = "rerun" if call.why == "uncertain" else "approve"
            desk = desk_of(self.store, now=time.time())
            with (visitor := Visitor(desk, by=self.rng.choice(("ana", "Bo", "cy")))).http:
                visitor.open("/", call=key_of("loop", call.path), **({"do": kind} if kind == "rerun" else {}))
                if visitor.has(kind):
                    self.said[f"on_the_page: {visitor.send(kind).status_code}"] += 1

    def by_command(self) -> None:
        if shown := self.waiting():
            call = self.rng.choice(shown)
            kind = "rerun" if call.why == "uncertain" else "approve"
            given = [kind, "loop", call.id, "--store", self.place, "--digest", call.digest]
            who = {"LOGNAME": self.rng.choice(("bo", "cy"))}
            self.said[f"by_command: {CliRunner().invoke(toolloop, given, env=who).exit_code}"] += 1


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=[needs_postgres, pytest.mark.deep])])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new store each time."""
    return (
        database() if request.param == "postgres" else str(tmp_path / f"{number}.db") for number in itertools.count()
    )


def test_each_start_had_the_persons_that_its_demands_ask_for(drivers: ForkServer, places: Iterator[str]) -> None:
    """Whichever way each of them decided, with every driver."""
    said, notable = Counter[str](), Counter[str]()
    for seed in SEEDS:
        office = Office(drivers, next(places), random.Random(seed))
        for _ in range(60):
            office.go_on()
        journal = [decode_event(entry) for entry in office.store.load("loop").entries]
        judge = Judge().read(add_omitted(journal))
        said += office.said
        notable.update(note for notes in judge.started for note in notes | {"start"})
    drivers.clear_away()
    assert min(said[each] for each in OCCUR) > 0, said
    assert min(notable[note] for note in ("two", "start")) >= len(SEEDS), notable
