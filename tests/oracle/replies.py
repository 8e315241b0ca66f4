"""Reading a reply, and how its blocks become messages of the history.

A reply joins verbatim: every block type, order, key order and integer size is kept, known or not. The exceptions are
what the API would refuse to take back (source: rules 12 to 14 and 23 of the Messages API): blank text, thinking at the
end, and, once the turn is closed, server calls whose result never came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from tests.oracle.errors import ProtocolError
from tests.oracle.jsontext import JSON, decode, encode
from tests.oracle.usage import MAPPING, IterationUsage, Usage, billed_in, context_in, has_passes, word
from tests.oracle.values import Call

_OWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_SERVER_WORDS = tuple(f'"{kind}"' for kind in sorted(_SERVER_CALLS))
_RESUMED = ('_tool_use"', '"code_execution')  # one of them is in each message that only a resumption may follow
_THINKING = frozenset({"thinking", "redacted_thinking"})
_ASSISTANT = '{"role":"assistant","content":'


@frozen
class Reply:
    """An answered request.

    Attributes:
        text: the whole reply as JSON text, verbatim.
        blocks: its content, decoded; read it, never change it.
        container: the id of the container in which its code ran.
        told: its usage, as it came; read it, never change it.

    """

    text: str
    blocks: Sequence[JSON] = field(eq=False, repr=False)
    stop_reason: str | None = None
    model: str | None = None
    request_id: str | None = None
    usage: Usage = field(factory=Usage)
    stop_details: Mapping[str, JSON] | None = field(default=None, eq=False, repr=False)
    container: str | None = None
    told: Mapping[str, JSON] = field(factory=dict, eq=False, repr=False)

    def entry(self, iteration: int, seconds: float) -> IterationUsage:
        """Return its line of the usage log."""
        told = self.told
        by_server = not has_passes(self.stop_reason, self.usage) and self._is_by_server()
        details = "iterations" in told or "fallback_credit" in told  # hardly any has them
        credit = _mapping(_mapping(told.get("fallback_credit")).get("status")) if details else told
        return IterationUsage(
            iteration=iteration,
            model=self.model,
            stop_reason=self.stop_reason,
            request_id=self.request_id,
            usage=self.usage,
            seconds=seconds,
            service_tier=word(told.get("service_tier")),
            speed=word(told.get("speed")),
            inference_geo=word(told.get("inference_geo")),
            fallback_credit=word(credit.get("type")) if details else None,
            billed=billed_in(told) if details else (),
            context=context_in(told, unsaid=by_server) if details or by_server else None,
        )

    def _is_by_server(self) -> bool:
        """Whether the server's tools took part in it, be it that it goes on with what their code began."""
        if self.told.get("server_tool_use") is not None:
            return True
        kinds = {block["type"] for block in self.blocks} - _OWN
        return any(kind in _SERVER_CALLS or kind.endswith("_tool_result") for kind in kinds)

    def calls(self) -> tuple[Call, ...]:
        """The client's calls in it, in the model's order. Server calls are the server's affair."""
        return calls_in(self.blocks)


def calls_in(blocks: Iterable[JSON]) -> tuple[Call, ...]:
    """The client's calls in blocks of a reply, in their order."""
    return tuple(
        Call(
            id=block["id"],
            name=block["name"],
            input=encode(block["input"]),
            by_code=_by_code(block),
            toolset=block["toolset_name"] if isinstance(block.get("toolset_name"), str) else None,
        )
        for block in blocks
        if block["type"] == "tool_use"
    )


def read_reply(body: JSON, *, text: str | None = None, request_id: str | None = None) -> Reply:
    """Read the JSON of an API message.

    Args:
        body: the message.
        text: its JSON text as received; without it the message is encoded.
        request_id: the API's id of the request, for the record.

    Raises:
        ProtocolError: it makes no sense as a message. What is only for the record (model, usage, details) is left out
            where it is not what the API says it is; it stays in the text.

    """
    blocks = _checked(body.get("content") if isinstance(body, MAPPING) else None)
    stop_reason = body.get("stop_reason")
    if not (stop_reason is None or isinstance(stop_reason, str)):
        raise ProtocolError("the reply has a stop reason that is no word", retryable=True)
    try:
        whole = encode(dict(body)) if text is None else text
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the reply is not JSON: {error}") from error
    told = _mapping(body.get("usage"))
    return Reply(
        text=whole,
        blocks=blocks,
        stop_reason=stop_reason,
        model=word(body.get("model")),
        request_id=word(request_id),
        usage=Usage.read(told),
        stop_details=_words(body.get("stop_details")),
        container=_container(body.get("container")),
        told=told,
    )


def _checked(blocks: JSON) -> list[JSON]:
    """The content of a reply, if each block has what the loop reads of it."""
    if not isinstance(blocks, list) or not all(map(_is_block, blocks)):
        raise ProtocolError("the reply has no list of content blocks; it is no message of the API", retryable=True)
    calls = []
    for block in blocks:
        kind = block["type"]
        if kind == "text":
            if not isinstance(block.get("text"), str):
                raise ProtocolError("the reply has a text block without a text", retryable=True)
        elif kind == "tool_use" or kind in _SERVER_CALLS:
            calls.append(block)
        elif not isinstance(block.get("tool_use_id"), str | None):
            raise ProtocolError("the reply has a result of a call whose id is no text", retryable=True)
    for block in calls:
        if not (_filled(block.get("id")) and _filled(block.get("name")) and isinstance(block.get("input"), MAPPING)):
            raise ProtocolError("the reply has a call without an id, a name or an input object", retryable=True)
    if len(calls) > 1 and len({block["id"] for block in calls}) < len(calls):
        raise ProtocolError("the reply has two calls of one id", retryable=True)
    return blocks


