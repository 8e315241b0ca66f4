"""What is known of a tree of loops from outside: what was decided, started, ended and used, from the events alone.

When something starts, it is known here whether it may: nothing that was denied, nothing twice, nothing beyond a limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from attrs import Factory, define

from tests.properties.trees import GATED, REPEATABLE
from toolloop.core import events as ev
from toolloop.core.jsontext import decode, encode
from toolloop.core.states import Deciding, Failed, Finished, Judging, Requesting, Running, State, TooDeep
from toolloop.core.texts import say
from toolloop.core.tree import children, is_at_work, loop_at, loops, round_of
from toolloop.core.usage import Usage
from toolloop.core.values import Ruling, Status, Wait

Key = tuple[tuple[int, str], ...]  # iteration and id of each call, from the outermost down
Path = tuple[str, ...]

_RUN = ("tool_use", "end_turn")  # the replies whose calls join the history


@define
class Fact:
    """What is known of one call.

    Attributes:
        since: from which run on an end is heard.
        may_repeat: that it may start once more, though it started.
        barred: it must never start (any more).
        result: the content of its one result.

    """

    name: str
    attempts: int = 0
    since: int = 1
    may_repeat: bool = False
    running: bool = False
    approved: bool = False
    barred: bool = False
    result: str | None = None


@define
class Books:
    """What one loop used, with all loops that were ever inside of it."""

    usage: Usage = Factory(Usage)
    entries: int = 0
    answered: int = 0
    ran: list[str] = Factory(list)
    active: float = 0.0
    asked: dict[int, list[str]] = Factory(dict)  # the calls of its replies, by iteration
    grants: dict[str, int | None] = Factory(dict)  # those that stand, with the uses that are left
    by_grant: set[str] = Factory(set)
    history: list[str] = Factory(list)  # as it was checked last


def everywhere(state: State, path: Path = ()) -> Iterator[tuple[Path, State]]:
    """All loops of a tree with their paths, those with which a loop that stands still would go on included."""
    yield path, state
    for call, child in children(round_of(state)):
        yield from everywhere(child, (*path, call.id))


def key_of(loop: State) -> Key:
    """The place of a loop; only another run of the same call has it again."""
    return tuple((iteration, call_id) for iteration, call_id, _ in loop.ledger.setup.within)


def _above(key: Key) -> list[Key]:
    """The keys of a loop, and of all above it."""
    return [key[:length] for length in range(len(key) + 1)]


class Truth:
    """What is known from outside."""

    def __init__(self) -> None:
        """Know nothing."""
        self.calls: dict[Key, Fact] = {}
        self.books: defaultdict[Key, Books] = defaultdict(Books)

    # --- what an event says -------------------------------------------------------------------------------------

    def hear(self, before: State, event: ev.Event, after: State) -> None:
        """An event was taken."""
        self._time(before, event)
        here = loop_at(before, event.path)
        match event:
            case ev.Replied() if here is not None:
                self._replied(key_of(here), event, here.ledger.iterations + 1)
            case ev.Spent(path=path, usage=entry):  # it counts in the loops that are there still
                ends = [loop for at in range(len(path) + 1) if (loop := loop_at(before, path[:at])) is not None]
                self._use(key_of(ends[-1]), entry.usage)
            case ev.Requested() if here is not None:
                self._within_limits(after, event, key_of(here))
            case ev.Opened():
                parent = loop_at(before, event.path[:-1])
                assert parent is not None
                self._start(before, parent, event, event.path[-1], after)
            case ev.Started() if here is not None:
                self._start(before, here, event, event.call_id, after)
            case ev.Ended() if here is not None:
                self._ended(here, event)
            case ev.Cancelled(call_id=call_id) if here is not None:
                fact = self._lost((*key_of(here), (the_round(here).iteration, call_id)))
                fact.barred = fact.may_repeat  # what might run again is settled as cancelled
            case ev.Judged() if here is not None:
                self._judged(here, event)
            case ev.Decided():
                for name, ruling in event.rulings:
                    self._decided(before, name, ruling)
            case ev.GrantRevoked() if here is not None:
                del self.books[key_of(here)].grants[event.grant_id]
            case ev.Woken() if here is not None:
                self._woken(key_of(here), here)
            case ev.FollowedUp():
                self.books[()].active = 0.0
                self._freeze(before)

    def _time(self, before: State, event: ev.Event) -> None:
        """Time counts for the root, and for each loop inside that is at work as all above it are; calls expire."""
        resting: list[Path] = []
        for path, loop in loops(before):
            if path and not is_at_work(loop):
                resting.append(path)
            if not any(path[: len(above)] == above for above in resting):
                self.books[key_of(loop)].active += event.seconds
            if isinstance(loop, Judging | Deciding | Running):
                self._expire(loop, max(loop.ledger.now, event.at))

    def _expire(self, loop: Judging | Deciding | Running, now: float) -> None:
        texts = loop.ledger.setup.texts
        for call in loop.round.having(Status.WAITING):
            if call.expires_at is not None and call.expires_at <= now:
                fact = self.calls[(*key_of(loop), (loop.round.iteration, call.id))]
                again = say(texts, "uncertain", reason="nobody decided in time whether it may run again")
                fact.barred, fact.result = True, encode(again if fact.attempts else texts.expired)

    def _replied(self, key: Key, event: ev.Replied, iteration: int) -> None:
        self._use(key, event.reply.usage)
        self.books[key].answered += 1
        ids = [call.id for call in event.reply.calls()]
        for call in event.reply.calls():
            fact = self.calls[(*key, (iteration, call.id))] = Fact(call.name)
            fact.barred = event.reply.stop_reason != "tool_use"
        if event.reply.stop_reason in _RUN:
            self.books[key].asked[iteration] = ids

    def _use(self, key: Key, usage: Usage) -> None:
        for above in _above(key):
            self.books[above].usage += usage
            self.books[above].entries += 1

    def _start(self, before: State, loop: State, event: ev.Event, call_id: str, after: State) -> None:
        key: Key = (*key_of(loop), (the_round(loop).iteration, call_id))
        fact, books = self.calls[key], self.books[key[:-1]]
        assert not fact.barred, f"{key} was denied, and starts"
        assert fact.result is None, f"{key} has its result, and starts"
        assert not fact.running, f"{key} runs, and starts"
        assert not fact.attempts or fact.may_repeat, f"{key} starts a second time, and nobody said so"
        fact.attempts, fact.may_repeat, fact.running = fact.attempts + 1, False, True
        call = the_round(loop).find(call_id)
        assert call is not None
        if fact.name in GATED and not fact.approved:
            assert call.ruling is not None
            assert call.ruling.grant in books.grants, f"{key} starts, and nobody approved"
            self._by_grant(books, call.ruling.grant, call_id)
        for above in _above(key[:-1]):
            self.books[above].ran.append("/".join(name for _, name in key[len(above) :]))
        self._within_limits(after, event, key[:-1])
        if isinstance(event, ev.Opened):
            self.books.pop(key, None)

    def _by_grant(self, books: Books, grant: str, call_id: str) -> None:
        left = books.grants[grant]
        if left is not None and call_id not in books.by_grant:
            assert left > 0, f"{call_id} runs by {grant}, which is used up"
            books.grants[grant] = left - 1
        books.by_grant.add(call_id)

    def _ended(self, here: State, event: ev.Ended) -> None:
        round_ = round_of(here)
        if round_ is None or event.iteration not in (0, round_.iteration):
            return
        fact = self.calls[(*key_of(here), (round_.iteration, event.call_id))]
        for call, child in children(round_):
            if call.id == event.call_id:
                passes = isinstance(child, Failed) and child.failure.retryable
                assert isinstance(child, Failed | Finished | TooDeep), f"{call.id} ends, and its loop does not"
                assert not passes, f"{call.id} ends, and the failure inside of it may pass"
        if fact.result is None and not fact.barred and (event.attempt or fact.attempts) >= fact.since:
            fact.running, fact.result = False, event.result.content

    def _judged(self, here: State, event: ev.Judged) -> None:
        for call_id, verdict in () if event.stop else event.verdicts:
            call = the_round(here).find(call_id)
            if call is not None and call.status is not Status.WAITING and not isinstance(verdict, Wait):
                self.calls[(*key_of(here), (the_round(here).iteration, call_id))].barred = True

    def _decided(self, before: State, name: str, ruling: Ruling) -> None:
        *path, call_id = name.split("/")
        loop = loop_at(before, tuple(path))
        assert loop is not None
        round_ = the_round(loop)
        call = round_.find(call_id)
        assert call is not None
        if call.status is not Status.WAITING:
            return  # the same was said before
        fact = self.calls[(*key_of(loop), (round_.iteration, call_id))]
        match ruling.kind:
            case "approve":
                fact.approved = True
                if ruling.remember is not None:
                    grants = self.books[key_of(loop)].grants
                    grants[f"{round_.iteration}/{call_id}"] = ruling.remember.uses
            case "rerun":
                fact.approved, fact.may_repeat, fact.since = True, True, fact.attempts + 1
            case "answer":
                fact.barred, fact.result = True, ruling.content
            case _:
                fact.barred = True

    def _woken(self, key: Key, here: State) -> None:
        """What ran there is lost; a call with a loop inside of it goes on running."""
        for _, loop in everywhere(here):
            for call in () if round_of(loop) is None else the_round(loop).calls:
                if call.status is Status.RUNNING and call.child is None:
                    self._lost((*key_of(loop), (the_round(loop).iteration, call.id)))

    def _lost(self, key: Key) -> Fact:
        fact = self.calls[key]
        fact.running, fact.since, fact.may_repeat = False, 1, fact.name in REPEATABLE
        return fact

    def _freeze(self, before: State) -> None:
        """A user turn begins: what the history says of the calls of the last one is said for good."""
        told = results_in(before)
        for iteration, ids in self.books[()].asked.items():
            for call_id in ids:
                fact = self.calls[((iteration, call_id),)]
                fact.barred, fact.running, fact.result = True, False, told[call_id]

    # --- limits -------------------------------------------------------------------------------------------------

    def _within_limits(self, after: State, event: ev.Event, key: Key) -> None:
        """A request goes out, or a tool starts: no loop above it had used up what it may use."""
        for above in _above(key):
            loop = loop_at(after, tuple(name for _, name in above))
            assert loop is not None
            limits, books = loop.ledger.setup.limits, self.books[above]
            assert limits.timeout is None or books.active < limits.timeout, f"{event} after its time, for {above}"
            budget = limits.budget
            if not isinstance(event, ev.Requested):
                assert budget.tool_calls is None or len(books.ran) <= budget.tool_calls, f"{event}, for {above}"
                continue
            under_way = sum(isinstance(other, Requesting) for _, other in loops(loop))
            assert budget.requests is None or books.entries + under_way <= budget.requests, f"{event}, for {above}"
            for what in ("input_tokens", "output_tokens", "total_tokens"):
                most = getattr(budget, what)
                assert most is None or getattr(books.usage, what) < most, f"{event} beyond {what}, for {above}"


def the_round(loop: State) -> Any:
    round_ = round_of(loop)
    assert round_ is not None
    return round_


def said(content: Any) -> str:
    """What a result says; a note about an edited input comes after it."""
    return str(content if isinstance(content, str) else content[0]["text"])


def results_in(loop: State) -> dict[str, str]:
    """The contents of all results in a history, by call id."""
    return {
        block["tool_use_id"]: encode(block["content"])
        for message in map(decode, loop.ledger.messages)
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    }
