"""What the tests of compaction share: small messages, and requests by the beta client."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from toolloop.testing import FakeMessagesAPI

BETA = "compact-2026-09-04"
EDIT_BETA = "compact-2026-01-12"
SUMMARIZE: Any = {"type": "summarize"}
HI: dict[str, Any] = {"role": "user", "content": "Hi"}
ADD: dict[str, Any] = {"name": "add", "input_schema": {"type": "object"}}
SEARCH: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
CALL: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4"}
EDITS = {"edits": [{"type": "clear_tool_uses_20250919"}]}
ASK: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 4096, "messages": [HI], "tools": [ADD, SEARCH]}


def claude(*blocks: Any) -> dict[str, Any]:
    """A message of the assistant; a string is a text block."""
    texts = ({"type": "text", "text": block} if isinstance(block, str) else block for block in blocks)
    return {"role": "assistant", "content": list(texts)}


def send(api: FakeMessagesAPI, *betas: str, **fields: Any) -> dict[str, Any]:
    """Ask with some parameters changed, by the beta client."""
    message: anthropic.types.beta.BetaMessage
    message = api.client().beta.messages.create(**{**ASK, **fields}, betas=list(betas or (BETA,)))
    return message.to_dict(mode="json", warnings=False)


def refused(api: FakeMessagesAPI, *betas: str, **fields: Any) -> anthropic.BadRequestError:
    """The error of a request that is refused, as the only one of this server."""
    with pytest.raises(anthropic.BadRequestError) as caught:
        send(api, *betas, **fields)
    assert len(api.refused) == 1
    return caught.value


def summary(api: FakeMessagesAPI, **fields: Any) -> dict[str, Any]:
    """The block that a request for a compaction gives."""
    (block,) = send(api, compaction=SUMMARIZE, **fields)["content"]
    return dict(block)
