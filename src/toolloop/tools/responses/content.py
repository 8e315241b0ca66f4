"""What a tool returned, as the content of a `tool_result`: text, or content blocks that the API takes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from toolloop.core.blocks import MANY_IMAGES, MOST_PIXELS, MOST_PIXELS_OF_MANY, RESULT_KINDS
from toolloop.core.jsontext import JSON
from toolloop.tools.failures import well_formed
from toolloop.tools.responses.exceptions import headline
from toolloop.tools.responses.files import (
    MOST_BYTES,
    MOST_IMAGES,
    File,
    file_part,
    is_image,
    read_file,
)
from toolloop.tools.responses.inline import image_flaws, mended
from toolloop.tools.responses.jsonable import Unsendable
from toolloop.tools.responses.parts import Block, Empty, Ready, flaws_of, parts_of, plain
from toolloop.tools.responses.raised import Content
from toolloop.tools.responses.types import mime_type_of
from toolloop.tools.responses.wording import Wording

_MOST_CACHE_MARKS = 4  # of a request (source: messages-api, rule 34)
_BLANK = "the content of an error may not be empty; say what went wrong"
_USUAL = Wording()


def content_of(
    value: object,
    *,
    kinds: Collection[str] = RESULT_KINDS,
    is_error: bool = False,
    known_tools: Collection[str] | None = None,
    words: Wording = _USUAL,
) -> Content:
    """The content of a result for a value: a string, or a list of content blocks. The API takes it.

    A `str` stays as it is, None is "ok", response types are what they say, a `Path` is the file, bytes are a file
    without a name, a list of content blocks stays (without blank text blocks), anything else is its JSON. What it gives
    it takes again, and gives the same.

    A list is content if a response or a content block is in it, or the bytes of an image or a PDF among nothing but
    texts and files; then a `Path` or bytes in it are a file. Any other list is data, such as one of paths: their names.

    Args:
        value: what a tool returned, or a person answered.
        kinds: the kinds of blocks that this result may hold. A file that would be another one is named in a text.
        is_error: it is the content of an error: not empty, and text only, so other blocks are named in words.
        known_tools: the tools that a block may refer to; None is not to check that.
        words: the texts for the model.

    Raises:
        Unsendable: a `ValueError` whose text says, for the model, what cannot be sent and where it is.

    """
    if type(value) is str and (not is_error or value.strip()):  # by far the most usual
        return well_formed(value) if value.strip() else ""
    try:
        return _Builder(kinds, known_tools, words, is_error=is_error).content(value)
    except Unsendable:
        raise
    except Exception as error:
        raise Unsendable(f"result cannot be read: {headline(error)}") from error


def plain_text_of(value: object, empty: str) -> str:
    """A value as a host or a log shows it.

    Raises:
        Unsendable: it is neither JSON nor content.

    """
    return "\n".join(plain(part, empty) for part in parts_of(value))


class _Builder:
    """Makes the content of one result."""

    def __init__(
        self, kinds: Collection[str], known_tools: Collection[str] | None, words: Wording, *, is_error: bool
    ) -> None:
        self._kinds = frozenset({"text"}) if is_error else frozenset(kinds)
        self._known_tools = known_tools
        self._words = words
        self._is_error = is_error

    def content(self, value: object) -> Content:
        parts = [self._read(part) if isinstance(part, Path) else part for part in parts_of(value)]
        images = sum(map(_is_image, parts))
        most_pixels = MOST_PIXELS_OF_MANY if images > MANY_IMAGES else MOST_PIXELS
        if images > MOST_IMAGES:
            raise Unsendable(f"result holds {images} images, and a request takes {MOST_IMAGES}")
        if self._is_error and any(isinstance(part, Empty) for part in parts):
            raise Unsendable(_BLANK)
        sent = [each for part in parts if not _is_blank(each := self._part(part, most_pixels))]
        content: Content
        if len(sent) == 1 and isinstance(sent[0], str):
            content = sent[0]
        else:
            content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in sent]
        if self._is_error and not content:
            raise Unsendable(_BLANK)
        _check_together(content)
        return content or ""

    def _read(self, path: Path) -> File | str:
        try:
            file = read_file(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Unsendable(well_formed(f"the file {str(path)!r} cannot be read: {why}")) from error
        if isinstance(file, File):
            return file
        return self._words.name_file(path.name, mime_type_of(path.name), path.stat().st_size, file)

    def _part(self, part: Ready, most_pixels: int) -> dict[str, JSON] | str:
        match part:
            case str():
                return well_formed(part)
            case Empty():
                return well_formed(self._words.empty_text)
            case File():
                sent = file_part(part, kinds=self._kinds, most_pixels=most_pixels, words=self._words)
                return well_formed(sent) if isinstance(sent, str) else sent
        return self._block(part, most_pixels)

    def _block(self, block: Block, most_pixels: int) -> dict[str, JSON] | str:
        kind = block.fields["type"]
        if kind not in self._kinds:
            if self._is_error:
                return {"type": "text", "text": f"[{kind}]"}
            may = " and ".join(sorted(self._kinds))
            raise Unsendable(
                f"{block.where} is a block of the type {kind}; the result of this call may hold only {may}"
            )
        block = mended(block)
        if flaw := flaws_of(block) or next(image_flaws(block, most_pixels), None):
            raise Unsendable(flaw)
        if kind == "tool_reference" and not (
            self._known_tools is None or block.fields["tool_name"] in self._known_tools
        ):
            raise Unsendable(f"{block.where} refers to the tool {block.fields['tool_name']!r}, which is not known")
        return "" if block.is_blank else block.fields


def _is_blank(sent: dict[str, JSON] | str) -> bool:
    return isinstance(sent, str) and not sent.strip()


def _is_image(part: Ready) -> bool:
    return is_image(part) if isinstance(part, File) else isinstance(part, Block) and part.fields["type"] == "image"


def _check_together(content: Content) -> None:
    """What the API wants of the blocks of one result together."""
    if isinstance(content, str):
        return
    kinds = [block["type"] for block in content]
    if "search_result" in kinds and len(set(kinds)) > 1:
        raise Unsendable("result holds search_result blocks and others; if one block is a search_result, all must be")
    if (size := sum(map(_size_of_file, content))) > MOST_BYTES:
        raise Unsendable(f"result holds files of {size:,} bytes as base64, and a result takes {MOST_BYTES:,}")
    if kinds.count("browser_state") > 1:
        raise Unsendable("result holds more than one browser_state block")
    cited = [bool((block.get("citations") or {}).get("enabled")) for block in content if _can_be_cited(block)]
    if len(set(cited)) > 1:
        raise Unsendable("result has citations enabled for some documents and search results; it must be all or none")
    marks = [mark.get("ttl") for mark in _cache_marks(content)]
    if len(marks) > _MOST_CACHE_MARKS:
        raise Unsendable(f"result has {len(marks)} cache marks, and a request takes {_MOST_CACHE_MARKS}")
    if "1h" in marks and any(ttl != "1h" for ttl in marks[: len(marks) - marks[::-1].index("1h")]):
        raise Unsendable("result has a cache mark of 1h after one of 5m; those that last longer must come first")


def _size_of_file(block: dict[str, JSON]) -> int:
    source = block.get("source")
    return len(source.get("data") or "") if isinstance(source, dict) else 0


def _can_be_cited(block: dict[str, JSON]) -> bool:
    return block["type"] in {"document", "search_result"}


def _cache_marks(value: Any) -> Iterator[dict[str, Any]]:
    """The cache marks of blocks and of the blocks in them, in order."""
    if isinstance(value, list):
        for each in value:
            yield from _cache_marks(each)
    elif isinstance(value, dict):
        if isinstance(value.get("cache_control"), dict):
            yield value["cache_control"]
        for key in ("content", "source"):
            yield from _cache_marks(value.get(key))
