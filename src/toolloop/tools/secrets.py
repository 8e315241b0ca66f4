"""Hide the secret values of an input from the persons who see a call. The model, the tool and the journal have them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from attrs import define, field

from toolloop._public import set_module
from toolloop.machine.values.jsontext import JSON, decode, encode, to_canonical
from toolloop.machine.values.setup import Setup
from toolloop.machine.values.texts import fill_text

SecretKey = Callable[[], str]
_SHOWS_END = 16  # characters of a value whose last two are shown; they say too much of a shorter one
_DIGITS = 8


def give_no_key() -> str:
    """Return no key: then hidden values have no digits by which two of them differ."""
    return ""


@set_module("toolloop.tools")
def hide_secrets(given: Mapping[str, JSON], names: Collection[str], key: Callable[[], str]) -> dict[str, JSON]:
    """Return an input as persons may see it: its secret values are replaced by descriptions.

    Args:
        given: the input.
        names: the names of the secret parameters.
        key: returns the key of the digits by which two values differ, such as `Store.secret`. An empty one means no
            digits. It is called only if there is a value to hide.

    """
    return {
        name: _describe_hidden(name, value, key()) if _hides(names, name, value) else value
        for name, value in given.items()
    }


def restore_secrets(
    edited: Mapping[str, JSON], given: Mapping[str, JSON], names: Collection[str], key: SecretKey
) -> dict[str, JSON]:
    """Return an edited input in which each secret that came back as it was shown has its value again."""

    def is_unchanged(name: str, value: JSON) -> bool:
        if name not in given or not _hides(names, name, given[name]):
            return False
        return value in (_describe_hidden(name, given[name], key()), _describe_hidden(name, given[name], ""))

    return {name: given[name] if is_unchanged(name, value) else value for name, value in edited.items()}


def _hides(names: Collection[str], name: str, value: JSON) -> bool:
    return name in names and value is not None


def _describe_hidden(name: str, value: JSON, key: str) -> str:
    """Describe a value: "hidden, 40 characters, ends in 9f, fingerprint 1c0b7a35"."""
    text = value if isinstance(value, str) else to_canonical(value)
    parts = ["hidden", f"{len(text)} characters"]
    if len(text) >= _SHOWS_END:
        parts.append(f"ends in {text[-2:]}")
    if key:
        digest = hmac.digest(key.encode(), to_canonical([name, value]).encode("utf-8", "surrogatepass"), "sha256")
        parts.append(f"fingerprint {digest.hex()[:_DIGITS]}")
    return ", ".join(parts)


# --- in a conversation ------------------------------------------------------------------------------------------------


def hide_in_messages(messages: Iterable[Mapping[str, Any]], setup: Setup, key: SecretKey) -> list[JSON]:
    """Return a conversation with the secret values of its calls hidden. The model gets them whole."""
    if not has_secrets(setup):
        return list(messages)
    hiding = _Hiding(setup, key)
    return [{**message, "content": hiding.hide_content(message["content"])} for message in messages]


def has_secrets(setup: Setup) -> bool:
    """Return whether the inputs of some tools have secret values, also of tools that are gone."""
    return bool(setup.gone_secrets) or any(facts.secret for facts in (*setup.gone_tools, *setup.tools))


@define
class _Hiding:
    """Hides secret values in blocks. `calls`: the calls so far that have some, by id: the name of the tool."""

    setup: Setup
    key: SecretKey
    calls: dict[str, str] = field(factory=dict)

    def hide_content(self, content: JSON) -> JSON:
        return [self._block(block) for block in content] if isinstance(content, list) else content

    def _block(self, block: Mapping[str, Any]) -> JSON:
        match block:
            case {"type": "tool_use", "id": call_id, "name": name, "input": dict(given)}:
                if secrets := self.setup.secrets_of(name):
                    self.calls[call_id] = name
                    return {**block, "input": hide_secrets(given, secrets, self.key)}
            case {"type": "tool_result", "content": list(inside)}:
                return {**block, "content": self.hide_content(inside)}
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
