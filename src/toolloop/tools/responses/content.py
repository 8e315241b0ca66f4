"""Convert a value to the content of a `tool_result`: text, or content blocks that the API accepts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from toolloop._messages.blocks import MOST_CACHE_MARKS, RESULT_KINDS, find_misfits, is_known, list_result_kinds, type_of
from toolloop.machine.values.jsontext import JSON, describe_type, make_well_formed
from toolloop.tools.responses.failure_texts import Unsendable, describe_failure, make_headline
from toolloop.tools.responses.files import block_of_file
from toolloop.tools.responses.jsonable import to_json, to_json_text
from toolloop.tools.responses.response_types import (
    FILES,
    EmptyResponse,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    Response,
    TextResponse,
)

Content = str | list[dict[str, JSON]]

# A mapping with this type and this key is a content block. Data may also have a `type`, so the type is not enough.
_MARKS = {
    "text": "text",
    "image": "source",
    "document": "source",
    "search_result": "source",
    "tool_reference": "tool_name",
    "browser_state": "tabs",
}


def plain_text_of(value: Any) -> str:  # noqa: PLR0911 - one row for each kind of value
    """Return a value as text: a text unchanged, the name of a file, the JSON of data.

    Raises:
        Unsendable: the value is neither JSON nor content.

    """
    match value:
        case None | EmptyResponse():
            return "ok"
        case str():
            return make_well_formed(str.__str__(value))
        case TextResponse():
            return make_well_formed(value.text)
        case JsonResponse():
            return to_json_text(value.data)
        case LinkResponse():
            return to_json_text({"name": value.name, "url": value.url})
        case FileResponse():
            return value.file_name
        case Path():
            return make_well_formed(value.name)
        case bytes() | bytearray() | memoryview():
            return "[file]"
        case BaseException():
            return describe_failure(value)
    value = list_if_iterator(value)
    items = _find_content_items(value)
    return to_json_text(value) if items is None else "\n".join(map(_to_plain_item, items))


def _to_plain_item(item: Any) -> str:
    block = as_block(item)
    if block is None:
        return plain_text_of(item)
    if block.get("type") == "tool_result" and isinstance(block.get("content"), (str, list)):
        return block["content"] if isinstance(block["content"], str) else plain_text_of(RawOutputs(block["content"]))
    return block["text"] if isinstance(block.get("text"), str) else f"[{block.get('type')}]"


def list_if_iterator(value: Any) -> Any:
    """Return a value unchanged, but an iterator as a list.

    Raises:
        Unsendable: the iterator raises.

    """
    try:
        return list(value) if isinstance(value, Iterator) else value
    except Exception as error:
        raise Unsendable(f"it cannot be read: {make_headline(error)}") from error


def _find_content_items(value: Any) -> list[Any] | None:
    """Return the items of `RawOutputs`, or of a list that holds only content blocks and responses; else None."""
    if isinstance(value, RawOutputs):
        return list(value.blocks)
    if isinstance(value, (list, tuple)) and value and all(map(_is_content, value)):
        return list(value)
    return None


def _is_content(item: Any) -> bool:
    if isinstance(item, Response):
        return True
    kind = item.get("type") if isinstance(item, Mapping) else getattr(item, "type", None)
    if not isinstance(kind, str) or kind not in _MARKS:
        return False
    block = as_block(item)
    if block is None or _MARKS[kind] not in block:
        return False
    return kind != "text" or not find_misfits({**block, "text": "words"} if _is_blank(block) else block)


def as_block(item: Any) -> dict[str, JSON] | None:
    """Return a mapping or a block of the SDK as JSON; None for anything else."""
    if hasattr(item, "to_dict") and hasattr(item, "model_dump"):
        item = item.to_dict(mode="json", warnings=False)  # omits unset fields
    return to_json(item) if isinstance(item, Mapping) else None


def takes(kinds: Collection[str], kind: str) -> bool:
    """Return whether a result may hold a block of this type. Ordinary results accept unknown, newer types."""
    return kind in kinds or (not is_known(kind) and list_result_kinds(by_code=False, toolset=None).issubset(kinds))


def to_following_blocks(blocks: Iterable[Any]) -> list[dict[str, JSON]]:
    """Return the blocks that follow the results in a user message, without blank texts.

    Raises:
        Unsendable: the API does not accept a block there.

    """
    kept = []
    for index, item in enumerate(blocks):
        block, where = as_block(item), f"the block {index} after the result"
        kind = None if block is None else block.get("type")
        if block is None or not isinstance(kind, str) or kind == "tool_result" or "user" not in type_of(kind).places:
            raise Unsendable(f"{where} is not a content block that may follow a result")
        if _is_blank(block):
            continue
        for flaw in type_of(kind).shape("", "", block):
            raise Unsendable(f"{where}{'.' if flaw.path else ''}{flaw.path}: {flaw.text}")
        kept.append(block)
    return kept


def _is_blank(block: dict[str, JSON]) -> bool:
    text = block.get("text")
    return block.get("type") == "text" and isinstance(text, str) and not text.strip()


def content_of(
    value: Any,
    *,
    kinds: Collection[str] = RESULT_KINDS,
    is_error: bool = False,
    known_tools: Collection[str] | None = None,
    to_plain_text: Callable[[Any], str] = plain_text_of,
) -> Content:
    """Return the content of a result for a value: a str, or a list of content blocks.

    Args:
        value: a tool's return value, or a person's answer.
        kinds: the types of blocks that this result may hold. A file of another type is named in a text.
        is_error: whether it is an error. An error holds only texts, which name other blocks, and cannot be empty.
        known_tools: the names that a `tool_reference` block may have; None accepts all names.
        to_plain_text: makes the texts.

    Raises:
        Unsendable: the value cannot be sent; the message has the reason and the location.

    """
    reader = _Reader(frozenset({"text"}) if is_error else frozenset(kinds), is_error, known_tools, to_plain_text)
    try:
        value = list_if_iterator(value)
        items = _find_content_items(value)
        if items is None:
            sent = [reader.read_text_or_file(value)]
        else:
            sent = [reader.read_item(item, f"result[{index}]") for index, item in enumerate(items)]
    except Unsendable:
        raise
    except Exception as error:
        raise Unsendable(f"it cannot be read: {make_headline(error)}") from error
    sent = [each for each in sent if not isinstance(each, str) or each.strip()]
    if is_error and (not sent or value is None or isinstance(value, EmptyResponse)):
        raise Unsendable("the content of an error must not be empty; describe the error")
    if len(sent) <= 1 and all(isinstance(each, str) for each in sent):
        return "".join(map(str, sent))
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in sent]
    types = [block["type"] for block in content]
    if "search_result" in types and set(types) != {"search_result"}:
        raise Unsendable("it mixes search_result blocks with other blocks; a result holds either only those or none")
    if types.count("browser_state") > 1:
        raise Unsendable("it holds more than one browser_state block")
    if (marks := sum(block.get("cache_control") is not None for block in content)) > MOST_CACHE_MARKS:
        raise Unsendable(f"it has {marks} cache marks; a request may have {MOST_CACHE_MARKS}")
    return content


@frozen
class _Reader:
    """Read the items of one result. A str means a text block."""

    kinds: frozenset[str]
    is_error: bool
    known_tools: Collection[str] | None
    to_plain_text: Callable[[Any], str]

    def read_item(self, item: Any, where: str) -> dict[str, JSON] | str:
        block = as_block(item)
        if block is not None:
            return self._block(block, where)
        if not isinstance(item, (str, Response, FILES)):
            raise Unsendable(f"{where} is {describe_type(item)}, not a content block")
        return self.read_text_or_file(item)

    def read_text_or_file(self, value: Any) -> dict[str, JSON] | str:
        text = self.to_plain_text(value)
        if isinstance(value, (FileResponse, FILES)):
            return block_of_file(value, self.kinds, text)
        return make_well_formed(text)

    def _block(self, block: dict[str, JSON], where: str) -> dict[str, JSON] | str:
        kind = block.get("type")
        if not isinstance(kind, str):
            raise Unsendable(f"{where} is an object without a type, not a content block")
        if kind not in self.kinds:
            if self.is_error:
                return f"[{kind}]"
            if not takes(self.kinds, kind):
                taken = ", ".join(sorted(self.kinds))
                raise Unsendable(f"{where} is a block of type {kind}; the result of this call may hold only {taken}")
            return block  # a type that is newer than this library; the API validates it
        if _is_blank(block):
            return ""
        for path, said in find_misfits(block):
            raise Unsendable(f"{where}{'.' if path else ''}{path}: {said}")
        if kind == "tool_reference" and self.known_tools is not None and block["tool_name"] not in self.known_tools:
            raise Unsendable(f"{where} refers to the unknown tool {block['tool_name']!r}")
        return block
