"""Signed thinking and summaries: what the fake API hands out it knows again (messages-api.md, rules 26, 29 and 36).

The signature of thinking holds digests of system prompt, tools and earlier blocks, the number of those blocks, and a
keyed hash over all of that and the thinking itself. So a changed thinking block and a changed conversation can be told
apart. The signature of a compaction block holds a digest of its summary in the same way.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

from toolloop.testing.blocks import THINKING
from toolloop.testing.refusals import THINKING_CONTROLS, Context, Refusal
from toolloop.testing.runs import Block, Run, after_compaction, blocks_of, runs_of, summarizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolloop.testing.models import Model

_PART = 12  # bytes of each digest: short signatures read better in a failed test
_COUNT = 4
_SUMMARY = b"compaction"


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
        return _text(said + self._seal(kind.encode(), said, json.dumps(text).encode()))

    def sign_summary(self, block: Block) -> Block:
        """A compaction block, signed if it has a summary."""
        if not summarizes(block):
            return block
        said = _summary(block)
        return {**block, "signature": _text(said + self._seal(_SUMMARY, said))}

    def check(self, body: dict[str, Any], runs: list[Run], model: Model, context: Context) -> Refusal | None:
        """Every block that is signed was handed out, and thinking, where the model binds it, in this conversation.

        What stands before a compaction is not looked at: nobody is shown it.
        """
        placed = list(_placed(after_compaction(runs)))
        for number, place, block, _ in placed:
            if summarizes(block) and (refusal := self._check_summary(f"messages.{number}.content.{place}", block)):
                return refusal
        thoughts = [each for each in placed if each[2]["type"] in THINKING]
        prefix = Prefix(body, runs if thoughts else [])
        for number, place, block, before in thoughts:
            field = "signature" if block["type"] == "thinking" else "data"
            invalid = f"messages.{number}.content.{place}: Invalid `{field}` in `{block['type']}` block"
            said = self._said(block)
            if said is None:
                return Refusal(invalid)
            if model.binds_thinking and not _drops(body):
                differs = _difference(prefix, said, before)
                if differs is not None:
                    return Refusal(invalid + _other_conversation(context, differs))
        return None

    def dropped(self, body: dict[str, Any], model: Model) -> list[dict[str, str]]:
        """The thinking that a request without fault loses, as `input_transformations` of its reply tells it.

        With a block goes the thinking that follows it directly (`BetaThinkingDroppedInputTransformation` of the SDK).
        """
        if not (model.binds_thinking and _drops(body)):
            return []
        runs = runs_of(body["messages"])
        prefix = Prefix(body, runs)
        sent = [
            f"messages.{number}.content.{place}"
            for number, message in enumerate(body["messages"])
            for place in range(len(blocks_of(message.get("content"))))
        ]
        paths, goes_on = [], False
        for _, place, block, before in _placed(after_compaction(runs)):
            if block["type"] in THINKING:
                goes_on = (goes_on and place > 0) or _difference(prefix, self._said(block) or b"", before) is not None
            else:
                goes_on = False
            if goes_on:
                paths.append(sent[before])
        return [{"type": "thinking_dropped", "path": path, "reason": "prefix_binding_mismatch"} for path in paths]

    def _check_summary(self, where: str, block: Block) -> Refusal | None:
        if block.get("signature") is None:  # in threshold mode
            return None
        told = _bytes(block["signature"])
        said, is_now = told[:-_PART], _summary(block)
        if not said or told[-_PART:] != self._seal(_SUMMARY, said):
            return _refused(where, "signature_invalid", "Invalid `signature` in `compaction` block")
        if said[:_PART] != is_now[:_PART]:
            return _refused(where, "content_mismatch", "`content` differs from the text its `signature` recorded")
        if said != is_now:
            return _refused(where, "tool_changes_mismatch", "`tool_changes` differs from what was returned")
        return None

    def _seal(self, *parts: bytes) -> bytes:
        return hmac.digest(self._secret, b"\0".join(parts), "sha256")[:_PART]

    def _said(self, block: Block) -> bytes | None:
        """What the block's signature says of its conversation, or None for a block that was not signed here."""
        if block["type"] == "thinking":
            signature, text = block["signature"], block["thinking"]
        else:
            signature, _, hidden = block["data"].partition(".")
            text = _bytes(hidden).decode(errors="replace")
        said = _bytes(signature)[:-_PART]
        return said if said and self._signature(block["type"], text, said) == signature else None


def _refused(where: str, code: str, text: str) -> Refusal:
    return Refusal(f"{where}.compaction: {text}", error_code=f"compaction_{code}")


def _summary(block: Block) -> bytes:
    return digest(block["content"]) + digest(block.get("tool_changes"))


def _placed(runs: list[Run]) -> Iterator[tuple[int, int, Block, int]]:
    """Every block: the number of its turn, its place there, and how many blocks there are before it."""
    before = 0
    for number, run in enumerate(runs):
        for place, block in enumerate(run.blocks):
            yield number, place, block, before
            before += 1


def _drops(body: dict[str, Any]) -> bool:
    binding = (body.get("thinking") or {}).get("block_binding") or {}
    return bool(binding.get("prefix_mismatch_behavior") == "drop_block")


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
        if context.has_beta(THINKING_CONTROLS)
        else (f" That setting requires the `{THINKING_CONTROLS}` value in the `anthropic-beta` header.")
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
