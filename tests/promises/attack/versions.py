"""An earlier version of this library and this one, beside each other on one store."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.kit.fork_server import ForkServer, interpreter
from tests.promises.attack.places import LeftOut, earlier_source, place_in
from tests.promises.attack.races import run_races
from tests.promises.attack.row import Row

_OF_EACH = 3
_ROLES = ("drive", "drive", "take over", "work", "approve", "deny")


def attack(rounds: int, seed: int, folder: Path, server: ForkServer) -> Row:
    """Run so many races between processes of both versions, half of them on PostgreSQL, if it is there.

    The earlier one may refuse what it cannot read, and this one brings each loop to its end.
    """
    did = f"{_OF_EACH} processes of an earlier version and {_OF_EACH} of this one on one store, SQLite or PostgreSQL"
    row, source = Row("versions", did), earlier_source(folder)
    places = [place_in("sqlite", folder)]
    with suppress(LeftOut):
        places.append(place_in("postgres", folder))
    with ForkServer(interpreter("tests.promises.attack.programs", source=source)) as earlier:
        assert earlier.start("version").end() == os.fspath(source)
        for number, place in enumerate(places):
            own = folder / f"{number}"
            own.mkdir()
            servers = [server, earlier] * _OF_EACH
            share = rounds // len(places) + (number < rounds % len(places))
            run_races(row, share, seed + number, servers, folder=own, place=place, roles=_ROLES)
            server.clear_away()
            earlier.clear_away()
    return row
