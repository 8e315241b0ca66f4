"""Begin effects: record what they begin with, or first ask the caller's functions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from attrs import frozen

from toolloop._engine.failures import describe_error
from toolloop._engine.in_progress import InProgress, ask_one
from toolloop._engine.model_requests import ModelRequests
from toolloop._engine.questions import Questions, make_async
from toolloop._engine.runtimes import Runtime, Runtimes
from toolloop._engine.tool_runs import ToolRuns
from toolloop._interface.drift import list_lost_grants
from toolloop._interface.loop_params import check_request
from toolloop._interface.message_edits import refuse_unsendable
from toolloop.errors import BadTool, InvalidHistory
from toolloop.machine.queries import driven_at
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import Loop, Path
from toolloop.machine.values.calls import Status
from toolloop.machine.values.jsontext import decode
from toolloop.machine.values.setup import Setup, drop_brought
from toolloop.tools.sdk_tools import ServerTools

LOG = logging.getLogger("toolloop")


@frozen(eq=False)
class Beginnings:
    """Begins effects. Hold the lock of the journal when you call a method."""

    _progress: InProgress
    _runtimes: Runtimes
    _requests: ModelRequests
    _runs: ToolRuns

    def begin(self, effect: Effect) -> None:
        """Begin an effect that is outstanding."""
        state = self._progress.journal.state
        runtime, loop = self._find_runtime(effect.path), driven_at(state, effect.path)
        if runtime is None or loop is None or self._progress.journal.state is not state:
            return  # the tools were compared and changed, so the effect may have changed
        match effect:
            case SendRequest():
                if loop.turn_iterations or not self._adopt_tools(runtime, loop):
                    self._requests.begin(runtime, loop)
            case CancelRequest():
                self._requests.cancel(effect.path)
            case Judge():
                around, external = self._runtimes.find_around(state, effect.path), runtime.list_external(loop)
                judging = runtime.policies.judge(loop, effect, external, self._progress.journal.now(), around)
                self._progress.ask(effect, judging, self._record_judgement)
            case RunCall():
                self._runs.begin(runtime, loop, effect)
            case Conclude():
                self._runs.conclude(runtime, loop, effect)
            case EndTurn():
                asking = runtime.policies.make_previews(loop)
                self._progress.ask(effect, asking, partial(self._end_turn, effect.path))

    def _end_turn(self, path: Path, previews: tuple[tuple[str, str], ...]) -> None:
        waits = bool(self._progress.journal.state.loops[path].calls.having(Status.RUNNING))
        self._progress.record(ev.TurnEnded(path=path, previews=previews, waits=waits))

    def _record_judgement(self, event: ev.Judged) -> None:
        if event.stop or event.results or event.only:
            self._progress.record(event)
        else:  # without a time, so that the journal can leave it out
            self._progress.journal.record(event)

    def _find_runtime(self, path: Path) -> Runtime | None:
        """Return the runtime of a loop. A loop whose tool is gone is lost with its call."""
        state = self._progress.journal.state
        runtime = self._runtimes.at(state, path)
        if runtime is None:
            if self._find_runtime(path[:-1]) is not None and driven_at(self._progress.journal.state, path) is not None:
                self._progress.record(ev.Ended(path[-1], None, path=path[:-1]))
            return None
        if runtime.is_new:
            old = state.loops[path].setup
            setup, runtime.is_new = runtime.renew_setup(old), False
            if setup != old:
                runtime.is_unchecked = True
                self._record_tools(state.loops[path], setup)
        return runtime

    # --- the lists of servers ---

    def _adopt_tools(self, runtime: Runtime, loop: Loop) -> bool:
        """Adopt what servers changed, before the first request of a user turn. Return whether the effect must wait.

        A loop inside a call has one turn, and keeps the tools with which it began.
        """
        if loop.setup.path or not runtime.tools.may_change:
            return False
        if runtime.tools.server_lists and runtime.read_at != loop.iterations:
            finish = partial(self._take_lists, runtime, loop.iterations)
            reading = _read_lists(runtime.tools.server_lists, is_async=self._requests.is_async)
            self._progress.ask(SendRequest(), reading, finish)
            return True
        setup = runtime.renew_setup(loop.setup, is_user_turn=True)
        if setup != loop.setup:
            runtime.is_unchecked = True
            self._record_tools(loop, setup)
        return setup != loop.setup

    def _take_lists(self, runtime: Runtime, read_at: int, problems: Sequence[str]) -> None:
        """Drive the loop with the tools that its servers have now. If there is a problem, it keeps the old ones."""
        runtime.read_at, setup = read_at, self._progress.journal.state.root.setup
        for problem in problems:
            self._warn(f"the tools of a server could not be read again: {problem}")
        try:
            tools = runtime.tools.renew()
            if [*tools] == [*runtime.tools]:
                return
            loop = self._progress.journal.state.root._replace(setup=drop_brought(setup, tools.names))
            check_request(decode(loop.setup.params), tools.definitions(), asked="the next request")
            refuse_unsendable(loop, tools, asked="the next request")  # messages may define and name tools
        except (BadTool, InvalidHistory, ValueError) as error:
            self._warn(f"the tools of a server changed, but cannot be used: {error}")
        else:
            runtime.take_tools(setup, tools)

    def _warn(self, problem: str) -> None:
        LOG.warning("%s. The loop keeps the tools that it has", problem, extra=self._progress.log_fields(()))

    def _record_tools(self, loop: Loop, setup: Setup) -> None:
        self.revoke_grants(loop, setup)
        self._progress.record(ev.Woken(setup, path=setup.path), "step")

    def revoke_grants(self, loop: Loop, setup: Setup | None) -> None:
        """Record that the grants of tools that are others in a new setup are revoked."""
        for revoked in () if setup is None else list_lost_grants(loop, setup):
            self._progress.record(revoked, "step")


def _read_lists(lists: Iterable[ServerTools], *, is_async: bool) -> Questions[list[str]]:
    """Read the tools that each server has now. Return the problems."""
    problems: list[str] = []
    for each in lists:
        found = yield from ask_one(make_async(each.fetch) if is_async else each.fetch)
        if isinstance(found, Exception):
            problems.append(describe_error(found))
        else:
            each.update(found)
    return problems
