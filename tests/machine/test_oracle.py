"""The machine and the frozen first one take the same events, go through the same states and refuse the same.

A life is drawn on the machine, and each event is translated for the frozen one. Phase, history, what is beside it,
calls, usage, counters, grants, outstanding effects, what waits, and the class of each refusal are compared.

Explained differences, none of which is an error of either:

- the details of usage that were cut are not compared;
- repetitions are counted for single rounds only, so the frozen machine is kept from looking for longer circles;
- thinking that is stale is one mark, so it may count more as stale than the ranges did: never less;
- only a limit leaves a point from which a loop resumes: of a loop that was stopped, the loops inside its calls are
  gone. The frozen one kept them, and took what was said of them, without any use;
- a cancelled call is an end without a result, which is taken (and ignored) as late as any other end that names its run;
- what a tool's own loops used comes with the end of its call, so here both are told to the frozen one at once;
- there is no request for a summary in the states, and none by hand: a compaction is told while the loop is Ready, else
  nothing comes of it but what its summary used;
- a copy asks again about every call that somebody looked at, also where another call of its round is new;
- a history that the server compacted is kept, also where the caller said stop meanwhile and `stop_when` is set;
- what a late end spent counts in the loop in whose run it was, and not in a later one of the same ids;
- the digest of a decision is compared with the call as it is, also where the decision repeats an earlier one or comes
  too late, and before anything else is said of it;
- where a round was closed, a loop waits as it does after a pause, so a history can be taken there, too;
- `Proposed` is gone: the caller of a runner puts a history in its place in one event, of which the frozen one is told
  in up to three. What is judged, closed and continued then without another word is done before they are compared; and
  what was decided in it is cleared, also where it waits for decisions in loops inside its calls.
"""

from __future__ import annotations

import inspect
import random
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.effort import examples
from tests.machine.worlds import World
from tests.oracle import events as old_ev
from tests.oracle import machine as old
from tests.oracle import repetition as old_repetition
from tests.oracle import states as old_states
from tests.oracle import tree as old_tree
from tests.oracle.chain import Chain as OldChain
from tests.oracle.errors import ToolLoopError as OldError
from tests.oracle.limits import time_left as old_time_left
from tests.oracle.thinking import all_messages
from toolloop.machine import events as ev
from toolloop.machine import queries
from toolloop.machine.chain import Chain
from toolloop.machine.errors import DecisionConflict
from toolloop.machine.loop import Failed, Finished, Judging, Loop, Ready, Requesting, ResumePoint, Round, Waiting
from toolloop.machine.state import Path as LoopPath
from toolloop.machine.state import State
from toolloop.machine.tree import outstanding
from toolloop.machine.usage import IterationUsage
from toolloop.machine.values import Status

old_repetition.LONGEST = 1  # of longer circles nothing is known any more

# Every class of the frozen machine, by its name, and by the name that its successor has.
OLD: dict[str, type[Any]] = {
    name: kind
    for file in sorted(Path(str(oracle.__file__)).parent.glob("[a-z]*.py"))
    for name, kind in inspect.getmembers(import_module(f"tests.oracle.{file.stem}"), inspect.isclass)
    if kind.__module__ == f"tests.oracle.{file.stem}"
}
OLD |= {"DecisionRecord": OLD["Ruling"], "GrantSpec": OLD["Terms"], "ReplyAction": OLD["Fate"]}
# Fields that only the frozen one has.
CUT = {
    "Setup": {"shows_replies"},
    "IterationUsage": {each.name for each in attrs.fields(OLD["IterationUsage"])}
    - {each.name for each in attrs.fields(IterationUsage)},
}
# Where a Waiting loop stands in the frozen machine.
RESTS = {"decision_required": "Deciding", "tools_executed": "Executed", "paused": "Paused"}
# What the fields of a loop are called in a ledger.
SAME = (
    *("response", "container", "total_usage", "iterations", "turn_iterations", "pauses", "active", "now", "grants"),
    *("edited_at", "compacted"),
)
FIELDS = {name: name for name in SAME} | {"messages": "messages", "queued": "held", "started": "ran"}


