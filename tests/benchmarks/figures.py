"""All that one run of the benchmark measured; what it printed is made of this and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from attrs import frozen

# Seconds of CPU per turn: by contestant, then by the length of the conversation.
PerTurn = Mapping[str, Mapping[int, float]]


@frozen
class Counted:
    """Instructions.

    Attributes:
        by: the program that counted them.
        turns: per turn, by contestant.
        again: toolloop's turn, counted a second time.
        machine: of the pure machine for one turn, by the round it is at.
        imports: by statement.

    """

    by: str
    turns: Mapping[str, float]
    again: float
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
        handed: bytes handed to the store per turn of `run()`, by the round.
        written: bytes that the process wrote per turn of `run()`, by the round; empty where the system does not say.
        by_hand: the same of turns by hand.
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
    by_hand: Mapping[int, float]
    waking: float
    commits: float


@frozen
class Checkpoints:
    """The same conversation as LangGraph's SQLite checkpointer keeps it; the words are those of `Kept`.

    Attributes:
        cpu: seconds per turn, of as many turns as `Figures.stores` are of.

    """

    file: int
    written: Mapping[int, float]
    waking: float
    cpu: float


@frozen
class Figures:
    """Everything.

    Attributes:
        samples: seconds of CPU per turn of each contestant's runs: by its name, and by the length of the conversation.
        is_short: whether these runs are too few and too short to say which of two is quicker, and by how much.
        left_out: why a contestant was not measured, by its name.
        counted: instructions; or why there are none.
        machine: seconds of CPU of the pure machine for one turn, by the round it is at.
        imports: seconds that a statement adds to the start of an interpreter.
        kept: the journal of a long loop.
        stores: seconds of CPU per turn over a provider without HTTP, by the store.
        store_turns: so many turns from the first one on, these are of.
        repeats: so many runs of them, and of the machine.
        starts: so many starts of an interpreter, for each import.
        checkpoints: the peer's journal, by the kind of its channels; or why it was not measured.
        folding: seconds of CPU from the texts of a journal to its state, as many rounds as `kept`.
        listing: seconds to list the loops that wait for a human.
        listed: how many these are.
        made_on: the machine and the versions of everything.
        day: when.

    """

    samples: Mapping[str, Sequence[Mapping[int, float]]]
    is_short: bool
    left_out: Mapping[str, str]
    counted: Counted | str
    machine: Mapping[int, float]
    imports: Mapping[str, float]
    kept: Kept
    stores: Mapping[str, float]
    store_turns: int
    repeats: int
    starts: int
    checkpoints: Mapping[str, Checkpoints | str]
    folding: float
    listing: float
    listed: int
    made_on: tuple[str, ...]
    day: str

    @property
    def cpu(self) -> PerTurn:
        """Seconds of CPU per turn: medians of the runs."""
        return {
            name: {turns: median(each[turns] for each in runs) for turns in runs[0]}
            for name, runs in self.samples.items()
        }

    def ratio(self, name: str, of: str, turns: int) -> float | None:
        """How many times the CPU time of another contestant one takes; None where it was not measured.

        Each run is divided by the other's of the same round, which a slow minute of the machine hit as well. The median
        of these counts.
        """
        pairs = zip(self.samples.get(name, ()), self.samples.get(of, ()), strict=False)  # some have fewer runs
        ratios = [one[turns] / other[turns] for one, other in pairs if turns in one and turns in other]
        return median(ratios) if ratios else None

    def growth(self, name: str, long: int, short: int) -> float | None:
        """How many times the CPU time of a turn is that of a shorter conversation's: likewise run by run."""
        ratios = [run[long] / run[short] for run in self.samples[name] if {long, short} <= run.keys()]
        return median(ratios) if ratios else None
