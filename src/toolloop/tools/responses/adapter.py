"""The response adapter: what a tool returned, as the user message that answers its call."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Protocol

from toolloop.core.blocks import kinds_taken
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, encode
from toolloop.tools.failures import well_formed
from toolloop.tools.responses.content import content_of, plain_text_of
from toolloop.tools.responses.cutting import cut, length_of
from toolloop.tools.responses.exceptions import name_of
from toolloop.tools.responses.raised import Content
from toolloop.tools.responses.wording import Wording

LOG = logging.getLogger("toolloop.tools")

_MAX_CHARS = 200_000  # some 50,000 tokens
# What the id of a call may be, and those of calls that the server answers (source: messages-api, rules 20 and 24).
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_OF_THE_SERVER = ("srvtoolu_", "mcptoolu_")


class ToolResponseAdapter(Protocol):
    """What makes results of what tools return. Give an object with these two methods to a `ToolRegistry`."""

    def to_plain_text(self, response: Any) -> str:
        """What a tool returned, as a host or a log shows it. It never raises."""

    def create_messages(self, call: Any, response: Any) -> list[dict[str, JSON]]:
        """The one user message with the one `tool_result` that answers a `tool_use` block.

        It never raises for a bad response, which is an error result.

        Raises:
            ValueError: the call has no id, or is none that a `tool_result` answers.

        """


class AnthropicMessagesToolResponseAdapter(Wording):
    """Makes results for the Messages API. What it gives, the API takes, whatever the tool returned.

    It works on its own, too. Subclass it to change the wording: `empty_text`, `name_file`, `cut_note`, `describe`.

    Args:
        max_chars: the most characters that the text of one result may have, over all its text blocks; more is cut, and
            a note says how much; texts inside search results and documents count. None is no limit.

    Raises:
        TypeError: `max_chars` is no integer.
        ValueError: `max_chars` is not positive.

    """

    def __init__(self, *, max_chars: int | None = _MAX_CHARS) -> None:
        """Take the limit."""
        if type(max_chars) not in {int, type(None)}:
            raise TypeError(f"max_chars is a {type(max_chars).__name__}; give an integer, or None for no limit")
        if max_chars is not None and max_chars < 1:
            raise ValueError(f"max_chars is {max_chars}; give a positive number, or None for no limit")
        self._max_chars = max_chars

    def to_plain_text(self, response: Any) -> str:
        """What a tool returned or raised, as a host or a log shows it: uncut, files by name, other blocks in brackets.

        It never raises: of what cannot be sent it says so. A generator is read to its end.
        """
        if _was_raised(response):
            return _flat(self._told(response))
        try:
            return plain_text_of(response, self.empty_text)
        except Exception as error:  # noqa: BLE001 - a log must not fail because of what it logs
            return _flat(self._told(error))

    def create_messages(self, call: Any, response: Any) -> list[dict[str, JSON]]:
        """The one user message that answers a call.

        Args:
            call: the `tool_use` block, as a mapping or an object of the SDK. Made by code, its result may hold only
                text; of a toolset, text and images (and the state of a browser), and `toolset_name` is echoed.
            response: what the tool returned: any value or response type; or the exception that it raised.

        Raises:
            ValueError: the call has no id, one that no `tool_use` block may have, or is no `tool_use` block.

        """
        asked = _asked(call)
        is_error = _was_raised(response)
        content: Content
        if is_error:
            content = self._told(response)
        else:
            try:
                content = content_of(response, kinds=asked.kinds, words=self)
            except Exception as error:  # noqa: BLE001 - a method of a subclass may raise anything
                content, is_error = self._told(error), True
        content = self._cut(content)
        block: dict[str, JSON] = {
            "type": "tool_result",
            "tool_use_id": asked.id,
            "content": [{"type": "text", "text": content}] if content and isinstance(content, str) else content,
        }
        if is_error:
            block["is_error"] = True
        if asked.toolset is not None:
            block["toolset_name"] = asked.toolset
        _log(asked, response, content, is_error=is_error)
        return [{"role": "user", "content": [block]}]

    def text_of(self, call_id: str, response: str) -> str | None:
        """The content that `create_messages` gives for a text: the usual case, without a message around it.

        None where it would say more, or refuse.
        """
        if type(self) is not AnthropicMessagesToolResponseAdapter or LOG.isEnabledFor(logging.INFO):
            return None
        if not _ID.fullmatch(call_id) or call_id.startswith(_OF_THE_SERVER):
            return None
        content = self._cut(content_of(response))
        return content if isinstance(content, str) else None

    def _told(self, error: BaseException) -> Content:
        """The content of an error, whatever a subclass makes of it."""
        try:
            return content_of(self.describe(error), is_error=True)
        except Exception:  # noqa: BLE001 - the call must get its result
            return f"The tool failed with {name_of(error)}."

    def _cut(self, content: Content) -> Content:
        """The content with at most so many characters of text, the note among them where there is room for it."""
        if self._max_chars is None or (whole := length_of(content)) <= self._max_chars:
            return content
        left = max(0, self._max_chars - len(self._note(whole, whole)))
        return cut(content, left, self._note(whole - left, whole))

    def _note(self, left_out: int, whole: int) -> str:
        """The note, which is never blank: a text that ends in silence would lie."""
        try:
            note = well_formed(self.cut_note(left_out, whole))
        except Exception:  # noqa: BLE001 - a method of a subclass may raise anything
            note = ""
        return note if note.strip() else super().cut_note(left_out, whole)


@frozen
class _Asked:
    """What a `tool_use` block says of its result."""

    id: str
    name: str
    kinds: frozenset[str]
    toolset: str | None


def _asked(call: Any) -> _Asked:
    def of(owner: Any, name: str) -> Any:
        return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)

    call_id, kind, toolset = of(call, "id"), of(call, "type"), of(call, "toolset_name")
    if kind is not None and kind != "tool_use":
        raise ValueError(f"a tool_result answers a tool_use block, not a block of the type {kind!r}")
    if not isinstance(call_id, str) or not call_id.strip():
        raise ValueError(f"the tool_use block has no id ({call_id!r}); a result without one answers no call")
    if not _ID.fullmatch(call_id):
        raise ValueError(f"the id of the tool_use block is {call_id!r}; an id has only letters, digits, _ and -")
    if call_id.startswith(_OF_THE_SERVER):
        raise ValueError(f"the server answers the call {call_id} itself; a tool_result answers a tool_use block")
    by_code = str(of(of(call, "caller"), "type")).startswith("code_execution")
    kinds = kinds_taken(by_code=by_code, toolset=toolset)
    return _Asked(call_id, str(of(call, "name")), kinds, toolset if isinstance(toolset, str) else None)


def _was_raised(response: object) -> bool:
    return issubclass(type(response), BaseException)  # not `isinstance`, which asks the response itself


def _flat(content: Content) -> str:
    return content if isinstance(content, str) else "\n".join(str(block.get("text")) for block in content)


def _log(asked: _Asked, response: object, content: Content, *, is_error: bool) -> None:
    """One event per call, without contents."""
    if LOG.isEnabledFor(logging.INFO):
        about = {
            "tool": asked.name,
            "call_id": asked.id,
            "response_type": name_of(response),
            "is_error": is_error,
            "size": len(encode(content)),
        }
        LOG.info("a tool call got its result: %(tool)s, %(response_type)s, %(size)d characters", about, extra=about)
