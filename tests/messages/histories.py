"""Hypothesis strategies for histories: valid ones, and broken ones that `toolloop.history.repair` can mend."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy, composite

Message = dict[str, Any]
Block = dict[str, Any]

_WORDS = st.sampled_from(["Hi", "Look at this.", " two words ", "ü", "{}"])
_IMAGE: Block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
_SEARCH_RESULT: Block = {
    "type": "search_result",
    "source": "s",
    "title": "t",
    "content": [{"type": "text", "text": "found"}],
}
_DOCUMENT: Block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "page"}}
_REFERENCE: Block = {"type": "tool_reference", "tool_name": "look"}
_BROWSER_STATE: Block = {"type": "browser_state", "tabs": []}
# Contents of results: words for errors and for calls made by code, some kinds for a toolset, else any.
_SAID: list[Any] = ["seen", "", [{"type": "text", "text": "seen"}], []]
_SHOWN = [[_IMAGE], [{"type": "text", "text": "seen"}, _IMAGE]]
_IN_TOOLSETS = [*_SHOWN, [_IMAGE, _BROWSER_STATE]]
_ANYTHING = [*_SHOWN, [_SEARCH_RESULT, _SEARCH_RESULT], [_DOCUMENT], [_REFERENCE]]
_ATTACHED = st.sampled_from([[], [], [_IMAGE], [_IMAGE, _IMAGE], [_DOCUMENT], [_IMAGE, _DOCUMENT, _SEARCH_RESULT]])
_COMPACTION: Block = {"type": "compaction", "content": "So far: little."}
_ORPHAN: Block = {"type": "tool_result", "tool_use_id": "toolu_nobody", "content": "?"}
_BLANKS: list[Block] = [{"type": "text", "text": text} for text in ("", " ", "\n\n")]
#: Blocks that a broken history may have in addition, with the role of their message.
_INTRUDERS: list[tuple[str, Block]] = [
    *[(role, blank) for role in ("user", "assistant", "system") for blank in _BLANKS],
    ("user", {"type": "text", "text": "first"}),
    ("user", _ORPHAN),
    ("assistant", _COMPACTION),
]
_COMPACTED = st.sampled_from([[], [], [], [_COMPACTION], [{"type": "compaction", "content": None}]])
_INPUTS: SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(["a", "b"]), st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=2
)


@composite
def histories(draw: DrawFn) -> list[Message]:
    """Valid histories, as they may be at any moment of a loop.

    They contain parallel calls, calls made by code, members of toolsets, results of all kinds, calls of server and MCP
    tools (also in flight), thinking, paused replies with and without their resume, compactions that the server made or
    failed to make, system messages, images, documents, cache marks, messages of one role in a row and several user
    turns; the last message has any role.
    """
    return _write(draw, simple=False)


@composite
def broken_histories(draw: DrawFn) -> list[Message]:
    """Histories of the right shape with a few faults, all of a kind that `repair` mends."""
    messages = _write(draw, simple=True)
    for fault in draw(st.lists(st.sampled_from(_FAULTS), min_size=2, max_size=5)):
        fault(draw, messages)
    if draw(st.booleans()):
        _insert_system(draw, messages)
    # `repair` cannot mend a history without messages.
    return [{"role": "user", "content": "Hi"}, *messages]


class _Writer:
    """Writes one history, a message at a time."""

    def __init__(self, draw: DrawFn, *, simple: bool) -> None:
        self.draw = draw
        self.simple = simple  # without system messages and calls made by code
        self.ids = itertools.count(1)
        self.messages: list[Message] = []

    def chance(self) -> bool:
        return self.draw(st.booleans())

    def text(self) -> Block:
        return {"type": "text", "text": self.draw(_WORDS)}

    def add(self, role: str, blocks: list[Block]) -> None:
        self.messages.append({"role": role, "content": blocks})

    def user_turn(self) -> None:
        if self.chance():
            self.messages.append({"role": "user", "content": self.draw(_WORDS)})
        for _ in range(self.draw(st.integers(0 if self.messages else 1, 2))):
            self.add("user", [self.text(), *self.draw(_ATTACHED)])
        self.system()

    def system(self) -> None:
        if not self.simple and self.messages[-1]["role"] == "user":
            for _ in range(self.draw(st.integers(0, 2))):
                self.add("system", [self.text()])

    def reply(self, *blocks: Block) -> None:
        """Add a reply that ends in these blocks; the server may have compacted everything before it."""
        self.add("assistant", [*self.draw(_COMPACTED), *self.opening(), *blocks])

    def opening(self) -> list[Block]:
        """Return possible first blocks of a reply: thinking, text, a server call with its result."""
        blocks: list[Block] = []
        if self.chance():
            blocks.append({"type": "thinking", "thinking": self.draw(st.sampled_from(["", "hm"])), "signature": "c2ln"})
            if self.chance():
                blocks.append({"type": "redacted_thinking", "data": "ZGF0YQ=="})
        if self.chance():
            blocks.append(self.text())
        if self.chance():
            call = self.server_call()
            blocks += [call, _server_result(call)]
        return blocks

    def server_call(self) -> Block:
        if self.chance():
            call = {"type": "mcp_tool_use", "id": f"mcptoolu_{next(self.ids)}", "name": "ask", "server_name": "s"}
            return call | {"input": self.draw(_INPUTS)}
        return {"type": "server_tool_use", "id": f"srvtoolu_{next(self.ids)}", "name": "web_search", "input": {}}

    def call(self, *, by_code: bool) -> Block:
        block = {"type": "tool_use", "id": f"toolu_{next(self.ids)}", "name": "look", "input": self.draw(_INPUTS)}
        if by_code:
            return block | {"caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_0"}}
        return block | ({"toolset_name": "browser"} if self.chance() else {})

    def round(self, *, last: bool = False) -> None:
        """Add a reply with calls, and the results; unless it is the last, the next reply ends an open server call."""
        in_flight = [self.server_call()] if self.chance() else []
        by_code = not self.simple and not last and self.chance()
        calls = [self.call(by_code=by_code) for _ in range(self.draw(st.integers(1, 4)))]
        self.reply(*in_flight, *calls)
        results = [self.result(call) for call in self.draw(st.permutations(calls))]
        cut = self.draw(st.integers(0, len(results)))
        for part in filter(None, (results[:cut], results[cut:])):
            self.add("user", part)
        if last:
            return
        if in_flight:
            if self.chance():
                self.system()
            self.add("assistant", [_server_result(in_flight[0]), self.text()])
        elif not by_code and self.chance():
            self.add("user", [self.text(), *self.draw(_ATTACHED)])
        if self.messages[-1]["role"] == "user":
            self.system()

    def result(self, call: Block) -> Block:
        more = [] if "caller" in call else _IN_TOOLSETS if "toolset_name" in call else _ANYTHING
        content = self.draw(st.sampled_from([*_SAID, *more]))
        block = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
        if "toolset_name" in call:
            block["toolset_name"] = call["toolset_name"]
        return block | ({"is_error": True} if content and content not in more and self.chance() else {})

    def pause(self) -> None:
        """Add a paused reply and its resume."""
        call = self.server_call()
        self.reply(call)
        self.add("assistant", [_server_result(call), *self.opening(), self.text()])

    def turn(self) -> None:
        """Add what follows a user turn: rounds, pauses, an answer."""
        for step in self.draw(st.lists(st.sampled_from([self.round, self.pause]), max_size=3)):
            step()
        if self.messages[-1]["role"] != "assistant" or self.chance():
            self.reply(self.text())

    def end(self) -> None:
        """End as a loop may: with an answer, a user turn, results, a pause or a compaction."""
        end = self.draw(st.sampled_from(["answer", "user", "results", "pause", "compaction"]))
        if end != "answer":
            self.user_turn()
        match end:
            case "results":
                self.round(last=True)
            case "pause":
                self.add("assistant", [self.text(), self.server_call()])
            case "compaction":  # with a pause after it
                self.add("assistant", [_COMPACTION])

    def mark(self) -> None:
        """Set a few cache marks."""
        places = _spots(self.messages, "text", "tool_result")
        for content, index in self.draw(st.lists(st.sampled_from(places), max_size=2)) if places else ():
            content[index]["cache_control"] = {"type": "ephemeral"}


def _server_result(call: Block) -> Block:
    kind = "mcp_tool_result" if call["type"] == "mcp_tool_use" else "web_search_tool_result"
    return {"type": kind, "tool_use_id": call["id"], "content": []}


def _write(draw: DrawFn, *, simple: bool) -> list[Message]:
    writer = _Writer(draw, simple=simple)
    for _ in range(draw(st.integers(0, 3))):
        writer.user_turn()
        writer.turn()
    writer.end()
    if not writer.messages:
        writer.user_turn()
    writer.mark()
    return writer.messages


def _spots(messages: list[Message], *kinds: str) -> list[tuple[list[Block], int]]:
    """Return each block of these types: the content that holds it, and its index there."""
    return [
        (message["content"], index)
        for message in messages
        if isinstance(message["content"], list)
        for index, block in enumerate(message["content"])
        if block["type"] in kinds
    ]


def _drop_block(draw: DrawFn, messages: list[Message]) -> None:
    """Lose a result, a call or a server's result."""
    if spots := _spots(messages, "tool_result", "web_search_tool_result", "mcp_tool_result", "tool_use"):
        content, index = draw(st.sampled_from(spots))
        del content[index]


