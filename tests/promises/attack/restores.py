"""A store that is set back to an earlier backup, between any two of its calls, while a loop is driven.

Handle, inbox and worker stay open over it, with what they remember. Another process decides or drives meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import anyio
from attrs import asdict, define, field

from tests.kit.failing import Asked, FailingStore, is_beside
from tests.kit.fork_server import ForkServer
from tests.promises.attack.checkpoints import EagerStore, Tampering
from tests.promises.attack.ledger import Ledger
from tests.promises.attack.places import place_in
from tests.promises.attack.restored import Known, judge_restored
from tests.promises.attack.row import Row
from tests.promises.attack.story import KINDS, LOOP_ID, Story
from toolloop import AsyncToolLoopHandle, Inbox, SqliteStore, ToolLoopHandle
from toolloop.errors import StoreError, ToolLoopError

_ROLES = ("nobody", "approve", "deny", "deny", "drive", "take over", "report")
_USES = 3  # of a handle after the restore


def attack(rounds: int, seed: int, folder: Path, server: ForkServer, mode: str, *, checkpoints: bool = False) -> Row:
    """Restore so many files, `in place` or `replaced`. `checkpoints`: each then has an old checkpoint."""
    did = {"in place": "its content is written over", "replaced": "another file is put in its place"}[mode]
    row = Row(f"restore, {mode}", f"the file is set back to a backup between two store calls: {did}; all go on")
    chance, usual, count = Random(f"restores {seed} {mode}"), 20, 0
    for number in range(rounds):
        row.rounds += 1
        place = folder / f"{mode}{number}".replace(" ", "")
        place.mkdir()
        story = Story(
            chance.randrange(1 << 30),
            Ledger(place / LOOP_ID),
            is_small=True,
            deciding=Random(number),
            config={"max_parallel_tools": 1},
        )
        where = f"{number}, seed {story.seed}"
        at, until = sorted(chance.choices(range(usual), k=2))
        tampering = Tampering(place / "loops.db", Random(number)) if checkpoints else None
        restore = Restore(story, place, server, mode, chance.choice(_ROLES), at, until, tampering)
        driven = chance.choice((*KINDS, "worker"))
        with row.watched(where):
            usual = max(10, usual * 9 // 10, restore.drive(driven))
            if (ended := restore.let_another("drive")) == "Conflict":
                row.ended(ended, where, may_refuse=True)  # the backup has a lease of this process, which is alive
                ended = restore.let_another("take over")
            row.ended(ended, f"{where}, {driven}, {restore}")
            with SqliteStore(restore.path) as store:
                entries = store.load(LOOP_ID).entries
            for finding in judge_restored(story.ledger.lines(), entries):
                row.add(finding, f"{where}, {driven}, {restore}")
        row.starts += sum(line["what"] == "start" for line in story.ledger.lines())
        server.clear_away()
        count += 0 if tampering is None else tampering.count
    if checkpoints:
        row.attack += ", checkpoints"
        row.did += f"; the file then has a checkpoint of the lost branch, or a damaged one ({count:,} times)"
    return row


@define
class Restore:
    """One restore.

    Attributes:
        story: the loop.
        folder: where its file is.
        server: what starts the other process.
        mode: `in place` or `replaced`.
        role: what the other process does.
        at: the call of the store before which the backup is made.
        until: the call before which the file is set back.
        tampering: puts checkpoints of the lost branch into the restored file; None: there are none.
        is_done: whether the file was set back.
        is_kept: whether the handle that drives is used again in any case. Those of a worker end with their work.

    """

    story: Story = field(repr=False)
    folder: Path = field(repr=False)
    server: ForkServer = field(repr=False)
    mode: str
    role: str
    at: int
    until: int
    tampering: Tampering | None = field(default=None, repr=False)
    count: int = 0
    is_kept: bool = True
    is_done: bool = field(default=False, repr=False)
    to: int = 0
    inbox: Any = field(default=None, repr=False)
    seen: Any = field(factory=list, repr=False)
    _lock: Any = field(factory=threading.Lock, repr=False)

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "loops.db"

    def let_another(self, role: str) -> Any:
        """Let another process drive or decide the loop, and return how it ended."""
        place = place_in("sqlite" if self.tampering is None else "checkpoints", self.folder)
        where = {"folder": os.fspath(self.folder), "place": place, "loop_id": LOOP_ID}
        given = {"seed": self.story.seed, "salt": f"{role} {self.count}", "kind": "sync", "role": role}
        return self.server.start("visit", **where, **given).end()

    def look(self, asked: Asked) -> None:
        """Count a call of the store; back up or restore before it, if it is the one."""
        if is_beside():
            return
        with self._lock:
            number, self.count = self.count, self.count + 1
        if number == self.at:
            self._back_up()
        if number == self.until:
            self._restore(is_used=asked.name == "append" or (self.is_kept and asked.name != "release"))

    def drive(self, kind: str) -> int:
        """Drive the loop over the restore, use everything that is open again, and return how many calls were made."""
        with SqliteStore(self.path) if self.tampering is None else EagerStore(self.path) as file:
            self.story.open("sync", file).close()
            store: Any = FailingStore(file, before=self.look, is_whole=True)
            self.inbox = Inbox(file)
            self.is_kept = kind != "worker"
            if kind == "worker":
                self._work(store)
            elif kind == "sync":
                self._go_on(self._open(store), self.story.run)
            else:
                anyio.run(self._adrive, store, backend=kind)
            calls = self.count
            _how(lambda: self._decide(file))
            return calls

    def _open(self, store: Any) -> Any:
        """Open the loop. The call during which its file is replaced is refused; the next one opens the new file."""
        try:
            return self.story.open("sync", store)
        except StoreError:
            return self.story.open("sync", store)

    def _go_on(self, handle: ToolLoopHandle, run: Callable[[Any], str]) -> None:
        for _ in range(_USES):
            is_over = self.is_done
            if _how(lambda: run(handle)) == "done" and is_over:
                break
        _how(handle.close)

    async def _adrive(self, store: Any) -> None:
        try:
            handle: AsyncToolLoopHandle = await self.story.open("async", store)
        except StoreError:  # as in `_open`
            handle = await self.story.open("async", store)
        for _ in range(_USES):
            is_over = self.is_done
            with suppress(ToolLoopError):
                if await self.story.arun(handle) == "done" and is_over:
                    break
        await handle.aclose()

    def _work(self, store: Any) -> None:
        worker = self.story.worker(store)
        for _ in range(2 * _USES):
            _how(worker.run_once)
            _how(lambda: self._decide(store))

    def _decide(self, store: Any) -> None:
        """Decide with an inbox, which may remember calls from before the restore."""
        inbox = Inbox(store)
        waiting = [*self.seen] or [each for each in inbox.pending() if each.loop_id == LOOP_ID]
        self.seen = ()
        if waiting:
            inbox.decide(LOOP_ID, decided := self.story.decisions(waiting))
            self.story.note(decided)

    # --- the file ---

    @property
    def _backup(self) -> Path:
        return self.folder / "backup.db"

    def _back_up(self) -> None:
        self.to = len(self.story.ledger.lines())
        with closing(sqlite3.connect(self.path)) as here, closing(sqlite3.connect(self._backup)) as there:
            here.backup(there)

    def _restore(self, *, is_used: bool) -> None:
        """Set the file back, and let another process do something."""
        self.seen = [each for each in self.inbox.pending() if each.loop_id == LOOP_ID] if self.count > 1 else []
        if self.tampering is not None:
            self.tampering.look()
        if self.mode == "in place":
            with closing(sqlite3.connect(self._backup)) as here, closing(sqlite3.connect(self.path)) as there:
                here.backup(there)
        else:
            for end in ("-wal", "-shm"):
                Path(f"{self.path}{end}").unlink(missing_ok=True)
            self._backup.replace(self.path)
        if self.tampering is not None:
            self.tampering.tamper()
        with SqliteStore(self.path) as store:
            known = Known.of(store.load(LOOP_ID).entries)
        self.story.ledger.write("restored", to=self.to, **asdict(known))
        if self.role != "nobody":
            self.let_another(self.role)
        self.story.ledger.write("back", is_used=is_used)
        self.is_done = True


def _how(act: Callable[[], object]) -> object:
    """Return what a function returns, or the name of the error of toolloop that it raised."""
    try:
        return act()
    except ToolLoopError as error:
        return type(error).__name__
