"""The words of stores: both stores take exactly what the protocol says."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable

from toolloop.stores import MemoryStore, SqliteStore, Store

METHODS = [name for name, value in vars(Store).items() if inspect.isfunction(value) and not name.startswith("_")]
STORES: tuple[type[Store], ...] = (MemoryStore, SqliteStore)  # mypy says, too, that they are stores


def test_a_store_takes_what_the_protocol_says() -> None:
    """Names, order, kinds and defaults of the arguments are the same. mypy says that their types fit."""
    for kind in STORES:
        for method in METHODS:
            assert arguments_of(getattr(kind, method)) == arguments_of(getattr(Store, method))


def arguments_of(method: Callable[..., object]) -> list[inspect.Parameter]:
    parameters = inspect.signature(method).parameters.values()
    return [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]


def test_importing_the_stores_loads_no_database() -> None:
    """A program that keeps loops in memory does not load SQLite."""
    code = "import sys, toolloop.stores; toolloop.stores.MemoryStore(); print('sqlite3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
