"""Begin effects: record what they begin with, or first ask the caller's functions."""

from __future__ import annotations

from functools import partial

from toolloop._engine.in_progress import InProgress
from toolloop._engine.model_requests import ModelRequests
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._engine.tool_runs import ToolRuns
from toolloop.machine.queries import has_running
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.state import Path


class Beginnings:
    """Begins effects. Hold the lock of the journal when you call a method."""

    def __init__(self, progress: InProgress, runtimes: Runtimes, requests: ModelRequests, runs: ToolRuns) -> None:
        """Keep the parts."""
        self._progress = progress
        self._runtimes = runtimes
        self._requests = requests
        self._runs = runs

    def begin(self, effect: Effect) -> None:
        """Begin an effect that is outstanding."""
        state = self._progress.state
        runtime, loop = self._find_runtime(effect.path), self._progress.loop(effect.path)
        if runtime is None or loop is None or self._progress.state is not state:
            return  # the tools were compared and changed, so the effect may have changed
        match effect:
            case SendRequest():
                self._requests.begin(runtime, loop)
            case CancelRequest():
                self._requests.cancel(effect.path)
            case Judge():
                around, external = self._runtimes.around(state, effect.path), runtime.external(loop.setup)
                judging = runtime.policies.judge(loop, effect, external, self._progress.journal.now(), around)
                self._progress.ask(effect, judging, self._record_judgement)
            case RunCall():
                self._runs.begin(runtime, loop, effect)
            case Conclude():
                self._runs.conclude(runtime, loop, effect)
            case EndTurn():
                asking = runtime.policies.previews(loop)
                self._progress.ask(effect, asking, partial(self._end_turn, effect.path))

    def _end_turn(self, path: Path, previews: tuple[tuple[str, str], ...]) -> None:
        waits = has_running(self._progress.state.loops[path])
        self._progress.record(ev.TurnEnded(path=path, previews=previews, waits=waits))

    def _record_judgement(self, event: ev.Judged) -> None:
        if event.stop or event.results or event.only:
            self._progress.record(event)
        else:  # without a time, so that the journal can leave it out
            self._progress.journal.record(event)

    def _find_runtime(self, path: Path) -> Runtime | None:
        """Return the runtime of a loop. A loop whose tool is gone is lost with its call."""
        state = self._progress.state
        runtime = self._runtimes.at(state, path)
        if runtime is None:
            if self._find_runtime(path[:-1]) is not None and self._progress.loop(path) is not None:
                self._progress.record(ev.Ended(path[-1], None, path=path[:-1]))
            return None
        if runtime.is_new:
            old = state.loops[path].setup
            setup, runtime.is_new = runtime.setup(old), False
            if setup != old:
                runtime.is_unchecked = True
                self._progress.record(ev.Woken(setup, path=path))
        return runtime
