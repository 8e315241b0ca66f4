"""What is told of a life: each thing that happened, once, in the loop in which it happened."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import given

from tests.machine.worlds import World
from tests.stores.journals import lives
from toolloop.face.watch_events import (
    CallStarted,
    HistoryReplaced,
    LoopFinished,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    WatchEvent,
)
from toolloop.loop.reporting import watch
from toolloop.machine import events as ev
from toolloop.machine.loop import Finished


def told(world: World) -> list[WatchEvent]:
    steps = zip(pairwise(world.states), world.journal[1:], strict=True)
    return [seen for (before, after), event in steps for seen in watch(before, event, after)]


def places(events: list[Any], *kinds: type[Any]) -> Counter[Any]:
    """How many events of these kinds each loop has."""
    return Counter(event.path for event in events if isinstance(event, kinds))


@given(lives(90))
def test_requests_and_edits_are_told_where_they_happened(world: World) -> None:
    """A request for a summary is told by its answer, which comes with the edit."""
    seen, journal = told(world), world.journal[1:]
    spent = [event for event in journal if isinstance(event, ev.HistoryEdited) and event.spent is not None]
    replied = [event for event in journal if isinstance(event, ev.Replied)]
    failed = [event for event in journal if isinstance(event, ev.RequestFailed) and event.failure is not None]
    edited = [event for event in journal if isinstance(event, ev.HistoryEdited) and event.strategy is None]
    taken = [event for event in journal if isinstance(event, ev.HistoryTaken) and event.splices]
    assert places(seen, RequestStarted) == places(journal, ev.Requested)
    assert places(seen, RequestAnswered) == places([*replied, *spent], ev.Event)
    assert places(seen, RequestFailed) == places(failed, ev.Event)
    assert places(seen, HistoryReplaced) == places([*edited, *taken], ev.Event)


@given(lives(90, nested=True))
def test_the_starts_of_calls_are_told_where_they_happened(world: World) -> None:
    """The loop inside a call begins with the start of that call, which is one of the loop above."""
    begun = [event.path[:-1] for event in world.journal[1:] if isinstance(event, ev.Opened)]
    started = [event.path for event in world.journal[1:] if isinstance(event, ev.Started)]
    assert places(told(world), CallStarted) == Counter([*begun, *started])


@given(lives(90, nested=True))
def test_the_end_of_a_loop_is_told_once(world: World) -> None:
    """Whenever it ends: it may have gone on after a limit, or with a further user turn."""
    ends: Counter[Any] = Counter()
    for before, after in pairwise(world.states):
        for path, loop in after.loops.items():
            was = before.at(path)
            ends[path] += was is not None and isinstance(loop.phase, Finished) and not isinstance(was.phase, Finished)
    assert places(told(world), LoopFinished) == +ends
