"""All attacks, and how many rounds of each are a full count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.attack import cancellations, crafted, damage, interrupts, kills, power, races
from tests.attack.row import Row

# Each is called with the number of rounds, a seed, a folder, and a server of `tests.attack.programs`.
ATTACKS: dict[str, Callable[..., Row]] = {
    "kills": kills.attack,
    "power losses": power.attack,
    "races": races.attack,
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
    "power losses": 200,
    "races": 1000,
    "interrupts, memory": 10_000,  # or at each place, if there are fewer
    "interrupts, sqlite": 10_000,
    "cancellations, asyncio": 1000,
    "cancellations, trio": 1000,
    "damaged files": 250,
    "damaged logs": 250,
    "crafted": 5000,
}
