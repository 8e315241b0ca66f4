"""A long loop that compacts its history: under its ceiling, in time that grows as the rounds do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest
from attrs import define, field

from tests.kit.effort import some
from toolloop import LoopConfig, ToolLoopHandle, Yielded, tool
from toolloop.compaction import DropRounds, MaskResults, Summarize
from toolloop.history import estimate_tokens
from toolloop.machine.values.jsontext import decode
from toolloop.providers.protocol import Request
from toolloop.testing import call, reply

CEILING = 12_000
A_ROUND = 400  # tokens, and a few more


@tool(effect="pure")
def page(number: int) -> str:
    """Read a page."""
    return f"Page {number}. " + "It was a dark and stormy night. " * 40


@define
class Reader:
    """A model that reads for ever. It looks at nothing, so that only the loop works."""

    sizes: list[int] = field(factory=list)
    measures: bool = False
    number: int = 0

    def send(self, request: Request) -> Any:
        if self.measures:
            body = decode(request.body().decode())
            self.sizes.append(estimate_tokens(body["messages"], tools=body["tools"]))
        self.number += 1
        made = reply(calls=[call("page", {"number": self.number}, id=f"page-{self.number}")])
        return {**made, "role": "assistant", "type": "message", "usage": {"input_tokens": 1, "output_tokens": 1}}


@define
class Work:
    """How often each function was entered."""

    _entered: Counter[CodeType] = field(factory=Counter)

    @contextmanager
    def counting(self) -> Iterator[None]:
        entered, before = self._entered, sys.getprofile()

        def count(frame: FrameType, event: str, _argument: Any) -> None:
            if event == "call":
                entered[frame.f_code] += 1

        sys.setprofile(count)
        try:
            yield
        finally:
            sys.setprofile(before)

    @property
    def entered(self) -> Counter[str]:
        """The functions of the library."""
        own = ((code, times) for code, times in self._entered.items() if "/toolloop/" in code.co_filename)
        return Counter({f"{code.co_filename.rpartition('/')[2]} {code.co_qualname}": times for code, times in own})


def loop(compaction: Any, provider: Any) -> ToolLoopHandle:
    params: dict[str, Any] = {"model": "claude-opus-4-8", "max_tokens": 256}
    return ToolLoopHandle(
        provider,
        params={**params, "messages": [{"role": "user", "content": "Read the book."}]},
        tools=[page],
        config=LoopConfig(compaction=compaction, max_iterations=None),
        loop_id="long",
    )


def drive(handle: ToolLoopHandle, rounds: int) -> None:
    for _ in range(rounds):
        turn = handle.next_turn()
        assert isinstance(turn, Yielded), turn
        turn.continue_loop()


def write(messages: list[Any]) -> str:
    """A summary."""
    return f"There were {len(messages)} messages."


CEILINGS: dict[str, Callable[[], Any]] = {
    "drop": lambda: DropRounds(8, at_tokens=CEILING),
    "summarize": lambda: Summarize(write, keep_last=8, at_tokens=CEILING),
    "mask, summarize": lambda: [MaskResults(keep_rounds=4, min_tokens=100), Summarize(write, at_tokens=CEILING)],
}
LATER: dict[str, Callable[[], Any]] = {
    "mask": lambda: MaskResults(keep_rounds=4, min_tokens=100),
    "nothing to mask": lambda: MaskResults(min_tokens=10_000, at_tokens=1),
    "a summary that fails": lambda: Summarize(lambda _messages: "", keep_last=1, at_tokens=1),
}


def thrice_sixty_rounds(name: str, provider: Reader) -> list[Counter[str]]:
    """What each sixty rounds took."""
    handle = loop((CEILINGS | LATER)[name](), provider)
    works = [Work(), Work(), Work()]
    for work in works:
        with work.counting():
            drive(handle, 60)
    return [work.entered for work in works]


@pytest.mark.parametrize("name", CEILINGS)
def test_under_a_ceiling(name: str) -> None:
    """No request of 90 rounds has more than the threshold and what one round adds."""
    provider = Reader(measures=True)
    drive(loop(CEILINGS[name](), provider), 90)
    assert len(provider.sizes) == 90
    assert max(provider.sizes) <= CEILING + A_ROUND


@pytest.mark.parametrize(
    "name", some(["mask, summarize", "a summary that fails", "drop", "mask", "nothing to mask"], 5)
)
def test_the_work_grows_as_the_rounds_do(name: str) -> None:
    """The third sixty rounds cost no more than the second, but a little for what comes at longer distances."""
    _, second, third = thrice_sixty_rounds(name, Reader())
    assert third.total() <= 1.25 * second.total(), (third - second).most_common(8)
    assert third["outline.py outline"] <= 1.25 * second["outline.py outline"] <= 480
