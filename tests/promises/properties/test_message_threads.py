"""A loop over message threads is the loop without them, whatever the server refuses: only less is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.effort import IS_DEEP, examples
from tests.promises.properties.drawn_compaction import COMPACTIONS, STRATEGIES, SUMMARIES
from tests.promises.properties.drawn_programs import BINDS, FREE, THREAD_FAULTS, Kind, Lived, Program, live, programs

_OF_THREADS = ("thread", "threads", "request_id")  # the ids of requests count those that were refused, too


def conversations(lived: Lived) -> list[Any]:
    """What the model saw with each request."""
    taken = [request.whole for request in lived.requests if request.refusal is None]
    return [{name: value for name, value in whole.items() if name != "thread"} for whole in taken]


def told(value: Any) -> Any:
    """What a caller got, without the events of refused threads and the second starts of their requests."""
    match value:
        case dict():
            return {key: told(item) for key, item in value.items() if key not in _OF_THREADS}
        case list() | tuple() if value and all(isinstance(item, str) for item in value):
            kept = [told(item) for item in value if not item.startswith("ThreadRefused")]
            return [item for text, same in groupby(kept) for item in ([text] if "RequestStarted" in text else same)]
        case list() | tuple():
            return [told(item) for item in value]
        case str():
            return re.sub(r"req_fake_\d+", "req", value)
    return value


def _set_up(program: Program, model: str, names: Sequence[str], summaries: Sequence[Any]) -> Program:
    strategies = tuple(STRATEGIES[name] for name in names)
    return evolve(program, model=model, strategies=strategies, summaries=tuple(summaries))


PROGRAMS = st.builds(_set_up, programs(), st.sampled_from([BINDS, FREE]), COMPACTIONS, st.lists(SUMMARIES, max_size=2))
REFUSALS = st.one_of(
    st.just([None]), st.lists(st.sampled_from([None, None, None, *THREAD_FAULTS]), min_size=1, max_size=5)
)


@examples(20, derandomize=not IS_DEEP)
@given(program=PROGRAMS, faults=REFUSALS, kind=st.sampled_from(["sync", "sync", "asyncio", "trio"]))
def test_a_thread_holds_what_would_be_sent_without_it(program: Program, faults: list[str | None], kind: Kind) -> None:
    """Conversations, results, refusals, starts and histories are equal, and so are events but for those of threads.

    A request is refused at most twice: as one that continues, and as one that creates a thread.
    """
    plain = live(program, kind)
    threaded = live(evolve(program, threads=True, thread_faults=tuple(faults)), kind)
    assert conversations(plain) == conversations(threaded)
    assert told(plain.seen) == told(threaded.seen)
    assert (plain.starts, plain.messages) == (threaded.starts, threaded.messages)
    assert told(plain.snapshot) == told(threaded.snapshot)
    is_refused = [request.refusal is not None for request in threaded.requests]
    runs = [sum(same) for _, same in groupby(is_refused)]
    assert max(runs, default=0) <= 2