def _drop_messages(draw: DrawFn, messages: list[Message]) -> None:
    """Lose a message, the beginning, the end, or the middle."""
    start, end = sorted(draw(st.integers(0, len(messages))) for _ in range(2))
    del messages[start : max(end, start + 1)]


def _insert_block(draw: DrawFn, messages: list[Message]) -> None:
    """Put a block anywhere into a message of its role: a result again, words before a result, blank text ..."""
    results = [("user", content[index]) for content, index in _spots(messages, "tool_result")]
    role, block = draw(st.sampled_from([*_INTRUDERS, *results]))
    targets = [each["content"] for each in messages if each["role"] == role and isinstance(each["content"], list)]
    if targets:
        content = draw(st.sampled_from(targets))
        content.insert(draw(st.integers(0, len(content))), dict(block))


def _repeat_call(draw: DrawFn, messages: list[Message]) -> None:
    """Repeat a call in its message, with the same id and another input."""
    if spots := _spots(messages, "tool_use"):
        content, index = draw(st.sampled_from(spots))
        content.insert(index + 1, content[index] | {"input": {"again": True}})


def _end_in_thinking(draw: DrawFn, messages: list[Message]) -> None:
    targets = [
        each["content"] for each in messages if each["role"] == "assistant" and isinstance(each["content"], list)
    ]
    if targets:
        draw(st.sampled_from(targets)).append({"type": "thinking", "thinking": "hm", "signature": "c2ln"})


