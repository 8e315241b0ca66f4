"""A turn does the same work at round 10 and at a late one, whatever the face; and a copy of the history is seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit import inside
from tests.kit.effort import IS_DEEP, some
from tests.measured.speed.growing import grown, growth, turn_of
from tests.measured.speed.loops import FACES, Face, Rote, after, config, in_a_thread, sync
from tests.measured.speed.work import calls_of, stepping
from toolloop import Approve, LoopConfig, MemoryStore, SqliteStore, ToolLoopHandle, tool
from toolloop._interface.decisions import refuse_invalid
from toolloop._requests.request_maker import RequestMaker
from toolloop.events import CallFinished
from toolloop.machine.values.chain import Chain
from toolloop.providers.protocol import Request
from toolloop.testing import ScriptedProvider, call, reply

# In SQLite the disk takes most of the time, so this face stops at round 100. Beyond it, its writes and statements
# are counted in tests/journal/test_stored_counts.py. What no face shows here: work inside of C over a whole history
# that neither takes room nor calls anything (see `tests.measured.speed.work`).
LATE = 1000 if IS_DEEP else 60  # a line of Python for each round is seen by then
ROUNDS = {"in sqlite": min(100, LATE)}


@pytest.mark.parametrize("name", some([*FACES], 2))
def test_a_turn_costs_what_is_new(name: str) -> None:
    """Calls, lines of Python, items of histories, texts read, written and judged, bytes in use: none grows."""
    with FACES[name]() as face:
        assert growth(face, ROUNDS.get(name, LATE)) == {}


def test_a_turn_in_a_message_thread_costs_what_is_new() -> None:
    """Each message is fingerprinted as it comes, and not again."""
    with in_a_thread() as face:
        assert growth(face, LATE) == {}


def work_of_deciding(calls: int, store: Any) -> int:
    """The calls of functions for deciding so many calls of a stored loop, one after the other."""

    @tool(needs_approval=True)
    def pay(number: int) -> str:
        """Pay."""
        return "paid"

    many = reply(calls=[call("pay", {"number": number}, id=f"c{number}") for number in range(calls)])
    asked = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay."}]}
    with ToolLoopHandle.open(store, f"loop {calls}", ScriptedProvider([many]), params=asked, tools=[pay]) as loop:
        loop.run()

        def decide_each() -> None:
            for number in range(calls):
                loop.decide({f"c{number}": Approve(by="ana")})

        return calls_of(decide_each)


def test_decisions_one_by_one_are_linear_in_the_calls(tmp_path: Path) -> None:
    """A decision writes the rows of all other calls, but makes none of them again."""
    for store in (MemoryStore(), SqliteStore(tmp_path / "loops.db")):
        work_of_deciding(10, store)  # what is imported and prepared once
        few, many = work_of_deciding(20, store), work_of_deciding(60, store)
        assert many < 4 * few


def steps_with(calls: int, *, ask: bool) -> int:
    """The lines of Python that a loop takes in which the model makes so many calls at once."""

    @tool(needs_approval=ask)
    def look(number: int) -> str:
        """Look."""
        return "so"

    many = reply(calls=[("look", {"number": number}) for number in range(calls)])
    asked = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Look."}]}
    limits = LoopConfig(max_parallel_tools=1)
    loop = ToolLoopHandle(ScriptedProvider([many, reply("done")]), params=asked, tools=[look], config=limits)
    with stepping() as stepped:
        assert loop.run(lambda turn: turn.approve_all()).unwrap().text == "done"
    return stepped.steps


@pytest.mark.parametrize("ask", [False, True])
def test_a_call_costs_the_same_however_many_are_beside_it(ask: bool) -> None:
    """Each start and each end does the work of one call; only places and references are copied for the others."""
    few, many = steps_with(20, ask=ask), steps_with(200, ask=ask)
    assert many <= 10 * few


# --- an O(n) copy that is put in is seen ---


Copy = Callable[[dict[str, Any]], AbstractContextManager[Face]]


def seen_by_an_observer(see: Callable[[Any], object]) -> Copy:
    """A loop with an observer that does something with it at the end of each round."""

    @contextmanager
    def make(params: dict[str, Any]) -> Iterator[Face]:
        def hear(event: object) -> None:
            if isinstance(event, CallFinished):
                see(face.loop.state.root)

        with sync(config=config(observers=[hear]), params=params) as face:
            yield face

    return make


class CopyingMaker(RequestMaker):
    """One that copies the history for each request."""

    def make(self, stored: str, messages: Any, *given: Any, **named: Any) -> Request:
        return super().make(stored, list(messages), *given, **named)


@contextmanager
def with_a_copying_maker(params: dict[str, Any]) -> Iterator[Face]:
    with sync(params=params) as face:
        inside.request_maker_of(face.loop).__class__ = CopyingMaker
        yield face


@contextmanager
def with_a_copying_history(params: dict[str, Any]) -> Iterator[Face]:
    """Each longer history is a new list."""

    def longer(self: Chain[Any], more: Any) -> Chain[Any]:
        return Chain([*self._items, *more])

    with pytest.MonkeyPatch.context() as patch, sync(params=params) as face:
        patch.setattr(Chain, "extend", longer)
        patch.setattr(Chain, "append", lambda self, item: longer(self, (item,)))
        yield face


class Joining(Rote):
    """A provider that joins the body of each request, as one that sends it must."""

    def send(self, request: Request) -> Any:
        request.body()
        return super().send(request)


class Listing(Rote):
    """A provider that makes a list of the messages."""

    def send(self, request: Request) -> Any:
        assert list(request.messages)
        return super().send(request)


def walk(ledger: Any) -> int:
    return sum(1 for text in ledger.messages._items if text)


def judge(ledger: Any) -> None:
    refuse_invalid(tuple(ledger.messages), {}, asked="a test")


COPIES: dict[str, tuple[Copy, set[str]]] = {
    "an observer lists the history": (seen_by_an_observer(lambda ledger: list(ledger.messages)), {"items"}),
    "an observer copies a list": (seen_by_an_observer(lambda ledger: ledger.messages._items[:]), {"most_bytes"}),
    "an observer joins all texts": (seen_by_an_observer(lambda ledger: "".join(ledger.messages)), {"most_bytes"}),
    "an observer walks over the history": (seen_by_an_observer(walk), {"steps"}),
    "an observer judges all": (seen_by_an_observer(judge), {"judged", "decoded", "steps", "calls"}),
    "a stop condition reads the history": (
        lambda params: sync(config=config(stop_when=lambda view: not view.messages), params=params),
        {"decoded", "items", "calls"},
    ),
    "a provider joins the body": (lambda params: sync(Joining(), params=params), {"items", "most_bytes"}),
    "a provider lists the messages": (lambda params: sync(Listing(), params=params), {"items", "most_bytes"}),
    "the maker of requests copies": (with_a_copying_maker, {"items", "most_bytes"}),
    "the history itself copies": (with_a_copying_history, {"most_bytes"}),
}


@pytest.mark.parametrize("name", [*some([*COPIES], 4), None])
def test_a_copy_that_is_put_in_is_seen(name: str | None) -> None:
    """So the test before fails for it, and without one does not; each of these loops gives the right answers."""
    make, seen_in = (lambda params: sync(params=params), set[str]()) if name is None else COPIES[name]
    with make(after(1)) as face:
        early = turn_of(face)
    # To copy pointers takes room for no fewer rounds; all else shows earlier.
    with make(after(900 if name is None or "most_bytes" in seen_in else 60)) as face:
        found = grown(early, turn_of(face))
    assert found.keys() >= seen_in
    assert bool(found) is (name is not None)
