"""The requests that the fake API refuses, in the order in which the API checks them (messages-api.md, rule 7).

The SDK's types check the shape, and `toolloop.history.check` checks the order of messages and blocks. This module has
the other rules: parameters that depend on each other, and facts that only the server knows.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from toolloop._interface.decisions import list_marked_tools
from toolloop._messages.check import check
from toolloop._messages.models import takes_thinking
from toolloop._messages.reading import runs_of
from toolloop._messages.rounds import open_code_calls, open_server_calls
from toolloop._messages.rules import Problem, Problems
from toolloop._messages.turn_order import check_cache_marks
from toolloop.testing.api.api_refusals import NEWEST_VERSION, Refusal, RequestContext
from toolloop.testing.api.shapes import JSONPath, mismatches
from toolloop.testing.api.signing import content_blocks

if TYPE_CHECKING:
    from toolloop.testing.api.signing import Signer

_MODEL = re.compile(r"claude-.*(fable|mythos|opus|sonnet|haiku|\d)")
_SAMPLING = ("temperature", "top_p", "top_k")  # only the versions before the newest accept them
#: Rules that `check` can only warn about, because it does not know the whole request, its version, or paused replies.
_KNOWN_TO_THE_SERVER = frozenset({"no-tools", "prefill", "server-tool-gone", "user-citations"})
#: Rules about the end of a conversation, which do not apply to a paused reply that is sent back.
_ENDINGS = frozenset({"prefill", "thinking-last", "trailing-whitespace"})
_ERROR_CODES = {"compaction-place": "compaction_block_misplaced", "tool-reference": "tool_reference_unresolved"}
# These affect the reply, which a request for a compaction does not have.
_REPLY_ONLY = ("context_management", "stop_sequences", "output_format")


def find_broken_rule(body: Any, context: RequestContext, signer: Signer | None) -> Refusal | None:
    """Return the first broken rule, which the API would report, or None if it accepts the request.

    Args:
        body: the decoded body.
        context: the headers, and the replies that the server remembers.
        signer: checks thinking and compaction blocks; None accepts any signature.

    """
    if refusal := _unencodable(body) or _misshapen(body, context):
        return refusal
    if not _MODEL.match(body["model"]):
        return Refusal(f"model: {body['model']}", 404, "not_found_error")
    return (
        next(map(Refusal, itertools.chain(_thinking(body), _tools(body))), None)
        or (_compaction(body, context) if body.get("compaction") else None)
        or _history(body, context)
        or (signer and signer.check(body, context))
        or _container(body)
    )


def _unencodable(body: Any) -> Refusal | None:
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:  # half of a surrogate pair, NaN or an infinity
        return Refusal(f"The request body is not valid JSON: {error}")
    return None


def _misshapen(body: Any, context: RequestContext) -> Refusal | None:
    if isinstance(body, dict) and context.version < NEWEST_VERSION:
        body = {name: value for name, value in body.items() if name not in _SAMPLING}
    for path, message in mismatches(body, context):
        if not _is_own(body, path, context):
            return Refusal(f"{'.'.join(map(str, path))}: {message}" if path else message)
    return None


def _is_own(body: dict[str, Any], path: JSONPath, context: RequestContext) -> bool:
    """Return whether the path is inside a block that the server itself sent, including new keys and types."""
    match path:
        case ("messages", int(number), "content", int(place), *_):
            block = body["messages"][number]["content"][place]
            return isinstance(block, dict) and context.is_own(block)
    return False


def _thinking(body: dict[str, Any]) -> Iterator[str]:
    """Check thinking, effort and tokens, which depend on each other (rules 5, 31 and 35)."""
    thinking, model = body.get("thinking") or {}, body["model"]
    effort = (body.get("output_config") or {}).get("effort")
    if body["max_tokens"] < 0:
        yield "max_tokens: Input should be greater than or equal to 0"
    if thinking.get("type") == "enabled":
        if thinking["budget_tokens"] >= body["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."
        if _forces_a_tool(body):
            yield "Thinking may not be enabled when tool_choice forces tool use."
    if effort == "xhigh" and takes_thinking(model, "enabled"):  # the same models accept both
        yield "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium."
    if effort in {"xhigh", "max"} and thinking.get("type") == "disabled" and model == "claude-opus-5":
        yield '"thinking.type.disabled" is not supported for this model'


def _tools(body: dict[str, Any]) -> Iterator[str]:
    """Check tools, tool choice and container, which depend on each other (rules 7 and 35)."""
    tools, choice = body.get("tools") or [], body.get("tool_choice") or {}
    if choice and not tools:
        yield "tool_choice may only be specified while providing tools."
    if choice.get("type") == "tool" and choice["name"] not in {tool.get("name") for tool in tools}:
        yield f"Tool '{choice['name']}' not found in provided tools"
    if tools and all(tool.get("defer_loading") for tool in tools):
        yield "At least one tool must have defer_loading=false. All tools cannot be deferred."
    if body.get("container") and not any(str(tool.get("type")).startswith("code_execution_") for tool in tools):
        yield "container: Container identifier can only be provided when using the code execution tool"


def _forces_a_tool(body: dict[str, Any]) -> bool:
    return (body.get("tool_choice") or {}).get("type") in {"any", "tool"}


def _compaction(body: dict[str, Any], context: RequestContext) -> Refusal | None:
    """Check that a request for a compaction has content to summarize, and asks for nothing else (rule 36)."""
    given = [name for name in _REPLY_ONLY if body.get(name)]
    given += ["tool_choice"] if _forces_a_tool(body) else []
    given += ["output_config.format"] if (body.get("output_config") or {}).get("format") else []
    if given:
        return Refusal(f"compaction: cannot be combined with `{given[0]}`")
    spoken = [
        block for each in body["messages"] if each["role"] != "system" for block in content_blocks(each["content"])
    ]
    if all(block["type"] == "compaction" for block in spoken):
        text = "messages: there is no `user` or `assistant` content to summarize"
        return Refusal(text, error_code="compaction_nothing_to_summarize")
    if open_server_calls(body["messages"]) or _is_paused(body, context):
        text = "messages: the conversation ends on an `assistant` turn that is not finished"
        return Refusal(text, error_code="compaction_incomplete_turn")
    return None


def _is_paused(body: dict[str, Any], context: RequestContext) -> bool:
    last = itertools.takewhile(lambda message: message["role"] == "assistant", reversed(body["messages"]))
    return context.is_paused(
        [block for message in reversed(list(last)) for block in content_blocks(message["content"])]
    )


def _history(body: dict[str, Any], context: RequestContext) -> Refusal | None:
    messages, tools = body["messages"], body.get("tools") or []
    marks = Problems()
    check_cache_marks(runs_of(messages), marks, tools=list_marked_tools(body))  # of the whole request
    problems = [*check(messages, model=body["model"], tools=tools, thinking=body.get("thinking")), *marks.problems]
    resumes = bool(body.get("compaction") or "fallback_credit_token" in body or _is_paused(body, context))
    return next((_refusal(problem) for problem in problems if _is_refused(problem, resumes=resumes)), None)


def _is_refused(problem: Problem, *, resumes: bool) -> bool:
    if resumes and problem.rule in _ENDINGS:
        return False
    return problem.level == "error" or problem.rule in _KNOWN_TO_THE_SERVER


def _refusal(problem: Problem) -> Refusal:
    path = re.sub(r"\[(\d+)\]", r".\1", problem.path)
    return Refusal(f"{path}: {problem.message}", error_code=_ERROR_CODES.get(problem.rule))


def _container(body: dict[str, Any]) -> Refusal | None:
    if open_code_calls(body["messages"]) and not body.get("container"):
        return Refusal(
            "container_id is required when there are pending tool uses generated by code execution with tools."
        )
    return None