SCALARS = (str, int, float, bool, type(None))


@cache
def parts(kind: type[Any]) -> list[tuple[str, str]]:
    """Return the fields of an attrs class that are compared, and what its constructor calls them."""
    cut = CUT.get(kind.__name__, set())
    return [(item.name, item.alias) for item in attrs.fields(kind) if item.name not in cut]


def as_old(value: Any) -> Any:
    """Return a value of the machine, made of the classes of the frozen one."""
    kind = type(value)
    if kind in SCALARS:
        return value
    if isinstance(value, Enum):
        return OLD[kind.__name__][value.name]
    if isinstance(value, Chain):
        return OldChain(map(as_old, value))
    if attrs.has(kind):
        return OLD[kind.__name__](**{alias: as_old(getattr(value, name)) for name, alias in parts(kind)})
    if isinstance(value, tuple | list | frozenset | set):
        return kind(map(as_old, value))
    if isinstance(value, Mapping):
        return {key: as_old(item) for key, item in value.items()}
    return value


def plain(value: Any) -> Any:
    """Return an old value as one that compares with another: chains as tuples, and without what was cut."""
    kind = type(value)
    if kind in SCALARS or isinstance(value, Enum):
        return value
    if isinstance(value, OldChain | tuple | list):
        return tuple(map(plain, value))
    return (kind, {name: plain(getattr(value, name)) for name, _ in parts(kind)}) if attrs.has(kind) else value


@lru_cache(100_000)
def entry(value: Any, *, is_old: bool) -> Any:
    """Return a value that compares as a whole, in the form of `plain`; the same come again and again."""
    return plain(value if is_old else as_old(value))


# --- events ----------------------------------------------------------------------------------------------------------


def translated(event: ev.Event, state: State) -> list[Any]:
    """Return the events of the frozen machine that say the same, in a state."""
    common: dict[str, Any] = {"at": event.at, "seconds": event.seconds, "path": event.path}
    match event:
        case ev.RequestFailed(failure=None):
            return [old_ev.RequestCancelled(**common)]
        case ev.Judged():
            return [old_ev.Judged(as_old(event.results), event.stop, event.reason, **common)]
        case ev.Decided():
            return [old_ev.Decided(as_old(event.decisions), **common)]
        case ev.Ended(result=None):
            return [old_ev.Cancelled(event.call_id, **common)]
        case ev.Ended():
            run = (event.iteration, event.attempt, event.above)
            spent = [old_ev.Spent(event.call_id, as_old(entry), **common) for entry in event.spent]
            return [*spent, old_ev.Ended(event.call_id, as_old(event.result), event.took, *run, **common)]
        case ev.Continued(messages=()):
            is_failed = isinstance(state.root.phase, Failed)
            return [old_ev.Retried(**common) if is_failed else old_ev.Continued(**common)]
        case ev.Continued():
            return [old_ev.Injected(event.messages, **common)]
        case ev.HistoryEdited(strategy=None):
            return [old_ev.HistoryEdited(splices=as_old(event.splices), **common)]
        case ev.HistoryEdited(strategy=str(strategy)):
            numbers = (event.before, event.after, as_old(event.spent), event.problem)
            return [old_ev.Compacted(strategy, as_old(event.splices), *numbers, **common)]
        case ev.HistoryTaken(reply=str(reply)):
            taken = old_ev.RoundAdopted(as_old(event.splices), reply, keeps_tail=event.keeps_unjoined, **common)
            return [taken, *([old_ev.CallsReopened(event.rerun, **common)] if event.rerun else [])]
        case ev.HistoryTaken():
            return [old_ev.ReplyDiscarded(as_old(event.splices), event.keeps_unjoined, **common)]
        case ev.Changed():
            changed = [old_ev.ParamsChanged(event.params, event.names, **common)] if event.params is not None else []
            return [*changed, *([old_ev.Extended(as_old(event.limits), **common)] if event.limits is not None else [])]
    return [as_old(event)]


