"""The words of the GenAI conventions of OpenTelemetry, and what of a loop they are said of.

Source: open-telemetry/semantic-conventions-genai, `model/gen-ai/spans.yaml`, `metrics.yaml` and the pages "Anthropic",
"Agent spans" and "Metrics" (all in development). The names are written out here, for the package that has them marks
them as moved. What has no name there begins with `toolloop.`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.usage import Usage

PROVIDER = "anthropic"  # of the format, whoever hosts the model
OPERATION = "gen_ai.operation.name"
MODEL = "gen_ai.request.model"
ERROR = "error.type"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - tokens of text
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
STREAM = "gen_ai.request.stream"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
TOOL = "gen_ai.tool.name"
CALL_ID = "gen_ai.tool.call.id"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
OUTCOME = "toolloop.outcome"
TERMINATION = "toolloop.termination"
ITERATION = "toolloop.iteration"
ITERATIONS = "toolloop.iterations"
SUMMARY = "toolloop.summary"

# The bounds of the buckets are the conventions' own.
TOKEN_USAGE = ("gen_ai.client.token.usage", "{token}", "Number of input and output tokens used.")
TOKEN_BOUNDS = [4**power for power in range(14)]
REQUEST_SECONDS = ("gen_ai.client.operation.duration", "s", "GenAI operation duration.")
FIRST_SECONDS = ("gen_ai.client.operation.time_to_first_chunk", "s", "Time to receive the first chunk.")
LOOP_SECONDS = ("gen_ai.invoke_agent.duration", "s", "The duration of a single agent invocation.")
TOOL_SECONDS = ("gen_ai.execute_tool.duration", "s", "The duration of a single tool execution.")
SECOND_BOUNDS = [0.01 * 2**power for power in range(14)]

_ASKED = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "stop_sequences": "gen_ai.request.stop_sequences",
}
# What of a span event has a name in the conventions.
_NAMED = {"tool": TOOL, "call_id": CALL_ID}
# Pictures and documents are large, and signatures mean nothing to a reader.
_LEFT_OUT = {"source", "data", "signature", "encrypted_content", "cache_control"}


def asked(params: Mapping[str, JSON]) -> dict[str, Any]:
    """The attributes of a request: what its parameters ask for."""
    found: dict[str, Any] = {name: params[key] for key, name in _ASKED.items() if params.get(key) is not None}
    config = params.get("output_config")
    if isinstance(config, dict) and config.get("format") is not None:
        found["gen_ai.output.type"] = "json"
    return found


def used(usage: Usage) -> dict[str, int]:
    """The attributes of what was used. What was read from a cache, and written to it, is input here."""
    counts = {
        "gen_ai.usage.input_tokens": usage.total_input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
    }
    if usage.thinking_tokens:
        counts["gen_ai.usage.reasoning.output_tokens"] = usage.thinking_tokens
    return counts


def noted(said: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of an event in a span."""
    return {_NAMED.get(name, f"toolloop.{name}"): value for name, value in said.items()}


def ids_of(loop_id: str) -> tuple[int, int]:
    """The trace and the span that all who drive a loop think of alike, made of its id: so its spans find together."""
    digest = hashlib.sha256(b"toolloop " + loop_id.encode()).digest()
    return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1


def messages(texts: Iterable[str]) -> str:
    """Messages as the conventions write them, as JSON."""
    return encode([message(decode(text)) for text in texts])


def message(given: Mapping[str, Any]) -> dict[str, JSON]:
    """One message as the conventions write it."""
    return {"role": str(given.get("role", "assistant")), "parts": parts(given.get("content"))}


def parts(content: Any) -> list[JSON]:
    """The content of a message, or a system prompt, as the conventions write it."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    return [_part(block) for block in content or () if isinstance(block, Mapping)]


def _part(block: Mapping[str, Any]) -> JSON:
    match block:
        case {"type": "text", "text": text}:
            return {"type": "text", "content": text}
        case {"type": "thinking", "thinking": thinking}:
            return {"type": "reasoning", "content": thinking}
        case {"type": "tool_use", "id": call_id, "name": name, "input": given}:
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": given}
        case {"type": "tool_result", "tool_use_id": call_id}:
            response = block.get("content", "")
            return {
                "type": "tool_call_response",
                "id": call_id,
                "response": response if isinstance(response, str) else parts(response),
            }
        case {"type": "server_tool_use" | "mcp_tool_use" as kind, "id": call_id, "name": name}:
            call = {"type": kind, "arguments": block.get("input")}
            return {"type": "server_tool_call", "id": call_id, "name": name, "server_tool_call": call}
    return {name: value for name, value in block.items() if name not in _LEFT_OUT}
