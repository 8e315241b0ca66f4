"""Turns that are cancelled at a random await, under asyncio and trio."""

from __future__ import annotations

from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel

from tests.promises.attack.ledger import Ledger
from tests.promises.attack.row import Row
from tests.promises.attack.story import LOOP_ID, Story
from toolloop import AsyncToolLoopHandle, MemoryStore, SqliteStore
from toolloop.stores import Store


def attack(rounds: int, seed: int, folder: Path, _server: object, backend: str) -> Row:
    """Cancel so many turns."""
    row = Row(f"cancellation, {backend}", "a turn cancelled at a random await; the same handle goes on")
    chance, steps = Random(f"cancellations {seed} {backend}"), 60
    for number in range(rounds):
        row.rounds += 1
        ledger = Ledger(folder / f"{backend}{number}")
        story = Story(chance.randrange(1 << 30), ledger, deciding=Random(number))
        store: Store | None = (None, MemoryStore(), SqliteStore(ledger.path.with_suffix(".db")))[number % 3]
        with row.watched(f"{number}, seed {story.seed}"):
            how, taken = anyio.run(_cancelled, story, store, chance.randrange(steps), backend=backend)
            steps = max(steps * 9 // 10, taken, 20)  # as many as a run of late took
            row.ended(how, number)
        row.judge(ledger.lines(), number)
        if isinstance(store, SqliteStore):
            store.close()
    return row


async def _cancelled(story: Story, store: Store | None, after: int) -> tuple[str, int]:
    """Run a loop, cancel it after so many steps of the event loop, and let it go on."""
    steps = 0
    handle = AsyncToolLoopHandle(story.provider("async"), store=store, loop_id=LOOP_ID, **story.parts("async"))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                nonlocal steps
                while steps != after:
                    await anyio.lowlevel.checkpoint()
                    steps += 1
                scope.cancel()

            group.start_soon(cancel)
            await story.arun(handle)
            group.cancel_scope.cancel()
    how = await story.arun(handle)
    await handle.aclose()
    return how, steps
