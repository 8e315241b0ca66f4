"""How a round closes: its results become one user message, and the whole joins the history."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from tests.oracle.calls import settle_open
from tests.oracle.chain import Chain
from tests.oracle.jsontext import JSON, decode, encode
from tests.oracle.repetition import follow
from tests.oracle.replies import ended, open_server_calls, settle_tail, without_open_calls
from tests.oracle.states import (
    Back,
    Deciding,
    Executed,
    Failed,
    Finished,
    Judging,
    Ledger,
    Open,
    Paused,
    Proposed,
    Ready,
    Requesting,
    Running,
)
from tests.oracle.stops import Fate
from tests.oracle.terminations import Termination
from tests.oracle.texts import Texts, say
from tests.oracle.tree import resting
from tests.oracle.values import Call, Result, Round

# What a note may stand beside inside a result; the API wants other kinds of blocks among their own.
_TAKES_TEXT = frozenset({"text", "image"})


def user_message(blocks: Sequence[str]) -> str:
    """The text of a user message made of the texts of its blocks."""
    return f'{{"role":"user","content":[{",".join(blocks)}]}}'


def result_block(call: Call, result: Result) -> str:
    """The text of the `tool_result` block of a settled call."""
    return result_text(call.id, result, call.toolset)


def result_text(call_id: str, result: Result, toolset: str | None = None) -> str:
    """The same, of a call of which no more is at hand."""
    is_error = ',"is_error":true' if result.is_error else ""
    member = "" if toolset is None else f',"toolset_name":{encode(toolset)}'
    return f'{{"type":"tool_result","tool_use_id":{encode(call_id)},"content":{result.content}{is_error}{member}}}'


def close_round(ledger: Ledger, round_: Round) -> Executed:
    """Close a round whose calls are all settled.

    It joins the history as a whole, unless only a resumption may follow it: then it stays beside, and so does what was
    injected (source: rules 23 and 25 of the Messages API).
    """
    ledger = follow(ledger, round_.calls)
    results, notes = _results(round_, ledger.setup.texts)
    asked = (*round_.tail, *_reply(round_))
    if stays_beside(round_):
        closed = (*asked, user_message([_without_marks(text) for text in results]))
        said = (*([user_message(notes)] if notes else ()), *round_.after)
        held = (*said, *ledger.held) if said else ledger.held
        return Executed(evolve(ledger, held=held), round_, tail=closed)
    return Executed(join(ledger, (*asked, user_message((*results, *notes)), *round_.after)), round_)


def answer_to(round_: Round, texts: Texts) -> str:
    """The user message with which a round closes whose calls are all settled."""
    results, notes = _results(round_, texts)
    return user_message([_without_marks(text) for text in results] if stays_beside(round_) else (*results, *notes))


def stays_beside(round_: Round) -> bool:
    """Whether nothing but its results may follow a round: its calls were made by code, or a server call is open."""
    for call in round_.calls:
        if call.by_code:
            return True
    return bool(open_server_calls((*round_.tail, *_reply(round_))))


def _without_marks(text: str) -> str:
    """A block without cache marks. They are only hints, and where nobody can take them out there may be too many."""
    return encode(_unmarked(decode(text))) if '"cache_control"' in text else text


def _unmarked(block: JSON) -> JSON:
    match block:
        case list():
            return [_unmarked(each) for each in block]
        case dict():
            kept = {key: value for key, value in block.items() if key != "cache_control"}
            return {key: _unmarked(value) if key in ("content", "source") else value for key, value in kept.items()}
    return block


def join(ledger: Ledger, messages: Sequence[str]) -> Ledger:
    """The ledger with messages of a turn that is over, and with what was held until then. Its container goes."""
    history = ledger.messages.extend(ended(without_open_calls(messages)))
    if ledger.held:
        history, last = _part_system(history)
        history = history.extend((*ledger.held, *last))
    return evolve(ledger, messages=history, held=(), container=None)


def end(state: Ready | Requesting | Open | Executed | Paused | Failed, termination: Termination) -> Finished:
    """End a loop wherever it stands: every open call gets its result, and what can join the history does."""
    ledger = state.ledger
    back = Back(ledger.messages, ledger.held, getattr(state, "tail", ()), None, ledger.container)
    match state:
        case Judging(fate=Fate.PAUSE):
            ledger = join(ledger, settle_tail((*state.round.tail, *_reply(state.round))))
        case Proposed() | Judging() | Deciding() | Running():
            back = evolve(back, tail=state.round.tail, round=resting(state.round))
            ledger = settled_and_joined(ledger, state.round)
        case Failed(round=Round() as round_):
            ledger = settled_and_joined(ledger, round_)
        case _:
            ledger = join(ledger, settle_tail(state.tail))
    return finish(ledger, termination, back)


def finish(ledger: Ledger, termination: Termination, back: Back | None = None) -> Finished:
    """The end. A system message may stand only after a user turn, so one that would come last waits for the next."""
    messages, waiting = _part_system(ledger.messages)
    return Finished(evolve(ledger, messages=messages, held=(*waiting, *ledger.held)), termination, back)


def _part_system(messages: Chain[str]) -> tuple[Chain[str], list[str]]:
    """A history, and the system messages that came last in it: nothing but a reply may follow those (rule 21)."""
    length = len(messages)
    while length and is_system(messages[length - 1]):
        length -= 1
    last = messages[length:]
    return (Chain(messages[:length]), last) if last else (messages, last)


def is_system(text: str) -> bool:
    """Whether a message is a system message."""
    return '"system"' in text and decode(text)["role"] == "system"


def last_user_turn(messages: Chain[str]) -> int:
    """Where the last user turn begins: the last run of messages that are neither the model's nor results."""
    end_ = len(messages)
    while end_ and not _prompts(messages[end_ - 1]):
        end_ -= 1
    while end_ and _prompts(messages[end_ - 1]):
        end_ -= 1
    return end_


def _prompts(text: str) -> bool:
    message = decode(text)
    content = message["content"]
    answers = isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
    return message["role"] != "assistant" and not answers


def settled_and_joined(ledger: Ledger, round_: Round) -> Ledger:
    """The ledger after a round whose open calls will not run."""
    if not round_.calls:
        return join(ledger, [*round_.tail, *_reply(round_)])
    round_ = settle_open(round_, ledger.setup.texts)
    results, notes = _results(round_, ledger.setup.texts)
    return join(ledger, [*round_.tail, *_reply(round_), user_message((*results, *notes)), *round_.after])


def _reply(round_: Round) -> tuple[str, ...]:
    return () if round_.reply is None else (round_.reply,)


def _results(round_: Round, texts: Texts) -> tuple[list[str], list[str]]:
    """The result blocks in the model's order, and the notes that found no place inside them."""
    results, notes = [], []
    for call, result in [(call, call.result) for call in round_.calls if call.result is not None]:
        if call.edited is not None and call.started:
            note = {"type": "text", "text": say(texts, "edited", id=call.id, name=call.name, input=call.edited)}
            content = decode(result.content)
            inside = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if all(block["type"] in _TAKES_TEXT for block in inside):
                kept = [block for block in inside if block["type"] != "text" or block["text"].strip()]
                results.append(result_block(call, evolve(result, content=encode([*kept, note]))))
                continue
            notes.append(encode(note))
        results.append(result_block(call, result))
    return results, notes
