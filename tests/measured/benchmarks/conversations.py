"""CPU and instructions per turn of toolloop, of bare loops and of the peers, over HTTP on loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from attrs import frozen

from tests.measured.benchmarks.measure import cpu_per_turn, instructions_per_turn
from tests.measured.benchmarks.plots import lines
from tests.measured.benchmarks.report import Figure, spread, table

OWN, POST, PEER = "toolloop_handle", "client_post", "langgraph_agent"
LONG = 400

# By the name of its module in `contestants`.
LABELS = {
    POST: "loop over the SDK client's post",
    OWN: "toolloop",
    "toolloop_async": "toolloop, async handle",
    "toolloop_threads": "toolloop with threads",
    "sdk_runner_threads": "SDK runner with threads",
    "sdk_runner": "SDK runner without threads",
    "pydantic_agent": "pydantic-ai",
    PEER: "LangGraph",
}
_IN_PEERS = ("pydantic_agent", PEER)
_DRAWN = (OWN, "sdk_runner", "pydantic_agent", "sdk_runner_threads", PEER)
_COUNTED = (POST, OWN, "toolloop_async")
_THREADED = "toolloop_threads"

Runs = Mapping[str, Sequence[Mapping[int, float]]]


@frozen
class Turns:
    """What was measured.

    Attributes:
        cpu: seconds of CPU per turn, by contestant: of each run, by the length of the conversation.
        instructions: per turn, by contestant; empty where callgrind is not installed.
        growth: with threads: instructions per turn at 400 turns over those at 20; None if they were not counted.

    """

    cpu: Runs
    instructions: Mapping[str, float]
    growth: float | None = None

    def ratio(self, name: str, of: str, turns: int) -> float | None:
        """Return how many times the CPU time of another contestant one takes: the median over runs.

        Each run is divided by the other's of the same round, which a slow minute of the machine slowed down as well.
        """
        pairs = zip(self.cpu.get(name, ()), self.cpu.get(of, ()), strict=False)
        ratios = [one[turns] / other[turns] for one, other in pairs if turns in one and turns in other]
        return median(ratios) if ratios else None

    def figures(self) -> Iterator[Figure]:
        """Return the targets."""
        for name, label, bound in ((OWN, "", 1.9), ("toolloop_async", ", async handle", 2.3)):
            counted = self.instructions
            ratio = counted[name] / counted[POST] if counted else None
            yield Figure(f"instructions per turn{label}, over a loop over the SDK client's post", ratio, bound, "x")
        for name, bound in (("sdk_runner", 1), (PEER, 60), ("sdk_runner_threads", 1)):
            what = f"CPU per turn of {LABELS[name]} over that of toolloop, at {LONG} turns"
            yield Figure(what, self.ratio(name, OWN, LONG), bound, "x", at_least=True)
        what = f"growth: instructions per turn of {LABELS[_THREADED]} at {LONG} turns over those at 20"
        yield Figure(what, self.growth, 1.05, "x")
        growth = [run[LONG] / run[100] for run in self.cpu[OWN] if {100, LONG} <= run.keys()]
        what = f"growth: CPU per turn at {LONG} turns over that at 100"
        yield Figure(what, median(growth) if growth else None, 1.3, "x")

    def tables(self) -> Iterator[str]:
        """Return the tables of CPU time and of instructions."""
        lengths = list(self.cpu[OWN][0])
        rows = [(label, *self._cells(name, lengths)) for name, label in LABELS.items()]
        heads = [f"ms at {turns}" for turns in lengths]
        note = (
            "Milliseconds of CPU per turn of a conversation of so many turns, over HTTP on loopback and without a "
            "store, with a server in another process: one call of one tool a turn, about 1.1 KB more of history each "
            "time. The median over runs that take turns, with the least and the most. All but those with threads send "
            "the full history each turn; they leave it to the API."
        )
        yield table("CPU per turn", ("", *heads), rows, note)
        if self.instructions:
            counted = [
                (LABELS[name], f"{each / 1e6:,.3f}", f"{each / self.instructions[POST]:.2f}")
                for name, each in self.instructions.items()
            ]
            note = "Counted by callgrind. Other work on the machine hardly changes these figures."
            yield table("Instructions per turn", ("", "millions", "x post"), counted, note)

    def _cells(self, name: str, lengths: Sequence[int]) -> Iterator[str]:
        for turns in lengths:
            yield spread([run[turns] * 1e3 for run in self.cpu.get(name, ()) if turns in run])

    def plot(self) -> str:
        """Return the curves of CPU time."""
        lengths = list(self.cpu[OWN][0])
        curves = {}
        for name in _DRAWN:
            found = {turns: [run[turns] * 1e3 for run in self.cpu.get(name, ()) if turns in run] for turns in lengths}
            curves[LABELS[name]] = [(float(turns), median(values)) for turns, values in found.items() if values]
        return lines("CPU per turn", "milliseconds", curves)


def measure(
    url: str,
    peers: Path | None,
    *,
    lengths: Sequence[int],
    runs: int,
    seconds: float,
    counts: bool,
    late: Callable[[], bool] = lambda: False,
) -> Turns:
    """Measure every contestant, run by run.

    Args:
        url: the server's.
        peers: the interpreter of their environment; None leaves them out.
        lengths: of the conversations, in turns.
        runs: of each contestant.
        seconds: of CPU, for which a conversation is repeated in a run.
        counts: whether instructions are counted, too.
        late: whether further runs are to be left out, because the time is over.

    """
    cpu: dict[str, list[dict[int, float]]] = {}
    for run in range(runs):
        for name, label in LABELS.items():
            is_peer = name in _IN_PEERS
            # A minute for the long conversation of one peer: once is enough, and of one of them.
            asked = lengths[:-1] if is_peer and name != PEER and len(lengths) > 1 else lengths
            python = peers if is_peer else Path(sys.executable)
            if python is None or (is_peer and run) or (run and late()):
                continue
            sys.stderr.write(f"CPU per turn: {label}\n")
            try:
                found = cpu_per_turn(name, url, asked, python=python, seconds=seconds)
            except subprocess.SubprocessError:  # it failed, or took too long
                if not is_peer:
                    raise
                continue  # its row stays empty
            cpu.setdefault(name, []).append(found)
    if not counts or shutil.which("valgrind") is None:
        return Turns(cpu, {})
    spans = [*((name, 20, 60) for name in _COUNTED), (_THREADED, LONG - 20, LONG), (_THREADED, 20, 40)]
    try:
        with ThreadPoolExecutor(2) as pool:  # other work does not change what callgrind counts
            *counted, at_end, at_start = pool.map(lambda span: instructions_per_turn(span[0], url, *span[1:]), spans)
    except subprocess.TimeoutExpired:  # the machine is too busy; the other figures count
        sys.stderr.write("callgrind took too long\n")
        return Turns(cpu, {})
    return Turns(cpu, dict(zip(_COUNTED, counted, strict=True)), at_end / at_start)
