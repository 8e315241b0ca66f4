"""The attributes of spans, by the GenAI conventions of OpenTelemetry.

Source: open-telemetry/semantic-conventions-genai, `model/gen-ai/spans.yaml` and the pages "Anthropic" and "Agent spans"
(all in development). Attributes that the conventions do not define begin with `toolloop.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolloop.machine.jsontext import JSON
from toolloop.machine.usage import Usage

_REQUESTED = {
    "model": "gen_ai.request.model",
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "stop_sequences": "gen_ai.request.stop_sequences",
}


def common(operation: str, loop_id: str) -> dict[str, Any]:
    """Return the attributes that each span has."""
    return {"gen_ai.operation.name": operation, "gen_ai.conversation.id": loop_id}


def of_request(params: Mapping[str, JSON]) -> dict[str, Any]:
    """Return the attributes for the parameters of a request."""
    found: dict[str, Any] = {name: params[key] for key, name in _REQUESTED.items() if params.get(key) is not None}
    if (params.get("output_config") or {}).get("format") is not None:
        found["gen_ai.output.type"] = "json"
    return found


def of_usage(usage: Usage) -> dict[str, int]:
    """Return the token counts. Input includes the tokens that were read from a cache or written to it."""
    counts = {
        "gen_ai.usage.input_tokens": usage.total_input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
    }
    if usage.thinking_tokens:
        counts["gen_ai.usage.reasoning.output_tokens"] = usage.thinking_tokens
    return counts
