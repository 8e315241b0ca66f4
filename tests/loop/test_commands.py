"""Commands: each is a function of the state, which gives an event that the machine takes, or refuses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.each import each
from tests.machine import making as m
from tests.machine.worlds import World
from toolloop import (
    Answer,
    Approve,
    Continue,
    Deny,
    Grant,
    InjectMessages,
    LoopConfig,
    Rerun,
    Stop,
    ToolRegistry,
    tool,
)
from toolloop.errors import (
    BadTool,
    CallerError,
    DecisionConflict,
    IllegalCommand,
    InvalidHistory,
    UndecidedCalls,
    UnknownCall,
)
from toolloop.face.calls import ToolCall
from toolloop.face.results import Named
from toolloop.loop.commands import Commands, Said, read_limits, read_params
from toolloop.loop.message_edits import Edit
from toolloop.loop.runtimes import Runtime, Runtimes
from toolloop.machine import events as ev
from toolloop.machine.chain import Chain
from toolloop.machine.jsontext import decode, encode
from toolloop.machine.loop import Finished, Waiting
from toolloop.machine.queries import driven, waiting
from toolloop.machine.setup import Limits
from toolloop.machine.state import State
from toolloop.machine.tree import begin, step
from toolloop.machine.values import Decision, Why
from toolloop.requests.params import Secrets

NOW = 1_000_000_000.0
PARAMS = encode({"model": "claude-opus-5-5", "max_tokens": 100})
LOOKUP = {"name": "lookup", "description": "Look up.", "input_schema": {"type": "object", "properties": {}}}


@tool(needs_approval=True)
def once(a: int) -> str:
    """Do it once."""
    return str(a)


@tool(effect="pure")
def pure(a: int) -> str:
    """Do it as often as you like."""
    return str(a)


def commands_of(state: State, now: float = NOW) -> Commands:
    setup = state.root.setup
    root = Runtime.of(setup, ToolRegistry([once, pure]), LoopConfig(), Secrets())
    return Commands(Runtimes(root), lambda: now)


def asking(*call_ids: str, **changes: Any) -> State:
    """A loop that waits for a decision on these calls."""
    reply = m.replied("tool_use", *(m.call(call_id) for call_id in call_ids))
    return m.after(reply, m.asks(*call_ids), **({"params": PARAMS} | changes))


def executed() -> State:
    """A loop that waits after a round."""
    return m.go(ready_to_run(), ev.Started("c"), m.ended("c"), ev.TurnEnded())


def ready_to_run() -> State:
    return m.after(m.replied("tool_use", m.call("c", "pure")), m.judged(), params=PARAMS)


def finished(**changes: Any) -> State:
    return m.after(m.replied("end_turn", m.text("so")), **({"params": PARAMS} | changes))


def failed() -> State:
    return m.after(ev.RequestFailed(m.FAILURE), params=PARAMS)


def paused() -> State:
    return m.after(m.replied("pause_turn", m.text("so far"), m.server_call("srvtoolu_1")), params=PARAMS)


def too_deep() -> State:
    return m.after(ev.TurnEnded(), depth=3, limits=Limits(max_depth=3), params=PARAMS)


def requesting() -> State:
    return m.after(ev.Requested(), params=PARAMS)


def nested() -> State:
    """A loop with a call of the same id inside and outside."""
    state = m.after(
        m.replied("tool_use", m.call("p", "pure"), m.call("c", "once")), m.asks("c"), params=PARAMS, execution="ready"
    )
    state = m.go(state, ev.Continued())
    state = step(state, m.child(state, "p", params=PARAMS))
    inside = (evolve(m.replied("tool_use", m.call("c", "once")), path=("p",)), evolve(m.asks("c"), path=("p",)))
    return m.go(state, *inside)


STATES: dict[str, Callable[[], State]] = {
    "Ready": lambda: m.after(params=PARAMS),
    "Requesting": requesting,
    "Judging": lambda: m.after(m.replied("tool_use", m.call("c")), params=PARAMS),
    "Running": ready_to_run,
    "decision_required": lambda: asking("c"),
    "tools_executed": executed,
    "paused": paused,
    "Finished": finished,
    "Failed": failed,
    "TooDeep": too_deep,
}


def name_of(state: State) -> str:
    phase = state.root.phase
    return phase.reason if isinstance(phase, Waiting) else type(phase).__name__


def test_the_states_are_what_they_are_called() -> None:
    """So that the tests below look at each phase."""
    assert {name: name_of(make()) for name, make in STATES.items()} == {name: name for name in STATES}


# --- whatever the state ----------------------------------------------------------------------------------------------


lives = st.tuples(st.integers(0, 2**32), st.integers(0, 60)).map(
    lambda life: World(random.Random(life[0]), params=PARAMS).live(life[1]).states
)


def all_commands(state: State, rng: random.Random) -> Iterator[Said]:
    """What a caller may tell a loop: each command, and decisions on calls that wait or do not."""
    commands = commands_of(state, state.root.now + rng.choice((0.0, 1e6)))
    for command in (Continue(), Stop("enough"), InjectMessages([decode(m.user("more"))])):
        yield commands.read(command)[1]
    yield commands.retry
    for replace_last in (False, True):
        yield partial(commands.follow_up, texts=(m.user("and?"),), replace_last=replace_last)
    yield partial(commands.extend, limits=read_limits(max_iterations=50))
    yield partial(commands.update_params, changes=read_params({"model": "claude-sonnet-4-5", "temperature": None}))
    yield partial(commands.tick, now=state.root.now + 1e6)
    for path, loop in driven(state):
        for grant in loop.grants:
            yield partial(commands.revoke, grant_id="/".join((*path, grant.id)), by="ana")
        for call in loop.round.calls if loop.round else ():
            decision = rng.choice((Approve(), Deny("no"), Answer("mine"), Rerun(), Approve(remember=Grant())))
            yield partial(commands.decide, decisions=[((*path, call.id), decision)])


@given(lives, st.randoms(use_true_random=False))
def test_a_command_is_taken_or_refused(states: list[State], rng: random.Random) -> None:
    """By the command or by the machine, with an error that says so; asked again of the same state, it says the same."""
    state = states[-1]
    for said in all_commands(state, rng):
        try:
            event = said(state)
        except (CallerError, ValueError) as error:  # the parameters of some lives are none that the API takes
            with pytest.raises(type(error)):
                said(state)
            continue
        assert said(state) == event
        if event is not None:
            with suppress(CallerError):
                step(state, event)


@given(lives, st.randoms(use_true_random=False))
def test_a_decision_that_is_made_again_changes_nothing(states: list[State], rng: random.Random) -> None:
    """By whichever name: its path, its id where that is unique, or the path joined with slashes."""
    for state in [state for state in states if waiting(state)][-3:]:
        commands = commands_of(state, state.root.now)
        path, call = rng.choice(waiting(state))
        decision = DECISIONS[call.why or Why.APPROVAL]
        event = commands.decide(state, [((*path, call.id), decision)])
        assert event is not None
        after = step(state, event)
        joined = "/".join((*path, call.id))
        assert commands.decide(after, [((*path, call.id), decision), (f"/{joined}", decision)]) is None
        others = [each for _, loop in driven(after) if loop.round for each in loop.round.calls if each.id == call.id]
        if len(others) == 1:
            assert commands.decide(after, [(call.id, decision)]) is None


def record(state: State, said: Said) -> State:
    """The state after a command."""
    event = said(state)
    return state if event is None else step(state, event)


DECISIONS: dict[Why, Decision] = {Why.APPROVAL: Approve(), Why.EXTERNAL: Answer("it"), Why.UNCERTAIN: Rerun()}


# --- decisions -------------------------------------------------------------------------------------------------------


def decided(state: State, **decisions: Any) -> State:
    event = commands_of(state).decide(state, list(decisions.items()))
    return state if event is None else step(state, event)


def test_all_decisions_are_taken_or_none() -> None:
    """One that is not possible refuses all of them."""
    state = asking("c", "d")
    with pytest.raises(UnknownCall, match="'e'"):
        decided(state, c=Approve(), e=Approve())
    event = commands_of(state).decide(state, [("c", Approve(by="ana")), ("d", Deny("no"))])
    assert event is not None
    assert [(name, record.kind, record.by, record.at) for name, record in event.decisions] == [
        ("c", "approve", "ana", NOW),
        ("d", "deny", None, NOW),
    ]
    assert commands_of(state).decide(state, []) is None


def test_a_call_is_named_by_what_is_unique() -> None:
    """Where an id is in several loops, the paths are told; `/c` is the call of the outermost loop."""
    state = nested()
    commands = commands_of(state)
    with pytest.raises(UnknownCall, match="several have that name: give the path") as caught:
        commands.decide(state, [("c", Approve())])
    assert set(caught.value.known) == {"c", "p/c"}
    names: dict[Named, str] = {"/c": "c", "p/c": "p/c", ("c",): "c", ("p", "c"): "p/c"}
    for name, path in names.items():
        event = commands.decide(state, [(name, Approve())])
        assert event is not None
        assert [named for named, _ in event.decisions] == [path]


def test_where_no_round_is_open_no_call_waits() -> None:
    """It says what the loop is."""
    for name in ("Ready", "Requesting", "Finished", "Failed", "TooDeep", "tools_executed", "paused"):
        state = STATES[name]()
        with pytest.raises(UnknownCall, match="'c', and no call waits"):
            commands_of(state).decide(state, [("c", Approve())])


def test_an_edited_input_must_fit_the_schema() -> None:
    """It is the caller's mistake, who is told where; the loop's phase is named."""
    with pytest.raises(IllegalCommand, match="does not fit the schema of once") as caught:
        decided(asking("c"), c=Approve(input={"a": "x"}))
    assert (caught.value.state, caught.value.asked) == ("Waiting", "approve")
    assert m.the_call(decided(asking("c"), c=Approve(input={"a": 2}))).edited == '{"a":2}'


def test_what_is_no_decision_names_the_phase() -> None:
    """One error, one meaning: where the outermost loop is."""
    for junk in ("yes", Approve(input=5), Grant()):  # type: ignore[arg-type]  # what this is about
        with pytest.raises(IllegalCommand) as caught:
            decided(asking("c"), c=junk)
        assert caught.value.state == "Waiting"


def test_another_decision_than_before_is_refused() -> None:
    """Also one that is bound to another call than this is by now."""
    state = decided(asking("c"), c=Approve())
    with pytest.raises(DecisionConflict):
        decided(state, c=Deny("no"))
    call = m.the_call(asking("c"))
    shown = ToolCall(evolve(call, input='{"a":9}'), asking("c").root.setup, 1)
    with pytest.raises(DecisionConflict):
        decided(asking("c"), c=Approve(digest=shown.digest))


def test_an_answer_may_refer_to_known_tools_only() -> None:
    """All of them are known where each has a name."""
    refers = [{"type": "tool_reference", "tool_name": "pure"}]
    event = commands_of(asking("c")).decide(asking("c"), [("c", Answer(refers))])
    assert event is not None
    with pytest.raises(IllegalCommand, match="unheard_of"):
        decided(asking("c"), c=Answer([{"type": "tool_reference", "tool_name": "unheard_of"}]))


def test_time_is_told_where_it_changes_something() -> None:
    """A wait that is over, and nothing else."""
    state = asking("c", decision_timeout=10.0)
    commands = commands_of(state)
    assert commands.tick(state, 9.0) is None
    assert commands.tick(state, 11.0) == ev.Ticked(at=11.0)


def test_a_grant_is_revoked_by_its_id_wherever_it_stands() -> None:
    """Of a loop inside a call by its path."""
    state = nested()
    for named in ("/c", "p/c"):
        event = commands_of(state).decide(state, [(named, Approve(remember=Grant()))])
        assert event is not None
        state = step(state, event)
    commands = commands_of(state)
    ids = ["/".join((*path, grant.id)) for path, loop in driven(state) for grant in loop.grants]
    assert len(ids) == 2
    for grant_id in ids:
        state = step(state, commands.revoke(state, grant_id, "ana"))
        with pytest.raises(IllegalCommand, match="no standing grant"):
            record(state, partial(commands.revoke, grant_id=grant_id))
    assert not any(loop.grants for _, loop in driven(state))


# --- commands --------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[Commands], Said], tuple[str, ...]]] = {
    "continue_loop()": (
        lambda commands: commands.go_on,
        ("Ready", "Requesting", "Judging", "Running", "Finished", "Failed", "TooDeep"),
    ),
    "inject_and_continue()": (
        lambda commands: lambda state: commands.inject(state, (m.user("more"),)),
        ("Finished", "Failed", "TooDeep"),
    ),
    "stop()": (lambda commands: commands.stop, ("Finished", "TooDeep")),
    "retry()": (lambda commands: commands.retry, tuple(name for name in STATES if name != "Failed")),
    "follow_up()": (
        lambda commands: lambda state: commands.follow_up(state, (m.user("and?"),)),
        tuple(name for name in STATES if name != "Finished"),
    ),
    "extend()": (lambda commands: lambda state: commands.extend(state, {"max_iterations": 9}), ("TooDeep",)),
    "update_params()": (
        lambda commands: lambda state: commands.update_params(state, read_params({"max_tokens": 9})),
        ("TooDeep",),
    ),
}


@each("asked", REFUSED)
@each("name", STATES)
def test_a_command_that_a_phase_does_not_allow_is_refused(asked: str, name: str) -> None:
    """It names what was asked for, the phase, and what is possible; else the machine takes it."""
    make, phases = REFUSED[asked]
    state = STATES[name]()
    said = make(commands_of(state))
    if name not in phases:
        if (asked, name) in {("continue_loop()", "decision_required"), ("inject_and_continue()", "decision_required")}:
            with pytest.raises(UndecidedCalls, match="c"):
                record(state, said)
        else:
            record(state, said)
        return
    with pytest.raises(IllegalCommand) as caught:
        record(state, said)
    error = caught.value
    assert (error.asked, error.state) == (asked, type(state.root.phase).__name__)
    assert asked in str(error)
    assert asked not in error.allowed
    assert isinstance(error.allowed, tuple)


def test_a_command_is_read_once() -> None:
    """What the caller changes in it afterwards changes nothing."""
    messages: list[Any] = [{"role": "user", "content": "more"}]
    state = executed()
    asked, said = commands_of(state).read(InjectMessages(messages))
    messages[0]["content"] = "less"
    messages.append(5)
    assert asked == "inject_and_continue()"
    assert said(state) == ev.Continued((m.user("more"),), at=NOW)


@each("junk", ["go", None, Continue, Answer("x")])
def test_what_is_no_command_is_refused(junk: Any) -> None:
    """Before the state is looked at."""
    with pytest.raises(TypeError, match="no command"):
        commands_of(executed()).read(junk)


def test_a_reason_is_a_text_that_can_be_stored() -> None:
    """A lone surrogate is none, and is replaced."""
    commands = commands_of(executed())
    with pytest.raises(TypeError, match=r"stop\(\): the reason is a int"):
        commands.read(Stop(5))  # type: ignore[arg-type]  # what this is about
    event = commands.read(Stop("bad \ud800"))[1](executed())
    assert isinstance(event, ev.Stopped)
    assert encode(event.reason or "").encode()


@each("junk", ["hi", None, 5, [b"x"]])
def test_injected_messages_that_are_none_are_refused(junk: Any) -> None:
    """A text, a number or bytes are no list of messages."""
    with pytest.raises(TypeError, match="injected messages"):
        commands_of(executed()).read(InjectMessages(junk))


def test_messages_that_the_api_would_refuse_there_are_refused() -> None:
    """They are checked with what they follow; an orphan result follows nothing."""
    orphan = encode({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "3"}]})
    for name in ("Ready", "Requesting", "Judging", "Running", "tools_executed", "paused"):
        state = STATES[name]()
        with pytest.raises(InvalidHistory, match=r"inject_and_continue\(\).*orphan-result"):
            commands_of(state).inject(state, (orphan,))
    with pytest.raises(InvalidHistory, match=r"follow_up\(\).*orphan-result"):
        commands_of(finished()).follow_up(finished(), (orphan,))


def marked(words: str) -> str:
    block = {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}
    return encode({"role": "user", "content": [block]})


def test_cache_marks_are_counted_over_the_whole_history() -> None:
    """The API takes four."""
    state = m.go(m.after(params=PARAMS), ev.Continued((marked("1"), marked("2"), marked("3"))))
    commands = commands_of(state)
    commands.inject(state, (marked("4"),))
    with pytest.raises(InvalidHistory, match="cache"):
        commands.inject(state, (marked("4"), marked("5")))
    over = m.go(state, m.replied("end_turn", m.text("so")))
    with pytest.raises(InvalidHistory, match="cache"):
        commands.follow_up(over, (marked("4"), marked("5")))
    commands.follow_up(over, (marked("4"), marked("5"), marked("6"), marked("7")), replace_last=True)


def test_a_follow_up_says_something() -> None:
    """Without a word the loop goes on with `extend`."""
    with pytest.raises(ValueError, match="no messages"):
        commands_of(finished()).follow_up(finished(), ())


def test_limits_are_checked_by_their_fields() -> None:
    """None leaves one as it is."""
    assert read_limits(max_iterations=5, timeout=None) == {"max_iterations": 5}
    with pytest.raises(ValueError, match="max_pauses is -1"):
        read_limits(max_pauses=-1)
    event = commands_of(finished()).extend(finished(), {"max_iterations": 5})
    assert event.limits == evolve(finished().root.setup.limits, max_iterations=5)


# --- parameters ------------------------------------------------------------------------------------------------------


def updated(state: State, **changes: Any) -> ev.Changed:
    return commands_of(state).update_params(state, read_params(changes))


def test_parameters_are_changed_by_name() -> None:
    """None takes one away; secrets stay with the process."""
    read = read_params({"max_tokens": 9, "temperature": None, "extra_headers": {"x": "1"}})
    assert (read.stored, read.secrets.options) == ({"max_tokens": 9}, {"extra_headers": {"x": "1"}})
    assert read.removed == {"temperature"}
    event = updated(executed(), max_tokens=9, extra_headers={"x": "1"})
    assert decode(event.params or "") == {"model": "claude-opus-5-5", "max_tokens": 9}
    assert event.names == ("max_tokens", "extra_headers")


@each(
    ("changes", "kind", "says"),
    [
        ({"messages": []}, ValueError, "messages_mut"),
        ({"stream": True}, ValueError, "stream"),
        ({"model": None}, ValueError, "model cannot be taken away"),
        ({"metadata": {1, 2}}, TypeError, "metadata"),
    ],
)
def test_what_is_no_change_of_parameters_is_refused(changes: dict[str, Any], kind: Any, says: str) -> None:
    """Before the state is looked at."""
    with pytest.raises(kind, match=says):
        read_params(changes)


def with_system_message() -> State:
    """An end, with a message in the history that not every model takes."""
    return m.go(begin(m.opened(m.user(), m.system(), params=PARAMS)), m.replied("end_turn", m.text("so")))


def test_parameters_that_the_api_would_refuse_are_refused() -> None:
    """Two tools of one name, or a model that does not take this history."""
    with pytest.raises(BadTool, match="'once'"):
        updated(executed(), tools=[{**LOOKUP, "name": "once"}])
    state = with_system_message()
    with pytest.raises(InvalidHistory, match=r"update_params\(\)"):
        updated(state, model="claude-sonnet-4-5")
    updated(finished(), model="claude-sonnet-4-5")


def pausing() -> State:
    """A pause that goes out only with its thinking."""
    return m.after(m.replied("pause_turn", m.thinking(), m.text("so far")), params=PARAMS)


def test_what_a_pause_needs_stays_as_it_is() -> None:
    """Its thinking is bound to the system prompt and the tools."""
    with pytest.raises(IllegalCommand, match=r"the model pauses.*resume\(Stop\(\)\)") as caught:
        updated(pausing(), system="Be brief.")
    assert (caught.value.state, caught.value.asked) == ("Waiting", "update_params()")
    updated(pausing(), max_tokens=9)


# --- the history -----------------------------------------------------------------------------------------------------


def edited(state: State, *messages: str, then: Said | None = None) -> ev.HistoryEdited:
    edit = Edit(state.root.messages, messages)
    return commands_of(state).edit(state, edit, asked="next_turn()", then=then)


def test_an_edit_is_what_changed() -> None:
    """One splice, where one message is another."""
    state = executed()
    before = list(state.root.messages)
    event = edited(state, m.user("edited"), *before[1:])
    assert [(each.start, each.stop, each.messages) for each in event.splices] == [(0, 1, (m.user("edited"),))]
    assert list(step(state, event).root.messages) == [m.user("edited"), *before[1:]]


ORPHAN = encode({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "3"}]})


@each("name", [name for name in STATES if name not in ("Requesting", "TooDeep")])
def test_a_broken_edit_is_refused_in_every_phase(name: str) -> None:
    """It says where, and what takes the edit over; the messages are in the error."""
    state = STATES[name]()
    with pytest.raises(InvalidHistory, match=r"next_turn\(\).*messages\[0\].*orphan-result") as caught:
        edited(state, ORPHAN, *state.root.messages)
    assert caught.value.messages[0] == decode(ORPHAN)


def test_an_edit_is_checked_with_the_command_that_takes_it_over() -> None:
    """A history that ends with the model's words is no request; with a message that is injected, or a stop, it is."""
    state = executed()
    commands = commands_of(state)
    said = encode({"role": "assistant", "content": [m.text("so")]})
    closed = (m.user(), said)
    with pytest.raises(InvalidHistory, match="prefill"):
        edited(state, *closed)
    with pytest.raises(InvalidHistory, match="prefill"):
        edited(state, *closed, then=commands.go_on)
    for command in (InjectMessages([{"role": "user", "content": "more"}]), Stop()):
        edited(state, *closed, then=commands.read(command)[1])


