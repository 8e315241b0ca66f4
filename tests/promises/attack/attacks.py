"""All attacks, and how many rounds of each are a full count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.promises.attack import (
    cancellations,
    clocks,
    crafted,
    damage,
    interrupts,
    kills,
    power,
    races,
    restores,
    suspensions,
    versions,
)
from tests.promises.attack.row import Row

# Each is called with the number of rounds, a seed, a folder, and a server of `tests.promises.attack.programs`.
ATTACKS: dict[str, Callable[..., Row]] = {
    "kills": kills.attack,
    "kills, message threads": kills.attack_threads,
    "kills, PostgreSQL": partial(kills.attack, kind="postgres"),
    "kills, checkpoints": partial(kills.attack, kind="checkpoints"),
    "power losses": power.attack,
    "races": races.attack,
    "versions": versions.attack,
    "restores, in place": partial(restores.attack, mode="in place"),
    "restores, replaced": partial(restores.attack, mode="replaced"),
    "restores, checkpoints": partial(restores.attack, mode="in place", checkpoints=True),
    "suspensions, SQLite": partial(suspensions.attack, kind="sqlite"),
    "suspensions, PostgreSQL": partial(suspensions.attack, kind="postgres"),
    "wrong clocks, SQLite": partial(clocks.attack, kind="sqlite"),
    "wrong clocks, PostgreSQL": partial(clocks.attack, kind="postgres"),
    "interrupts, memory": partial(interrupts.attack, kind="memory"),
    "interrupts, sqlite": partial(interrupts.attack, kind="sqlite"),
    "cancellations, asyncio": partial(cancellations.attack, backend="asyncio"),
    "cancellations, trio": partial(cancellations.attack, backend="trio"),
    "damaged files": partial(damage.attack, part="file"),
    "damaged logs": partial(damage.attack, part="log"),
    "crafted": crafted.attack,
}
COUNTS = {
    "kills": 1000,
    "kills, message threads": 1000,
    "kills, PostgreSQL": 1000,
    "kills, checkpoints": 1000,
    "power losses": 200,
    "races": 1000,
    "versions": 1000,
    "restores, in place": 1000,
    "restores, replaced": 1000,
    "restores, checkpoints": 1000,
    "suspensions, SQLite": 500,
    "suspensions, PostgreSQL": 500,
    "wrong clocks, SQLite": 1000,
    "wrong clocks, PostgreSQL": 1000,
    "interrupts, memory": 10_000,  # or at each place, if there are fewer
    "interrupts, sqlite": 10_000,
    "cancellations, asyncio": 1000,
    "cancellations, trio": 1000,
    "damaged files": 250,
    "damaged logs": 250,
    "crafted": 5000,
}
