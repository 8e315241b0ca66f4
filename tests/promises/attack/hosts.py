"""A process that seems to run on a host of its own: it drives or decides a loop, and may be suspended."""

from __future__ import annotations

import faulthandler
import platform
from pathlib import Path
from random import Random
from typing import Any

from tests.kit.failing import Asked, FailingStore, is_beside
from tests.kit.fork_server import Line
from tests.promises.attack.ledger import Ledger
from tests.promises.attack.places import open_store
from tests.promises.attack.row import PATIENCE
from tests.promises.attack.story import Story
from toolloop import Approve, Deny
from toolloop.errors import ToolLoopError

LEASE = 0.4  # seconds
_PLACES = ("create", "acquire", "append")  # only the driver itself calls these


def visit(
    line: Line,
    *,
    role: str,
    kind: str,
    seed: int,
    salt: str,
    folder: str,
    loop_id: str,
    place: str,
    host: str | None = None,
    stop_at: int | None = None,
    is_fenced: bool = False,
) -> str:
    """Drive, approve or deny a loop; stand still at a call of the store, if asked to.

    Another process cannot tell whether one on another `host` lives, so its lease, a short one, ends by time.
    """
    faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)
    if host is not None:
        platform.node = lambda: host
    story = Story(
        seed,
        Ledger(Path(folder, loop_id), is_fenced=is_fenced),
        is_small=True,
        deciding=Random(salt),
        watching=False,
        config={"max_parallel_tools": 1},
    )
    count = 0

    def look(asked: Asked) -> None:
        nonlocal count
        if asked.name in _PLACES and not is_beside():
            count += 1
            if count == stop_at:
                line.say(stops=count)
                line.hear()

    with open_store(place, lease_seconds=None if host is None else LEASE) as store:
        if role in ("approve", "deny"):
            return _decide(story, store, loop_id, role, take_over=host is not None)
        if role == "report":
            from toolloop.inbox import mark_restored  # noqa: PLC0415 - an earlier version has none

            mark_restored(store)
            story.ledger.write("reported")
            return "done"
        watched: Any = FailingStore(store, before=look, is_whole=True)
        return story.drive(kind, watched, loop_id, take_over=role == "take over")


def _decide(story: Story, store: Any, loop_id: str, role: str, *, take_over: bool) -> str:
    """Approve or deny the calls that wait. Started calls are uncertain, and denied, if the loop is taken over."""
    try:
        with story.open("sync", store, loop_id, take_over=take_over) as handle:
            waiting = [each for each in handle.pending if role == "deny" or each.why == "approval"]
            decided = dict.fromkeys(waiting, Deny("no") if role == "deny" else Approve())
            handle.decide(decided)
            story.note(decided)
    except ToolLoopError as error:
        return type(error).__name__
    return "done"
