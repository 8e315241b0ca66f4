"""Read replies, and make messages of the history from their blocks.

A reply joins the history verbatim: each block, known or unknown, keeps its type, position, key order and integers.
Blocks that the API would refuse are left out (source: rules 12 to 14 and 23 of the Messages API): blank text, thinking
at the end, and, once the turn is closed, server calls without a result. Call ids that it would refuse are replaced; the
original ids are kept as `given_ids` of the reply.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from attrs import evolve, field, frozen

from toolloop._usage import Cost, IterationUsage, ModelUsage, Usage, read_parts, sum_usage, with_costs
from toolloop.errors import ProtocolError
from toolloop.machine.values.calls import Call
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.stop_reasons import END, PAUSE, RUN, STOP_REASONS, ReplyAction

_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_SERVER_WORDS = tuple(f'"{kind}"' for kind in sorted(_SERVER_CALLS))
_RESUMED = ('_tool_use"', '"code_execution')  # each message that only a resumption may follow contains one of them
_CALLS = _SERVER_CALLS | {"tool_use"}
_THINKING = frozenset({"thinking", "redacted_thinking"})
_ASSISTANT = '{"role":"assistant","content":'
_ID, _SERVER_ID = re.compile(r"[a-zA-Z0-9_-]+"), re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
_CLIENT_IDS = frozenset({"tool_use", "mcp_tool_use", "mcp_tool_result"})
_KEPT_OF_ID = 40  # how many characters of a replaced id are kept


@frozen
class ParsedReply:
    """An answered request.

    Attributes:
        text: the whole reply as JSON text, verbatim.
        blocks: its content, decoded; do not change it.
        parts: its usage by model.
        container: the id of the container that ran its code.
        cache_miss: see `IterationUsage`.

    """

    text: str
    blocks: Sequence[JSON] = field(eq=False, repr=False)
    stop_reason: str | None = None
    model: str | None = None
    request_id: str | None = None
    parts: tuple[ModelUsage, ...] = ()
    stop_details: Mapping[str, JSON] | None = field(default=None, eq=False, repr=False)
    container: str | None = None
    cache_miss: str | None = None

    @property
    def usage(self) -> Usage:
        """Return the usage of all its parts."""
        return sum_usage(self.parts)

    def entry(self, iteration: int, seconds: float, costs: Sequence[Cost] = ()) -> IterationUsage:
        """Return the entry for the usage log. `costs`: of the parts, in their order."""
        parts = with_costs(self.parts, costs) if costs else self.parts
        entry = IterationUsage(
            iteration,
            self.model,
            self.stop_reason,
            self.request_id,
            sum_usage(parts),
            seconds,
            is_partial=any(part.is_partial for part in parts),
            cache_miss=self.cache_miss,
        )
        return entry if parts == entry.by_model else evolve(entry, parts=parts)

    def calls(self, *, members: bool = True) -> tuple[Call, ...]:
        """Return the client calls in the model's order. The server runs its own calls. `members`: see `Setup`."""
        return list_calls(self.blocks, members=members)


def list_calls(blocks: Iterable[JSON], *, members: bool = True) -> tuple[Call, ...]:
    """Return the client calls in the blocks of a reply, in order. `members`: see `Setup`."""
    return tuple(_make_call(block, members=members) for block in blocks if block["type"] == "tool_use")


def _make_call(block: Mapping[str, JSON], *, members: bool) -> Call:
    toolset = _to_text(block.get("toolset_name"))
    name = f"{toolset}.{block['name']}" if toolset and members else block["name"]
    return Call(block["id"], name, encode(block["input"]), by_code=_is_by_code(block), toolset=toolset)


def read_reply(body: JSON, *, text: str | None = None, request_id: str | None = None) -> ParsedReply:
    """Read the JSON of an API message.

    Args:
        body: the message.
        text: its JSON text as received; if None, the message is encoded.
        request_id: the API's id of the request, for the record.

    Raises:
        ProtocolError: it is not a message. Malformed fields that are only recorded (model, usage, details) are left
            out, but stay in the text.

    """
    given = _check_blocks(body.get("content") if isinstance(body, Mapping) else None)
    blocks = [accept_id(block) for block in given]
    ids = [block["id"] for block in blocks if block["type"] in _CALLS]
    if len(set(ids)) < len(ids):
        raise ProtocolError("the reply has two calls with the same id", retryable=True)
    if replaced := {_find_id(new): _find_id(old) for new, old in zip(blocks, given, strict=True) if new is not old}:
        body, text = {**body, "content": blocks, "given_ids": replaced}, None
    stop_reason = body.get("stop_reason")
    if not (stop_reason is None or isinstance(stop_reason, str)):
        raise ProtocolError("the stop reason of the reply is not a string", retryable=True)
    try:
        whole = encode(dict(body)) if text is None else text
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the reply is not JSON: {error}") from error
    return ParsedReply(
        text=whole,
        blocks=blocks,
        stop_reason=stop_reason,
        model=_to_text(body.get("model")),
        request_id=_to_text(request_id),
        parts=read_parts(body.get("usage"), _to_text(body.get("model"))),
        stop_details={name: _to_text(said) for name, said in _to_mapping(body.get("stop_details")).items()},
        container=container if _is_filled(container := _to_mapping(body.get("container")).get("id")) else None,
        cache_miss=_read_cache_miss(found) if isinstance(found := body.get("diagnostics"), Mapping) else None,
    )


