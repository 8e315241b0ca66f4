"""A second opinion on what the Messages API refuses. It was written from the reference notes on the API alone.

Nothing here imports the library, so that a misreading there is not one here. The numbers are those of the rules of the
notes. What these call a warning (9; text after a call, in 15; an id used again by a later turn, in 18) is not a problem
here. Prompt length, signatures and the lives of containers cannot be judged from a body.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.recorded.second_opinion import shapes
from tests.recorded.second_opinion.shapes import THINKING, Block, Body, Version, content, if_so, nested, option

_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


class Run(NamedTuple):
    """Messages of one role that follow each other: the API reads them as one (8)."""

    role: str
    number: int
    blocks: list[Block]
    messages: list[Any]

    def kinds(self) -> list[str]:
        """The types of its blocks."""
        return [block["type"] for block in self.blocks]

    def last(self) -> str:
        """The type of its last block; empty if it has none."""
        return "".join(self.kinds()[-1:])


def problems(body: Body, *, beta: bool = False) -> list[str]:
    """Return why the API would refuse a request; empty if the notes know no reason.

    Args:
        body: what is posted to /v1/messages, as JSON.
        beta: whether the request has an `anthropic-beta` header, which allows further parameters.

    """
    if found := list(shapes.shape(body, beta=beta)):  # 7: these are checked first
        return found
    runs, version = _runs(body["messages"]), version_of(body["model"])
    found += [*_calls(runs, body), *_server_calls(runs, body), *_last(runs[-1], body, version), *_references(body)]
    found += [*_emptiness(runs, body), *_system_messages(runs, version), *_open_round(runs, body)]
    return [*found, *shapes.tools(body), *shapes.cache_marks(body), *shapes.thinking(body, version)]


def _runs(messages: list[Any]) -> list[Run]:
    """Merge messages; what stands before the last compaction block with a content is ignored (36)."""
    runs: list[Run] = []
    for message in messages:
        if not runs or runs[-1].role != message["role"]:
            runs.append(Run(message["role"], len(runs), [], []))
        runs[-1].blocks.extend(content(message))
        runs[-1].messages.append(message)
    for place, run in reversed([*enumerate(runs)]):
        cuts = [index for index, b in enumerate(run.blocks) if b["type"] == "compaction" and b["content"] is not None]
        if cuts:
            return [run._replace(blocks=run.blocks[cuts[-1] :]), *runs[place + 1 :]]
    return runs


def version_of(model: str) -> Version | None:
    """Return family and version of a model; None for one that the notes do not name."""
    model = model.replace("mythos-preview", "mythos-4-6")  # 10: it refuses prefill, as all from 4.6 on
    known = re.match(r"claude-(opus|sonnet|haiku|fable|mythos)-(\d+)(?:[-.](\d{1,2})(?!\d))?", model)
    return (known[1], (int(known[2]), int(known[3] or 0))) if known else None


def _emptiness(runs: list[Run], body: Body) -> Iterator[str]:
    system = body["system"] if isinstance(body.get("system"), list) else []
    is_blank = not all(str(block.get("text", "")).strip() for block in system)
    yield from if_so((is_blank, "14: system: text content blocks must contain non-whitespace text"))
    for run in runs:
        may_be_empty = run.role == "system" or (run is runs[-1] and run.role == "assistant")
        thinks_last = run.role == "assistant" and run.last() in THINKING
        yield from if_so(
            (not run.blocks and not may_be_empty, f"13: messages.{run.number}: messages must have non-empty content"),
            (thinks_last, f"12: messages.{run.number}: The final block cannot be `thinking`."),
        )


def _calls(runs: list[Run], body: Body) -> Iterator[str]:
    """Pair calls with their results (15 to 18, 25)."""
    pending: dict[str, Block] = {}
    for run in runs:
        yield from _answers(run, pending) if run.role == "user" else _unanswered(run, pending)
        if run.role == "user" and any(str(option(b, "caller")).startswith("code_execution_") for b in pending.values()):
            inside = {*run.kinds(), *(inner["type"] for block in run.blocks for inner in nested(block))}
            lacks_container = run is runs[-1] and not body.get("container")
            yield from if_so(
                (inside - {"tool_result", "text"} or "text" in run.kinds(), "25: answers to code are results of text"),
                (lacks_container, "25: container_id is required when there are pending tool uses by code"),
            )
        calls = [block for block in run.blocks if block["type"] == "tool_use" and run.role == "assistant"]
        pending = {block["id"]: block for block in calls}
        yield from if_so((len(pending) < len(calls), f"18: messages.{run.number}: `tool_use` ids must be unique"))
    yield from _unanswered(runs[-1], pending)
    has_tools = body.get("tools") or not {"tool_use", "tool_result"} & {kind for run in runs for kind in run.kinds()}
    yield from if_so((not has_tools, "20: Requests which include `tool_use` or `tool_result` must define tools."))


def _unanswered(run: Run, call_ids: Any) -> list[str]:
    return [f"15: messages.{run.number}: `tool_use` without `tool_result` right after: {each}" for each in call_ids]


def _answers(run: Run, pending: dict[str, Block]) -> Iterator[str]:
    answered: set[str] = set()
    where, has_other = f"messages.{run.number}", False
    for block in run.blocks:
        if block["type"] != "tool_result":
            has_other = True
            continue
        call_id = block["tool_use_id"]
        is_pending, is_again = call_id in pending, call_id in answered
        toolset = pending.get(call_id, block).get("toolset_name")
        yield from if_so(
            (is_again, f"17: {where}: each tool_use must have a single result: {call_id}"),
            (not is_pending and not is_again, f"16: {where}: unexpected `tool_use_id` in `tool_result`: {call_id}"),
            (is_pending and not is_again and has_other, f"15: {where}: other blocks before the result of {call_id}"),
            (toolset != block.get("toolset_name"), f"3.1: {where}: toolset_name of {call_id} is not {toolset!r}"),
        )
        answered.add(call_id)
    yield from _unanswered(run, [call_id for call_id in pending if call_id not in answered])


def _server_calls(runs: list[Run], body: Body) -> Iterator[str]:
    """Pair calls of server tools with their results, by id, possibly in a later message (23)."""
    unpaired: dict[str, str] = {}
    is_whole = sum(len(run.blocks) for run in runs) == sum(len(content(message)) for message in body["messages"])  # 36
    for run in runs:
        if run.role == "user" and set(run.kinds()) != {"tool_result"}:  # it closes the turn
            yield from (f"23: `{name}` tool use without a result: {call_id}" for call_id, name in unpaired.items())
            unpaired = {}
        for block in run.blocks if run.role == "assistant" else ():
            if block["type"] in _SERVER_CALLS:
                unpaired[block["id"]] = block["name"]
            elif block["type"].endswith("_tool_result"):
                is_orphan = unpaired.pop(block["tool_use_id"], None) is None and is_whole
                yield from if_so((is_orphan, f"23: messages.{run.number}: a result without its call: {block}"))
    given = body.get("tools") or []
    names = tuple(str(tool.get("name")) for tool in given)
    absent = [name for name in unpaired.values() if not name.endswith(names) and not body.get("mcp_servers")]
    runs_code = any("code_execution" in str(tool.get("type")) for tool in given)
    yield from if_so(
        (absent, f"23: tool use without a result, but no {absent} tool was provided"),
        (body.get("container") and not runs_code, "7: container: only when using the code execution tool"),
    )


def _last(run: Run, body: Body, version: Version | None) -> list[str]:
    """Judge a request that ends with the assistant: on new models only one that resumes a pause may (10, 11)."""
    resumes = run.last() in (*_SERVER_CALLS, "compaction", "tool_use")  # what ends in a call is judged by 15
    if run.role != "assistant" or resumes or "fallback_credit_token" in body:
        return []
    thinks = option(body, "thinking") in ("enabled", "adaptive")
    text = run.blocks[-1]["text"] if run.last() == "text" else ""
    return if_so(
        (thinks or (version and version[1] >= (4, 6)), "10: This model does not support assistant message prefill."),
        (text != text.rstrip(), "11: messages: final assistant content cannot end with trailing whitespace"),
    )


def _system_messages(runs: list[Run], version: Version | None) -> Iterator[str]:
    """Judge system messages in the conversation; one with no content and an `output_config` may be anywhere (21)."""
    family, number = version or ("", (0, 0))
    is_old = (family == "opus" and number < (4, 8)) or (family in ("sonnet", "haiku") and number <= (5, 0))
    for place, run in enumerate(runs):
        given = [message for message in run.messages if message["content"] or "output_config" not in message]
        if run.role != "system" or not given:
            continue
        before, after = runs[place - 1 : place], [each.role for each in runs[place + 1 : place + 2]]
        follows = before and (before[0].role == "user" or before[0].last().endswith("_tool_result"))
        yield from if_so(
            (is_old, "21: role 'system' is not supported on this model"),
            (not all(message["content"] for message in given), "21: system content must contain at least one block"),
            (not before, "21: messages.0: use the top-level 'system' parameter for the initial system prompt"),
            (before and not follows, "21: role 'system' must follow a 'user' message or a server tool result"),
            (after == ["user"], "21: role 'system' must precede an 'assistant' message or end the array"),
        )


def _open_round(runs: list[Run], body: Body) -> list[str]:
    """Judge the start of the last set of calls and results where thinking is enabled by hand (27)."""
    start = last = len(runs) - 2
    while start >= 2 and "tool_result" in runs[start - 1].kinds():
        start -= 2
    is_open = option(body, "thinking") == "enabled" and "tool_result" in runs[-1].kinds() and start >= 0
    # 2: "compaction blocks simply lead the content of a normal reply", before its thinking.
    starts = {(*(kind for kind in runs[place].kinds() if kind != "compaction"), "")[0] for place in (start, last)}
    return if_so((is_open and not starts & THINKING, f"27: Expected `thinking`, but found {starts}"))


def _references(body: Body) -> list[str]:
    """Judge whether the tools that are referred to are there, and citations that are on for some only (22, 33, 35)."""
    names = {tool.get("name") for tool in body.get("tools") or []}
    top = [block for message in body["messages"] for block in content(message)]
    every = [each for block in top for each in (block, *nested(block))]
    given = [block.get("tool", block) for block in every]
    wanted = {ref.get("tool_name") for ref in given if ref.get("type") == "tool_reference"}
    cited = {bool(option(b, "citations", "enabled")) for b in every if b["type"] in ("document", "search_result")}
    return if_so(
        (wanted - names, f"35: Tool references {wanted - names} not found in available tools"),
        (len(cited) > 1, "33: citations are enabled for all documents and search results, or for none"),
    )
