"""Translate watch events of a loop to events of AG-UI, and note which messages the client has by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve

import toolloop.events as ev
from toolloop.agui.conversation import Event, Terms, result_id, thought_id


class Translator:
    """Translates the events of one loop for one client.

    Attributes:
        has: the ids of the messages that the client has, in its order.
        usage: the usage of each request that was answered meanwhile, also of loops inside calls, as AG-UI counts it.

    """

    def __init__(self, messages: Sequence[Event], terms: Terms, within: str = "") -> None:
        """Begin after a conversation that the client has.

        Args:
            messages: the conversation.
            terms: what clients get.
            within: the ids of the calls that lead to the loop, each with a slash behind it.

        """
        self.has: list[str] = [each["id"] for each in messages]
        self.usage: list[Event] = []
        self._terms = terms
        self._calls = {call["id"]: each["id"] for each in messages for call in each.get("toolCalls", ())}
        self._results = {each["toolCallId"]: each["id"] for each in messages if "toolCallId" in each}
        self._known = frozenset(self.has)
        self._message: str | None = None  # the reply that comes now; None if the client has it already
        self._open = ("", "")  # the kind and the id of what was begun and not ended
        self._within = within
        self._names = {each["id"]: each["function"]["name"] for one in messages for each in one.get("toolCalls", ())}
        self._nested: dict[str, Translator | None] = {}  # of the loops inside calls, by call; None: it has ended

    def translate(self, event: ev.WatchEvent) -> Iterator[Event]:
        """Yield the events of AG-UI for an event."""
        if isinstance(event, ev.RequestAnswered) and "usage" in self._terms.parts:
            self.usage.append(_count(event))
        if event.path:
            if "nested" in self._terms.parts:
                yield from self._translate_nested(event)
            return
        match event:
            case ev.CallStarted(call_id=call, name=name):
                self._names[call] = name
            case ev.RequestStarted(summary=False, message_id=name):
                yield from self.close()
                self._message = None if name in self._known else name
            case ev.RequestAnswered() | ev.ModelRequestFailed() | ev.LoopFinished():
                yield from self.close()
            case ev.CallFinished():
                yield from self._end_nested(event.call_id)
                yield from self._finished(event)
            case _ if self._message is not None:
                yield from self._replied(event, self._message)

    def _replied(self, event: ev.WatchEvent, message: str) -> Iterator[Event]:
        match event:
            case ev.TextDelta(text=text) if "text" in self._terms.parts:
                yield from self._begin("TEXT_MESSAGE", message, role="assistant")
                yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": text}
            case ev.ThinkingDelta(thinking=text) if "reasoning" in self._terms.parts:
                yield from self._begin("REASONING_MESSAGE", thought_id(message), role="reasoning")
                yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": thought_id(message), "delta": text}
            case ev.InputDelta(call_id=call, name=name) if self._terms.has_input(name):
                yield from self._call(call, name, message)
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": call, "delta": event.partial_json}
            case ev.CallProposed(call_id=call, name=name) if call not in self._calls and self._terms.has_call(name):
                yield from self._call(call, name, message)
                yield from self.close()

    def _translate_nested(self, event: ev.WatchEvent) -> Iterator[Event]:
        """Yield the events of AG-UI for an event of a loop inside a call: those of a subagent."""
        call, *rest = event.path
        tag = {"subagentRunId": f"{self._within}{call}"}
        if call not in self._nested:
            terms = evolve(self._terms, registered=frozenset(), brought=frozenset())  # its tools are its own
            self._nested[call] = Translator((), terms, f"{self._within}{call}/")
            parent = {"parentSubagentRunId": self._within[:-1]} if self._within else {}
            tool = self._names.get(call, "")
            named = {"name": tool, "parentToolCallId": call} if self._terms.has_call(tool) else {"name": "subagent"}
            yield {"type": "SUBAGENT_STARTED", **tag, **named, **parent}
        if (inner := self._nested[call]) is not None:
            yield from ({**tag, **each} for each in inner.translate(evolve(event, path=tuple(rest))))

    def _end_nested(self, call: str, **outcome: Event) -> Iterator[Event]:
        if (inner := self._nested.get(call)) is not None:
            tag = {"subagentRunId": f"{self._within}{call}"}
            yield from ({**tag, **each} for each in inner.end())
            yield {"type": "SUBAGENT_FINISHED", **tag, **outcome}
            self._nested[call] = None

    def end(self) -> Iterator[Event]:
        """Yield the ends of all that was begun and not ended. Loops inside calls go on, or wait."""
        for call in self._nested:
            yield from self._end_nested(call, outcome={"type": "suspended"})
        yield from self.close()

    def close(self) -> Iterator[Event]:
        """Yield the ends of what was begun last, and not ended."""
        (kind, name), self._open = self._open, ("", "")
        if kind:
            yield {"type": f"{kind}_END", _key(kind): name}
        if kind == "REASONING_MESSAGE":
            yield {"type": "REASONING_END", "messageId": name}

    def _begin(self, kind: str, name: str, **fields: str) -> Iterator[Event]:
        """Yield the begin of a text, of reasoning or of a call, unless it is what was begun last."""
        if self._open == (kind, name):
            return
        yield from self.close()
        self._open = kind, name
        if (message := fields.get("parentMessageId", name)) not in self.has:
            self.has.append(message)
        if kind == "REASONING_MESSAGE":
            yield {"type": "REASONING_START", "messageId": name}
        yield {"type": f"{kind}_START", _key(kind): name, **fields}

    def _call(self, call_id: str, tool: str, message: str) -> Iterator[Event]:
        self._calls[call_id] = message
        return self._begin("TOOL_CALL", call_id, toolCallName=tool, parentMessageId=message)

    def _finished(self, event: ev.CallFinished) -> Iterator[Event]:
        """Yield the result of a call, unless the client has it, or lacks the call."""
        call_id = event.call_id
        if call_id not in self._calls or call_id in self._results:
            return
        yield from self.close()
        name = self._results[call_id] = result_id(call_id)
        at = self.has.index(self._calls[call_id]) + 1
        while self.has[at : at + 1] and self.has[at] in self._results.values():
            at += 1
        self.has.insert(at, name)
        text = self._terms.result(event.name, event.plain_text, event.outcome, is_error=event.is_error)
        yield {"type": "TOOL_CALL_RESULT", "messageId": name, "toolCallId": call_id, "content": text}


def _key(kind: str) -> str:
    return "toolCallId" if kind == "TOOL_CALL" else "messageId"


def _count(event: ev.RequestAnswered) -> Event:
    used = event.usage
    counts = {"inputTokens": used.total_input_tokens, "outputTokens": used.output_tokens}
    parts = {"cachedInputTokens": used.cache_read_input_tokens, "reasoningTokens": used.thinking_tokens}
    more = {"cacheWriteInputTokens": used.cache_creation_input_tokens, "totalTokens": used.total_tokens}
    return {"provider": "anthropic", **counts, **parts, **more}
