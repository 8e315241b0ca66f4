"""Hypothesis strategies for histories: valid ones, and broken ones that `toolloop.history.repair` can mend.

Needs hypothesis, which toolloop itself does not.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
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
# What a result may hold: words where it is an error or code made the call, some kinds in a toolset, else any.
_SAID: list[Any] = ["seen", "", [{"type": "text", "text": "seen"}], []]
_SHOWN = [[_IMAGE], [{"type": "text", "text": "seen"}, _IMAGE]]
_IN_TOOLSETS = [*_SHOWN, [_IMAGE, _BROWSER_STATE]]
_ANYTHING = [*_SHOWN, [_SEARCH_RESULT, _SEARCH_RESULT], [_DOCUMENT], [_REFERENCE]]
_ATTACHED = st.sampled_from([[], [], [_IMAGE], [_IMAGE, _IMAGE], [_DOCUMENT], [_IMAGE, _DOCUMENT, _SEARCH_RESULT]])
_COMPACTION: Block = {"type": "compaction", "content": "So far: little."}
_COMPACTED = st.sampled_from([[], [], [], [_COMPACTION], [{"type": "compaction", "content": None}]])
_INPUTS: SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(["a", "b"]), st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=2
)


def histories() -> SearchStrategy[list[Message]]:
    """Valid histories, as they stand at any moment of a loop.

    Among them: parallel calls, calls made by code, members of toolsets, results of all kinds, tools of the server and
    of MCP servers (also in flight), thinking, paused replies with and without their resume, compactions that the server
    made by itself or failed to make, system messages, images, documents, cache marks, messages of one role in a row,
    several user turns; the last message is of any role.
    """
    return _histories(simple=False)


def broken_histories() -> SearchStrategy[list[Message]]:
    """Well-shaped histories with a few faults, all of a kind that `repair` mends."""
    return _broken_histories()


class _Writer:
    """Writes one history, a message at a time."""

    def __init__(self, draw: DrawFn, *, simple: bool) -> None:
        self.draw = draw
        self.simple = simple  # without system messages and calls made by code
        self.ids = count(1)
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
        """A reply that ends in these blocks; the server may have compacted all that was before it."""
        self.add("assistant", [*self.draw(_COMPACTED), *self.opening(), *blocks])

    def opening(self) -> list[Block]:
        """What a reply may begin with: thinking, text, a server call with its result."""
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

    def round(self) -> None:
        """A reply with calls, and the results; a server call may stay open over it, answered by the next reply."""
        in_flight = self.server_call() if self.chance() else None
        by_code = not self.simple and self.chance()
        calls = [self.call(by_code=by_code) for _ in range(self.draw(st.integers(1, 4)))]
        self.reply(*([in_flight] if in_flight else []), *calls)
        results = [self.result(call) for call in self.draw(st.permutations(calls))]
        cut = self.draw(st.integers(0, len(results)))
        for part in (results[:cut], results[cut:]):
            if part:
                self.add("user", part)
        if in_flight is not None:
            if self.chance():  # else the history may end here, and the next turn begins with the answer anyway
                self.system()
            self.add("assistant", [_server_result(in_flight), self.text()])
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
        """A paused reply and its resume."""
        call = self.server_call()
        self.reply(call)
        self.add("assistant", [_server_result(call), *self.opening(), self.text()])

    def answer(self) -> None:
        self.reply(self.text())

    def turn(self) -> None:
        """What follows a user turn: rounds, pauses, an answer."""
        for step in self.draw(st.lists(st.sampled_from([self.round, self.pause]), max_size=3)):
            step()
        if self.messages[-1]["role"] != "assistant" or self.chance():
            self.answer()

    def end(self) -> None:
        """Stop at any moment at which a loop may stand: an answer, the user's turn, results, or a pause."""
        match self.draw(st.sampled_from(["answer", "user", "results", "pause", "compaction"])):
            case "user":
                self.user_turn()
            case "results":
                self.user_turn()
                calls = [self.call(by_code=False) for _ in range(self.draw(st.integers(1, 3)))]
                open_call = [self.server_call()] if self.chance() else []
                self.reply(*open_call, *calls)
                self.add("user", [self.result(call) for call in calls])
            case "pause":
                self.user_turn()
                self.add("assistant", [self.text(), self.server_call()])
            case "compaction":  # and a pause after it
                self.user_turn()
                self.add("assistant", [_COMPACTION])

    def mark(self) -> None:
        """Set a few cache marks."""
        places = [
            block
            for message in self.messages
            for block in (message["content"] if isinstance(message["content"], list) else ())
            if block["type"] in ("text", "tool_result")
        ]
        for block in self.draw(st.lists(st.sampled_from(places), max_size=2)) if places else ():
            block["cache_control"] = {"type": "ephemeral"}


def _server_result(call: Block) -> Block:
    kind = "mcp_tool_result" if call["type"] == "mcp_tool_use" else "web_search_tool_result"
    return {"type": kind, "tool_use_id": call["id"], "content": []}


@composite
def _histories(draw: DrawFn, *, simple: bool) -> list[Message]:
    writer = _Writer(draw, simple=simple)
    for _ in range(draw(st.integers(0, 3))):
        writer.user_turn()
        writer.turn()
    writer.end()
    if not writer.messages:
        writer.user_turn()
    writer.mark()
    return writer.messages


def _at(draw: DrawFn, places: list[Any]) -> Any:
    return draw(st.sampled_from(places)) if places else None


