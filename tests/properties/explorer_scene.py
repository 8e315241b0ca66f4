"""What the explorer explores: scenes, and drivers of which a part is missing."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from toolloop.machine import Event, Reply, Ruling, State


class Broken(AssertionError):
    """A promise is broken, by a step."""

    def __init__(self, why: str, label: str = "") -> None:
        super().__init__(why)
        self.why, self.label = why, label


@frozen
class Scene:
    """What is to happen.

    Attributes:
        start: the events of the journal to begin with.
        goal: the state that ends it.
        asks: the calls that a policy asks about.
        words: what the person at each driver says to a call that waits; to an uncertain one under `"?" + its id`.
        replies: what the model answers, by iteration.
        crashes, slow: how many of these may happen.
        patient: whether a driver tries again where another one has the lease, or leaves the loop to that one.

    """

    start: tuple[Event, ...]
    goal: type[State]
    asks: frozenset[str] = frozenset()
    words: tuple[Mapping[str, Ruling], Mapping[str, Ruling]] = ({}, {})
    replies: Mapping[int, Reply] = field(factory=dict)
    crashes: int = 1
    slow: int = 1
    patient: bool = True


@frozen
class Protocol:
    """What of the drivers' protocol is in place.

    Attributes:
        writes_ahead: a start is stored before its tool runs.
        merges: an end that comes when the lease is lost is stored all the same.
        minds: a driver that reads that another one woke the loop knows that its own lease is lost, and that a start
            which it reads is not its own.

    """

    writes_ahead: bool = True
    merges: bool = True
    minds: bool = True
