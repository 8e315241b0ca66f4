"""Check the order of turns, and their first and last blocks: rules 9 to 13, 20, 21, 27, 34, 36."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolloop._messages.blocks import MOST_CACHE_MARKS
from toolloop._messages.models import takes_prefill, takes_system_messages
from toolloop._messages.reading import (
    THINKING,
    Run,
    drop_compacted,
    find_unanswered_server_calls,
    is_directive,
    is_server_result,
    is_summary,
    make_content_path,
    make_message_path,
    read_text,
    role_of,
    walk_blocks,
)
from toolloop._messages.rules import Level, Problems


def check_turns(  # noqa: PLR0913 - the parts of a request, by name
    messages: Sequence[Any], runs: list[Run], findings: Problems, *, model: object, tools: Any, thinking: Any
) -> None:
    """Check the order of turns, their ends, and the rules that depend on the model and the request."""
    if runs and runs[0].role == "assistant" and not (runs[0].spots and is_summary(runs[0].spots[0].block)):
        findings.add("assistant-first", make_message_path(runs[0].messages[0]), "the history begins with the assistant")
    for run in runs:
        for number in () if run.role == "system" else run.messages:
            if messages[number]["content"] == []:
                # Models that accept a prefill may accept an empty one.
                is_last = run is runs[-1] and number == run.messages[-1]
                level: Level | None = "warning" if is_last and _may_be_prefill(run, model) else None
                findings.add(
                    "empty-content", make_content_path(number), f"this {run.role} message is empty", level=level
                )
    _check_compactions(runs, findings)
    _ends(runs, findings)
    _check_prefill(runs, findings, model=model, thinking=thinking)
    _check_system(messages, runs, findings, model=model)
    _check_thinking_first(runs, findings, model=model, thinking=thinking)
    check_cache_marks(runs, findings, tools=tools)
    if tools == []:
        _check_no_tools(runs, findings)


def _may_be_prefill(run: Run, model: object) -> bool:
    return run.role == "assistant" and takes_prefill(model) is True


def _check_compactions(runs: list[Run], findings: Problems) -> None:
    spots = [spot for run in runs for spot in run.spots]
    for spot in spots[1:]:
        # Compaction blocks at the start of a reply are not signed, and are legal anywhere.
        if is_summary(spot.block) and spot.block.get("signature") is not None:
            findings.add("compaction-place", spot.path, "a signed compaction block is after another block")


def _ends(runs: list[Run], findings: Problems) -> None:
    for run in runs:
        if run.role == "assistant" and run.spots and run.spots[-1].kind in THINKING:
            findings.add("thinking-last", run.spots[-1].path, "the assistant turn ends in thinking")


def _check_prefill(runs: list[Run], findings: Problems, *, model: object, thinking: Any) -> None:
    if not runs or runs[-1].role != "assistant" or not runs[-1].spots:
        return
    last = runs[-1].spots[-1]
    after_server = is_server_result(last.kind)
    if not (after_server or last.kind in {"text", *THINKING}) or find_unanswered_server_calls(runs[-1:]):
        return  # a paused turn is sent back unchanged; the other blocks that may end one are unknown
    takes = takes_prefill(model)
    thinks = isinstance(thinking, dict) and read_text(thinking, "type") in ("enabled", "adaptive")
    if thinks or takes is False:
        why = "with thinking" if thinks else "to this model"
        # Every recorded pause ends in a server call. A pause that ends in its result is likely also legal.
        level: Level | None = "warning" if after_server else None
        message = f"a request {why} cannot end in an assistant message"
        findings.add("prefill", make_message_path(last.message), message, level=level)
    elif takes and last.kind == "text":
        text = read_text(last.block, "text") or ""
        if text.strip() and text != text.rstrip():
            findings.add("trailing-whitespace", last.path, "the last assistant message ends in whitespace")


def _check_system(messages: Sequence[Any], runs: list[Run], findings: Problems, *, model: object) -> None:
    if takes_system_messages(model) is False:
        for number, message in enumerate(messages):
            if is_directive(message) or role_of(message) == "system":
                findings.add("system-model", make_message_path(number), f"{model} does not accept system messages")
    for number, run in enumerate(runs):
        if run.role != "system":
            continue
        first, last = make_message_path(run.messages[0]), make_message_path(run.messages[-1])
        if number == 0:
            findings.add(
                "system-place", first, "the history begins with it", remedy="Use the `system` parameter of the request."
            )
        elif runs[number - 1].role == "assistant" and not _ends_in_server_result(runs[number - 1]):
            findings.add("system-place", first, "it follows an assistant message")
        if number + 1 < len(runs) and runs[number + 1].role == "user":
            findings.add("system-place", last, "a user message follows it")


def _ends_in_server_result(run: Run) -> bool:
    return bool(run.spots) and is_server_result(run.spots[-1].kind)


def _check_thinking_first(runs: list[Run], findings: Problems, *, model: object, thinking: Any) -> None:
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled" or takes_prefill(model) is None:
        return
    turns = [run for run in drop_compacted(runs) if run.role != "system"]
    replies = list(_walk_open_turn(turns))
    # The model thinks once at the start of a turn, or before each call. Both histories are valid.
    if replies and not any(map(_begins_with_thinking, (replies[0], replies[-1]))):
        findings.add(
            "thinking-first", make_message_path(replies[0].messages[0]), "this turn of calls begins without thinking"
        )


def _begins_with_thinking(run: Run) -> bool:
    # A compaction by the server is first in its reply.
    return next((kind for kind in run.kinds if kind != "compaction"), None) in THINKING


def _walk_open_turn(turns: list[Run]) -> Iterator[Run]:
    """Yield the assistant runs of the open turn, from the last one back to the last text of the user."""
    if not turns or turns[-1].role != "user":
        return
    for turn in reversed(turns):
        if turn.role == "assistant":
            yield turn
        elif "tool_result" not in turn.kinds:
            return


def check_cache_marks(runs: list[Run], findings: Problems, *, tools: Any) -> None:
    """Check the number and the order of all cache marks. `tools`: what stands before the messages."""
    short = False
    for count, (path, mark) in enumerate(find_marks(runs, tools)):
        if count == MOST_CACHE_MARKS:
            findings.add("cache-marks", path, f"the request has more than {MOST_CACHE_MARKS} cache marks")
        if read_text(mark, "ttl") != "1h":
            short = True
        elif short:
            findings.add("cache-marks", path, "a cache mark with a ttl of an hour is after one of five minutes")


def find_marks(runs: list[Run], tools: Any = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the cache marks in the order of the request. Marks inside a block come before the block's own."""
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and isinstance(mark := tool.get("cache_control"), dict):
            yield f"tools[{index}]", mark
    for run in runs:
        for path, block in walk_blocks(run):
            if isinstance(block, dict) and isinstance(mark := block.get("cache_control"), dict):
                yield path, mark


def _check_no_tools(runs: list[Run], findings: Problems) -> None:
    for run in runs:
        for spot in run.spots:
            if spot.kind in ("tool_use", "tool_result"):
                findings.add("no-tools", spot.path, "the history has calls, but the request has no tools")
                return