def later(events: list[Any]) -> list[Any]:
    """Return the events as one: the first brings the time."""
    return [event if place == 0 else attrs.evolve(event, seconds=0.0) for place, event in enumerate(events)]


# --- states ----------------------------------------------------------------------------------------------------------


def is_stopped(state: Any) -> bool:
    """Return whether a loop has ended, and not by a limit: then nothing is inside it any more."""
    return isinstance(state, old_states.Finished) and type(state.termination).__name__ not in LIMITED


LIMITED = ("MaxIterations", "PauseLimit", "Timeout", "BudgetExceeded")


def old_loops(state: Any, path: LoopPath = ()) -> dict[LoopPath, Any]:
    """Return all loops of a frozen state that count, by their paths."""
    found = {path: state}
    if not is_stopped(state):
        for call, child in old_tree.children(old_tree.round_of(state)):
            found |= old_loops(child, (*path, call.id))
    return found


def phase_of(loop: Loop) -> tuple[Any, ...]:
    """Return what a phase says, in the words of the frozen machine."""
    match loop.phase:
        case Requesting(stopping=stopping, reason=reason):
            return ("Requesting", stopping, reason)
        case Judging(action=action):
            return ("Judging", action.name)
        case Waiting(reason=why, closed=closed):
            return (RESTS[why], calls_of(closed))
        case Failed(failure=failure):
            return ("Failed", plain(as_old(failure)))
        case Finished(termination=termination, resume_point=point):
            return ("Finished", plain(as_old(termination)), point_of(point))
    return (type(loop.phase).__name__,)


def old_phase_of(state: Any) -> tuple[Any, ...]:
    """Return the same of a state of the frozen machine."""
    name = type(state).__name__
    match state:
        case old_states.Requesting():
            return (name, state.stopped, state.reason)
        case old_states.Judging():
            return (name, state.fate.name)
        case old_states.Executed():
            return (name, old_calls_of(state.round))
        case old_states.Paused() | old_states.Deciding():
            return (name, None)
        case old_states.Failed():
            return (name, plain(state.failure))
        case old_states.Finished():
            back = None if is_stopped(state) else state.back
            return (name, plain(state.termination), old_point_of(back))
    return (name,)


def point_of(point: ResumePoint | None) -> Any:
    """Return where a loop resumes."""
    if point is None:
        return None
    return (list(point.messages), point.unjoined, point.queued, point.container, calls_of(point.round))


def old_point_of(back: Any) -> Any:
    """Return the same of the frozen machine."""
    if back is None:
        return None
    tail = back.round.tail if back.round else back.tail
    return (list(back.messages), tail, back.held, back.container, old_calls_of(back.round))


CALL = (
    *("id", "name", "input", "by_code", "toolset", "status", "judged", "why", "reason", "attempts", "edited", "result"),
    *("expires_at", "run"),
)


def calls_of(round_: Round | None) -> Any:
    """Return a round as it compares."""
    if round_ is None:
        return None
    calls = [
        {name: plain(as_old(getattr(call, name))) for name in CALL}
        | {"decision": plain(as_old(call.decision)), "has_loop": call.has_loop}
        for call in round_.calls
    ]
    return round_.iteration, round_.reply, calls


def old_calls_of(round_: Any) -> Any:
    """Return the same of the frozen machine."""
    if round_ is None:
        return None
    calls = [
        {name: plain(getattr(call, name)) for name in CALL}
        | {"decision": plain(call.ruling), "has_loop": call.child is not None}
        for call in round_.calls
    ]
    return round_.iteration, round_.reply, calls


def described(loop: Loop) -> dict[str, Any]:
    """Return a loop as it compares."""
    found = {old_name: plain(as_old(getattr(loop, name))) for name, old_name in FIELDS.items()}
    found |= {
        "setup": entry(loop.setup, is_old=False),
        "usage_log": [entry(each, is_old=False) for each in loop.usage_log],
    }
    found |= {"phase": phase_of(loop), "beside": loop.unjoined, "round": calls_of(loop.round)}
    return found | {"repeated": (loop.repetition.count, loop.repetition.warning)}