def _read_cache_miss(diagnostics: Mapping[str, JSON]) -> str | None:
    """Return why the prompt cache missed. A reply without diagnostics found no miss, or was not asked for one."""
    reason = diagnostics.get("cache_miss_reason")
    return "pending" if reason is None else _to_text(_to_mapping(reason).get("type"))


def read_spent(body: JSON) -> ParsedReply:
    """Read only the model and the usage of a reply, which may be no message."""
    given = body if isinstance(body, Mapping) else {}
    model = _to_text(given.get("model"))
    return ParsedReply("", (), model=model, parts=read_parts(given.get("usage"), model))


def _check_blocks(blocks: JSON) -> list[JSON]:
    """Return the content of a reply after checking the fields that the loop reads."""
    if not (
        isinstance(blocks, list) and all(isinstance(each, Mapping) and _is_filled(each.get("type")) for each in blocks)
    ):
        raise ProtocolError(
            "the reply has no list of content blocks, so it is not a message of the API", retryable=True
        )
    for block in blocks:
        kind = block["type"]
        if kind == "text":
            if not isinstance(block.get("text"), str):
                raise ProtocolError("the reply has a text block without text", retryable=True)
        elif kind in _CALLS:
            named = _is_filled(block.get("id")) and _is_filled(block.get("name"))
            if not (named and isinstance(block.get("input"), Mapping)):
                raise ProtocolError("the reply has a call without an id, a name or an input object", retryable=True)
        elif not isinstance(block.get("tool_use_id"), str | None):
            raise ProtocolError("the reply has a result block whose call id is not a string", retryable=True)
    return blocks


def accept_id(block: Mapping[str, JSON]) -> Mapping[str, JSON]:
    """Return a block of a reply with an id that the API accepts in a request: its own, or one derived from it.

    Other servers that implement the protocol send ids such as `functions.pay:0` (source: rule 20). The new id depends
    only on the given one, so a result in a later reply names the same call.
    """
    kind, member = block["type"], _name_member(block)
    given = block.get(member)
    pattern, prefix = (_ID, "") if kind in _CLIENT_IDS else (_SERVER_ID, "srvtoolu_")
    if not _is_filled(given) or pattern.fullmatch(given):
        return block
    readable = re.sub("[^a-zA-Z0-9]+", "_", given)[:_KEPT_OF_ID]
    digest = hashlib.sha256(given.encode(errors="surrogatepass")).hexdigest()[:12]
    return {**block, member: f"{prefix}{readable}_{digest}"}


def _find_id(block: Mapping[str, JSON]) -> JSON:
    return block.get(_name_member(block))


def _name_member(block: Mapping[str, JSON]) -> str:
    return "id" if block["type"] in _CALLS else "tool_use_id"


def _is_by_code(block: JSON) -> bool:
    return str(_to_mapping(block.get("caller")).get("type")).startswith("code_execution")


def _to_mapping(value: JSON) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}


