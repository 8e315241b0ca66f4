"""What a journal must not tell: each check takes an event with the states around it, and names what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import define, evolve, field

from toolloop.core import events as ev
from toolloop.core.freezing import frozen
from toolloop.core.grants import allows
from toolloop.core.jsontext import decode
from toolloop.core.policy import digest_of
from toolloop.core.states import Executed, Ready, Requesting, State
from toolloop.core.tree import round_of
from toolloop.core.values import Call, Outcome, Round, StandingGrant, Status

_SETTLED = {
    Outcome.DENIED: ("started_after_denial", "it was denied"),
    Outcome.EXPIRED: ("started_after_expiry", "it had expired"),
    Outcome.ANSWERED: ("started_after_answer", "it was answered"),
}
# What replaces or restores history as a whole: rounds close with other events.
_REPLACING = (ev.HistoryEdited, ev.Compacted, ev.FollowedUp, ev.Extended)
_NOTHING = '{"content":[]}'


@frozen
class Breach:
    """A promise that a journal breaks.

    Attributes:
        entry: the number of the event that breaks it, counted from 1.
        rule: which one, in one word.
        call_id: of which call, or None.
        message: what is so, and what should be.
        path: the ids of the calls that lead to the loop which it is in, from the outermost down.

    """

    entry: int
    rule: str
    call_id: str | None
    message: str
    path: tuple[str, ...] = ()

    def at(self, path: tuple[str, ...]) -> Breach:
        """The same, in a loop inside of calls."""
        return evolve(self, path=path, message=f"inside of {'/'.join(path)}: {self.message}") if path else self


@define
class _Runs:
    """What is known of the runs of one call."""

    starts: int = 0
    lost: bool = False  # since it was last started: nobody will see that run end
    asked_again: bool = False  # likewise: a person wants it run again


@define
class Books:
    """What happened in a loop so far, kept beside the machine."""

    since: int = 0  # the iteration up to which another journal may know more
    earlier: dict[tuple[int, str], int] = field(factory=dict)  # the runs of loops that were in this place before
    runs: dict[tuple[int, str], _Runs] = field(factory=dict)
    given: dict[str, StandingGrant] = field(factory=dict)
    revoked: set[str] = field(factory=set)
    users: dict[str, set[tuple[int, str]]] = field(factory=dict)

    @classmethod
    def of(cls, state: State) -> Books:
        """Those of a loop with which a journal begins: all that it holds is taken as it is."""
        books = cls(state.ledger.iterations, given={grant.id: grant for grant in state.ledger.grants})
        for call in _round(state).calls:
            is_over = call.status is not Status.RUNNING
            again = is_over and call.ruling is not None and call.ruling.kind == "rerun"
            books.runs[_round(state).iteration, call.id] = _Runs(call.attempts, lost=is_over, asked_again=again)
        return books

    def next(self) -> Books:
        """Those of the loop that begins in the place of this one; what ran in this may still be told to have ended."""
        return Books(earlier=self.earlier | {run: known.starts for run, known in self.runs.items()})

    # --- before the machine has its say ---

    def check(self, entry: int, before: State | None, event: ev.Event) -> Iterator[Breach]:
        """What is wrong with an event, whatever the machine says to it. `before`: None if there is no such loop."""
        match event:
            case ev.Started() if before is not None:
                call = _round(before).find(event.call_id)
                if call is not None:
                    yield from self._start(entry, before, event, call)
            case ev.Ended() if event.iteration > 0 and not self._was_started(event):
                text = f"run {event.attempt} of the call {event.call_id!r} of iteration {event.iteration} ended, and "
                yield Breach(entry, "ended_without_start", event.call_id, f"{text}nothing says that it was started")
            case ev.Ended(iteration=0) if not _runs(before, event.call_id):
                text = f"the call {event.call_id!r} ended, and nothing says that it was running"
                yield Breach(entry, "ended_without_start", event.call_id, text)
            case ev.Replied() | ev.RequestFailed() | ev.RequestCancelled() if not isinstance(before, Requesting):
                text = f"{type(event).__name__}, and nothing says that a request went out"
                yield Breach(entry, "reply_without_request", None, text)

    def _start(self, entry: int, before: State, event: ev.Started, call: Call) -> Iterator[Breach]:
        setup, iteration = before.ledger.setup, _round(before).iteration
        named = f"the call {call.id!r} ({call.name})"
        if call.status is Status.SETTLED and call.result is not None:
            rule, how = _SETTLED.get(call.result.outcome, ("started_after_end", "it had its result"))
            yield Breach(entry, rule, call.id, f"{named} was started after {how}")
            return
        if call.status in (Status.WAITING, Status.DECIDED):
            text = f"{named} was started before it was decided that it may run"
            yield Breach(entry, "started_undecided", call.id, text)
            return
        runs = self._of(_round(before), call.id)
        again = runs.asked_again or (runs.lost and setup.repeatable(call.name))
        if runs.starts and not again:
            why = "its earlier run was not lost" if not runs.lost else "its tool may not be run again unasked"
            yield Breach(entry, "started_twice", call.id, f"{named} was started once more, and {why}")
            return
        always = any(facts.name == call.name and facts.approval == "always" for facts in setup.tools)
        if always and call.ruling is None:
            text = f"{named} was started, and nobody was asked, though its tool always needs approval"
            yield Breach(entry, "not_asked", call.id, text)
        if event.digest is not None and event.digest != digest_of(setup, iteration, call):
            text = f"{named} was started with another name or input than was proposed and decided: the digests differ"
            yield Breach(entry, "ran_something_else", call.id, text)

    def _of(self, round_: Round, call_id: str) -> _Runs:
        return self.runs.setdefault((round_.iteration, call_id), _Runs())

    def _was_started(self, event: ev.Ended) -> bool:
        run = (event.iteration, event.call_id)
        if 1 <= event.attempt <= self.earlier.get(run, 0):
            return True
        runs = self.runs.get(run)
        if runs is None:
            return event.iteration <= self.since
        return 1 <= event.attempt <= runs.starts

    # --- after the machine had its say ---

    def take(self, entry: int, before: State, event: ev.Event, after: State) -> Iterator[Breach]:
        """Note what an event did, and check what the machine made of it."""
        round_ = _round(before)
        match event:
            case ev.Started():
                starts = self._of(round_, event.call_id).starts
                self.runs[round_.iteration, event.call_id] = _Runs(starts + 1)
            case ev.Decided():
                reruns = {call_id for call_id, ruling in event.rulings if ruling.kind == "rerun"}
                for call in round_.having(Status.WAITING):
                    self._of(round_, call.id).asked_again |= call.id in reruns
            case ev.Woken() | ev.Forked() | ev.Cancelled():
                for call in round_.having(Status.RUNNING):
                    if not _runs(after, call.id):
                        self._of(round_, call.id).lost = True
        yield from kept_results(entry, before, after)
        if before.ledger.messages is not after.ledger.messages and not isinstance(event, _REPLACING):
            since = max(0, len(before.ledger.messages) - 1)
            yield from answered(entry, after.ledger.messages[since:])
        elif isinstance(event, ev.TurnEnded) and isinstance(after, Executed | Ready):
            yield from answered(entry, after.tail)
        yield from self._grants(entry, before, event, after)

    def _grants(self, entry: int, before: State, event: ev.Event, after: State) -> Iterator[Breach]:
        if isinstance(event, ev.GrantRevoked):
            self.revoked.add(event.grant_id)
        standing = {grant.id for grant in before.ledger.grants}
        for grant in after.ledger.grants:
            if grant.id not in standing:  # also once more: a call that asks again in a copy may give the same again
                self.given[grant.id] = grant
                self.revoked.discard(grant.id)
                self.users.pop(grant.id, None)
        now_open, earlier = _round(after), _round(before)
        for call in now_open.calls:
            was, ruling = earlier.find(call.id), call.ruling
            if ruling is None or ruling.grant is None or (was is not None and was.ruling is ruling):
                continue
            grant_id = ruling.grant
            users = self.users.setdefault(grant_id, set())
            users.add((now_open.iteration, call.id))
            if problem := self._misused(grant_id, call, after.ledger.now, len(users)):
                text = f"the call {call.id!r} ({call.name}) runs by the grant {grant_id}, {problem}"
                yield Breach(entry, "grant_overstepped", call.id, text)

    def _misused(self, grant_id: str, call: Call, now: float, users: int) -> str | None:
        grant = self.given.get(grant_id)
        if grant is None:
            return "which nobody gave"
        if grant_id in self.revoked:
            return "which was revoked"
        if grant.expires_at is not None and grant.expires_at <= now:
            return "which had expired"
        if grant.uses is not None and users > grant.uses:
            return f"which was for {grant.uses} calls, and this is number {users}"
        return None if allows(grant, call) else "which is not for such a call"


def spent(entry: int, before: State, event: ev.Spent) -> Iterator[Breach]:
    """Only a call that was started drives a loop of its own. `before`: of the outermost loop."""
    if "/".join((*event.path, event.call_id)) not in before.ledger.ran:
        text = f"the call {event.call_id!r} used tokens, and nothing says that it was started"
        yield Breach(entry, "spent_without_start", event.call_id, text)


def kept_results(entry: int, before: State, after: State) -> Iterator[Breach]:
    """The first end of a call is its result, and stays it."""
    then = _round(after)
    if then.iteration != _round(before).iteration:
        return
    for call in _round(before).having(Status.SETTLED):
        now = then.find(call.id)
        if now is None or now.result != call.result:
            text = f"the call {call.id!r} ({call.name}) had its result, and has another now"
            yield Breach(entry, "result_changed", call.id, text)


def answered(entry: int, messages: Sequence[str]) -> Iterator[Breach]:
    """Every call of a closed round has exactly one result, in the message after it."""
    for message, following in pairwise([*messages, _NOTHING]):
        if not ('"tool_use"' in message or '"tool_result"' in following):
            continue
        calls, results = _named(message, "tool_use", "id"), _named(following, "tool_result", "tool_use_id")
        for call_id in sorted(calls.keys() | results.keys()):
            if (calls[call_id], results[call_id]) != (1, 1):
                text = f"the call {call_id!r} was made {calls[call_id]} times, and has {results[call_id]} results"
                yield Breach(entry, "not_one_result", call_id, text)


def _named(message: str, kind: str, member: str) -> Counter[str]:
    content = decode(message)["content"]
    blocks = content if isinstance(content, list) else []
    return Counter(str(block.get(member)) for block in blocks if block.get("type") == kind)


def _round(state: State | None) -> Round:
    """The open round, or that with which the loop may go on; or one without calls."""
    return (round_of(state) if state is not None else None) or Round(0, None)


def _runs(state: State | None, call_id: str) -> bool:
    call = _round(state).find(call_id)
    return call is not None and call.status is Status.RUNNING
