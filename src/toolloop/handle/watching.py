"""What happened, for those who watch: on each result, and for `LoopConfig.observers`.

All are frozen, and told in the order in which things happened. The machine's own events, which are the journal of a
loop, are in `toolloop.machine`; these are for people and logs.
"""

from __future__ import annotations

from attrs import evolve, field, frozen

from toolloop.core import events as ev
from toolloop.core.detection import detected
from toolloop.core.jsontext import JSON
from toolloop.core.replies import Reply, acceptable
from toolloop.core.states import Deciding, Finished, Judging, Proposed, Running, State
from toolloop.core.stops import STOP_REASONS, Fate
from toolloop.core.terminations import Termination
from toolloop.core.tree import children
from toolloop.core.usage import Usage
from toolloop.core.values import Round, Status
from toolloop.handle.binding import newly_left_out


@frozen
class WatchEvent:
    """Something that happened in a loop.

    Attributes:
        iteration: the number of the request it belongs to, counted from 1.
        path: the ids of the calls that lead to the loop it happened in, from the outermost down.

    """

    iteration: int
    path: tuple[str, ...] = field(default=(), kw_only=True)


@frozen
class RequestStarted(WatchEvent):
    """A model request goes out. `summary`: it asks for a summary of the history, for a compaction."""

    summary: bool = field(default=False, kw_only=True)


@frozen
class RequestAnswered(WatchEvent):
    """A model request was answered. `seconds`: how long it took; `summary`: it asked for one, for a compaction."""

    stop_reason: str | None
    usage: Usage
    seconds: float
    summary: bool = field(default=False, kw_only=True)


@frozen
class RequestFailed(WatchEvent):
    """A model request failed."""

    message: str
    retryable: bool


@frozen
class Delta(WatchEvent):
    """A piece of a reply as it comes in, told only while a turn is streamed. `index`: of its block in the reply.

    Deltas go to the stream and to observers. They are in no result's `events`: the reply itself is there by then.
    """

    index: int


@frozen
class TextDelta(Delta):
    """A piece of text."""

    text: str


@frozen
class ThinkingDelta(Delta):
    """A piece of thinking."""

    thinking: str


@frozen
class CitationDelta(Delta):
    """A citation of the text of its block."""

    citation: JSON


@frozen
class InputDelta(Delta):
    """A piece of the JSON of a call's input, of a client's call or a server's. Pieces joined are the whole input."""

    call_id: str
    name: str
    partial_json: str


@frozen
class CallProposed(WatchEvent):
    """The model asks for a call."""

    call_id: str
    name: str


@frozen
class CallDecided(WatchEvent):
    """A policy or the caller decided a call: `kind` is `approve`, `deny`, `answer` or `rerun`."""

    call_id: str
    name: str
    kind: str
    by: str | None


@frozen
class CallWaiting(WatchEvent):
    """A call waits for the caller. `why`: `approval`, `external` or `uncertain`."""

    call_id: str
    name: str
    why: str


@frozen
class CallStarted(WatchEvent):
    """A tool starts."""

    call_id: str
    name: str


@frozen
class CallProgress(WatchEvent):
    """A running tool says how far it has come, with `ToolContext.report`. The numbers are in its own unit."""

    call_id: str
    name: str
    message: str | None
    progress: float | None
    total: float | None


@frozen
class ResultFiltered(WatchEvent):
    """A result filter changed a result. `before` and `after`: its size, in characters of JSON."""

    call_id: str
    name: str
    filter: str
    before: int
    after: int


@frozen
class CallFinished(WatchEvent):
    """A call has its result. `seconds`: how long its tool ran, 0.0 where none did."""

    call_id: str
    name: str
    outcome: str
    is_error: bool
    seconds: float


@frozen
class MessageHeld(WatchEvent):
    """An injected message waits, because the API allows none at this place; it joins at the next legal one."""

    count: int


@frozen
class LoopDetected(WatchEvent):
    """The model goes in circles. `tool_name`: of what it called; `count`: how many times in a row; `action`: as set."""

    tool_name: str
    count: int
    action: str


