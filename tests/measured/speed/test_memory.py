"""Memory grows with the conversation, and with nothing else."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from tests.measured.speed.loops import FACES, Face

LATE = {"sync": 150, "runner": 75}
# Of each byte of the conversation there is a text, which takes two bytes a letter where one of them is no ASCII, and
# the byte that goes out. Beside them each round has its line of the usage log, its objects and its places in lists.
FOR_A_BYTE = 3.5
FOR_A_ROUND = 2000


def kept(face: Face) -> tuple[int, int]:
    """How many bytes are in use, and how many the messages have on the wire."""
    gc.collect()
    in_use, _ = tracemalloc.get_traced_memory()
    return in_use, sum(len(text.encode()) for text in face.loop.state.root.messages)


def is_linear(name: str) -> bool:
    """Whether the last rounds of a conversation keep what is theirs, and no more."""
    with FACES[name]() as face:
        face.go_to(10)
        tracemalloc.start()
        try:
            face.go_to(LATE[name])
            before, said = kept(face)
            face.go_to(2 * LATE[name])
            after, more = kept(face)
        finally:
            tracemalloc.stop()
    return after - before < FOR_A_BYTE * (more - said) + FOR_A_ROUND * LATE[name]


@pytest.mark.parametrize("name", ["sync", pytest.param("runner", marks=pytest.mark.deep)])
def test_what_is_kept_grows_as_the_conversation_does(name: str) -> None:
    """A list of the history for each round, of pointers alone, would be more than that.

    A module that is imported meanwhile, or a thread of another test, takes its memory once.
    """
    assert any(is_linear(name) for _ in range(3))
