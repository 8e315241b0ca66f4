"""What an attack found: a row of the table."""

from __future__ import annotations

import signal
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from attrs import define, field

from tests.promises.attack.ledger import DENIED, LOST, TWICE, Finding, Line, judge
from toolloop.errors import ToolLoopError

PATIENCE = 40.0  # seconds
HUNG, OTHER = "hung", "another error"
_COLUMNS = (TWICE, DENIED, LOST, HUNG, OTHER)


@define
class Row:
    """The counts of an attack.

    Attributes:
        attack: its name.
        did: what was done in a round.
        rounds: how many rounds were run.
        starts: how many runs of tools the ledgers saw.
        broken: broken promises, by kind.
        refused: what toolloop refused to go on with, by the name of the error.
        findings: a line for each broken promise.

    """

    attack: str
    did: str
    rounds: int = 0
    starts: int = 0
    broken: Counter[str] = field(factory=Counter)
    refused: Counter[str] = field(factory=Counter)
    findings: list[str] = field(factory=list)

    def judge(self, lines: Sequence[Line], where: object, kinds: Sequence[str] = _COLUMNS) -> None:
        """Judge the ledger of a loop, as far as these promises are concerned."""
        self.starts += sum(line["what"] == "start" for line in lines)
        for finding in judge(lines):
            if finding.kind in kinds:
                self.add(finding, where)

    def add(self, finding: Finding, where: object) -> None:
        """Count a broken promise."""
        self.broken[finding.kind] += 1
        self.findings.append(f"{self.attack}, {where}: {finding.kind}: {finding.what}")

    def ended(self, how: str, where: object, *, may_refuse: bool = False) -> None:
        """Take note how a loop ended: `done`, or by the name of the error that stood in the way."""
        if how != "done":
            self.refused[how] += 1
            if not may_refuse:
                self.add(Finding(OTHER, f"the loop did not end, but: {how}"), where)

    @contextmanager
    def watched(self, where: object, *, may_refuse: bool = False) -> Iterator[None]:
        """Count what the block raises: it may refuse with an error of toolloop, and must not hang."""
        try:
            with _alarm():
                yield
        except (Hangs, EOFError):  # a process of the attack was ended by its own watchdog, and printed its stacks
            self.add(Finding(HUNG, traceback.format_exc()), where)
        except ToolLoopError as error:
            self.ended(type(error).__name__, where, may_refuse=may_refuse)
        except Exception:  # noqa: BLE001 - whatever it is, it is counted and shown
            self.add(Finding(OTHER, traceback.format_exc()), where)

    def cells(self) -> list[str]:
        """Return the row as texts."""
        refused = ", ".join(f"{count} x `{name}`" for name, count in sorted(self.refused.items()))
        counts = [self.rounds, self.starts, *(self.broken[column] for column in _COLUMNS)]
        return [self.attack, self.did, *(f"{count:,}" for count in counts), refused or "-"]


class Hangs(BaseException):
    """A round has taken too long."""


@contextmanager
def _alarm() -> Iterator[None]:
    """Raise `Hangs` in the block, wherever it stands, when it takes too long."""

    def hangs(*_: object) -> None:
        raise Hangs

    handler, timer = signal.signal(signal.SIGALRM, hangs), signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    heads = ["attack", "a round", "rounds", "starts", *_COLUMNS, "refused with"]
    lines = [heads, ["---"] * len(heads), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
