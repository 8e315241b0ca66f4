"""Crash a program before and after each call to its store, and check that it still keeps the promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, cast

from attrs import frozen

from toolloop.errors import ToolLoopError, UnreadableSnapshot
from toolloop.stores.memory import MemoryStore
from toolloop.stores.protocol import Store
from toolloop.testing.crash_store import CrashHistory, CrashingStore
from toolloop.testing.promises import check_promises

_WAITS = ("needs_decision", "needs_command")
_ENDS = ("ended", "failed")
_RESTARTS = 100  # a program that has not ended after this many restarts never ends
_LOOPS = 1000  # the maximum number of loops in a store


@frozen
class Crash:
    """The outcome of one crash, or of several in sequence.

    Attributes:
        at: for each process that crashed, the number of the boundary, from 0. Later processes woke the loop.
        where: for each process, the call that it was about to make or had just made; None if it ended before the
            boundary.
        statuses: the final status of each loop: `ended`, `failed`, or waiting (`needs_decision`, `needs_command`).
        starts: for each tool, the number of times that its calls were started, by the journal.

    """

    at: tuple[int, ...]
    where: tuple[str | None, ...]
    statuses: Mapping[str, str]
    starts: Mapping[str, int]

    def __str__(self) -> str:
        """Return a summary in one line."""
        places = ", then ".join(
            f"{at}: {place or 'not reached'}" for at, place in zip(self.at, self.where, strict=True)
        )
        ends = ", ".join(f"{loop_id} {status}" for loop_id, status in self.statuses.items())
        starts = ", ".join(f"{tool} started {count} times" for tool, count in self.starts.items())
        return f"{places or 'no crash'}: {'; '.join(part for part in (ends, starts) if part)}"


@frozen
class CrashReport:
    """The outcome of `crash_everywhere`.

    Attributes:
        boundaries: the number of moments at which the program can crash, counted in a run without a crash.
        crashes: the outcome of each crash; the first is the run without a crash.

    """

    boundaries: int
    crashes: tuple[Crash, ...]

    @property
    def waiting(self) -> tuple[Crash, ...]:
        """The crashes after which a loop waits for a decision that the program does not make."""
        return tuple(crash for crash in self.crashes if any(status in _WAITS for status in crash.statuses.values()))

    def __str__(self) -> str:
        """Return a line for each crash."""
        lines = [f"{self.boundaries} boundaries, {len(self.waiting)} crashes end in a wait for the caller"]
        return "\n".join([*lines, *map(str, self.crashes)])


def crash_everywhere(
    program: Callable[[Store], object],
    make_store: Callable[[], Store] = MemoryStore,
    *,
    check: Callable[[Any], object] | None = None,
    depth: int = 1,
) -> CrashReport:
    """Crash a program at every boundary, restart it, and check the promises.

    The program must work like a worker that may be restarted at any time: it opens or creates a loop in the store that
    it is given, and drives the loop until it ends. The first run has no crash; each moment before and after a call to
    the store is a boundary. So a process crashes before a request is sent and after its reply arrives, before and after
    each tool, while it holds the lease and while it releases it. For each boundary, the program gets a new store, runs,
    and crashes there; then it runs again until every loop has ended, or nothing changes any longer.

    Python cannot stop the threads of a crashed process: a tool in its own thread continues. Its result does not reach
    the store.

    Args:
        program: called repeatedly with a store. For an async one: `lambda store: anyio.run(main, store)`.
        make_store: returns an empty store. It is called once for each boundary; reset your own records there, too.
        check: called with the store after the last run of each trial; it raises if your tools made a mistake.
        depth: how many processes crash in sequence. With 2, the process that wakes the loop crashes everywhere, too.

    Returns:
        The outcome of each crash. If a loop waits for a decision after a crash (on a call whose outcome is unknown),
        and the program does not decide, no promise is broken; `waiting` contains it.

    Raises:
        AssertionError: a promise is broken. The message names the boundary and the problem: an event that breaks a
            promise, an event that the store lost, a loop that does not continue, an error of `check` or the program.

    """
    trials: list[_Trial] = []
    crashes: list[Crash] = []
    plans: list[tuple[int, ...]] = [()]  # first without a crash
    for plan in plans:
        trial = _Trial(program, make_store(), plan)
        trials.append(trial)
        crashes.append(trial.run(check))
        if len(plan) < depth and None not in crashes[-1].where:
            plans += [(*plan, at) for at in range(trial.boundaries)]
    return CrashReport(trials[0].boundaries, tuple(crashes))


class _Trial:
    """One store, and the processes that use it in sequence.

    Attributes:
        boundaries: the number of boundaries of the first process that did not crash.

    """

    boundaries: int

    def __init__(self, program: Callable[[Store], object], store: Store, plan: tuple[int, ...]) -> None:
        self._program = program
        self._store = store
        self._plan = plan
        self._where: list[str | None] = []
        self._history = CrashHistory()

    def run(self, check: Callable[[Any], object] | None) -> Crash:
        """Crash as planned, run the program to its end, and check the promises."""
        try:
            for at in self._plan:
                moments = self._run_process(at)
                self._where.append(moments[at] if at < len(moments) else None)
            self._finish()
            crash = self._judge()
            if check is not None:
                check(self._store)
        except (AssertionError, ToolLoopError) as error:
            places = zip(self._plan, self._where, strict=False)
            crashes = [f"crash {place} (boundary {at})" for at, place in places if place]
            raise AssertionError(f"{', then '.join(crashes) or 'without a crash'}: {error}") from error
        finally:
            if (close := getattr(self._store, "close", None)) is not None:
                close()
        return crash

    def _run_process(self, crash_at: int | None = None) -> list[str]:
        """Run one process from start to end; return its moments."""
        process = CrashingStore(self._store, self._history, crash_at)
        try:
            self._program(cast("Store", process))
        except Exception as error:
            if not process.is_dead:
                raise AssertionError(f"the program raised {type(error).__name__}: {error}") from error
        except BaseException:
            if not process.is_dead:
                raise
        finally:
            process.die()
        return process.moments

    def _finish(self) -> None:
        """Run the program until every loop has ended, or nothing changes any longer."""
        for restarts in range(_RESTARTS):
            before = self._loops()
            moments = self._run_process()
            if restarts == 0:
                self.boundaries = len(moments)
            after = self._loops()
            if not after:
                raise AssertionError("the program did not create a loop in the store that it was given")
            if after == before or all(status in _ENDS for status, _ in after.values()):
                return
        raise AssertionError(f"the loop has not ended after {_RESTARTS} runs of the program")

    def _loops(self) -> dict[str, tuple[str, int]]:
        """Return status and revision of each loop."""
        return {loop.loop_id: (loop.status, loop.rev) for loop in self._store.list(limit=_LOOPS)}

    def _judge(self) -> Crash:
        """Check the final content of the store."""
        starts: Counter[str] = Counter()
        statuses = {loop_id: status for loop_id, (status, _) in self._loops().items()}
        journals = {loop_id: self._store.load(loop_id).entries for loop_id in statuses}
        for (loop_id, _), entry in self._history.stored.items():
            if entry not in journals.get(loop_id, ()):
                raise AssertionError(f"the store lost an event that it had accepted: {entry.body[:200]}")
        for loop_id, status in statuses.items():
            try:
                found = check_promises(journals[loop_id])
            except UnreadableSnapshot as error:
                raise AssertionError(f"the journal of {loop_id!r} cannot be read: {error}") from error
            if found.broken:
                raise AssertionError(f"the journal of {loop_id!r} breaks a promise: {'; '.join(found.broken)}")
            if status not in (*_WAITS, *_ENDS):
                raise AssertionError(f"the loop {loop_id!r} is {status}, and running the program again changes nothing")
            starts.update(found.starts)
        return Crash(self._plan, tuple(self._where), statuses, dict(starts))
