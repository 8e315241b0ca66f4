"""Whether a turn does more the longer the conversation is."""

from __future__ import annotations

from tests.measured.speed.loops import Face
from tests.measured.speed.work import counting, stepping, weighing

EARLY = 10
_LOOKS = 3  # at each round, and the least counts: a list that grows takes room for later items now and then
# Allowed variation: a number that gets another digit, a lock that was free. A copy of pointers alone takes 8 bytes for
# each message, and each round has two.
_SLACK = 1.003
_BYTES = 6_000


def turn_of(face: Face) -> dict[str, int]:
    """What one round takes."""
    found: list[dict[str, int]] = []
    for _ in range(_LOOKS):
        with counting() as counted:
            face.turn()
        with stepping() as stepped:
            face.turn()
        with weighing() as weighed:
            face.turn()
        found.append(
            {
                "calls": counted.calls,
                "items": counted.items,
                "decoded": counted.decoded.total(),
                "encoded": counted.encoded.total(),
                "as_bytes": counted.as_bytes.total(),
                "judged": counted.judged.total(),
                "steps": stepped.steps,
                "most_bytes": weighed.most_bytes,
            }
        )
    return {name: min(each[name] for each in found) for name in found[0]}


def growth(face: Face, rounds: int) -> dict[str, tuple[int, int]]:
    """What a round takes more of after so many rounds than at an early one: by name, how much then and now."""
    face.go_to(EARLY)
    early = turn_of(face)
    face.go_to(rounds)
    return grown(early, turn_of(face))


def grown(early: dict[str, int], late: dict[str, int]) -> dict[str, tuple[int, int]]:
    """What one round takes more of than another did."""
    most = {name: amount * _SLACK for name, amount in early.items()}
    most["most_bytes"] = early["most_bytes"] + _BYTES
    return {name: (early[name], late[name]) for name in early if late[name] > most[name]}
