"""Close rounds and end loops: their messages join the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from toolloop.machine.record.loop import Finished, Judging, Loop, Repetition, Round, Stopping, Waiting
from toolloop.machine.record.replies import (
    close_paused,
    drop_open_calls,
    drop_unfinished,
    find_open_server_calls,
)
from toolloop.machine.rules.calls import settle_open
from toolloop.machine.rules.repetition import count_round
from toolloop.machine.rules.saying import queue_own
from toolloop.machine.values.calls import Call, Result, Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.long_results import READ_RESULT, cut_content
from toolloop.machine.values.setup import Texts
from toolloop.machine.values.stop_reasons import PAUSE
from toolloop.machine.values.texts import fill_text
from toolloop.terminations import LIMITS, Termination

# A note may be added to a result of these kinds of blocks. The API does not accept text beside other kinds.
_TAKES_TEXT = frozenset({"text", "image"})


def make_user_message(blocks: Sequence[str]) -> str:
    """Return the text of a user message with these blocks, given as texts."""
    return f'{{"role":"user","content":[{",".join(blocks)}]}}'


def make_result_block(call: Call, result: Result) -> str:
    """Return the text of the `tool_result` block of a settled call."""
    is_error = ',"is_error":true' if result.is_error else ""
    member = "" if call.toolset is None else f',"toolset_name":{encode(call.toolset)}'
    mark = "" if result.mark is None else f',"cache_control":{result.mark}'
    return (
        f'{{"type":"tool_result","tool_use_id":{encode(call.id)},"content":{result.content}{is_error}{member}{mark}}}'
    )


def close_round(loop: Loop, round_: Round) -> Loop:
    """Close a round whose calls are all settled.

    The round joins the history as a whole. If the API allows only a resumption after it, it stays unjoined, and
    injected messages stay queued (source: rules 23 and 25 of the Messages API).
    """
    repetition = count_round(loop.repetition, round_.calls) if loop.setup.loop_detection else Repetition()
    loop, cut = cut_long_results(loop, round_) if loop.setup.keep_results else (loop, round_)
    after: dict[str, Any] = {"repetition": repetition, "phase": Waiting("tools_executed", closed=round_)}
    results, notes = _make_results(cut, loop.setup.texts)
    asked = (*loop.unjoined, *round_.reply_messages)
    if stays_unjoined(asked, round_.calls):
        answer = make_user_message([_drop_marks(text) for text in results])
        loop = queue_own(loop, make_user_message(notes)) if notes else loop
        return loop._replace(unjoined=(*asked, answer), **after)
    return join(loop, (*asked, make_user_message((*results, *notes))), **after)


def make_answer(loop: Loop, round_: Round) -> str:
    """Return the user message that closes a round whose calls are all settled."""
    _, round_ = cut_long_results(loop, round_)
    results, notes = _make_results(round_, loop.setup.texts)
    alone = stays_unjoined((*loop.unjoined, *round_.reply_messages), round_.calls)
    return make_user_message([_drop_marks(text) for text in results] if alone else (*results, *notes))


def cut_long_results(loop: Loop, round_: Round) -> tuple[Loop, Round]:
    """Return a round with both ends of its long results, and the loop with their whole texts.

    Code gets its results whole, and what `read_result` returned is short enough.
    """
    keep, whole, cut = loop.setup.keep_results, [], []
    if keep is None:
        return loop, round_
    for call in round_.calls:
        if call.result is None or call.by_code or call.name == READ_RESULT:
            continue
        if (found := cut_content(keep, call.id, call.result.content)) is not None:
            cut.append(call._replace(result=evolve(call.result, content=found[0])))
            whole.append((call.id, found[1]))
    return (loop._replace(results=loop.results.extend(whole)), round_.replace(cut)) if cut else (loop, round_)


def stays_unjoined(asked: Sequence[str], calls: Sequence[Call]) -> bool:
    """Return whether only results may follow a round, because code made its calls or a server call is open."""
    return any(call.by_code for call in calls) or bool(find_open_server_calls(asked))


def _drop_marks(text: str) -> str:
    """Return a block without cache marks: an unjoined message cannot be edited if there are too many."""
    return encode(_drop_marks_inside(decode(text))) if '"cache_control"' in text else text


def _drop_marks_inside(block: JSON) -> JSON:
    match block:
        case list():
            return [_drop_marks_inside(each) for each in block]
        case dict():
            kept = {key: value for key, value in block.items() if key != "cache_control"}
            return {
                key: _drop_marks_inside(value) if key in ("content", "source") else value for key, value in kept.items()
            }
    return block


def join(loop: Loop, messages: Sequence[str], **changes: Any) -> Loop:
    """Return the loop after the messages of a finished turn, then the queued messages, joined its history.

    The unjoined messages and the container are cleared. `changes`: new values of other fields.
    """
    history = loop.messages.extend(close_paused(drop_open_calls(messages)))
    if loop.queued:
        history, last = _split_system(history)
        history = history.extend((*loop.queued, *last))
    return loop._replace(messages=history, queued=(), container=None, unjoined=(), **changes)


def settle_and_join(loop: Loop, **changes: Any) -> Loop:
    """Return the loop with its open calls settled without running, and with all messages joined that can join."""
    phase, round_ = loop.phase, loop.phase.round
    if round_ is None or (isinstance(phase, Judging) and phase.action is PAUSE):
        return join(loop, drop_unfinished(loop.open_messages), **changes)
    if isinstance(phase, Finished):
        round_ = phase.ended_with or round_
    loop, round_ = cut_long_results(loop, settle_open(round_, loop.setup.texts))
    results, notes = _make_results(round_, loop.setup.texts)
    answer = (make_user_message((*results, *notes)),) if round_.calls else ()
    return join(loop, (*loop.open_messages, *answer), **changes)


def end(loop: Loop, termination: Termination, *, waits: bool = False) -> Loop:
    """End a loop in any phase. If a limit ends it, nothing joins the history, so that it can resume from there.

    Args:
        loop: the loop.
        termination: how it ends.
        waits: whether calls that run are waited for. If not, they are settled as cancelled.

    """
    round_ = loop.round
    if waits and round_ is not None and round_.calls.having(Status.RUNNING):
        return loop._replace(phase=Stopping(termination, round_))
    if isinstance(termination, LIMITS):
        return loop._replace(phase=Finished(termination, round_))
    return finish(settle_and_join(loop), termination)


def finish(loop: Loop, termination: Termination) -> Loop:
    """Return the finished loop. Trailing system messages are queued, because only a reply may follow them."""
    messages, last = _split_system(loop.messages)
    return loop._replace(messages=messages, queued=(*last, *loop.queued), phase=Finished(termination))


def join_rest(loop: Loop) -> Loop:
    """Return the loop as it is shown, edited and followed up: what a limit left open has joined its history."""
    if isinstance(loop.phase, Finished) and isinstance(loop.phase.termination, LIMITS):
        return finish(settle_and_join(loop), loop.phase.termination)
    return loop


def _split_system(messages: Chain[str]) -> tuple[Chain[str], list[str]]:
    """Split a history before its trailing system messages. Only a reply may follow them (rule 21)."""
    length = len(messages)
    while length and is_system(messages[length - 1]):
        length -= 1
    last = messages[length:]
    return (Chain(messages[:length]), last) if last else (messages, last)


def is_system(text: str) -> bool:
    """Return whether a message is a system message."""
    return '"system"' in text and decode(text)["role"] == "system"


def find_last_user_turn(messages: Chain[str]) -> int:
    """Return the index of the last user turn: the last run of messages that are neither replies nor results."""
    end_ = len(messages)
    while end_ and not is_prompt(messages[end_ - 1]):
        end_ -= 1
    while end_ and is_prompt(messages[end_ - 1]):
        end_ -= 1
    return end_


def is_prompt(text: str) -> bool:
    """Return whether a message is neither a reply nor results."""
    message = decode(text)
    content = message["content"]
    answers = isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)
    return message["role"] != "assistant" and not answers


def _make_results(round_: Round, texts: Texts) -> tuple[list[str], list[str]]:
    """Return the result blocks in the model's order, and the blocks after them."""
    results, notes = [], []
    for call, result in [(call, call.result) for call in round_.calls if call.result is not None]:
        if call.edited is not None and call.started:
            note = {"type": "text", "text": fill_text(texts, "edited", id=call.id, name=call.name, input=call.edited)}
            content = decode(result.content)
            inside = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if all(block["type"] in _TAKES_TEXT for block in inside):
                kept = [block for block in inside if block["type"] != "text" or block["text"].strip()]
                results.append(make_result_block(call, evolve(result, content=encode([*kept, note]))))
                continue
            notes.append(encode(note))
        results.append(make_result_block(call, result))
    for call in round_.calls:
        notes += [] if call.result is None or call.result.after is None else map(encode, decode(call.result.after))
    return results, notes
