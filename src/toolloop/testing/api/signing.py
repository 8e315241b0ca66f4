"""How the fake API recognizes signed thinking and summaries (messages-api.md, rules 26, 29, 36) and its own replies.

The signature of a thinking block has three parts: the number of blocks before it, a digest of these with the system
prompt and the tools, and a keyed hash over both and the thinking itself. So the server can distinguish a changed
thinking block from a changed conversation without remembering either. The signature of a compaction block is a keyed
hash of its summary.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from toolloop._messages.models import binds_thinking
from toolloop.testing.api.api_refusals import THINKING_CONTROLS, Refusal, RequestContext

Block = dict[str, Any]

THINKING = ("thinking", "redacted_thinking")
_PART = 12  # bytes of each digest: short signatures are easier to read in a failed test
_COUNT = 4
_PAUSES = ("pause_turn", "compaction")


def content_blocks(content: Any) -> list[Block]:
    """Return the content of a message as blocks: a string is one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def summarizes(block: Block) -> bool:
    """Return whether this is a compaction block with a summary; without one, the compaction failed."""
    return block["type"] == "compaction" and block.get("content") is not None


def _digest(value: Any) -> bytes:
    canonical = json.dumps(without_marks(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).digest()[:_PART]


def without_marks(value: Any) -> Any:
    """Return a value without its cache marks, which are not part of the digest."""
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def _chain(body: dict[str, Any]) -> list[bytes]:
    """Return a digest of system prompt, tools and the first N blocks for each N."""
    chain = [_digest([content_blocks(body.get("system")), body.get("tools") or []])]
    for message in body["messages"]:
        for block in content_blocks(message.get("content")):
            is_result = block["type"] == "tool_result" and isinstance(block.get("content"), str)
            normal = {**block, "content": content_blocks(block["content"])} if is_result else block
            chain.append(hashlib.sha256(chain[-1] + _digest([message["role"], normal])).digest()[:_PART])
    return chain


class Signer:
    """Signs the blocks that the server sends, and checks those that come back.

    Args:
        secret: the key. Servers with the same secret accept each other's signatures, as the API's own servers do.

    """

    def __init__(self, secret: bytes = b"toolloop") -> None:
        """Keep the key."""
        self._secret = secret

    def sign(self, content: list[Block], body: dict[str, Any]) -> list[Block]:
        """Return the content of a reply to a request, with a signature in every thinking block."""
        if not any(block["type"] in THINKING for block in content):
            return content
        chain = _chain(body)
        claim = (len(chain) - 1).to_bytes(_COUNT) + chain[-1]
        return [self._signed(block, claim) if block["type"] in THINKING else block for block in content]

    def sign_summary(self, block: Block) -> Block:
        """Return a compaction block with a signature, if it has a summary."""
        if not summarizes(block):
            return block
        return {**block, "signature": self._signature("compaction", _summary(block), b"")}

    def check(self, body: dict[str, Any], context: RequestContext) -> Refusal | None:
        """Check that the server sent every signed block, and every bound thinking block in this conversation.

        Blocks before a compaction are not checked, because the model does not see them.
        """
        placed = [
            (f"messages.{number}.content.{place}", message["role"], block)
            for number, message in enumerate(body["messages"])
            for place, block in enumerate(content_blocks(message.get("content")))
        ]
        start = max((index for index, (_, _, block) in enumerate(placed) if summarizes(block)), default=0)
        thinks = any(block["type"] in THINKING for _, _, block in placed[start:])
        chain = _chain(body) if thinks and _binds(body) else None
        roles = [role for _, role, _ in placed]
        for before, (path, _, block) in enumerate(placed[start:], start):
            if summarizes(block) and block.get("signature") not in {None, self.sign_summary(block)["signature"]}:
                text = f"{path}.compaction: Invalid `signature` in `compaction` block"
                return Refusal(text, error_code="compaction_signature_invalid")
            if block["type"] in THINKING:
                field = "signature" if block["type"] == "thinking" else "data"
                invalid = f"{path}: Invalid `{field}` in `{block['type']}` block"
                if (claim := self._claim(block)) is None:
                    return Refusal(invalid)
                if chain and not _holds(claim, chain, roles[:before]):
                    return Refusal(invalid + _other_conversation(context))
        return None

    def _signed(self, block: Block, claim: bytes) -> Block:
        if block["type"] == "thinking":
            return {**block, "signature": self._signature("thinking", block["thinking"], claim)}
        hidden = block.get("data", "")
        return {**block, "data": f"{self._signature('redacted_thinking', hidden, claim)}.{hidden}"}

    def _signature(self, kind: str, text: str, claim: bytes) -> str:
        sealed = b"\0".join([kind.encode(), claim, json.dumps(text).encode()])
        seal = hmac.digest(self._secret, sealed, "sha256")[:_PART]
        return base64.urlsafe_b64encode(claim + seal).decode()

    def _claim(self, block: Block) -> bytes | None:
        """Return the claim in the signature of a thinking block, or None if it was not signed with this key."""
        if block["type"] == "thinking":
            signature, text = block["signature"], block["thinking"]
        else:
            signature, _, text = block["data"].partition(".")
        try:
            claim = base64.urlsafe_b64decode(signature)[:-_PART]
        except ValueError:  # not ASCII, or not base64: another signer
            return None
        return claim if signature == self._signature(block["type"], text, claim) else None


def _summary(block: Block) -> str:
    return json.dumps([block["content"], block.get("tool_changes")], sort_keys=True)


def _binds(body: dict[str, Any]) -> bool:
    binding = (body.get("thinking") or {}).get("block_binding") or {}
    return binds_thinking(body["model"]) is not False and binding.get("prefix_mismatch_behavior") != "drop_block"


def _holds(claim: bytes, chain: list[bytes], roles: list[str]) -> bool:
    count = int.from_bytes(claim[:_COUNT])
    # Only the beginning of the same reply may stand between the prefix and the block.
    return count <= len(roles) and claim[_COUNT:] == chain[count] and set(roles[count:]) <= {"assistant"}


def _other_conversation(context: RequestContext) -> str:
    beta = f" That setting requires the `{THINKING_CONTROLS}` value in the `anthropic-beta` header."
    return (
        ". The block is bound to a different conversation. Remove the block, or set "
        f'`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
        f"{'' if context.has_beta(THINKING_CONTROLS) else beta}"
        " Content before this block differs from when it was created."
    )


class Memory:
    """Remembers the blocks and paused replies that the server sent. Cache marks make no difference."""

    def __init__(self) -> None:
        """Start empty."""
        self._blocks: set[bytes] = set()
        self._pauses: set[tuple[int, bytes]] = set()

    def add(self, content: list[Block], stop_reason: str | None) -> None:
        """Remember the content of a reply."""
        self._blocks.update(map(_digest, content))
        # Blank text never comes back: the API refuses it.
        kept = [block for block in content if block["type"] != "text" or block["text"].strip()]
        if stop_reason in _PAUSES and kept:
            self._pauses.add((len(kept), _digest(kept)))

    def is_own(self, block: Block) -> bool:
        """Return whether the server sent exactly this block."""
        return _digest(block) in self._blocks

    def is_paused(self, blocks: list[Block]) -> bool:
        """Return whether these blocks end with a paused reply."""
        return any(_digest(blocks[-length:]) == whole for length, whole in list(self._pauses))