@frozen
class HistoryReplaced(WatchEvent):
    """The caller put another history in the place of the closed one."""

    before: int
    after: int


@frozen
class Compacted(WatchEvent):
    """The history was compacted.

    Attributes:
        strategy: which one did it: the name of its class (with "#2" for the second of a class), or "compaction" where
            the API did, as the parameter asks.
        before, after: about how many tokens a request took, and takes now.
        problem: why nothing changed, where nothing did.

    """

    strategy: str
    before: int
    after: int
    problem: str | None = None


@frozen
class ThinkingDropped(WatchEvent):
    """What stood before thinking blocks changed, so requests leave them out from now on. `count`: how many more."""

    count: int


@frozen
class BlocksLeftOut(WatchEvent):
    """Blocks of a reply did not join the history, because the API would refuse to take them back."""

    kinds: tuple[str, ...]


@frozen
class LoopFinished(WatchEvent):
    """The loop ended."""

    termination: Termination


def watch(before: State, event: ev.Event, after: State) -> list[WatchEvent]:
    """What an event of the machine means to those who watch: in the loop it is of, and in those inside of its calls."""
    iteration = after.ledger.iterations
    is_own = not event.path or (isinstance(event, ev.Opened) and len(event.path) == 1)  # that is the start of a call
    seen = _heard(before, event, after, iteration) if is_own else []
    seen.extend(_calls(before, event, after, iteration))
    seen.extend(_inside(before, event, after))
    if isinstance(after, Finished) and not isinstance(before, Finished):
        seen.append(LoopFinished(iteration, after.termination))
    return seen


def _heard(before: State, event: ev.Event, after: State, iteration: int) -> list[WatchEvent]:
    seen: list[WatchEvent] = []
    match event:
        case ev.Requested():
            seen.append(RequestStarted(iteration + 1, summary=event.summary))
        case ev.Replied():
            usage = after.ledger.usage_log[-1]
            seen.append(RequestAnswered(iteration, usage.stop_reason, usage.usage, usage.seconds))
            seen.extend(CallProposed(iteration, call.id, call.name) for call in event.reply.calls())
            if dropped := _left_out(event.reply):
                seen.append(BlocksLeftOut(iteration, dropped))
        case ev.RequestFailed():
            seen.append(RequestFailed(iteration + 1, event.failure.message, event.failure.retryable))
        case ev.Injected() if len(after.ledger.held) > len(before.ledger.held):
            seen.append(MessageHeld(iteration, len(event.messages)))
        case ev.Judged(stop=False) | ev.Started() | ev.Opened() if isinstance(before, Judging):
            seen.extend(_circle(before, iteration))
    return seen + _rewritten(before, event, after, iteration)


def _rewritten(before: State, event: ev.Event, after: State, iteration: int) -> list[WatchEvent]:
    """What is told of another history, and of other words before the thinking in it."""
    seen: list[WatchEvent] = []
    match event:
        case ev.HistoryEdited() | ev.ReplyDiscarded(splices=(_, *_)) | ev.RoundAdopted(splices=(_, *_)):
            seen.append(HistoryReplaced(iteration, len(before.ledger.messages), len(after.ledger.messages)))
        case ev.Compacted(summary=used):
            if used is not None:
                seen.append(RequestAnswered(iteration + 1, used.stop_reason, used.usage, used.seconds, summary=True))
            if event.splices or event.problem:
                seen.append(Compacted(iteration, event.strategy, event.before, event.after, event.problem))
        case ev.Replied() | ev.Judged() | ev.Stopped() if after.ledger.setup.params is not before.ledger.setup.params:
            seen.append(_compacted_by_server(before, after, iteration))
    if isinstance(event, _REWRITING) and (count := newly_left_out(before, after)):
        seen.append(ThinkingDropped(iteration, count))
    return seen