def _is_block(value: JSON) -> bool:
    return isinstance(value, MAPPING) and isinstance(kind := value.get("type"), str) and bool(kind)


def _by_code(block: JSON) -> bool:
    return str(_mapping(block.get("caller")).get("type")).startswith("code_execution")


def _mapping(value: JSON) -> Mapping[str, JSON]:
    return value if value is not None and isinstance(value, MAPPING) else {}


def _container(value: JSON) -> str | None:
    name = _mapping(value).get("id")
    return name if _filled(name) else None


def _words(value: JSON) -> Mapping[str, JSON]:
    said = _mapping(value)
    return {name: word(text) for name, text in said.items()} if said else said


def _filled(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def assistant_message(blocks: Iterable[JSON], *, calls: bool = True, ends: bool = True) -> str | None:
    """The text of the assistant message made of a reply's blocks, or None if nothing of them may be sent back.

    Args:
        blocks: the reply's content.
        calls: False leaves the client's calls out, for a reply in which they may be cut off.
        ends: False keeps thinking at the end, for a paused reply, which the next one goes on with.

    """
    kept = acceptable([block for block in blocks if calls or block["type"] != "tool_use"], ends=ends)
    return f"{_ASSISTANT}{encode(kept)}}}" if kept else None


def acceptable(blocks: Sequence[JSON], *, ends: bool = True) -> list[JSON]:
    """The blocks that the API takes back: no blank text, no thinking at the end of the model's turn."""
    kept = [block for block in blocks if block["type"] != "text" or str(block.get("text", "")).strip()]
    while ends and kept and kept[-1]["type"] in _THINKING:
        kept.pop()
    return kept


def ended(messages: Sequence[str]) -> list[str]:
    """The messages of a turn that is over: if a paused reply comes last, the thinking at its end goes."""
    kept = list(messages)
    while ends_in_reply(kept):
        blocks = _blocks(kept[-1])
        left = acceptable(blocks)
        if len(left) == len(blocks):
            break
        kept[-1:] = [f"{_ASSISTANT}{encode(left)}}}"] if left else []
    return kept


def ends_in_reply(tail: Sequence[str]) -> bool:
    """Whether the last message is the model's: a paused reply that is to be resumed."""
    return bool(tail) and tail[-1].startswith(_ASSISTANT)


def ends_in_server_call(message: str) -> bool:
    """Whether the last block of a message is a server call: so does a paused reply end, and the API takes it last."""
    blocks = _blocks(message)
    return bool(blocks) and blocks[-1]["type"] in _SERVER_CALLS


def open_server_calls(messages: Iterable[str]) -> set[str]:
    """The ids of server calls whose result has not come, in these messages."""
    texts = list(messages)
    if not any(word in text for text in texts for word in _SERVER_WORDS):  # the usual case decodes nothing
        return set()
    blocks = [block for text in texts for block in _blocks(text)]
    done = {block.get("tool_use_id") for block in blocks if block["type"] != "tool_result"}
    return {block["id"] for block in blocks if block["type"] in _SERVER_CALLS} - done


def settle_tail(tail: Sequence[str]) -> list[str]:
    """What of the messages beside the history may join it when a turn is over.

    A paused reply that nothing resumed does not: it is the beginning of an answer. Nor do server calls that are open,
    nor the calls that such a server call made, with their results: the API takes nothing but the resumption after them
    (source: rules 23 and 25).
    """
    if not tail:
        return []
    kept = list(tail)
    while ends_in_reply(kept):
        kept.pop()
    return without_open_calls(kept)


def without_open_calls(messages: Sequence[str]) -> list[str]:
    """The messages without what only a resumption may follow; a message that has nothing left is left out."""
    if not any(word in text for text in messages for word in _RESUMED):  # nearly always: one look for all
        return list(messages)
    kept = _without(messages, open_server_calls(messages))
    while lost := _answered_code_calls(kept):
        kept = _without(kept, lost)
    return kept


def _without(messages: Sequence[str], lost: set[str]) -> list[str]:
    """The messages without these calls and their results.

    Thinking that came after them goes too: newer models bind it to all that was before it (source: rule 29).
    """
    if not lost:
        return list(messages)
    kept, bound = [], False
    for text in messages:
        message, blocks, left = decode(text), _blocks(text), []
        for block in blocks:
            if _own_id(block) in lost:
                bound = True
            elif not (bound and block["type"] in _THINKING):
                left.append(block)
        if len(left) < len(blocks) and message["role"] == "assistant":
            left = acceptable(left)
        if left:
            kept.append(encode({**message, "content": left}))
    return kept


def _answered_code_calls(messages: Sequence[str]) -> set[str]:
    """The ids of the calls made by code whose results come last: nothing but the next reply may follow them."""
    if not messages or ends_in_reply(messages):
        return set()
    last_reply = next((text for text in reversed(messages) if text.startswith(_ASSISTANT)), None)
    if last_reply is None or '"code_execution' not in last_reply:
        return set()
    return {block["id"] for block in _blocks(last_reply) if block["type"] == "tool_use" and _by_code(block)}


def _blocks(text: str) -> list[JSON]:
    content = decode(text)["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _own_id(block: JSON) -> str | None:
    identity: str | None = block.get("tool_use_id") if block["type"] == "tool_result" else block.get("id")
    return identity
