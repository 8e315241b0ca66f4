"""Decide calls: a function of the state that returns the event to record, and what stands in each call after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from toolloop._engine.policies import find_misfit
from toolloop._engine.runtimes import ToolsOfLoops
from toolloop._interface.call_names import find_open_call, find_path, join_path
from toolloop._interface.decisions import make_closed_error, make_nothing_waits_error, to_record
from toolloop._interface.shown import Named
from toolloop._interface.standing import Standing, standing_of
from toolloop._messages.blocks import RESULT_KINDS
from toolloop.errors import CallerError, IllegalCommand, InvalidEdit
from toolloop.machine.queries import find_open_round
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Loop, State
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Answer, Approve, Call, Decision, DecisionRecord, Status
from toolloop.machine.values.jsontext import decode
from toolloop.tools.calls import ToolCall
from toolloop.tools.responses.results import find_kinds_for
from toolloop.tools.secrets import SecretKey, restore_secrets

Decisions = Sequence[tuple[Named, Decision]]
Outcome = Standing | CallerError
Check = Callable[[ToolCall, Decision], None]


@frozen
class Decided:
    """What comes of decisions.

    Attributes:
        event: the event to record; None if nothing changes.
        outcomes: what stands in each call, in the order of the decisions; or the error that refuses the decision.

    """

    event: ev.Decided | None
    outcomes: tuple[Outcome, ...]


@frozen
class Deciding:
    """What decisions need besides the state.

    Attributes:
        runtimes: the tools of the loops.
        now: seconds since the epoch.
        via: where a person decides.
        key: see `restore_secrets`.
        check: takes a waiting call as it would run, and the decision; raises if the person may not make it.

    """

    runtimes: ToolsOfLoops
    now: float
    via: str
    key: SecretKey
    check: Check | None = None


def decide_calls(deciding: Deciding, state: State, decisions: Decisions, *, each: bool) -> Decided:
    """Decide calls: all of them, or none; with `each`, those whose decision is not refused.

    Raises:
        UnknownCall: a call does not exist, or several calls have its id.
        AlreadyDecided: a call has its result, and the decision is not a repetition.
        NotAllowed: the person may not decide a call.
        DecisionConflict: a call has changed since it was shown, or another decision was made.
        IllegalCommand: a call does not wait, or does not take this kind of decision.

    """
    after, taken = state, list[tuple[str, DecisionRecord] | CallerError]()
    for together in [[one] for one in decisions] if each else [decisions] if decisions else []:
        try:
            records = [_make_record(deciding, after, named, decision) for named, decision in together]
            after = step(after, ev.Decided(tuple(records)))  # each has its own time, which expires no other call
        except CallerError as error:
            if isinstance(error, IllegalCommand):
                error.state = type(state.root.phase).__name__  # always the phase of the outermost loop
            if not each:
                raise
            taken.append(error)
        else:
            taken += records
    outcomes = tuple([one if isinstance(one, CallerError) else _describe_standing(after, *one) for one in taken])
    # A repeated decision changes nothing, and is not recorded.
    new = [one for one in taken if not isinstance(one, CallerError) and _has_changed(state, after, one[0])]
    if not new:
        return Decided(None, outcomes)
    still_waits = any(_find_call(after, name).status is Status.WAITING for name, _ in new)
    return Decided((ev.Approved if still_waits else ev.Decided)(tuple(new)), outcomes)


def _has_changed(before: State, after: State, name: str) -> bool:
    return _find_call(before, name) != _find_call(after, name)


def _make_record(deciding: Deciding, state: State, named: Named, decision: Decision) -> tuple[str, DecisionRecord]:
    """Return the name of a call, and the decision in the machine's form."""
    path = find_path(state, named)
    name = join_path(path)
    if find_open_round(state.root) is None:
        raise make_closed_error(state.root, name, path[0]) or make_nothing_waits_error(name, state.root)
    loop, runtime = state.at(path[:-1]), deciding.runtimes.at(state, path[:-1])
    call = None if loop is None else find_open_call(loop, path[-1])
    if call is None and loop is not None and (closed := make_closed_error(loop, name, path[-1])) is not None:
        raise closed
    if loop is not None and call is not None:
        decision = _restore_secrets(decision, call, loop.setup.secrets_of(call.name), deciding.key)
    kinds, known = RESULT_KINDS if call is None else find_kinds_for(call), None
    if loop is not None and runtime is not None and _may_refer(decision):
        known = runtime.list_known_tools(loop)
    record = to_record(decision, call_id=name, now=deciding.now, kinds=kinds, known_tools=known, via=deciding.via)
    edited = decision.input if isinstance(decision, Approve) else None
    # The machine refuses a call that does not wait, and names the existing decision.
    if edited is not None and call is not None and call.status is Status.WAITING and runtime is not None:
        tool = runtime.tools.get(call.name)
        if tool is not None and (problem := find_misfit(tool, edited)):  # the error is the caller's, not the model's
            raise InvalidEdit(
                f"cannot approve the call {name!r}: the edited input does not fit the schema of {tool.name}. {problem}",
                state=type(state.root.phase).__name__,
                asked="approve",
                allowed=("approve", "deny", "answer"),
            )
    if deciding.check is not None and loop is not None and call is not None and call.status is Status.WAITING:
        _check(deciding.check, loop, call if edited is None else call._replace(edited=record.content), decision)
    return name, record


def _check(check: Check, loop: Loop, call: Call, decision: Decision) -> None:
    round_ = find_open_round(loop)
    check(ToolCall(call, loop.setup, 0 if round_ is None else round_.iteration), decision)


def _restore_secrets(decision: Decision, call: Call, names: tuple[str, ...], key: SecretKey) -> Decision:
    """Return an edit in which a secret that came back as it was shown keeps its value."""
    if not (names and isinstance(decision, Approve) and isinstance(decision.input, Mapping)):
        return decision
    return evolve(decision, input=restore_secrets(decision.input, decode(call.effective_input), names, key))


def _find_call(state: State, name: str) -> Call:
    """Return an open call that has just taken a decision."""
    *path, call_id = name.split("/")
    call = find_open_call(state.loops[tuple(path)], call_id)
    if call is None:
        raise LookupError(name)
    return call


def _describe_standing(state: State, name: str, record: DecisionRecord) -> Standing:
    return standing_of(_find_call(state, name), record)


def _may_refer(decision: Decision) -> bool:
    """Return whether a decision may refer to a tool. Only blocks can, and finding all tools reads the whole history."""
    return isinstance(decision, Answer) and not isinstance(decision.content, str)
