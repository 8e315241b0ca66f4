"""Memory grows with the conversation, and with nothing else."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from tests.speed.loops import FACES, Face

ROUNDS = {"sync": (100, 200, 400), "runner": (50, 100, 200)}
# Of each byte of the conversation there is a text, which takes two bytes a letter where one of them is no ASCII, and
# the byte that goes out. Beside them each round has its line of the usage log, its objects and its places in lists.
FOR_A_BYTE = 3.5
FOR_A_ROUND = 2000


def kept(face: Face) -> tuple[int, int]:
    """How many bytes are in use, and how many the messages have on the wire."""
    gc.collect()
    in_use, _ = tracemalloc.get_traced_memory()
    return in_use, sum(len(text.encode()) for text in face.loop.state.root.messages)


def looks(name: str) -> list[tuple[int, int]]:
    """What is kept at three places of a conversation."""
    with FACES[name]() as face:
        face.go_to(10)
        tracemalloc.start()
        try:
            found: list[Any] = []
            for rounds in ROUNDS[name]:
                face.go_to(rounds)
                found.append(kept(face))
        finally:
            tracemalloc.stop()
    return found


def grows_evenly(name: str) -> bool:
    """From the second look to the third by twice as much as from the first to the second, or little more."""
    (first, said), (second, more), (third, most) = looks(name)
    rounds = ROUNDS[name][2] - ROUNDS[name][1]
    is_even = (third - second) / (second - first) < 1.4 * (most - more) / (more - said)
    return is_even and third - second < FOR_A_BYTE * (most - more) + FOR_A_ROUND * rounds


@pytest.mark.parametrize("name", ROUNDS)
def test_what_is_kept_grows_as_the_conversation_does(name: str) -> None:
    """What grows with the square of the conversation would be at four times as much, each time.

    Somebody else in this process, a module that is imported or a thread of another test, takes its memory once.
    """
    assert any(grows_evenly(name) for _ in range(3))
