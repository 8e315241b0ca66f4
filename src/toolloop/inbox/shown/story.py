"""The story of a loop, read from its events: what was said, which calls were made, and how each call ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import define, field

from toolloop._interface.calls import RunningCall
from toolloop._interface.heads import find_asked
from toolloop.inbox.items import TrailEntry
from toolloop.inbox.shown.recent import Recent
from toolloop.inbox.trail import command_of
from toolloop.inbox.transcript import MessagePart, escape_hidden, find_last_text, last_text_of, read_parts
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Finished, Loop, Path, Round, State, Stopping, list_messages
from toolloop.machine.rules.calls import end_run, settle_open
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.values.calls import Call, DecisionRecord, Outcome, Status
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.terminations import StopCondition
from toolloop.tools.secrets import SecretKey, give_no_key, hide_in_messages, hide_secrets


@define
class Said:
    """A text of the conversation.

    Attributes:
        part: the text, as in the transcript.
        at: when it was said, and `by` which person, if known.
        id: the id by which it can be withdrawn while it is kept; empty if it cannot.
        is_withdrawn: whether a person withdrew it, so that the model never read it.

    """

    part: MessagePart
    at: float
    by: str | None = None
    id: str = ""
    is_withdrawn: bool = False


@define
class CallStory:
    """A call: who decided what about it, and how it ended.

    Attributes:
        input: the input that runs, or ran: the proposed one, or an edited one.
        proposed: the input as the model proposed it, if a person edited it; else None.
        loop: its loop before the reply with it. `blocks`: the content of that reply.
        made: when the model made it. `since`: when it began to wait, `started` and `ended`: when it ran. None: not yet.
        decisions: the decisions of persons, policies and grants, oldest first, each with its time.
        outcome: the outcome, once it is settled; `result` is its text, and `is_error` says whether it is an error.
        is_late: whether it ended after the stop of the loop.
        steps: the steps of the loop inside it.

    """

    path: Path
    name: str
    input: dict[str, JSON]
    made: float
    loop: Loop = field(eq=False, repr=False)
    blocks: Sequence[JSON] = field(eq=False, repr=False)
    proposed: dict[str, JSON] | None = None
    since: float | None = None
    started: float | None = None
    ended: float | None = None
    expires_at: float | None = None
    decisions: list[tuple[DecisionRecord, float]] = field(factory=list)
    outcome: Outcome | None = None
    result: str = ""
    is_error: bool = False
    is_late: bool = False
    steps: list[Step] = field(factory=list)

    @property
    def asked(self) -> str:
        """The request of a person, or of the loop around, that the model answered with it."""
        return escape_hidden(find_asked(self.loop))

    @property
    def said(self) -> str:
        """The last text of the model before it."""
        return last_text_of({"role": "assistant", "content": self.blocks}) or find_last_text(list_messages(self.loop))


Step = Said | CallStory | TrailEntry
Words = ev.Continued | ev.FollowedUp | ev.Said


@define
class Story:
    """The steps of a loop, oldest first, and its calls by path. Secret values of inputs are hidden.

    Attributes:
        state: the state after all steps.
        key: see `hide_secrets`.
        driven: whether a driver works on the loop, if the store was asked. `running`: the calls that run, by path.

    """

    state: State
    key: SecretKey = give_no_key
    driven: bool = False
    running: Mapping[Path, RunningCall] = field(factory=dict)
    steps: list[Step] = field(factory=list)
    calls: dict[Path, CallStory] = field(factory=dict)

    def steps_at(self, path: Path) -> list[Step]:
        """Return the steps of the loop at a path."""
        return self.calls[path].steps if path in self.calls else self.steps

    def hidden(self, path: Path, name: str, text: str) -> dict[str, JSON]:
        """Return an input of a call with its secret values hidden."""
        loop, given = self.state.at(path[:-1]), decode(text)
        return hide_secrets(given, () if loop is None else loop.setup.secrets_of(name), self.key)


def read_story(recent: Recent, key: SecretKey = give_no_key) -> Story:
    """Read the newest events of a loop. `key`: see `hide_secrets`."""
    steps = iter(recent.steps)
    if recent.before is None:
        story = Story(next(steps)[1], key)
        texts = map(decode, list_messages(join_rest(story.state.root)))
        _add_texts(story, (), hide_in_messages(texts, story.state.root.setup, key), story.state.root.now)
    else:
        story = Story(recent.before, key)
    for event, state in steps:
        before, story.state = story.state, state
        _add_event(story, before, event)
        _add_changes(story, before, event)
    return story


def _add_event(story: Story, before: State, event: ev.Event) -> None:
    at = max(event.at, event.said_at) or story.state.root.now
    match event:
        case ev.Opened():
            _add_texts(story, event.path, [decode(text) for text in event.messages], at)
        case ev.Replied():
            _add_texts(story, event.path, [{"role": "assistant", "content": event.reply.blocks}], at)
            loop = before.loops[event.path]
            for call in event.reply.calls(members=loop.setup.members):
                path = (*event.path, call.id)
                given = story.hidden(path, call.name, call.input)
                made = CallStory(path, call.name, given, at, loop, event.reply.blocks)
                story.calls[made.path] = made
                story.steps_at(event.path).append(made)
        case ev.Decided() | ev.Judged():
            for name, result in event.decisions if isinstance(event, ev.Decided) else event.results:
                _decide(story, (*event.path, *name.split("/")), result, at)
        case ev.Started() | ev.Ended():
            _run(story.calls.get((*event.path, event.call_id)), before, event, at)
        case ev.Continued() | ev.FollowedUp() | ev.Said() if event.messages:
            _add_texts(story, event.path, [decode(text) for text in event.messages], at, event)
        case _:
            _add_command(story, before, event, at)


def _add_command(story: Story, before: State, event: ev.Event, at: float) -> None:
    if isinstance(event, ev.Withdrawn):
        for said in (each for each in story.steps if isinstance(each, Said) and each.id == event.id):
            said.is_withdrawn = True
    story.steps.extend(command_of(before, event, datetime.fromtimestamp(at, UTC)))


def _run(call: CallStory | None, before: State, event: ev.Started | ev.Ended, at: float) -> None:
    if call is None:
        return
    if isinstance(event, ev.Started):  # it has no time of its own
        call.started = max([at, *(decided for _, decided in call.decisions)])
    else:
        call.started, call.ended = (at - event.took if event.took else call.started), at
        phase = before.root.phase
        call.is_late = isinstance(phase, Stopping) and isinstance(phase.termination, StopCondition)


def _add_texts(
    story: Story, path: Path, messages: list[Mapping[str, Any]], at: float, said: Words | None = None
) -> None:
    by, said_id = None if said is None else said.by, said.id if isinstance(said, ev.Said) else ""
    texts = (part for part in read_parts(messages) if part.kind not in ("call", "result"))
    story.steps_at(path).extend(Said(part, at, by, said_id) for part in texts)


def _decide(story: Story, path: Path, record: object, at: float) -> None:
    if (call := story.calls.get(path)) is None or not isinstance(record, DecisionRecord):
        return
    call.decisions.append((record, record.at or at))
    if record.kind == "approve" and record.content is not None:
        call.proposed, call.input = call.proposed or call.input, story.hidden(path, call.name, record.content)


def _add_changes(story: Story, before: State, event: ev.Event) -> None:
    """Add what an event changed about calls: since when they wait, and how they ended."""
    at = max(event.at, event.said_at) or story.state.root.now
    for path in {**before.loops, **story.state.loops}:
        was = before.at(path)
        for new in _changed(was, _round_after(was, story.state.at(path), event)):
            if (call := story.calls.get((*path, new.id))) is None:
                continue
            call.expires_at = new.expires_at
            decision = new.decision
            if decision is not None and decision.grant and all(each is not decision for each, _ in call.decisions):
                call.decisions.append((decision, at))
            if new.status is Status.WAITING and call.since is None:
                call.since = at
            if new.status is Status.WAITING and new.why == "uncertain":
                call.ended = None
            if new.result is not None:
                call.outcome, call.ended = new.result.outcome, call.ended or at
                call.result, call.is_error = new.result.plain_text, new.result.is_error


def _round_after(before: Loop | None, after: Loop | None, event: ev.Event) -> Round | None:
    """Return the round of a loop after an event. If the loop ended with it, its calls have their results."""
    round_ = None if after is None else after.phase.round
    has_ended = after is None or isinstance(after.phase, Finished)
    if round_ is not None or not has_ended or before is None or before.round is None:
        return round_
    last = before.round
    if isinstance(event, ev.Ended) and event.result is not None and event.path == before.setup.path:
        last = last.replace([end_run(call, event.result, before.setup) for call in _named(last, event.call_id)])
    return settle_open(last, before.setup.texts)


def _named(round_: Round, call_id: str) -> list[Call]:
    """Return the call with an id that runs, in a list."""
    return [call for call in round_.having(Status.RUNNING) if call.id == call_id]


def _changed(before: Loop | None, now: Round | None) -> Iterator[Call]:
    """Yield the calls of a round that differ from before."""
    old = None if before is None else before.phase.round
    if now is None or now is old:
        return
    known = {} if old is None or old.iteration != now.iteration else {call.id: call for call in old.calls}
    yield from (call for call in now.calls if call is not known.get(call.id))
