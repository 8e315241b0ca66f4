"""Counting work instead of time: what a stretch of a program calls, reads, encodes and copies. Noise moves none of it.

It is not public: it is for the library's own tests, counts inside of its own modules, and may change with them.

Calls alone do not show it all: `list(history)` is one call at any length. So what histories hand out is counted item by
item, and `weighing` tells how many bytes a stretch had in use beyond those that it began with. No garbage is collected
meanwhile, for that comes when it will.

Not seen is what C does by itself with things that are there already: `==` of two long tuples, `in` over a list, `find`
in a long text. At any length that is one call at most and one line; it hands out no item of a chain, and takes no room.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from attrs import define, field

from toolloop._interface.decisions import refuse_invalid
from toolloop.machine.tree import step
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import decode, encode
from toolloop.stores import decode_event

# Where a chain hands out items: from it all is read that has the length of a conversation.
_CHAIN = {getattr(Chain, name).__code__ for name in ("__iter__", "__getitem__", "since")}
_ENCODE, _DECODE, _JUDGE = (function.__code__ for function in (encode, decode, refuse_invalid))
_READ, _FOLD = decode_event.__code__, step.__code__


@define
class Work:
    """What was done in one thread.

    Attributes:
        calls: functions that were entered, of Python and of C.
        steps: lines of Python that were run, again for each time around a loop, if these were counted.
        items: what chains handed out, such as messages of a history.
        most_bytes: in use at once, beyond what was in use at the beginning, if that was asked for.
        encoded: how often each JSON text was made of a value.
        decoded: how often each JSON text was read.
        as_bytes: how often each text was made bytes.
        judged: how often each message was checked against the rules of the API.
        events: how many stored events were read.
        folded: how many events were applied to a state.

    """

    calls: int = 0
    steps: int = 0
    items: int = 0
    most_bytes: int = 0
    encoded: Counter[str] = field(factory=Counter)
    decoded: Counter[str] = field(factory=Counter)
    as_bytes: Counter[str] = field(factory=Counter)
    judged: Counter[str] = field(factory=Counter)
    events: int = 0
    folded: int = 0

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call":
            self.calls += 1
            if code is _DECODE:
                self.decoded[_text(frame.f_locals["text"])] += 1
            elif code is _READ:
                self.events += 1
            elif code is _FOLD:
                self.folded += 1
            elif code is _JUDGE:
                self.judged.update(frame.f_locals["texts"])
        elif event == "c_call":
            self.calls += 1
            if argument.__name__ == "encode" and type(argument.__self__) is str:
                self.as_bytes[argument.__self__] += 1
        elif event == "return":
            if code is _ENCODE and argument is not None:
                self.encoded[argument] += 1
            elif code in _CHAIN:
                self.items += _handed_out(code, frame, argument)

    def _trace(self, _frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any]:
        self.steps += 1  # by lines: single instructions are not told of alike by all versions of Python
        return self._trace


def _text(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode()


def _handed_out(code: CodeType, frame: FrameType, argument: Any) -> int:
    if code.co_name == "__iter__":
        return len(frame.f_locals["self"])
    return len(argument) if isinstance(argument, list) else 1


@contextmanager
def counting() -> Iterator[Work]:
    """Count what this thread does; all but `steps` and `most_bytes`."""
    work, before = Work(), sys.getprofile()
    with _no_garbage():
        sys.setprofile(work._profile)
        try:
            yield work
        finally:
            sys.setprofile(before)


def calls_of(act: Callable[[], object]) -> int:
    """Return how many functions are entered, of Python and of C."""
    with counting() as work:
        act()
    return work.calls


@contextmanager
def stepping() -> Iterator[Work]:
    """Count the `steps` of this thread."""
    work, before = Work(), sys.gettrace()
    with _no_garbage():
        sys.settrace(work._trace)
        try:
            yield work
        finally:
            sys.settrace(before)


@contextmanager
def weighing() -> Iterator[Work]:
    """See how many bytes are in use at most, in all threads: `most_bytes`."""
    work, traces = Work(), tracemalloc.is_tracing()
    with _no_garbage():
        tracemalloc.start()  # once more does nothing
        try:
            tracemalloc.reset_peak()
            start, _ = tracemalloc.get_traced_memory()
            yield work
            work.most_bytes = tracemalloc.get_traced_memory()[1] - start
        finally:
            if not traces:
                tracemalloc.stop()


@contextmanager
def _no_garbage() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
