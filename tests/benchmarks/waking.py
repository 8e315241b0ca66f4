"""Waking a loop: from the entries of its journal to its state. A round is one call, 200 bytes in and 1 KB out."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from tests.benchmarks import scenario
from toolloop.machine import events as ev
from toolloop.machine.jsontext import encode
from toolloop.machine.loop import Ready
from toolloop.machine.replies import read_reply
from toolloop.machine.setup import Limits, Setup, ToolFacts
from toolloop.machine.values import Result
from toolloop.stores.codec import encode_event, read_journal
from toolloop.stores.protocol import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = 15
_START = 1_700_000_000.25


def seconds_to_wake(rounds: int = 1000, *, runs: int = RUNS) -> float:
    """Seconds of CPU from the entries of a journal to the state: the median of some runs."""
    entries = [encode_event(str(at), event) for at, event in enumerate(journal(rounds))]
    return median(_once(entries, rounds) for _ in range(runs))


def _once(entries: list[Entry], rounds: int) -> float:
    start = time.process_time()
    state = read_journal(entries)
    taken = time.process_time() - start
    if not isinstance(state.root.phase, Ready) or state.root.iterations != rounds:
        raise TypeError(f"the loop is {type(state.root.phase).__name__} after {state.root.iterations} rounds")
    return taken


def journal(rounds: int) -> Iterator[ev.Event]:
    """The journal of a loop of that many rounds, with every event that a driver records."""
    params = {"model": scenario.MODEL, "max_tokens": scenario.MAX_TOKENS, "system": scenario.system(rounds)}
    setup = Setup(
        "loop",
        encode(params),
        limits=Limits(max_iterations=None),
        tools=(ToolFacts("look_up", "pure", "never", "d" * 64),),
    )
    yield ev.Opened(setup, (encode({"role": "user", "content": scenario.QUESTION}),), at=_START)
    for turn in range(1, rounds + 1):
        at = _START + turn * 3
        call = f"toolu_{turn:020d}"
        yield ev.Requested(at=at)
        yield ev.Replied(read_reply(_reply(turn, call), request_id=f"req_{turn:020d}"), at=at + 1.5, seconds=1.5)
        yield ev.Started(call, "d" * 64, at=at + 1.5)
        yield ev.Ended(call, Result(encode(_OUT)), took=0.5, iteration=turn, attempt=1, at=at + 2, seconds=0.5)
        yield ev.TurnEnded(at=at + 2)
        yield ev.Continued(at=at + 2.25)


_IN = "The entry of this line, its date and its account, and all that the margin says of it. " * 2
_OUT = "The entry was found in the ledger — its currency is the currency of the account. " * 12


def _reply(turn: int, call: str) -> dict[str, scenario.JSON]:
    use = {"type": "tool_use", "id": call, "name": "look_up", "input": {"line": turn, "words": _IN}}
    return {**scenario.reply(turn, turn + 1), "content": [{"type": "text", "text": f"Entry {turn}."}, use]}
