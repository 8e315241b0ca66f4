"""The caller's word on calls: decisions, grants, and that time has passed. All of a decision is taken, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from toolloop.core import events as ev
from toolloop.core.blocks import RESULT_KINDS
from toolloop.core.errors import CallerError, IllegalCommand, UnknownCall
from toolloop.core.machine import is_due, step
from toolloop.core.states import Deciding, Judging, Proposed, Running, State
from toolloop.core.tree import everywhere, loop_at, loops, round_of
from toolloop.core.values import Answer, Approve, Call, Decision
from toolloop.handle.decisions import nothing_waits, to_ruling
from toolloop.handle.granting import Grants, is_over, shown
from toolloop.handle.judging import misfit
from toolloop.handle.reading import Reading
from toolloop.handle.tooling import kinds_for
from toolloop.handle.turns import Named, bound
from toolloop.handle.views import ToolCall

T = TypeVar("T")
Path = tuple[str, ...]


class Answering(Reading):
    """The decisions of both handles."""

    def decide(self, decisions: Mapping[str | ToolCall, Decision]) -> None:
        """Decide calls by id, by path, or by the `ToolCall` that was shown: all of them, or none.

        An id is enough where no other open call has it, in this loop or in the loops inside its calls. Else give the
        ids that lead to the call, joined with slashes: `"p1/c1"`, and `"/c1"` for a call of the outermost loop.
        Safe from any thread at any time; what is decided while a turn is in progress joins the next one.

        Raises:
            UnknownCall: a call that is not there, or that has its result; or an id that several calls have.
            DecisionConflict: another call than the one shown, or decided otherwise already.
            IllegalCommand: a call that does not wait, or does not take such a decision.

        """
        if not isinstance(decisions, Mapping):
            raise TypeError(f"decide() got a {type(decisions).__name__}; give a mapping of calls to decisions")
        self._take_decisions([bound(call, decision) for call, decision in decisions.items()])

    def _take_decisions(self, decisions: Sequence[tuple[Named, Decision]]) -> None:
        """Record decisions, all or none. See `decide`."""
        with self._recorder.lock:
            self._tick()
            try:
                self._say(lambda: self._decide(decisions))
            except IllegalCommand as error:
                error.state = type(self._state).__name__  # one error, one meaning: where the loop is
                raise
        self._ring()

    def _decide(self, decisions: Sequence[tuple[Named, Decision]]) -> None:
        now = self._recorder.now()
        state = self._state
        if not decisions:
            return
        if not isinstance(state, Proposed | Judging | Deciding | Running):
            raise nothing_waits(_joined(_path_of(decisions[0][0])), state)
        rulings = []
        for named, decision in decisions:
            path = _found(state, named)
            call = _call_at(state, path)
            kinds = RESULT_KINDS if call is None else kinds_for(call)
            known = self._known_tools(path[:-1]) if _may_refer(decision) else None
            name = _joined(path)
            rulings.append((name, to_ruling(decision, call_id=name, now=now, kinds=kinds, known_tools=known)))
            self._check_edit(path, call, decision)
        event = ev.Decided(rulings=tuple(rulings), at=now)
        before, after = step(state, ev.Ticked(at=now)), step(state, event)
        if _rounds(before) != _rounds(after):
            self._record(event)  # else it was said before, and is one decision

    def _check_edit(self, path: Path, call: Call | None, decision: Decision) -> None:
        """An edited input that does not fit the schema is the caller's mistake, not the model's."""
        if call is None or not isinstance(decision, Approve) or decision.input is None:
            return
        tool = self._tools_at(path[:-1]).get(call.name)
        if tool is not None and (problem := misfit(tool, decision.input)):
            raise IllegalCommand(
                f"approve of the call {_joined(path)!r}: the edited input does not fit the schema of {tool.name}. "
                f"{problem}",
                state=type(self._state).__name__,
                asked="approve",
                allowed=("approve", "deny", "answer"),
            )

    def _say(self, say: Callable[[], T]) -> T:
        """Let the caller say something. What is refused may only be so for what others said: then it is tried again."""
        with self._recorder.lock:
            if self._stored is None:
                return say()
            try:
                with self._recorder.saying():
                    return say()
            except CallerError:
                if not self._recorder.refresh():
                    raise
            with self._recorder.saying():
                return say()

    @property
    def grants(self) -> Grants:
        """The standing grants: what runs unasked. `grants.revoke(...)` takes one back."""
        with self._recorder.lock:
            state = self._state
            now = max(state.ledger.now, self._recorder.now())
        given = ((path, grant) for path, loop in everywhere(state) for grant in loop.ledger.grants)
        standing = ((path, grant) for path, grant in given if grant.uses != 0 and not is_over(grant, now))
        return Grants([shown(path, grant) for path, grant in standing], self._revoke)

    def _revoke(self, grant_id: str, by: str | None) -> None:
        *path, iteration, call_id = ("", grant_id) if "/" not in grant_id else grant_id.split("/")
        name = f"{iteration}/{call_id}" if iteration else call_id
        self._say(lambda: self._record(ev.GrantRevoked(name, by, at=self._recorder.now(), path=tuple(path))))

    def _tick(self, now: float | None = None) -> None:
        with self._recorder.lock:
            at = self._recorder.now() if now is None else now
            if not is_due(self._state, at):
                return
            self._say(lambda: self._record(ev.Ticked(at=at)))
        self._ring()

    def _ring(self) -> None:
        """Wake the driver up, if one waits for calls to end."""


def _path_of(named: Named) -> Path:
    return named if isinstance(named, tuple) else (named,)


def _joined(path: Path) -> str:
    return "/".join(path)


def _found(state: State, named: Named) -> Path:
    """The path of an open call that is named by it, or by its id alone.

    Raises:
        UnknownCall: several open calls have this name.

    """
    if isinstance(named, tuple):
        return named
    having = [path for path in _open_paths(state) if named in (path[-1], _joined(path), f"/{_joined(path)}")]
    if len(having) > 1:
        names = ", ".join(f"/{_joined(each)}" for each in having)
        raise UnknownCall(
            f"a decision names the call {named!r}, and several have that name: give the path of the one you mean, of "
            f"{names}; or the ToolCall that was shown",
            call=named,
            known=tuple(map(_joined, having)),
        )
    return having[0] if having else _path_of(named)


def _open_paths(state: State) -> list[Path]:
    """The paths of all calls of open rounds."""
    return [
        (*above, call.id)
        for above, loop in loops(state)
        if isinstance(loop, Proposed | Judging | Deciding | Running)
        for call in loop.round.calls
    ]


def _call_at(state: State, path: Path) -> Call | None:
    loop = loop_at(state, path[:-1])
    return loop.round.find(path[-1]) if isinstance(loop, Proposed | Judging | Deciding | Running) else None


def _rounds(state: State) -> list[object]:
    """The calls of the whole tree, and what was allowed with them."""
    return [(round_of(loop), loop.ledger.grants) for _, loop in loops(state)]


def _may_refer(decision: Decision) -> bool:
    """Whether a decision may refer to a tool: only blocks can, and to look all tools up takes the whole history."""
    return isinstance(decision, Answer) and not isinstance(decision.content, str)
