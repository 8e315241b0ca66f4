"""What a tool may return beside plain values: response types that say how they are meant.

They are checked when they are made, so that the tool that made a wrong one is named in the traceback.
"""

from __future__ import annotations

import mimetypes
from collections import UserString
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import attrs
from attrs import field

from toolloop.core.freezing import frozen
from toolloop.tools.failures import well_formed

#: What stands for a file where content is meant: where it lies, or what it holds.
FILES = Path | bytes | bytearray | memoryview


def _string(_owner: object, attribute: attrs.Attribute[str], value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{attribute.name} is {_a(value)}; give a string")


def _words(owner: object, attribute: attrs.Attribute[str], value: Any) -> None:
    _string(owner, attribute, value)
    if not value.strip():
        raise ValueError(f"{attribute.name} is blank")


def _bytes(value: bytes | bytearray | memoryview) -> bytes:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _is_bytes(_owner: object, attribute: attrs.Attribute[bytes], value: object) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"{attribute.name} is {_a(value)}; give bytes")


def _parts(value: Iterable[Any]) -> tuple[Any, ...]:
    given: Any = value  # whatever it was declared to be
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise TypeError(f"blocks is {_a(given)}; give a list of content blocks")
    return tuple(given)


def _are_parts(_owner: object, attribute: attrs.Attribute[Any], value: tuple[Any, ...]) -> None:
    for index, part in enumerate(value):
        if not (isinstance(part, str | UserString | Mapping | Response | FILES) or hasattr(part, "to_dict")):
            raise TypeError(
                f"{attribute.name}[{index}] is {_a(part)}; give a content block, a text, a file or a response"
            )


def _a(value: object) -> str:
    return f"a {type(value).__name__}"


class Response:
    """The root of the response types."""

    __slots__ = ()


@frozen
class TextResponse(Response):
    """Text, sent as it is.

    Raises:
        TypeError: `text` is no string.

    """

    text: str = field(validator=_string)


@frozen
class JsonResponse(Response):
    """Data, sent as its JSON text, be it a string or a list that looks like content blocks."""

    data: Any


@frozen
class FileResponse(Response):
    """A file: an image, a PDF, a text, or anything else, which is only named to the model.

    What it is, is read from its first bytes; a wrong `mime_type` is mended. So a text that begins like a PDF, with
    `%PDF-`, is sent as one.

    Args:
        name: what the model is told it is called.
        mime_type: such as `image/png` or `text/csv; charset=latin-1`.
        data: its bytes.

    Raises:
        TypeError: a field is of another type; the message names it.
        ValueError: `name` or `mime_type` is blank.

    """

    name: str = field(validator=_words)
    mime_type: str = field(validator=_words)
    data: bytes = field(converter=_bytes, validator=_is_bytes, repr=lambda data: f"<{len(data)} bytes>")

    @property
    def file_name(self) -> str:
        """The name with its ending; where it has none, the usual one of the type."""
        return file_name(self.name, self.mime_type)


@frozen
class LinkResponse(Response):
    """A named address, sent as JSON text.

    Raises:
        TypeError: a field is no string; the message names it.
        ValueError: `url` is blank.

    """

    name: str = field(validator=_string)
    url: str = field(validator=_words)


@frozen
class EmptyResponse(Response):
    """Success with nothing to say; None means the same."""


@frozen
class RawOutputs(Response):
    """Content blocks of the Messages API, sent as they are; among them may be texts, files and responses, in order.

    Args:
        blocks: mappings, blocks of the SDK, texts, responses; a `Path` or bytes are a file. They are looked at when
            they are sent.

    Raises:
        TypeError: it is no list, or something else is in it; the message says where.

    """

    blocks: tuple[Any, ...] = field(converter=_parts, validator=_are_parts)


def file_name(name: str, mime_type: str) -> str:
    """A file's name with its ending; where it has none, the usual one of the type."""
    name = well_formed(name)
    if PurePath(name).suffix:
        return name
    return name + (_known_types().guess_extension(mime_type.partition(";")[0].strip().lower()) or "")


def mime_type_of(name: str) -> str:
    """The type that the ending of a name stands for: a first guess, used where the bytes do not tell."""
    guessed, packed = _known_types().guess_type(name)
    return "application/octet-stream" if packed or not guessed else guessed


@cache
def _known_types() -> mimetypes.MimeTypes:
    # Python's own table alone, so that no machine's settings change what the model is told.
    return mimetypes.MimeTypes()