def test_an_edit_goes_with_a_command_or_not_at_all() -> None:
    """What refuses the command leaves the edit to be mended, too."""
    state = asking("c")
    with pytest.raises(UndecidedCalls):
        edited(state, m.user("edited"), then=commands_of(state).go_on)


def test_after_a_limit_an_edit_is_checked_for_what_goes_on() -> None:
    """`extend` sends what is there; whoever follows up says something more."""
    state = m.go(m.after(params=PARAMS, limits=Limits(max_iterations=0)), ev.TurnEnded())
    assert isinstance(state.root.phase, Finished)
    commands = commands_of(state)
    said = encode({"role": "assistant", "content": [m.text("so")]})
    edited(state, m.user(), said)
    with pytest.raises(InvalidHistory, match="prefill"):
        edited(state, m.user(), said, then=lambda at: commands.extend(at, {"max_iterations": 5}))
    edited(state, m.user(), said, then=lambda at: commands.follow_up(at, (m.user("and?"),)))


def test_after_a_limit_an_edited_history_is_checked_before_it_goes_out() -> None:
    """Whenever it was taken over: by a snapshot, as a rule."""
    state = m.after(
        m.replied("tool_use", m.call("c", "pure")), m.judged(), ev.Started("c"), m.ended("c"), params=PARAMS
    )
    state = step(m.go(state, ev.TurnEnded(), ev.Continued()), ev.Changed(limits=Limits(max_iterations=1)))
    state = m.go(state, ev.TurnEnded())
    said = encode({"role": "assistant", "content": [m.text("so")]})
    commands = commands_of(state)
    commands.extend(state, {"max_iterations": 5})
    for closed, is_request in (((m.user(), said), False), ((m.user(), said, m.user("and?")), True)):
        then = step(state, edited(state, *closed))
        if is_request:
            commands.extend(then, {"max_iterations": 5})
            continue
        with pytest.raises(InvalidHistory, match=r"extend\(\).*prefill"):
            commands.extend(then, {"max_iterations": 5})


