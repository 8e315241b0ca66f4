"""What people notice, toolloop beside the peers: each library in a process of its own, and all take turns."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

from attrs import define, field, frozen

from tests.measured.benchmarks.measure import ROOT, environment
from tests.measured.benchmarks.plots import bars, lines
from tests.measured.benchmarks.report import MISSING, Figure, spread, table

OWN = "with_toolloop"
# By the name of its module in `libraries`.
LIBRARIES = {
    OWN: "toolloop",
    "with_sdk": "SDK runner",
    "with_pydantic_ai": "pydantic-ai",
    "with_openai_agents": "openai-agents",
    "with_langgraph": "LangGraph",
    "with_langgraph_delta": "LangGraph, delta channels",
}
_CONFIRMED = 12  # turns in which commits are counted
_OF_PROJECT = (OWN, "with_sdk")
_PATIENCE = 90.0  # seconds; the longest measurement takes a quarter of that on an idle machine

Answer = dict[str, float] | str  # figures, or the reason why there are none
Plot = tuple[str, str]  # the name of a picture, and its SVG


@frozen
class Extent:
    """How much is measured.

    Attributes:
        rounds: how often each library takes its turn.
        crowds: conversations at once, turns of each, and seconds that the model takes.
        lengths: of conversations that wait for a decision, in turns.
        batches: turns with parallel tools in a round.

    """

    rounds: int
    crowds: tuple[tuple[int, int, float], ...]
    lengths: tuple[int, ...]
    batches: int


WHOLE = Extent(2, ((50, 10, 0.2), (500, 3, 2.0)), (10, 100, 1000), 10)
QUICK = Extent(1, ((10, 3, 0.1),), (5, 20), 2)


@define
class Seat:
    """A process of a library that stands ready, or the reason why there is none.

    Attributes:
        process: killed when it does not answer in time.
        reason: why there are no answers any more.
        patience: seconds for one answer.

    """

    process: subprocess.Popen[str] | None
    reason: str = ""
    patience: float = _PATIENCE

    def ask(self, what: str, *numbers: Any) -> Answer:
        """Return the answer to a measurement. A process that failed is left out from then on."""
        if self.process is None:
            return self.reason
        with suppress(BrokenPipeError):  # then there is no answer
            print(json.dumps([what, *numbers]), file=self.process.stdin, flush=True)
        answer: Answer = self._read()
        return answer

    def wait(self) -> None:
        """Wait until it stands ready."""
        if self.process is not None:
            self._read()

    def _read(self) -> Any:
        assert self.process is not None
        assert self.process.stdout is not None
        late = Timer(self.patience, self._give_up, [self.process])
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        if not line:
            self.process, self.reason = None, self.reason or "failed"
            return self.reason
        return json.loads(line)

    def _give_up(self, process: subprocess.Popen[str]) -> None:
        self.reason = f"no answer in {self.patience:g} s"
        process.kill()


@contextmanager
def seated(peers: Path | None, folder: Path) -> Iterator[dict[str, Seat]]:
    """Start a process for each library; all stand ready."""
    with ExitStack() as stack:
        seats: dict[str, Seat] = {}
        for name in LIBRARIES:
            python = Path(sys.executable) if name in _OF_PROJECT else peers
            if python is None:
                seats[name] = Seat(None, "not installed")
                continue
            place = folder / name
            place.mkdir(exist_ok=True)
            command = [str(python), "-W", "ignore", "-m", "tests.measured.benchmarks.seat", name, str(place)]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            process = subprocess.Popen(command, env=environment(), cwd=ROOT, **pipes)
            stack.enter_context(process)
            stack.callback(process.kill)
            seats[name] = Seat(process)
        for seat in seats.values():
            seat.wait()
        yield seats


@frozen
class Compared:
    """The answers to each measurement, by its name and numbers, and by library: one a round."""

    extent: Extent
    answers: Mapping[tuple[Any, ...], Mapping[str, Sequence[Answer]]] = field(factory=dict)

    def values(self, key: tuple[Any, ...], name: str, figure: str) -> list[float]:
        """Return a figure of a library, of each round that has it."""
        return [each[figure] for each in self.answers.get(key, {}).get(name, ()) if not isinstance(each, str)]

    def best(self, key: tuple[Any, ...], name: str, figure: str) -> float | None:
        """Return the median over the rounds."""
        values = self.values(key, name, figure)
        return median(values) if values else None

    def figures(self) -> Iterator[Figure]:
        """Yield the figures of toolloop that have a target."""
        of = "conversations in one process on SQLite, a model of 200 ms: p99 of what the loop adds"
        yield Figure(f"50 {of}", self.best(("many", 50, 10, 0.2), OWN, "p99"), 20, "ms")

    def sections(self) -> Iterator[tuple[str, list[Plot]]]:
        """Yield the sections of the page, with their pictures."""
        yield self._clicks()
        yield self._crowds()
        yield self._parallel()
        yield self._bytes()
        yield self._slower(), []

    def _slower(self) -> str:
        """Return the measurements in which another library needs less."""
        named = {
            "click": ("ms", "to the tool after {:,} rounds"),
            "many": ("p99", "{} conversations at once, p99"),
            "parallel": ("ms", "20 parallel tools"),
            "confirm": ("writes", "confirmed writes a turn"),
            "hold": ("bytes", "bytes after {:,} rounds"),
        }
        rows = []
        for key in self.answers:
            figure, words = named[key[0]]
            own = self.best(key, OWN, figure)
            others = {label: self.best(key, name, figure) for name, label in LIBRARIES.items() if name != OWN}
            less = {label: own / value for label, value in others.items() if own and value and value < own}
            cell = ", ".join(
                f"{label} ({ratio:.3g} x)" for label, ratio in sorted(less.items(), key=lambda each: -each[1])
            )
            rows.append((words.format(key[1]), cell or "no other"))
        note = "The libraries that need less than toolloop, and how many times as much toolloop needs."
        return table("Where toolloop needs more", ("", "needs less"), rows, note)

    def _rows(self, columns: Sequence[tuple[tuple[Any, ...], str, float]]) -> Iterator[list[str]]:
        for name, label in LIBRARIES.items():
            yield [label, *(self._cell(key, name, figure, unit) for key, figure, unit in columns)]

    def _cell(self, key: tuple[Any, ...], name: str, figure: str, unit: float) -> str:
        values = [each / unit for each in self.values(key, name, figure)]
        if not values:
            return next((str(each) for each in self.answers.get(key, {}).get(name, ())), MISSING)
        return spread(values)

    def _curve(self, what: str, figure: str, unit: float) -> dict[str, list[tuple[float, float]]]:
        curves: dict[str, list[tuple[float, float]]] = {}
        for name, label in LIBRARIES.items():
            found = [(turns, self.best((what, turns), name, figure)) for turns in self.extent.lengths]
            if points := [(float(turns), value / unit) for turns, value in found if value is not None]:
                curves[label] = points
        return curves

    def _clicks(self) -> tuple[str, list[Plot]]:
        columns = [(("click", turns), "ms", 1.0) for turns in self.extent.lengths]
        heads = ("", *(f"ms after {turns:,} rounds" for turns in self.extent.lengths))
        note = (
            "A process stands ready, and does not know the conversation. A person approves the call that waits in it: "
            "the time until the tool starts. By the wall clock. It reads the conversation from an SQLite file, stores "
            "the decision where the library has a place for it, and starts the tool."
        )
        plot = lines("From the click to the tool", "milliseconds", self._curve("click", "ms", 1))
        return table("From the click to the tool", heads, self._rows(columns), note), [("click", plot)]

    def _crowds(self) -> tuple[str, list[Plot]]:
        columns: list[tuple[tuple[Any, ...], str, float]] = []
        heads, plots = [""], []
        for crowd in self.extent.crowds:
            count, _turns, seconds = crowd
            key = ("many", *crowd)
            columns += [(key, "p50", 1.0), (key, "p99", 1.0), (key, "cpu", 1.0)]
            heads += [f"{count} at once, a model of {seconds:g} s: p50, ms", "p99, ms", "CPU a turn, ms"]
            found = {label: self.best(key, name, "p99") for name, label in LIBRARIES.items()}
            plots.append((f"crowd-{count}", bars(f"{count} conversations at once: p99", "milliseconds", found)))
        key = ("many", *self.extent.crowds[-1])
        columns.append((key, "memory", 1e3))
        heads.append(f"memory for each of {key[1]}, KB")
        columns.append((("confirm", _CONFIRMED), "writes", 1.0))
        heads.append("confirmed writes a turn")
        found = {label: self.best(key, name, "memory") for name, label in LIBRARIES.items()}
        kilobytes = {label: value and value / 1e3 for label, value in found.items()}
        plots.append(("memory", bars("Memory for each conversation", "kilobytes", kilobytes)))
        note = (
            "All conversations run in one asyncio process. What is measured is the time from the end of a reply to the "
            "next request: the tool, what the library does, what it stores, and the wait for the other conversations. "
            "If the CPU of a turn, times the conversations, is more than the time of the model, they wait for the "
            "processor. A confirmed write is a commit of SQLite that waits for the disk (`synchronous = FULL`, and a "
            "journal on the disk). LangGraph stores before the next step, and openai-agents in its session. "
            "pydantic-ai has no store; the program writes the messages into a row. The SDK runner stores nothing."
        )
        return table("Many conversations at once", heads, self._rows(columns), note), plots

    def _parallel(self) -> tuple[str, list[Plot]]:
        key = ("parallel", self.extent.batches)
        note = "From the end of the reply to the next request, without a store. The least is 10 ms."
        heads = ("", "ms")
        return table("20 tools of 10 ms in one reply", heads, self._rows([(key, "ms", 1.0)]), note), []

    def _bytes(self) -> tuple[str, list[Plot]]:
        columns = [(("hold", turns), "bytes", 1e6) for turns in self.extent.lengths]
        heads = ("", *(f"MB after {turns:,} rounds" for turns in self.extent.lengths))
        note = (
            "The SQLite file of one conversation: one call a round, 200 bytes in and 1 KB out. What took more than "
            "15 seconds to store is left out."
        )
        plot = lines("The file of a conversation", "megabytes", self._curve("hold", "bytes", 1e6))
        return table("Bytes stored", heads, self._rows(columns), note), [("bytes", plot)]


def measure(folder: Path, peers: Path | None, extent: Extent, late: Callable[[], bool] = lambda: False) -> Compared:
    """Measure all libraries, which take turns.

    Args:
        folder: an empty one.
        peers: the interpreter of their environment; None leaves them out.
        extent: how much.
        late: whether further rounds are to be left out, because the time is over.

    """
    answers: dict[tuple[Any, ...], dict[str, list[Answer]]] = {}
    with seated(peers, folder) as driving, seated(peers, folder) as deciding:

        def turn(seats: Mapping[str, Seat], key: tuple[Any, ...], *given: Callable[[str], Any]) -> None:
            for name, seat in seats.items():
                sys.stderr.write(f"{' '.join(map(str, key))}: {LIBRARIES[name]}\n")
                asked = (key[0], *(each(name) for each in given), *key[1:])
                answers.setdefault(key, {}).setdefault(name, []).append(seat.ask(*asked))

        for round_ in range(extent.rounds):
            if round_ and late():
                break
            for crowd in extent.crowds:
                if not round_ or crowd[-1] < 1:  # the long ones once more at most
                    turn(driving, ("many", *crowd))
            turn(driving, ("parallel", extent.batches))
        turn(driving, ("confirm", _CONFIRMED))
        for turns in extent.lengths:
            turn(driving, ("hold", turns))
        for round_ in range(extent.rounds):
            for turns in extent.lengths:
                turn(deciding, ("click", turns), lambda name, turns=turns, at=round_: _copy(folder / name, turns, at))  # type: ignore[misc]  # mypy does not infer the defaults
    return Compared(extent, answers)


def _copy(place: Path, turns: int, at: int) -> str:
    """Copy the file of a conversation that waits; nothing is there where the library could not hold it."""
    held, copied = place / f"held-{turns}.db", place / f"click-{turns}-{at}.db"
    if held.exists():
        shutil.copy(held, copied)
    return str(copied)