def old_described(state: Any) -> dict[str, Any]:
    """Return the same of the frozen machine."""
    ledger = state.ledger
    found = {name: plain(getattr(ledger, name)) for name in FIELDS.values()}
    found |= {
        "setup": entry(ledger.setup, is_old=True),
        "usage_log": [entry(each, is_old=True) for each in ledger.usage_log],
    }
    round_ = state.round if not isinstance(state, old_states.Executed) and hasattr(state, "round") else None
    tail = round_.tail if round_ else getattr(state, "tail", ())
    found |= {"phase": old_phase_of(state), "beside": tail, "round": old_calls_of(round_)}
    return found | {"repeated": ((*ledger.trail.runs, 0)[0], ledger.trail.warning)}


def compare(new: State, state: Any) -> None:
    """Fail where the two say something else."""
    expected = old_loops(state)
    assert set(new.loops) == set(expected)
    for path, loop in new.loops.items():
        mine, theirs = described(loop), old_described(expected[path])
        for name, value in theirs.items():
            assert mine[name] == value, f"{name} of {path}: {mine[name]} is not {value}"
        check_stale(loop, expected[path])
    assert [(path, call.id) for path, call in queries.waiting(new)] == [
        (path, call.id) for path, call in old_tree.waiting(state)
    ]
    assert plain(as_old(outstanding(new))) == plain(old.outstanding(state))
    assert queries.under_way(new) == old.under_way(state)
    assert queries.status_of(new) == old.status_of(state)
    assert queries.next_deadline(new) == old.next_deadline(state)
    assert queries.time_left(new) == old_time_left(state)
    for seconds in (0.0, 5.0):
        assert queries.is_due(new, new.root.now + seconds) == old.is_due(state, new.root.now + seconds)


def check_stale(loop: Loop, state: Any) -> None:
    """Thinking that was stale in the frozen machine is."""
    texts = all_messages(state)
    for start, stop in state.ledger.unbound:
        last = max((at for at in range(start, min(stop, len(texts))) if 'thinking"' in texts[at]), default=-1)
        assert last < loop.stale_thinking


# --- lives -----------------------------------------------------------------------------------------------------------