def _insert_message(draw: DrawFn, messages: list[Message]) -> None:
    """Add a message that is empty, or the result of a call that does not exist."""
    contents: list[Any] = ["", " ", []]
    added = draw(st.sampled_from([("user", [_ORPHAN]), *itertools.product(("user", "assistant"), contents)]))
    messages.insert(draw(st.integers(0, len(messages))), {"role": added[0], "content": added[1][:]})


def _spoil_result(draw: DrawFn, messages: list[Message]) -> None:
    """Make a result an error without words, or let it name another toolset than its call, or none."""
    if not (spots := _spots(messages, "tool_result")):
        return
    content, index = draw(st.sampled_from(spots))
    block = content[index]
    if draw(st.booleans()):
        words = draw(st.sampled_from(["", [], [{"type": "text", "text": ""}]]))
        content[index] = {**block, "content": words, "is_error": True}
        return
    said = block["content"] if block["content"] in _SAID else "seen"
    other = {"toolset_name": "computer"} if draw(st.booleans()) else {}
    kept = {key: value for key, value in block.items() if key != "toolset_name"}
    content[index] = {**kept, "content": said, **other}


def _insert_system(draw: DrawFn, messages: list[Message]) -> None:
    """Put a system message before a user message with words, even between a call and its results."""
    wordy = [
        number for number, message in enumerate(messages) if message["role"] == "user" and _spots([message], "image")
    ]
    if wordy:
        message = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
        messages.insert(draw(st.sampled_from(wordy)), message)


_FAULTS = (_drop_block, _drop_messages, _insert_block, _repeat_call, _end_in_thinking, _insert_message, _spoil_result)