def test_parameters_are_checked_with_the_edited_history() -> None:
    """Whoever has mended it need not mend it again."""
    state = with_system_message()
    kept = [text for text in state.root.messages if decode(text)["role"] != "system"]
    update = read_params({"model": "claude-sonnet-4-5"})
    edited(state, *kept, then=lambda at: commands_of(state).update_params(at, update))


def test_an_edit_before_a_pause_that_needs_its_thinking_is_refused() -> None:
    """Unless the loop ends: the paused reply goes with it."""
    state = pausing()
    commands = commands_of(state)
    with pytest.raises(IllegalCommand, match="the model pauses"):
        edited(state, m.user("edited"), then=commands.go_on)
    edited(state, m.user("edited"), then=commands.stop)


def test_an_edit_that_leaves_a_server_call_open_is_refused() -> None:
    """Also where the next request would be taken, for the one after it would not."""
    state = executed()
    first, _, *rest = state.root.messages
    reply = encode({"role": "assistant", "content": [m.server_call("srvtoolu_9"), m.call("c", "pure")]})
    with pytest.raises(InvalidHistory, match="srvtoolu_9"):
        edited(state, first, reply, *rest)


def test_an_edit_of_another_history_is_refused() -> None:
    """Somebody else changed it: whatever they added would be gone."""
    state = executed()
    edit = Edit(Chain([m.user("other")]), (m.user("edited"),))
    with pytest.raises(IllegalCommand, match=r"somebody else changed the history.*messages_mut\(\)"):
        commands_of(state).edit(state, edit, asked="next_turn()")


def test_messages_beside_the_history_are_told_apart() -> None:
    """`messages_mut()` does not show them, so the error says so."""
    state = m.after(m.replied("pause_turn", m.server_call("srvtoolu_1")), params=PARAMS)
    beside = state.root.unjoined
    assert len(beside) == 1
    same = encode({"role": "assistant", "content": [m.server_call("srvtoolu_1"), m.server_result("srvtoolu_1")]})
    with pytest.raises(InvalidHistory, match="stay beside the history"):
        edited(state, m.user(), same, m.user("more"))
