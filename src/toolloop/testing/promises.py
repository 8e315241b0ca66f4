"""The promises that a journal can break: a denied call never starts, a call starts once and has exactly one result.

The machine reads the events. `_Checker` also keeps its own record of decisions, starts and ends, so that it finds a
broken promise even where the machine would accept the event. A truncated journal is checked up to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import define, field, frozen

from toolloop.machine.queries import everywhere
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Loop, Path, Round, State
from toolloop.machine.rules.calls import digest_of
from toolloop.machine.tree import fold, step
from toolloop.machine.values.calls import Status
from toolloop.machine.values.jsontext import decode
from toolloop.stores.codec import decode_event
from toolloop.stores.protocol import Entry

_Key = tuple[Path, int, str]  # the path of the loop, the iteration, the id of the call
_ANSWERED = ("deny", "answer")
_NO_ROUND = Round(-1, None)  # not an iteration: a runner may begin with a round of iteration 0
_NO_RESULTS = '{"content":[]}'


@frozen
class Findings:
    """The result of checking a journal.

    Attributes:
        broken: a message for each broken promise, in the order of the journal.
        starts: for each tool, the number of times that its calls were started.

    """

    broken: tuple[str, ...]
    starts: Mapping[str, int]


def check_promises(journal: Iterable[Entry]) -> Findings:
    """Check a whole journal against the promises. The check ends at the first event that the machine refuses.

    Args:
        journal: the entries of a journal, oldest first.

    Raises:
        UnreadableSnapshot: an entry cannot be read.

    """
    checker = _Checker()
    ids: set[str] = set()
    for number, entry in enumerate(journal, start=1):
        if entry.id in ids:
            checker.note(number, f"its id {entry.id!r} is that of an earlier entry")
        ids.add(entry.id)
        if not checker.take(number, decode_event(entry)):
            break
    return Findings(tuple(checker.broken), dict(checker.starts))


@define
class _Checker:
    """Goes through a journal, event by event."""

    broken: list[str] = field(factory=list)
    starts: Counter[str] = field(factory=Counter)
    _state: State | None = None
    _runs: Counter[_Key] = field(factory=Counter)
    _again: set[_Key] = field(factory=set)  # calls that may be started again
    _answered: set[_Key] = field(factory=set)  # calls that the caller denied or answered
    _known_from: int = 0  # the journal has every start after this iteration

    def note(self, number: int, problem: str) -> None:
        self.broken.append(f"entry {number}: {problem}")

    def take(self, number: int, event: ev.Event) -> bool:
        """Check one event. Return False if the machine refuses it."""
        before = self._state
        if before is not None:
            self._check(number, event)
        try:
            state = fold([event]) if before is None else step(before, event)
        except Exception as error:  # noqa: BLE001 - a refusal, or an event that was never legal
            if not self.broken:
                self.note(number, f"{type(event).__name__} is not allowed here: {error}")
            return False
        self._state = state
        if before is None:
            self._begin(state)
        for path, loop in everywhere(state):
            was = None if before is None else before.at(path)
            if isinstance(event, ev.HistoryTaken) and path == event.path:
                self._take_round(path, loop, event.rerun)
            elif was is not None:
                self._compare(number, path, was, loop, is_restored=isinstance(event, ev.Restored))
            for problem in _unanswered(was, loop):
                self.note(number, problem)
        return True

    def _begin(self, state: State) -> None:
        """Record the calls of the loop with which the journal begins."""
        self._known_from = state.root.iterations
        for path, loop in everywhere(state):
            for call in _round(loop).calls:
                key = (path, _round(loop).iteration, call.id)
                self._runs[key] = call.attempts
                self._again |= {key} if call.status is not Status.RUNNING else set()

    def _check(self, number: int, event: ev.Event) -> None:
        """Check an event against the record."""
        match event:
            case ev.Started(call_id=call_id, path=path):
                self._start(number, path, call_id, event.digest)
            case ev.Opened(path=(*above, call_id)):  # the call starts with the loop inside it
                self._start(number, tuple(above), call_id, None)
                inside = {key for key in self._runs if key[0][: len(event.path)] == event.path}
                self._again |= inside  # these were calls of an earlier loop at this path
                self._answered -= inside
            case ev.Ended(call_id=call_id, path=path):
                iteration = event.iteration or self._round(path).iteration
                if not self._runs[path, iteration, call_id] and iteration > self._known_from:
                    self.note(number, f"the call {call_id!r} ended without a start")
            case ev.Decided(decisions=decisions):
                for name, decision in decisions:
                    *above, call_id = name.split("/")
                    key = (tuple(above), self._round(tuple(above)).iteration, call_id)
                    self._again |= {key} if decision.kind == "rerun" else set()
                    self._answered |= {key} if decision.kind in _ANSWERED else set()
            case ev.Restored(runs=runs):
                for name, iteration, _ in runs:
                    *above, call_id = name.split("/")
                    key = (tuple(above), iteration, call_id)
                    if self._round(key[0]).iteration == iteration and self._round(key[0]).calls.find(call_id):
                        self._runs[key] += 1
                        self._answered.discard(key)

    def _start(self, number: int, path: Path, call_id: str, digest: str | None) -> None:
        loop, round_ = self._loop(path), self._round(path)
        call, key = round_.calls.find(call_id), (path, round_.iteration, call_id)
        if loop is None or call is None:
            return  # the machine refuses the event
        setup = loop.setup
        asks = any(facts.name == call.name and facts.approval == "always" for facts in setup.tools)
        problem = None
        if key in self._answered:
            problem = "was started after it was denied or answered"
        elif call.status is Status.SETTLED:
            problem = "was started after it had a result"
        elif self._runs[key] and key not in self._again:
            problem = "was started a second time"
        elif asks and call.decision is None:
            problem = "was started without the approval that its tool always needs"
        elif digest is not None and not digest_of(setup, round_.iteration, call).startswith(digest):
            problem = "was started with another name or input than the proposed and approved one"
        if problem is not None:
            self.note(number, f"the call {call_id!r} ({call.name}) {problem}")
        self._runs[key] += 1
        self._again.discard(key)
        self.starts[call.name] += 1

    def _take_round(self, path: Path, loop: Loop, rerun: Sequence[str]) -> None:
        """Record a round that the caller replaced: its calls are new, or will run again."""
        for call in _round(loop).calls:
            if not call.started or call.id in rerun:
                key = (path, _round(loop).iteration, call.id)
                self._again.add(key)
                self._answered.discard(key)

    def _compare(self, number: int, path: Path, before: Loop, after: Loop, *, is_restored: bool) -> None:
        """Check that each result stays, and record the runs whose end will not be recorded.

        A result does not stay if the store was restored, and the call may have run: then it waits as uncertain.
        """
        iteration = _round(before).iteration
        if _round(after).iteration != iteration:
            return
        for was in _round(before).calls:
            now = _round(after).calls.find(was.id)
            is_uncertain = is_restored and now is not None and now.status is Status.WAITING
            if was.status is Status.SETTLED and not is_uncertain and (now is None or now.result != was.result):
                self.note(number, f"the call {was.id!r} ({was.name}) had a result, and now has another one")
            is_lost = was.status is Status.RUNNING and now and now.status not in (Status.RUNNING, Status.SETTLED)
            if is_lost and before.setup.repeatable(was.name):
                self._again.add((path, iteration, was.id))

    def _round(self, path: Path) -> Round:
        loop = self._loop(path)
        return _NO_ROUND if loop is None else _round(loop)

    def _loop(self, path: Path) -> Loop | None:
        return None if self._state is None else self._state.at(path)


def _round(loop: Loop) -> Round:
    return loop.phase.round or _NO_ROUND


def _unanswered(before: Loop | None, after: Loop) -> Iterator[str]:
    """Describe the calls in the changed messages that do not have exactly one result in the next message."""
    messages = after.messages
    if before is not None and before.messages is messages:
        return
    known = 0 if before is None or len(before.messages) > len(messages) else len(before.messages)
    for message, following in pairwise((*messages[max(0, known - 1) :], _NO_RESULTS)):
        calls, results = _ids(message, "tool_use", "id"), _ids(following, "tool_result", "tool_use_id")
        for call_id in sorted({*calls, *results}):
            made, answered = calls.count(call_id), results.count(call_id)
            if (made, answered) != (1, 1):
                yield f"the call {call_id!r} occurs {made} times, and has {answered} results"


def _ids(message: str, kind: str, member: str) -> Sequence[str]:
    content = decode(message)["content"]
    return [str(block.get(member)) for block in content if isinstance(block, dict) and block.get("type") == kind]