def _to_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _is_filled(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def make_assistant_message(blocks: Iterable[JSON], *, calls: bool = True, ends: bool = True) -> str | None:
    """Return the text of the assistant message with a reply's blocks; None if no block may be sent back.

    Args:
        blocks: the reply's content.
        calls: if False, leave out client calls, for a reply that was cut off.
        ends: if False, keep thinking at the end, for a paused reply that the next one continues.

    """
    kept = keep_acceptable([block for block in blocks if calls or block["type"] != "tool_use"], ends=ends)
    return f"{_ASSISTANT}{encode(kept)}}}" if kept else None


def keep_acceptable(blocks: Sequence[JSON], *, ends: bool = True) -> list[JSON]:
    """Return the blocks that the API accepts in a request: without blank text, and without thinking at the end."""
    kept = [block for block in blocks if block["type"] != "text" or str(block.get("text", "")).strip()]
    while ends and kept and kept[-1]["type"] in _THINKING:
        kept.pop()
    return kept


def close_paused(messages: Sequence[str]) -> list[str]:
    """Return the messages of a finished turn. If a paused reply is last, the thinking at its end is left out."""
    kept = list(messages)
    while ends_in_reply(kept):
        blocks = _list_blocks(kept[-1])
        left = keep_acceptable(blocks)
        if len(left) == len(blocks):
            break
        kept[-1:] = [f"{_ASSISTANT}{encode(left)}}}"] if left else []
    return kept


def ends_in_reply(messages: Sequence[str]) -> bool:
    """Return whether the last message is a reply: a paused one, which must be resumed."""
    return bool(messages) and messages[-1].startswith(_ASSISTANT)


def ends_in_server_call(message: str) -> bool:
    """Return whether the last block of a message is a server call. The API accepts a paused reply that ends so."""
    blocks = _list_blocks(message)
    return bool(blocks) and blocks[-1]["type"] in _SERVER_CALLS


def find_open_server_calls(messages: Iterable[str]) -> set[str]:
    """Return the ids of the server calls without a result in these messages."""
    texts = list(messages)
    if not any(word in text for text in texts for word in _SERVER_WORDS):  # the usual case, without decoding
        return set()
    blocks = [block for text in texts for block in _list_blocks(text)]
    done = {block.get("tool_use_id") for block in blocks if block["type"] != "tool_result"}
    return {block["id"] for block in blocks if block["type"] in _SERVER_CALLS} - done


def drop_unfinished(unjoined: Sequence[str]) -> list[str]:
    """Return the unjoined messages that may join the history when a turn is over.

    A paused reply that was not resumed is left out, because it is an incomplete answer. Open server calls, and calls
    made by code with their results, are left out too: the API accepts only a resumption after them (source: rules 23
    and 25).
    """
    kept = list(unjoined)
    while ends_in_reply(kept):
        kept.pop()
    return drop_open_calls(kept)


def drop_open_calls(messages: Sequence[str]) -> list[str]:
    """Return the messages without calls that only a resumption may follow, and without messages left empty by that."""
    if not any(word in text for text in messages for word in _RESUMED):  # the usual case, without decoding
        return list(messages)
    kept = _drop_calls(messages, find_open_server_calls(messages))
    while lost := _find_answered_code_calls(kept):
        kept = _drop_calls(kept, lost)
    return kept


def _drop_calls(messages: Sequence[str], lost: set[str]) -> list[str]:
    """Return the messages without these calls and their results.

    Later thinking is removed too, because its prefix has changed (source: rule 29).
    """
    if not lost:
        return list(messages)
    kept, bound = [], False
    for text in messages:
        message, blocks, left = decode(text), _list_blocks(text), []
        for block in blocks:
            if _find_own_id(block) in lost:
                bound = True
            elif not (bound and block["type"] in _THINKING):
                left.append(block)
        if len(left) < len(blocks) and message["role"] == "assistant":
            left = keep_acceptable(left)
        if left:
            kept.append(encode({**message, "content": left}))
    return kept


def _find_answered_code_calls(messages: Sequence[str]) -> set[str]:
    """Return the ids of calls made by code if their results are last. Only a reply may follow these."""
    if not messages or ends_in_reply(messages):
        return set()
    last_reply = next((text for text in reversed(messages) if text.startswith(_ASSISTANT)), None)
    if last_reply is None or '"code_execution' not in last_reply:
        return set()
    return {block["id"] for block in _list_blocks(last_reply) if block["type"] == "tool_use" and _is_by_code(block)}


def _list_blocks(text: str) -> list[JSON]:
    content = decode(text)["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _find_own_id(block: JSON) -> str | None:
    identity: str | None = block.get("tool_use_id") if block["type"] == "tool_result" else block.get("id")
    return identity


def find_action(reply: ParsedReply) -> ReplyAction:
    """Return the action for a reply. An unknown stop reason ends the loop, and no call runs.

    Raises:
        ProtocolError: the stop reason is missing, or it is `tool_use` without a call.

    """
    if reply.stop_reason is None:
        raise ProtocolError("the reply has no stop reason, so it is incomplete", retryable=True)
    action = STOP_REASONS.get(reply.stop_reason, END)
    if action is not RUN and action is not PAUSE:
        return action
    for block in reply.blocks:
        if block["type"] == "tool_use":
            return RUN
    if action is RUN:
        raise ProtocolError("the stop reason is tool_use, but the reply has no tool_use block", retryable=True)
    return action
