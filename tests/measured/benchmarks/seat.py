"""A process in which one library sits: `python -m tests.measured.benchmarks.seat NAME FOLDER`.

It imports the library, writes a line when it stands ready, and then answers each line, which is a measurement with its
numbers in JSON, with one line of JSON. It needs the standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from tests.measured.benchmarks import rounds
from tests.measured.benchmarks.commits import commits
from tests.measured.benchmarks.talk import ManyCalls, Talk, starts

_PATIENCE = 15  # seconds for one conversation


def resident() -> int:
    """Return the bytes of memory that this process has in use; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


async def many(library: Any, folder: Path, count: int, turns: int, seconds: float) -> dict[str, float]:
    """Hold so many conversations at once; return what the library adds to a turn, and what they take.

    Args:
        library: its module.
        folder: for its file.
        count: of conversations.
        turns: of each.
        seconds: that the model takes for a reply.

    """
    before, most = resident(), 0

    def note(turn: int) -> None:
        nonlocal most
        if turn == turns:
            most = max(most, resident())

    talks = [Talk(turns, seconds, note=note) for _ in range(count)]
    async with library.opened(folder / f"many-{time.monotonic_ns()}.db") as kept:

        async def begin(number: int, held: Talk) -> None:
            await asyncio.sleep(seconds * number / count)  # requests of people do not come all at once
            await library.hold(kept, f"talk-{number}", held)

        begun = time.process_time()
        await asyncio.gather(*(begin(number, held) for number, held in enumerate(talks)))
        taken = time.process_time() - begun
    gaps = [each * 1e3 for held in talks for each in held.gaps]
    if len(gaps) != count * (turns - 1):
        raise ValueError(f"{len(gaps)} turns ended, expected {count * (turns - 1)}")
    added = {"p50": median(gaps), "p99": quantiles(gaps, n=100)[-1]}
    return {**added, "cpu": taken * 1e3 / (count * turns), "memory": max(0, most - before) / count}


async def parallel(library: Any, _folder: Path, count: int) -> dict[str, float]:
    """Take so many turns with twenty calls of ten milliseconds, without a store."""
    taken: list[float] = []
    async with library.opened(None) as kept:
        for number in range(count):
            held = ManyCalls(2)
            await library.hold(kept, f"many-{number}", held)
            taken += held.gaps
    return {"ms": median(taken) * 1e3}


async def hold(library: Any, folder: Path, turns: int) -> dict[str, float]:
    """Hold a conversation up to a call that waits for an approval; return the bytes of its file."""
    path = folder / f"held-{turns}.db"
    try:
        async with asyncio.timeout(_PATIENCE), library.opened(path) as kept:
            await library.hold(kept, "talk", Talk(turns, end="send"))
    except TimeoutError:
        path.unlink()
        raise NotImplementedError(f"over {_PATIENCE} s") from None
    return {"bytes": rounds.checkpointed_size(path)}


async def click(library: Any, _folder: Path, path: str, turns: int) -> dict[str, float]:
    """Approve the call of a conversation that this process does not know; return the time to the start of the tool."""
    if not os.path.exists(path):  # noqa: ASYNC240, PTH110 - nothing else waits in this process
        raise NotImplementedError("no file")
    starts.clear()
    async with library.opened(Path(path)) as kept:
        gc.collect()
        held = Talk(turns)
        held.turn = turns
        begun = time.perf_counter()
        await library.approve(kept, "talk", held)
    (started,) = starts
    return {"ms": (started - begun) * 1e3}


async def confirm(library: Any, folder: Path, turns: int) -> dict[str, float]:
    """Hold a stored conversation; return the writes of a turn for which SQLite waits until the disk confirms them."""
    counts: list[int] = []
    with commits() as counted:
        async with library.opened(folder / "confirmed.db") as kept:
            note = lambda _turn: counts.append(counted.confirmed)  # noqa: E731 - it is one
            await library.hold(kept, "talk", Talk(turns, note=note))
    return {"writes": (counts[-1] - counts[1]) / (turns - 2)}


async def warm(library: Any, folder: Path) -> None:
    """Do everything once, so that no measurement loads a module."""
    with contextlib.suppress(NotImplementedError):
        await parallel(library, folder, 1)
        await many(library, folder, 2, 2, 0.0)
        await hold(library, folder, 2)
        await click(library, folder, str(folder / "held-2.db"), 2)


_MEASURED = {each.__name__: each for each in (many, parallel, confirm, hold, click)}


def main(name: str, place: str) -> None:
    """Answer line by line; a measurement that the library cannot do is answered with the reason."""
    library, folder = import_module(f"tests.measured.benchmarks.libraries.{name}"), Path(place)
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(warm(library, Path(scratch)))
    print(json.dumps("ready"), flush=True)  # noqa: T201 - a program
    for line in sys.stdin:
        what, *numbers = json.loads(line)
        answer: Any
        try:
            answer = asyncio.run(_MEASURED[what](library, folder, *numbers))
        except NotImplementedError as reason:
            answer = str(reason)
        print(json.dumps(answer), flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    main(*sys.argv[1:])
