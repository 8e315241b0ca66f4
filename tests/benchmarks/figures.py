"""All that one run of the benchmark measured; what it printed is made of this and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

# Seconds of CPU per turn: by contestant, then by the length of the conversation.
PerTurn = Mapping[str, Mapping[int, float]]


@frozen
class Counted:
    """Instructions.

    Attributes:
        by: the program that counted them.
        turns: per turn, by contestant.
        machine: of the pure machine for one turn, by the round it is at.
        imports: by statement.

    """

    by: str
    turns: Mapping[str, float]
    machine: Mapping[int, float]
    imports: Mapping[str, float]


@frozen
class Kept:
    """A conversation as toolloop keeps it in an SQLite file.

    Attributes:
        rounds: how many.
        raw: bytes of its messages as JSON.
        events: of its journal.
        file: bytes of the file and its log, after a checkpoint.
        bodies: bytes of its events' texts.
        names: bytes of its events' names.
        handed: bytes handed to the store per turn, by the round.
        written: bytes that the process wrote per turn, by the round; empty where the system does not say.
        waking: seconds of CPU from the file to a handle that is ready.
        commits: transactions that wrote, per turn.

    """

    rounds: int
    raw: int
    events: int
    file: int
    bodies: int
    names: int
    handed: Mapping[int, float]
    written: Mapping[int, float]
    waking: float
    commits: float


@frozen
class Checkpoints:
    """The same conversation as LangGraph's SQLite checkpointer keeps it; the words are those of `Kept`."""

    file: int
    written: Mapping[int, float]
    waking: float
    cpu: float


@frozen
class Figures:
    """Everything.

    Attributes:
        cpu: seconds of CPU per turn.
        left_out: why a contestant was not measured, by its name.
        counted: instructions; or why there are none.
        machine: seconds of CPU of the pure machine for one turn, by the round it is at.
        imports: seconds that a statement adds to the start of an interpreter.
        kept: the journal of a long loop.
        stores: seconds of CPU per turn over a provider without HTTP, by the store.
        checkpoints: the peer's journal, by the kind of its channels; or why it was not measured.
        folding: seconds of CPU from the texts of a journal to its state, as many rounds as `kept`.
        listing: seconds to list the loops that wait for a human.
        listed: how many these are.
        made_on: the machine and the versions of everything.
        day: when.

    """

    cpu: PerTurn
    left_out: Mapping[str, str]
    counted: Counted | str
    machine: Mapping[int, float]
    imports: Mapping[str, float]
    kept: Kept
    stores: Mapping[str, float]
    checkpoints: Mapping[str, Checkpoints | str]
    folding: float
    listing: float
    listed: int
    made_on: tuple[str, ...]
    day: str