# After these, other words may stand before some thinking.
_REWRITING = (ev.HistoryEdited, ev.ReplyDiscarded, ev.RoundAdopted, ev.Compacted, ev.ParamsChanged, ev.Woken)


def _compacted_by_server(before: State, after: State, iteration: int) -> Compacted:
    """What is told of a reply that the parameter `compaction` asked for: that is spent then."""
    used = after.ledger.usage_log[-1].usage
    if after.ledger.messages is before.ledger.messages:
        tokens = used.total_input_tokens
        return Compacted(iteration, "compaction", tokens, tokens, "the API gave no summary")
    return Compacted(iteration, "compaction", used.total_input_tokens, used.output_tokens)


def _inside(before: State, event: ev.Event, after: State) -> list[WatchEvent]:
    """What happened in the loops inside the calls: the event, in one of them, and to all of them that time passed."""
    seen: list[WatchEvent] = []
    then = {call.id: child for call, child in children(_round(after))}
    for call, child in children(_round(before)):
        if call.id in then:
            is_there = event.path[:1] == (call.id,)
            heard = evolve(event, path=event.path[1:]) if is_there else ev.Ticked()
            seen += [evolve(each, path=(call.id, *each.path)) for each in watch(child, heard, then[call.id])]
    return seen


def _calls(before: State, event: ev.Event, after: State, iteration: int) -> list[WatchEvent]:
    seen: list[WatchEvent] = []
    old, new = _round(before), _round(after)
    if new is not None and isinstance(event, ev.RoundAdopted):
        return _adopted(old, new, iteration)
    if old is None or new is None:
        return seen
    took = event.took if isinstance(event, ev.Ended) and not event.path else 0.0
    for was, call in zip(old.calls, new.calls, strict=True):
        if call is was:
            continue
        if call.ruling is not None and call.ruling is not was.ruling:
            seen.append(CallDecided(iteration, call.id, call.name, call.ruling.kind, call.ruling.by))
        if call.status is was.status:
            continue
        if call.status is Status.WAITING:
            seen.append(CallWaiting(iteration, call.id, call.name, str(call.why)))
        if call.status is Status.RUNNING:
            seen.append(CallStarted(iteration, call.id, call.name))
        if call.result is not None:
            outcome = str(call.result.outcome)
            seen.append(CallFinished(iteration, call.id, call.name, outcome, call.result.is_error, took))
    return seen


def _adopted(old: Round | None, new: Round, iteration: int) -> list[WatchEvent]:
    """What is told of the calls of a round that the caller's history ends with: what was not known before."""
    seen: list[WatchEvent] = []
    for call in new.calls:
        was = None if old is None else old.find(call.id)
        if was is None:
            seen.append(CallProposed(iteration, call.id, call.name))
        if call.result is not None and (was is None or was.result is None):
            seen.append(
                CallFinished(iteration, call.id, call.name, str(call.result.outcome), call.result.is_error, 0.0)
            )
    return seen


def _circle(judged: Judging, iteration: int) -> list[WatchEvent]:
    """What is told of a circle, which counts once the round is judged; a journal may leave that out before a start."""
    circle, wanted = detected(judged), judged.ledger.setup.loop_detection
    if circle is None or wanted is None:
        return []
    told = LoopDetected(iteration, circle.tool_name, circle.count, wanted.action)
    return [told, MessageHeld(iteration, 1)] if wanted.action == "inject_warning" else [told]


def _round(state: State) -> Round | None:
    return state.round if isinstance(state, Proposed | Judging | Deciding | Running) else None


def _left_out(reply: Reply) -> tuple[str, ...]:
    """The kinds of the blocks of a joining reply that the API would refuse to take back."""
    fate = STOP_REASONS.get(reply.stop_reason or "", Fate.END)
    if fate is Fate.REFUSE:
        return ()
    joining = [block for block in reply.blocks if fate is not Fate.CUT or block["type"] != "tool_use"]
    kept = {id(block) for block in acceptable(joining, ends=fate is not Fate.PAUSE)}
    return tuple(block["type"] for block in reply.blocks if id(block) not in kept)
