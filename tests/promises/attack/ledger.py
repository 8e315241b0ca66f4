"""What really happened, written down by the tools and by those who decide, and the judge of it.

The judge reads nothing else: no journal, no state, and no word of the library about itself.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from toolloop import Texts

Line = dict[str, Any]

TWICE, DENIED, LOST = "run twice", "denied, and ran", "lost"
_NOT_RUN = tuple(text.partition("{")[0] for text in (Texts().denied, Texts().not_run, Texts().expired))
_BY_A_TOOL = "done by "


@frozen
class Ledger:
    """A file to which each process only ever appends whole lines.

    Attributes:
        path: the file.
        log: a write-ahead log; each line notes how long it was then. So a line is later than all that was stored there.
        is_fenced: tools refuse to start after the end of their driver's lease.

    """

    path: Path
    log: Path | None = None
    is_fenced: bool = False

    def write(self, what: str, **facts: Any) -> None:
        """Append a line."""
        size = self.log.stat().st_size if self.log is not None and self.log.exists() else 0
        file = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(file, (json.dumps({"what": what, **facts, "pid": os.getpid(), "log": size}) + "\n").encode())
        os.close(file)

    def lines(self) -> list[Line]:
        """Read all lines."""
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def keep(self, lines: Sequence[Line]) -> None:
        """Let it have these lines only."""
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@frozen
class Finding:
    """A broken promise: which, and how it shows."""

    kind: str
    what: str


def judge(lines: Sequence[Line]) -> list[Finding]:
    """Find the broken promises in the ledger of one loop."""
    by_call: defaultdict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if "call" in line:
            by_call[line["call"]].append(line)
    told: dict[str, str] = {}
    findings = list(_changed(lines, told))
    for call_id in dict.fromkeys([*by_call, *told]):
        findings += [Finding(kind, f"{call_id}: {text}") for kind, text in _judged(by_call[call_id], told.get(call_id))]
    return findings


def find_late_starts(lines: Sequence[Line]) -> Iterator[Finding]:
    """Find runs that began after a person had said how an uncertain run ended, or beyond those allowed again.

    It holds where a driver that lost its loop starts nothing more. Lines that a driver wrote while another one took its
    loop over, in full work, may be in another order.
    """
    answered: set[str] = set()
    allowed: dict[str, int] = {}
    for line in lines:
        match line["what"]:
            case "decided" if line["why"] == "uncertain" and line["kind"] in ("deny", "answer"):
                answered.add(line["call"])
            case "rerun":
                allowed[line["call"]] = allowed.get(line["call"], 0) + 1
            case "start" if line["call"] in answered:
                yield Finding(DENIED, f"{line['call']}: started after a person said how its run had ended")
            case "start" if line["effect"] == "once" and line["call"] in allowed:
                allowed[line["call"]] -= 1
                if allowed[line["call"]] < 0:
                    yield Finding(TWICE, f"{line['call']}: started once more than a person allowed again")


def _changed(lines: Sequence[Line], told: dict[str, str]) -> Iterator[Finding]:
    """Compare the histories that the model was sent; `told` gets the result of each call."""
    for line in lines:
        if line["what"] != "sent":
            continue
        answered = [call_id for call_id, _ in line["results"]]
        if sorted(line["calls"]) != sorted(answered):
            yield Finding(LOST, f"the calls {line['calls']} have results for {answered}")
        for call_id, content in line["results"]:
            if told.setdefault(call_id, content) != content:
                yield Finding(LOST, f"{call_id}: the result {told[call_id]!r} became {content!r}")


def _judged(own: Sequence[Line], told: str | None) -> Iterator[tuple[str, str]]:
    """Judge what happened to one call, in order. `told`: the result that the model got."""
    starts = [line for line in own if line["what"] == "start"]
    ends = [line["result"] for line in own if line["what"] == "end"]
    allowed = 1 + sum(line["what"] == "rerun" for line in own)
    decided = [(at, line["kind"]) for at, line in enumerate(own) if line["what"] == "decided" and _may_it(line)]
    kinds = {kind for _, kind in decided}
    effects = {line["effect"] for line in starts}
    if "once" in effects and len(starts) > allowed:
        yield TWICE, f"started {len(starts)} times, allowed {allowed}"
    if "keyed" in effects and len({line["key"] for line in starts}) > allowed:
        yield TWICE, f"started under {len({line['key'] for line in starts})} keys"
    if starts and kinds & {"deny", "answer"}:
        yield DENIED, f"{kinds} was accepted, and it was started {len(starts)} times"
    if starts and told is not None and told.startswith(_NOT_RUN):
        yield DENIED, f"the model got {told!r}, and it was started"
    if len(kinds) > 1:
        yield LOST, f"the decisions {sorted(kinds)} were all accepted"
    if decided and any(line["what"] == "asked" and _may_it(line) for line in own[decided[0][0] :]):
        yield LOST, f"its decision {kinds} was accepted, and asked for again"
    if told is not None and told.startswith(_BY_A_TOOL) and told not in ends:
        yield LOST, f"the model got {told!r}; its runs ended with {ends}"


def _may_it(line: Line) -> bool:
    """Whether this is about the approval of a call, not about a run whose end is not known."""
    return bool(line["why"] == "approval")


def result_of(call_id: str) -> str:
    """Return what a run of a tool gives back: another text for each run."""
    return f"{_BY_A_TOOL}{os.getpid()} for {call_id}: {os.urandom(4).hex()}"
