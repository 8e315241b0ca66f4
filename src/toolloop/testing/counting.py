"""`POST /v1/messages/count_tokens`: a plain count of the fake API's own."""

from __future__ import annotations

from typing import Any

from toolloop.testing import sse

_BYTES = 4  # in a token, about


def counted(body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request to count: the bytes of the conversation, of system prompt and tools, by four.

    Whatever is to be edited or summarized, the count is of what was sent.
    """
    parts = [body.get(name) for name in ("messages", "system", "tools")]
    tokens = len(sse.dumps([part for part in parts if part])) // _BYTES + 1
    if body.get("context_management"):
        return {"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}}
    return {"input_tokens": tokens}
