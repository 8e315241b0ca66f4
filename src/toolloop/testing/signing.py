"""Signed thinking: what the fake API hands out it knows again (messages-api.md, rules 26 and 29).

A signature holds digests of system prompt, tools and earlier blocks, the number of those blocks, and a keyed hash over
all of that and the thinking itself. So a changed thinking block and a changed conversation can be told apart.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

from toolloop.testing.blocks import THINKING
from toolloop.testing.refusals import Context, Refusal
from toolloop.testing.runs import Block, Run, blocks_of

if TYPE_CHECKING:
    from toolloop.testing.models import Model

_PART = 12  # bytes of each digest: short signatures read better in a failed test
_COUNT = 4
_CONTROLS = "thinking-binding-controls-2026-08-01"


def _canonical(value: Any) -> bytes:
    return json.dumps(_unmarked(value), sort_keys=True, separators=(",", ":")).encode()


def _unmarked(value: Any) -> Any:
    """A value without its cache marks, which bind nothing."""
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def digest(value: Any) -> bytes:
    """A short digest of a JSON value, cache marks aside."""
    return hashlib.sha256(_canonical(value)).digest()[:_PART]


def normal(role: str, block: Block) -> list[Any]:
    """A block in the one form in which equal conversations compare equal."""
    if block["type"] == "tool_result" and isinstance(block.get("content"), str):
        block = {**block, "content": blocks_of(block["content"])}
    return [role, block]


class Prefix:
    """All that comes before a block: system prompt, tools, and a chain of digests over the blocks."""

    def __init__(self, body: dict[str, Any], runs: list[Run]) -> None:
        """Walk the conversation once."""
        system = body.get("system")
        self.system = digest(blocks_of(system) if isinstance(system, str) else system or [])
        self.tools = digest(body.get("tools") or [])
        self.chain = [b"\0" * _PART]
        for run in runs:
            for block in run.blocks:
                self.chain.append(hashlib.sha256(self.chain[-1] + digest(normal(run.role, block))).digest()[:_PART])

    def at(self, count: int) -> bytes:
        """What a signature says of a conversation of this many blocks."""
        return count.to_bytes(_COUNT) + self.system + self.tools + self.chain[count]


class Signer:
    """Signs what the server hands out, and checks what comes back.

    Args:
        secret: the key. Servers of one secret know each other's signatures, as the API's own machines do.

    """

    def __init__(self, secret: bytes) -> None:
        """Keep the key."""
        self._secret = secret

    def sign(self, content: list[Block], prefix: Prefix) -> list[Block]:
        """The content of a reply, with every thinking block signed."""
        said = prefix.at(len(prefix.chain) - 1)
        return [self._signed(block, said) if block["type"] in THINKING else block for block in content]

    def _signed(self, block: Block, said: bytes) -> Block:
        if block["type"] == "thinking":
            return {**block, "signature": self._signature("thinking", block["thinking"], said)}
        hidden = str(block.get("data", ""))
        return {**block, "data": f"{self._signature('redacted_thinking', hidden, said)}.{_text(hidden.encode())}"}

    def _signature(self, kind: str, text: str, said: bytes) -> str:
        seal = hmac.digest(self._secret, b"\0".join((kind.encode(), said, json.dumps(text).encode())), "sha256")[:_PART]
        return _text(said + seal)

    def check(self, body: dict[str, Any], runs: list[Run], model: Model, context: Context) -> Refusal | None:
        """Every thinking block is one that was handed out, and, where the model binds, in this conversation."""
        places = [
            (number, place, block)
            for number, run in enumerate(runs)
            for place, block in enumerate(run.blocks)
            if block["type"] in THINKING
        ]
        if not places:
            return None
        prefix = Prefix(body, runs)
        starts = [sum(len(run.blocks) for run in runs[:number]) for number in range(len(runs))]
        binding = (body.get("thinking") or {}).get("block_binding") or {}
        drops = binding.get("prefix_mismatch_behavior") == "drop_block"
        for number, place, block in places:
            field = "signature" if block["type"] == "thinking" else "data"
            invalid = f"messages.{number}.content.{place}: Invalid `{field}` in `{block['type']}` block"
            said = self._said(block)
            if said is None:
                return Refusal(invalid)
            if model.binds_thinking and not drops:
                differs = _difference(prefix, said, starts[number] + place)
                if differs is not None:
                    return Refusal(invalid + _other_conversation(context, differs))
        return None

    def _said(self, block: Block) -> bytes | None:
        """What the block's signature says of its conversation, or None for a block that was not signed here."""
        if block["type"] == "thinking":
            signature, text = block["signature"], block["thinking"]
        else:
            signature, _, hidden = block["data"].partition(".")
            text = _bytes(hidden).decode(errors="replace")
        said = _bytes(signature)[:-_PART]
        return said if said and self._signature(block["type"], text, said) == signature else None


def _difference(prefix: Prefix, said: bytes, before: int) -> str | None:
    count = int.from_bytes(said[:_COUNT])
    system, tools, chain = (said[start : start + _PART] for start in range(_COUNT, _COUNT + 3 * _PART, _PART))
    if tools != prefix.tools:
        return " The `tools` list differs from when it was created."
    if system != prefix.system:
        return " The `system` prompt differs from when it was created."
    if count > before or chain != prefix.chain[count]:
        return " Content before this block differs from when it was created."
    return None


def _other_conversation(context: Context, differs: str) -> str:
    controls = (
        ""
        if context.has_beta(_CONTROLS)
        else (f" That setting requires the `{_CONTROLS}` value in the `anthropic-beta` header.")
    )
    return (
        ". The block is bound to a different conversation. Remove the block, or set "
        f'`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".{controls}{differs}'
    )


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_", validate=True)
    except ValueError:  # not ASCII, or not base64: somebody else's signature
        return b""