class Twins(World):
    """A world in which whatever happens also happens to the frozen machine.

    Attributes:
        old: its state.
        counts: how many events were taken, refused, and not compared, by their kinds.

    """

    def begin(self, first: ev.Opened | ev.Adopted) -> None:
        if isinstance(first, ev.Opened):
            self.counts: Counter[str] = Counter()
            self.old = old.begin(as_old(first))
        super().begin(first)

    def live(self, steps: int) -> Twins:
        super().live(steps)
        return self

    def fork(self) -> None:
        """A copy goes on, of both."""
        self.path = ()
        mixed = len({call.status == "proposed" for call in self.calls()}) > 1
        if isinstance(self.old, old_states.Judging) and mixed:
            return
        super().fork()
        copied = self.state.root
        clock = old_ev.Forked(copied.setup.loop_id, at=self.clock)
        self.old = old.step(self.old, clock)
        self.counts["Forked"] += 1
        compare(self.state, self.old)

    def take(self, event: ev.Event) -> bool:
        """Let it happen to both."""
        if self._stops_compaction(event) or self._compacts_late(event):
            return False
        before, was, error = self.state, self.old, None
        if isinstance(event, ev.Ended) and event.above != before.root.setup.runs and event.spent:
            event = attrs.evolve(event, spent=())
        try:
            for each in later(translated(event, before)):
                was = old.step(was, each)
        except OldError as refused:
            error = refused
        taken = super().take(event)
        if not taken and is_bound_to_another(event, self.refused[-1][2]):
            self.counts["explained: digests"] += 1
            return False
        if is_explained(event, before, self.old, taken=taken, was_taken=error is None):
            self.counts["explained"] += 1
            self.state = before
            return False
        self.counts[f"{type(event).__name__} {'taken' if taken else 'refused'}"] += 1
        if error is not None:
            assert not taken, f"{event} is taken, and was refused: {error}"
            assert type(self.refused[-1][2]).__name__ == type(error).__name__, f"{event}: {error}"
        else:
            assert taken, f"{event} is refused, and was not: {self.refused[-1][2]}"
            self.old = was
            if isinstance(event, ev.HistoryTaken):
                self._catch_up()
            compare(self.state, self.old)
        return taken

    def _stops_compaction(self, event: ev.Event) -> bool:
        """Return whether the history was compacted by the server, and the caller said stop meanwhile."""
        asked = isinstance(self.state.root.phase, Requesting) and self.state.root.phase.stopping and not event.path
        return asked and isinstance(event, ev.Replied) and event.reply.stop_reason == "compaction"

    def _compacts_late(self, event: ev.Event) -> bool:
        """Return whether a compaction is told of a loop that is not between turns."""
        loop = self.state.at(event.path)
        is_compaction = isinstance(event, ev.HistoryEdited) and event.strategy is not None
        return is_compaction and loop is not None and not isinstance(loop.phase, Ready)

    def _catch_up(self) -> None:
        """Let both do what follows a history that was taken, without another word of the caller."""
        if isinstance(self.old, old_states.Proposed):
            self.old = old.step(self.old, old_ev.Continued())
        self.old = old.step(self.old, old_ev.Ticked())
        super().take(ev.Ticked())
        if isinstance(self.old, old_states.Judging) and not isinstance(self.state.root.phase, Judging):
            self.old = old.step(self.old, old_ev.Judged())
        if isinstance(self.old, old_states.Deciding) and (round_ := self.state.root.round):
            cleared = {call.id for call in round_.having(Status.CLEARED)}
            calls = [
                attrs.evolve(call, status=OLD["Status"].CLEARED) if call.id in cleared else call
                for call in self.old.round.calls
            ]
            self.old = attrs.evolve(self.old, round=attrs.evolve(self.old.round, calls=tuple(calls)))
        for onward in (ev.Judged(), ev.TurnEnded(), ev.Continued()):
            if phase_of(self.state.root)[0] != type(self.old).__name__:
                assert super().take(onward)


def is_bound_to_another(event: ev.Event, error: Exception) -> bool:
    """Return whether a decision was refused because the call is not as it was shown."""
    bound = isinstance(event, ev.Decided) and any(decision.digest for _, decision in event.decisions)
    return bound and isinstance(error, DecisionConflict) and "digests differ" in str(error)


def is_explained(event: ev.Event, before: State, state: Any, *, taken: bool, was_taken: bool) -> bool:
    """Return whether the machines are to differ about an event."""
    if taken == was_taken:
        return False
    if is_stopped(state) and isinstance(event, ev.Ended | ev.GrantRevoked | ev.Woken):
        return True  # a loop inside a stopped one, or a call of its round
    if isinstance(event, ev.HistoryTaken):
        return taken and (isinstance(state, old_states.Executed) or bool(event.rerun))
    return isinstance(event, ev.Ended) and event.result is None and taken


@examples(100)
@given(st.integers(0, 2**32), st.integers(0, 90))
def test_a_life_goes_through_the_same_states(seed: int, steps: int) -> None:
    """Event by event, in single loops and in trees."""
    Twins(random.Random(seed), forks=True).live(steps)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 50_000, 5_000))
@pytest.mark.parametrize("nested", [False, True])
def test_a_hundred_thousand_lives_go_through_the_same_states(first: int, *, nested: bool) -> None:
    """Half of them single loops, half trees; it prints how often what was compared."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + 5_000):
        counts += Twins(random.Random(seed), nested=nested, forks=True).live(120 if nested else 60).counts
    print(dict(counts))  # noqa: T201 - how much was compared
