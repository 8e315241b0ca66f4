"""What the counters of work count."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from tests.speed.work import counting, stepping, weighing
from toolloop.errors import InvalidHistory
from toolloop.face.decisions import refuse_invalid
from toolloop.machine.chain import Chain
from toolloop.machine.jsontext import decode, encode

MESSAGE = '{"role":"user","content":"—"}'


def test_what_is_read_and_written_is_counted_by_its_text() -> None:
    """JSON that is written and read, texts that become bytes, messages that are judged."""
    with counting() as work:
        value = decode(MESSAGE)
        decode(MESSAGE.encode())
        encode(value)
        with pytest.raises(InvalidHistory):
            refuse_invalid((MESSAGE, "{}"), {}, asked="a test")
        with pytest.raises(TypeError):
            encode(object())
    assert work.decoded == {MESSAGE: 3, "{}": 1}
    assert work.encoded[MESSAGE] == 1
    assert work.as_bytes[MESSAGE] == 2  # the writer looks whether it can become bytes
    assert work.judged == {MESSAGE: 1, "{}": 1}
    assert work.calls > 10


def test_what_a_history_hands_out_is_counted_by_item() -> None:
    """However it is asked; what it keeps to itself is not."""
    chain = Chain(range(100))
    with counting() as work:
        list(chain)
        chain[10:30]
        chain[0]
        chain.append(1).since(chain)
    assert work.items == 100 + 20 + 1 + 1


def test_a_loop_takes_steps_and_a_copy_takes_bytes() -> None:
    """Neither is a call; and what is let go again counts too."""
    many = list(range(10_000))

    def walk(items: list[int]) -> None:
        for _ in items:
            pass

    with stepping() as few:
        walk(many[:10])
    with stepping() as lot:
        walk(many)
    assert few.steps < 200
    assert lot.steps > 10_000
    with weighing() as none:
        walk(many)
    with weighing() as copied:
        many.copy()
    assert none.most_bytes < 1_000
    assert copied.most_bytes >= 80_000


@pytest.mark.parametrize("count", [counting, stepping, weighing])
def test_afterwards_all_is_as_it_was(count: object) -> None:
    """Whatever was raised."""
    before = sys.getprofile(), sys.gettrace(), gc.isenabled(), tracemalloc.is_tracing()
    with pytest.raises(ZeroDivisionError), count():  # type: ignore[operator]  # one of the three
        1 / 0  # noqa: B018 - it is to fail
    assert (sys.getprofile(), sys.gettrace(), gc.isenabled(), tracemalloc.is_tracing()) == before
