"""Handles, inboxes and workers whose clocks are hours or days wrong.

PostgreSQL has a clock, which counts for all of them. With an SQLite file, a wrong clock may expire a call too early or
too late; no other promise depends on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen

from tests.promises.attack.ledger import LOST, Finding, Ledger
from tests.promises.attack.places import open_store, place_in
from tests.promises.attack.row import Row
from tests.promises.attack.story import Story
from toolloop import Approve, Deny, Inbox, Texts
from toolloop.errors import ModelError, ToolLoopError
from toolloop.testing import ScriptedProvider

_WRONG = (-86_400.0, -3600.0, 3600.0, 86_400.0)  # seconds
_SHORT, _LONG = 0.2, 600.0
_SOON = 60.0  # a first retry is due within this time
_EXPIRED = Texts().expired.partition("{")[0]


def attack(rounds: int, seed: int, folder: Path, _server: object, kind: str) -> Row:
    """Drive and decide so many loops, one of whose clients has a wrong clock."""
    name = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[kind]
    row = Row(f"wrong clock, {name}", "a driver, worker or inbox whose clock is an hour or a day ahead or behind")
    chance = Random(f"clocks {seed}")
    with open_store(place_in(kind, folder)) as store:
        for number in range(rounds):
            row.rounds += 1
            timeout = chance.choice([_SHORT, _LONG, _LONG])
            story = Story(
                chance.randrange(1 << 30),
                Ledger(folder / f"loop{number}"),
                is_small=True,
                deciding=Random(number),
                config={"decision_timeout": timeout},
            )
            wrong = dict.fromkeys(("driver", "inbox", "last"), 0.0) | {
                chance.choice(["driver", "inbox", "last"]): chance.choice(_WRONG)
            }
            where = f"loop{number}, seed {story.seed}, decided within {timeout} s, {wrong}"
            round_ = Round(story, store, f"loop{number}", chance, wrong, has_clock=hasattr(store, "now"))
            with row.watched(where):
                for finding in round_.play():
                    row.add(finding, where)
                row.ended(story.drive("sync", store, f"loop{number}", clock=_clock(wrong["last"])), where)
            lines = story.ledger.lines()
            row.judge(lines, where)
            is_expired = any(text.startswith(_EXPIRED) for line in lines for _, text in line.get("results", ()))
            if hasattr(store, "now") and timeout == _LONG and is_expired:
                row.add(Finding(LOST, "a call expired by a wrong clock"), where)
    return row


def _clock(off: float) -> Callable[[], float]:
    return lambda: time.time() + off


@frozen
class Round:
    """One loop, until it was decided.

    Attributes:
        wrong: by how many seconds each clock is wrong.
        has_clock: whether the store has a clock.

    """

    story: Story
    store: Any
    loop_id: str
    chance: Random
    wrong: dict[str, float]
    has_clock: bool

    def play(self) -> Iterator[Finding]:
        """Drive the loop to its decision, and decide. Yields what only a right clock can see."""
        yield from self._work() if self.chance.random() < 0.5 else self._next_turn()
        shown = self._pending(Inbox(self.store))
        if self.story.config["decision_timeout"] == _SHORT:
            threading.Event().wait(2 * _SHORT)
            if shown and self._is_decided(shown) and self.has_clock:
                yield Finding(LOST, "a decision was accepted after its deadline")
            return
        inbox = Inbox(self.store, clock=_clock(self.wrong["inbox"]))
        if not self._pending(inbox) and self.has_clock:
            yield Finding(LOST, "an inbox does not show a call that waits")
        if not self._is_decided(shown) and self.has_clock:
            yield Finding(LOST, "a decision was refused before its deadline")

    def _next_turn(self) -> Iterator[Finding]:
        with self.story.open("sync", self.store, self.loop_id, clock=_clock(self.wrong["driver"])) as handle:
            handle.next_turn()
        yield from ()

    def _work(self) -> Iterator[Finding]:
        """Let a worker drive the loop, whose first request fails."""
        story, store = self.story, self.store
        failures = iter([ModelError("internal server error", retryable=True, status=500)])

        def answer(request: dict[str, Any]) -> Any:
            for failure in failures:
                raise failure
            return story.answer(request)

        story.open("sync", store, self.loop_id).close()
        worker = story.worker(store, ScriptedProvider(answer), clock=_clock(self.wrong["driver"]))
        worker.run_once()
        retry_at = store.head(self.loop_id).head.retry_at
        if self.has_clock and (retry_at is None or not 0 < retry_at - store.now() < _SOON):
            yield Finding(LOST, f"a worker with a wrong clock tries again at {retry_at}")
        Inbox(store).retry(self.loop_id)
        worker.run_once()

    def _pending(self, inbox: Inbox) -> list[Any]:
        return [each for each in inbox.pending(limit=1000) if each.loop_id == self.loop_id]

    def _is_decided(self, shown: list[Any]) -> bool:
        decided: dict[Any, Any] = dict.fromkeys(shown, self.chance.choice([Approve(), Deny("no")]))
        try:
            Inbox(self.store, clock=_clock(self.wrong["inbox"])).decide(self.loop_id, decided)
        except ToolLoopError:
            return False
        self.story.note(decided)
        return True
