"""The judge of loops whose store was set back to an earlier backup while they were driven.

A restore undoes what was stored after the backup, but not what happened. So the ledger is cut into three parts: up to
the backup, the lost part up to the restore, and what came after. Before the restore the usual promises hold. After it:

- a call is started only as the final journal says, and at most once more than a person allowed again;
- it is not started after a denial or an answer, unless a person was asked again and approved;
- if the restore is reported (`toolloop restored`), no call that waited or was approved starts without a decision;
- a run of the lost part that the restored journal does not know is repeated only if a person decides so, once the
  driver that made it has gone on: that driver stores that the run's end is unknown;
- every result in the history is one that a tool gave back;
- the journal can be read, and says of each such run that its end is unknown.

No other process can know of a lost run before its driver goes on. Another process that goes on first may repeat it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from attrs import frozen

from tests.promises.attack.ledger import DENIED, LOST, TWICE, Finding, Line, judge
from tests.promises.attack.row import OTHER
from toolloop.errors import ToolLoopError
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import round_of
from toolloop.machine.values.calls import Status
from toolloop.stores import Entry
from toolloop.stores.codec import decode_event, read_journal
from toolloop.testing.promises import check_promises


@frozen
class Known:
    """What a restored journal knows.

    Attributes:
        calls: the calls of its open round.
        started: those of them that it knows as started.
        judged: those of them that a person or policy has judged, and that have no result.

    """

    calls: Sequence[str] = ()
    started: Sequence[str] = ()
    judged: Sequence[str] = ()

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Known:
        """Read a journal."""
        round_ = round_of(read_journal(entries).root)
        calls = () if round_ is None else tuple(round_.calls)
        judged = [call.id for call in calls if call.status not in (Status.PROPOSED, Status.SETTLED)]
        return cls([call.id for call in calls], [call.id for call in calls if call.started], judged)


def judge_restored(lines: Sequence[Line], entries: Sequence[Entry]) -> Iterator[Finding]:
    """Find the broken promises in the ledger of a loop, and in its final journal."""
    cut = next((at for at, line in enumerate(lines) if line["what"] == "restored"), len(lines))
    yield from judge(lines[:cut])
    try:
        started, named = _read(entries)
        broken = check_promises(entries).broken
    except ToolLoopError as error:
        yield Finding(OTHER, f"the journal cannot be read: {error}")
        return
    yield from (Finding(LOST, f"the journal breaks a promise: {text}") for text in broken)
    if cut == len(lines):
        return
    restored, after = lines[cut], lines[cut + 1 :]
    lost = lines[restored["to"] : cut]
    yield from _results(lines, after)
    runs = Counter(line["call"] for line in after if line["what"] == "start")
    for call_id, count in runs.items():
        if count > started[call_id]:
            yield Finding(DENIED, f"{call_id}: started {count} times; the final journal says {started[call_id]}")
    yield from _decisions(after, restored["judged"])
    yield from _lost_runs(restored, lost, after, named)


def _read(entries: Sequence[Entry]) -> tuple[Counter[str], set[str]]:
    """Return how often a journal says that each call started, and the calls whose end it says is unknown."""
    events = [decode_event(entry) for entry in entries]
    started = Counter(event.call_id for event in events if isinstance(event, ev.Started))
    runs = [run for event in events for run in getattr(event, "runs", ())]
    return started, {call_id for call_id, *_ in runs}


def _results(lines: Sequence[Line], after: Sequence[Line]) -> Iterator[Finding]:
    ends = {line["result"] for line in lines if line["what"] == "end"}
    for line in after:
        if line["what"] == "sent":
            answered = [call_id for call_id, _ in line["results"]]
            if sorted(line["calls"]) != sorted(answered):
                yield Finding(LOST, f"the calls {line['calls']} have results for {answered}")
            for call_id, content in line["results"]:
                if content.startswith("done by ") and content not in ends:
                    yield Finding(LOST, f"{call_id}: no run gave back {content!r}")


def _decisions(after: Sequence[Line], judged: Collection[str]) -> Iterator[Finding]:
    """Compare each start with the last decision on its call. Once the restore was reported, `judged` calls need one."""
    last: dict[str, str] = {}
    undecided: set[str] = set()
    allowed: Counter[str] = Counter()
    starts: Counter[str] = Counter()
    for line in after:
        match line["what"]:
            case "reported":
                undecided = set(judged)
            case "decided":
                last[line["call"]] = line["kind"]
                undecided.discard(line["call"])
            case "rerun":
                allowed[line["call"]] += 1
            case "start":
                call_id = line["call"]
                starts[call_id] += 1
                if last.get(call_id) in ("deny", "answer"):
                    yield Finding(DENIED, f"{call_id}: {last[call_id]} was accepted last, and it was started")
                if call_id in undecided:
                    yield Finding(DENIED, f"{call_id}: the restore was reported, and it was started without a decision")
                if line["effect"] == "once" and starts[call_id] > 1 + allowed[call_id]:
                    yield Finding(TWICE, f"{call_id}: started {starts[call_id]} times after the restore")


def _lost_runs(
    restored: Line, lost: Sequence[Line], after: Sequence[Line], named: Collection[str]
) -> Iterator[Finding]:
    backs = [at for at, line in enumerate(after) if line["what"] == "back" and line["is_used"]]
    if not backs:
        return
    back = after[backs[0]]
    later = after[backs[0] :]
    own = {line["call"]: line for line in lost if line["what"] == "start" and line["pid"] == back["pid"]}
    for call_id, start in own.items():
        if call_id not in restored["calls"] or call_id in restored["started"]:
            continue
        again = [line for line in later if line["what"] == "start" and line["call"] == call_id]
        reruns = [line for line in after if line["what"] == "rerun" and line["call"] == call_id]
        if start["effect"] == "once" and len(again) > len(reruns):
            yield Finding(TWICE, f"{call_id}: its driver went on, and its lost run was repeated")
        if call_id not in named:
            yield Finding(LOST, f"{call_id}: its driver went on, and the journal does not say that it may have run")
