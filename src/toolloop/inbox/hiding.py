"""Hide secret values in a conversation, and say how the inputs of waiting calls are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict

from attrs import define, field

from toolloop._public import set_module
from toolloop.machine.queries import waiting
from toolloop.machine.record.state import State
from toolloop.machine.values.jsontext import JSON, decode, encode
from toolloop.machine.values.setup import Setup
from toolloop.machine.values.texts import fill_text
from toolloop.tools.secrets import SecretKey, hide_secrets


@set_module("toolloop.inbox")
class ShownInput(TypedDict):
    """How the input of a call is shown: see `tool`.

    Attributes:
        diff: the parameters with the old and the new text, which are shown as one diff; empty if there are none.
        path: the parameter that names the file of the diff, or None.
        secret: the parameters whose values are hidden.

    """

    diff: list[str]
    path: str | None
    secret: list[str]


def shown_inputs(state: State) -> Iterator[tuple[str, ShownInput]]:
    """Yield how the waiting calls are shown whose tools say so, by the path of the call joined with "/"."""
    for path, call in waiting(state):
        setup = state.loops[path].setup
        facts, secret = setup.tool(call.name), setup.secrets_of(call.name)
        diff, file = ((), None) if facts is None else (facts.diff, facts.path)
        if diff or secret:
            yield "/".join((*path, call.id)), {"diff": [*diff], "path": file, "secret": [*secret]}


def hide_in_messages(messages: Iterable[Mapping[str, Any]], setup: Setup, key: SecretKey) -> list[JSON]:
    """Return a conversation with the secret values of its calls hidden. The model gets them whole."""
    hiding = _Hiding(setup, key)
    return [{**message, "content": hiding.content(message["content"])} for message in messages]


@define
class _Hiding:
    """Hides secret values in blocks. `calls`: the calls so far that have some, by id: the name of the tool."""

    setup: Setup
    key: SecretKey
    calls: dict[str, str] = field(factory=dict)

    def content(self, content: JSON) -> JSON:
        return [self._block(block) for block in content] if isinstance(content, list) else content

    def _block(self, block: Mapping[str, Any]) -> JSON:
        match block:
            case {"type": "tool_use", "id": call_id, "name": name, "input": dict(given)}:
                if secrets := self.setup.secrets_of(name):
                    self.calls[call_id] = name
                    return {**block, "input": hide_secrets(given, secrets, self.key)}
            case {"type": "tool_result", "content": list(inside)}:
                return {**block, "content": self.content(inside)}
            case {"type": "text", "text": str(text)} if self.calls:
                return {**block, "text": self._note(text)}
        return dict(block)

    def _note(self, text: str) -> str:
        """Return a text for the model, with the input hidden if it is the note that a call ran with an edited one."""
        for call_id, name in self.calls.items():
            parts = fill_text(self.setup.texts, "edited", id=call_id, name=name, input="\0").split("\0")
            if len(parts) == 2 and text.startswith(parts[0]) and text.endswith(parts[1]):  # noqa: PLR2004 - around it
                given = decode(text[len(parts[0]) : len(text) - len(parts[1])])
                return encode(hide_secrets(given, self.setup.secrets_of(name), self.key)).join(parts)
        return text
