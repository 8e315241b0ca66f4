"""Close rounds and end loops: their messages join the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from toolloop.machine.record.loop import Finished, Judging, Loop, ResumePoint, Round, Stopping, Waiting
from toolloop.machine.record.replies import (
    close_paused,
    drop_unfinished,
    server_calls_without_results,
    without_open_calls,
)
from toolloop.machine.rules.calls import settle_open
from toolloop.machine.rules.repetition import count_round
from toolloop.machine.values.calls import Call, Result, Status
from toolloop.machine.values.chain import Chain
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.setup import Texts
from toolloop.machine.values.stop_reasons import PAUSE
from toolloop.machine.values.texts import fill_text
from toolloop.terminations import LIMITS, Termination

# A note may be added to a result of these kinds of blocks. The API does not accept text beside other kinds.
_TAKES_TEXT = frozenset({"text", "image"})


def user_message(blocks: Sequence[str]) -> str:
    """Return the text of a user message with these blocks, given as texts."""
    return f'{{"role":"user","content":[{",".join(blocks)}]}}'


def result_block(call: Call, result: Result) -> str:
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
    repetition = count_round(loop.setup.loop_detection, loop.repetition, round_.calls)
    after: dict[str, Any] = {"repetition": repetition, "phase": Waiting("tools_executed", round_)}
    results, notes = _results(round_, loop.setup.texts)
    asked = _with_reply(loop, round_)
    if stays_unjoined(asked, round_):
        answer = user_message([_without_marks(text) for text in results])
        queued = (user_message(notes), *loop.queued) if notes else loop.queued
        return loop._replace(unjoined=(*asked, answer), queued=queued, round=None, **after)
    return join(loop, (*asked, user_message((*results, *notes))), **after)


def answer_to(loop: Loop, round_: Round) -> str:
    """Return the user message that closes a round whose calls are all settled."""
    results, notes = _results(round_, loop.setup.texts)
    alone = stays_unjoined(_with_reply(loop, round_), round_)
    return user_message([_without_marks(text) for text in results] if alone else (*results, *notes))


def stays_unjoined(asked: Sequence[str], round_: Round) -> bool:
    """Return whether only results may follow a round, because code made its calls or a server call is open."""
    return any(call.by_code for call in round_.calls) or bool(server_calls_without_results(asked))


def _without_marks(text: str) -> str:
    """Return a block without cache marks: an unjoined message cannot be edited if there are too many."""
    return encode(_unmarked(decode(text))) if '"cache_control"' in text else text


def _unmarked(block: JSON) -> JSON:
    match block:
        case list():
            return [_unmarked(each) for each in block]
        case dict():
            kept = {key: value for key, value in block.items() if key != "cache_control"}
            return {key: _unmarked(value) if key in ("content", "source") else value for key, value in kept.items()}
    return block


def join(loop: Loop, messages: Sequence[str], **changes: Any) -> Loop:
    """Return the loop after the messages of a finished turn, then the queued messages, joined its history.

    The open round, the unjoined messages and the container are cleared. `changes`: new values of other fields.
    """
    history = loop.messages.extend(close_paused(without_open_calls(messages)))
    if loop.queued:
        history, last = _part_system(history)
        history = history.extend((*loop.queued, *last))
    return loop._replace(messages=history, queued=(), container=None, unjoined=(), round=None, **changes)


def settled_and_joined(loop: Loop, **changes: Any) -> Loop:
    """Return the loop with its open calls settled without running, and with all messages joined that can join."""
    if loop.round is None:
        return join(loop, drop_unfinished(loop.unjoined), **changes)
    if isinstance(loop.phase, Judging) and loop.phase.action is PAUSE:
        return join(loop, drop_unfinished(_with_reply(loop, loop.round)), **changes)
    round_ = settle_open(loop.round, loop.setup.texts)
    results, notes = _results(round_, loop.setup.texts)
    answer = (user_message((*results, *notes)),) if round_.calls else ()
    return join(loop, (*_with_reply(loop, round_), *answer), **changes)


def end(loop: Loop, termination: Termination, *, waits: bool = False) -> Loop:
    """End a loop in any phase. If a limit ends it, it can be resumed from there.

    Args:
        loop: the loop.
        termination: how it ends.
        waits: whether calls that run are waited for. If not, they are settled as cancelled.

    """
    if waits and loop.round is not None and loop.round.having(Status.RUNNING):
        return loop._replace(phase=Stopping(termination))
    point = None
    if isinstance(termination, LIMITS):
        kept, parted = _part_system(loop.messages)
        point = ResumePoint(len(kept), tuple(parted), loop.unjoined, loop.queued, loop.round, loop.container)
    return finish(settled_and_joined(loop), termination, point)


def finish(loop: Loop, termination: Termination, resume_point: ResumePoint | None = None) -> Loop:
    """Return the finished loop. Trailing system messages are queued, because only a reply may follow them."""
    messages, last = _part_system(loop.messages)
    return loop._replace(messages=messages, queued=(*last, *loop.queued), phase=Finished(termination, resume_point))


def _part_system(messages: Chain[str]) -> tuple[Chain[str], list[str]]:
    """Split a history before its trailing system messages. Only a reply may follow them (rule 21)."""
    length = len(messages)
    while length and is_system(messages[length - 1]):
        length -= 1
    last = messages[length:]
    return (Chain(messages[:length]), last) if last else (messages, last)


def is_system(text: str) -> bool:
    """Return whether a message is a system message."""
    return '"system"' in text and decode(text)["role"] == "system"


def last_user_turn(messages: Chain[str]) -> int:
    """Return the index of the last user turn: the last run of messages that are neither replies nor results."""
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


def _with_reply(loop: Loop, round_: Round) -> tuple[str, ...]:
    return loop.unjoined if round_.reply is None else (*loop.unjoined, round_.reply)


def _results(round_: Round, texts: Texts) -> tuple[list[str], list[str]]:
    """Return the result blocks in the model's order, and the blocks after them."""
    results, notes = [], []
    for call, result in [(call, call.result) for call in round_.calls if call.result is not None]:
        if call.edited is not None and call.started:
            note = {"type": "text", "text": fill_text(texts, "edited", id=call.id, name=call.name, input=call.edited)}
            content = decode(result.content)
            inside = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if all(block["type"] in _TAKES_TEXT for block in inside):
                kept = [block for block in inside if block["type"] != "text" or block["text"].strip()]
                results.append(result_block(call, evolve(result, content=encode([*kept, note]))))
                continue
            notes.append(encode(note))
        results.append(result_block(call, result))
    for call in round_.calls:
        notes += [] if call.result is None or call.result.after is None else map(encode, decode(call.result.after))
    return results, notes
