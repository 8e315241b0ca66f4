"""Killing a program at every moment that matters, and looking whether it still keeps the promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from toolloop.core.errors import ToolLoopError, UnreadableSnapshot
from toolloop.core.freezing import frozen
from toolloop.stores.audit import audit
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Store, StoredLoop
from toolloop.testing.crash_store import Graveyard, Killed, MortalStore

S = TypeVar("S", bound=Store)

_WAITS = ("needs_decision", "needs_command")
_RESTARTS = 100  # a program that is restarted more often, and still gets on, does not come to an end


@frozen
class Crash:
    """What came of one way to die.

    Attributes:
        at: the number of the boundary at which each process died, from 0; a later one is one that woke the loop.
        where: what it was about to do, or had just done; None where it came to its end before.
        statuses: how each loop stood in the end: `ended`, or waiting for the caller (`needs_decision`,
            `needs_command`).
        starts: how often calls of each tool were started, by the journal.

    """

    at: tuple[int, ...]
    where: tuple[str | None, ...]
    statuses: Mapping[str, str]
    starts: Mapping[str, int]

    def __str__(self) -> str:
        """One line."""
        places = ", then ".join(
            f"{at}: {place or 'never came to it'}" for at, place in zip(self.at, self.where, strict=True)
        )
        ends = ", ".join(f"{loop_id} {status}" for loop_id, status in self.statuses.items())
        starts = ", ".join(f"{tool} started {count} times" for tool, count in self.starts.items())
        return f"{places or 'no crash'}: {'; '.join(part for part in (ends, starts) if part)}"


@frozen
class CrashReport:
    """What `crash_everywhere` did.

    Attributes:
        boundaries: how many moments there are at which the program can die, if nothing comes between.
        runs: how many times it was run.
        crashes: what came of each; the first is the run without any.

    """

    boundaries: int
    runs: int
    crashes: tuple[Crash, ...]

    @property
    def waiting(self) -> tuple[Crash, ...]:
        """Those after which a loop waits for a word that the program does not say."""
        return tuple(crash for crash in self.crashes if any(status in _WAITS for status in crash.statuses.values()))

    def __str__(self) -> str:
        """A line for each."""
        lines = [f"{self.boundaries} boundaries, {self.runs} runs, {len(self.waiting)} end in a wait for the caller"]
        return "\n".join([*lines, *map(str, self.crashes)])


def crash_everywhere(
    program: Callable[[Store], object],
    make_store: Callable[[], S] = MemoryStore,  # type: ignore[assignment]  # a MemoryStore is a Store
    *,
    check: Callable[[S], object] | None = None,
    depth: int = 1,
) -> CrashReport:
    """Kill a program at every boundary, wake it, and check the promises.

    The program is a worker that may be restarted at any time: it opens a loop in the store it is given, or creates it,
    and drives it towards its end. It runs once without a crash; each moment before and after a call to the store is a
    boundary. So a process dies before a request is sent, and when its reply is in but not stored; before and after
    each tool; while the lease is held, and while it is given back. For each boundary there is a new store: the program
    runs, and dies there; then it is run again until every loop has ended, or nothing happens any more.

    A process that dies loses its threads at once, which nothing in Python can do to them: a tool that runs in a thread
    of its own when its driver dies runs on here. Its result reaches the store no more.

    Args:
        program: it is called with a store, again and again. An async one: `lambda store: anyio.run(main, store)`.
        make_store: gives an empty store. It is called once for each boundary; here your own witnesses begin anew, too.
        check: called with the store at each end; it raises what is wrong with what your tools did.
        depth: how many processes die one after the other: with 2, the one that wakes the loop dies everywhere too.

    Returns:
        What came of each. Where a loop waits for the caller after a crash (as a call does whose end nobody saw) and
        the program does not say the word, that is no broken promise; it is told in `waiting`.

    Raises:
        AssertionError: a promise is broken. It names the boundary, and what is wrong: what `audit` found, an event
            that the store said it had and has not, a loop that does not get on, what `check` or the program raised.

    """
    clean, boundaries = _Trial(program, make_store, check, ()).held()
    crashes, runs = [clean.crash], clean.runs
    plans: list[tuple[int, ...]] = [(at,) for at in range(boundaries)]
    while plans:
        plan = plans.pop(0)
        trial, following = _Trial(program, make_store, check, plan).held()
        crashes.append(trial.crash)
        runs += trial.runs
        if len(plan) < depth and None not in trial.crash.where:
            plans += [(*plan, at) for at in range(following)]
    return CrashReport(boundaries, runs, tuple(crashes))


class _Trial:
    """One store, and the processes that used it one after the other."""

    crash: Crash

    def __init__(
        self,
        program: Callable[[Store], object],
        make_store: Callable[[], S],
        check: Callable[[S], object] | None,
        plan: tuple[int, ...],
    ) -> None:
        self.runs = 0
        self._program = program
        self._plan = plan
        self._where: list[str | None] = []
        self._graveyard = Graveyard()
        store = make_store()
        self._store: Store = store
        self._check = None if check is None else partial(check, store)

    def held(self) -> tuple[_Trial, int]:
        """Hold it. How many boundaries there were for the first process that did not die is told with it."""
        try:
            for at in self._plan:
                mortal = self._live(at)
                self._where.append(mortal.moments[at] if len(mortal.moments) > at else None)
            boundaries = self._wake()
            self.crash = self._judge()
        finally:
            close = getattr(self._store, "close", None)
            if close is not None:
                close()
        return self, boundaries

    def _live(self, dies_at: int | None = None) -> MortalStore:
        """One process, from its start to its end."""
        mortal = MortalStore(self._store, self._graveyard, dies_at)
        self.runs += 1
        try:
            self._program(mortal)
        except Killed:
            pass
        except BaseException as error:
            if isinstance(error, Exception) and not mortal.is_dead:
                raise self._broken(f"the program raised {type(error).__name__}: {error}") from error
            if not mortal.is_dead:
                raise
        finally:
            mortal.die()
        return mortal

    def _wake(self) -> int:
        """Run the program until every loop has ended, or nothing happens any more."""
        boundaries = None
        for _ in range(_RESTARTS):
            before = self._loops()
            mortal = self._live()
            boundaries = len(mortal.moments) if boundaries is None else boundaries
            after = self._loops()
            if not after:
                raise self._broken("the program keeps no loop in the store that it is given")
            if all(loop.status == "ended" for loop in after.values()):
                return boundaries
            if {key: loop.rev for key, loop in before.items()} == {key: loop.rev for key, loop in after.items()}:
                return boundaries
        raise self._broken(f"the program was run {_RESTARTS} times, and the loop has not ended")

    def _loops(self) -> dict[str, StoredLoop]:
        return {loop.loop_id: loop for loop in self._listed()}

    def _listed(self) -> Iterator[StoredLoop]:
        page = self._store.list()
        while page:
            yield from page
            page = self._store.list(before=page[-1].loop_id)

    def _judge(self) -> Crash:
        """Check what is in the store in the end."""
        starts: Counter[str] = Counter()
        statuses = {loop_id: loop.status for loop_id, loop in self._loops().items()}
        for loop_id, status in statuses.items():
            journal = self._store.load(loop_id)
            bodies = {entry.id: entry.body for entry in journal.entries}
            for (of_loop, entry_id), body in self._graveyard.stored.items():
                if of_loop == loop_id and bodies.get(entry_id) != body:
                    raise self._broken(f"the store said that it had stored this, and does not have it: {body[:200]}")
            try:
                found = audit(journal)
            except UnreadableSnapshot as error:
                raise self._broken(f"the journal of {loop_id!r} cannot be read: {error}") from error
            if not found.ok:
                told = "; ".join(f"entry {each.entry}, {each.rule}: {each.message}" for each in found.problems)
                raise self._broken(f"the journal of {loop_id!r} breaks a promise: {told}")
            if status not in (*_WAITS, "ended"):
                raise self._broken(f"the loop {loop_id!r} is {status}, and running the program again changes nothing")
            starts.update(action.tool or "" for action in found.actions if action.what == "started")
        try:
            if self._check is not None:
                self._check()
        except (AssertionError, ToolLoopError) as error:
            raise self._broken(f"{type(error).__name__}: {error}") from error
        return Crash(self._plan, tuple(self._where), statuses, dict(starts))

    def _broken(self, why: str) -> AssertionError:
        died = [f"killed {place} (boundary {at})" for at, place in zip(self._plan, self._where, strict=False) if place]
        return AssertionError(f"{', then '.join(died) or 'without a crash'}: {why}")