def _places(messages: list[Message], wanted: Callable[[Message, Block], bool]) -> list[tuple[int, int]]:
    return [
        (number, index)
        for number, message in enumerate(messages)
        if isinstance(message["content"], list)
        for index, block in enumerate(message["content"])
        if wanted(message, block)
    ]


def _listed(messages: list[Message], *roles: str) -> list[Message]:
    return [message for message in messages if message["role"] in roles and isinstance(message["content"], list)]


def _drop_block(draw: DrawFn, messages: list[Message]) -> None:
    """Lose a result, a call or a server's result."""
    kinds = ("tool_result", "web_search_tool_result", "mcp_tool_result", "tool_use")
    if place := _at(draw, _places(messages, lambda _, block: block["type"] in kinds)):
        del messages[place[0]]["content"][place[1]]


def _drop_message(draw: DrawFn, messages: list[Message]) -> None:
    if messages:
        del messages[draw(st.integers(0, len(messages) - 1))]


def _cut_front(draw: DrawFn, messages: list[Message]) -> None:
    del messages[: draw(st.integers(0, len(messages)))]


def _cut_end(draw: DrawFn, messages: list[Message]) -> None:
    del messages[draw(st.integers(0, len(messages))) :]


def _repeat_result(draw: DrawFn, messages: list[Message]) -> None:
    """Give a result a second time, there or in another user message."""
    place = _at(draw, _places(messages, lambda _, block: block["type"] == "tool_result"))
    target = _at(draw, _listed(messages, "user"))
    if place and target:
        target["content"].append(messages[place[0]]["content"][place[1]])


def _add_orphan(draw: DrawFn, messages: list[Message]) -> None:
    orphan = {"type": "tool_result", "tool_use_id": "toolu_nobody", "content": "?"}
    messages.insert(draw(st.integers(0, len(messages))), {"role": "user", "content": [orphan]})


def _add_text_before(draw: DrawFn, messages: list[Message]) -> None:
    """Put words in front of a result."""
    if place := _at(draw, _places(messages, lambda _, block: block["type"] == "tool_result")):
        messages[place[0]]["content"].insert(place[1], {"type": "text", "text": "first"})


def _add_blank(draw: DrawFn, messages: list[Message]) -> None:
    blank = {"type": "text", "text": draw(st.sampled_from(["", " ", "\n\n"]))}
    if target := _at(draw, _listed(messages, "user", "assistant", "system")):
        target["content"].insert(draw(st.integers(0, len(target["content"]))), blank)


def _add_empty_message(draw: DrawFn, messages: list[Message]) -> None:
    message = {"role": draw(st.sampled_from(["user", "assistant"])), "content": draw(st.sampled_from(["", " ", []]))}
    messages.insert(draw(st.integers(0, len(messages))), message)


def _end_in_thinking(draw: DrawFn, messages: list[Message]) -> None:
    if target := _at(draw, _listed(messages, "assistant")):
        target["content"].append({"type": "thinking", "thinking": "hm", "signature": "c2ln"})


def _silence_an_error(draw: DrawFn, messages: list[Message]) -> None:
    """Take the words of a result that is an error."""
    if place := _at(draw, _places(messages, lambda _, block: block["type"] == "tool_result")):
        content = draw(st.sampled_from(["", [], [{"type": "text", "text": ""}]]))
        messages[place[0]]["content"][place[1]] |= {"content": content, "is_error": True}


def _change_toolset(draw: DrawFn, messages: list[Message]) -> None:
    """Let a result name another toolset than its call, or none."""
    if place := _at(draw, _places(messages, lambda _, block: block["type"] == "tool_result")):
        block = messages[place[0]]["content"][place[1]]
        content = block["content"] if block["content"] in _SAID else "seen"
        other = {"toolset_name": "computer"} if draw(st.booleans()) else {}
        kept = {key: value for key, value in block.items() if key != "toolset_name"}
        messages[place[0]]["content"][place[1]] = {**kept, "content": content, **other}


def _compact(draw: DrawFn, messages: list[Message]) -> None:
    """Let a compaction stand anywhere in a reply, be it between a call and its result."""
    if target := _at(draw, _listed(messages, "assistant")):
        target["content"].insert(draw(st.integers(0, len(target["content"]))), dict(_COMPACTION))


def _insert_system(draw: DrawFn, messages: list[Message]) -> None:
    """Put a system message before a user message with words, be it between a call and its results."""
    wordy = {place[0] for place in _places(messages, lambda m, block: m["role"] == "user" and block["type"] == "image")}
    if (number := _at(draw, sorted(wordy))) is not None:
        messages.insert(number, {"role": "system", "content": [{"type": "text", "text": "Be brief."}]})


_FAULTS = (
    _drop_block,
    _drop_message,
    _cut_front,
    _cut_end,
    _repeat_result,
    _add_orphan,
    _add_text_before,
    _add_blank,
    _add_empty_message,
    _end_in_thinking,
    _silence_an_error,
    _change_toolset,
    _compact,
)


@composite
def _broken_histories(draw: DrawFn) -> list[Message]:
    messages = draw(_histories(simple=True))
    for fault in draw(st.lists(st.sampled_from(_FAULTS), min_size=2, max_size=5)):
        fault(draw, messages)
    if draw(st.booleans()):
        _insert_system(draw, messages)
    # A history in which nothing is left is beyond repair.
    return [{"role": "user", "content": "Hi"}, *messages]
