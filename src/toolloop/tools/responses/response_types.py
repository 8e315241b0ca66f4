"""Response types: return values of tools besides plain values.

The fields are validated when an object is made, so the traceback of an error points to the tool.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from attrs import field, frozen
from attrs.validators import instance_of, min_len

from toolloop._public import set_module
from toolloop.machine.values.jsontext import describe_type, make_well_formed

#: Types of values that are treated as files: a path, or bytes.
FILES = Path | bytes | bytearray | memoryview


_TEXT: Any = [instance_of(str), min_len(1)]


class Response:
    """The base class of the response types."""

    __slots__ = ()


@set_module("toolloop.responses")
@frozen
class TextResponse(Response):
    """Text, sent unchanged.

    Raises:
        TypeError: `text` is not a str.

    """

    text: str = field(validator=instance_of(str))


@set_module("toolloop.responses")
@frozen
class JsonResponse(Response):
    """Data, sent as JSON text, even if it is a str or looks like a list of content blocks."""

    data: Any


def _to_bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


@set_module("toolloop.responses")
@frozen
class FileResponse(Response):
    """A file. The model sees jpeg, png, gif, webp, PDF and text; of other files it gets only the name.

    The type is detected from the first bytes. `mime_type` is used only for other files and for the charset of a text.
    So a text that begins with `%PDF-` is sent as a PDF.

    Args:
        name: the file name shown to the model.
        mime_type: for example `image/png` or `text/csv; charset=latin-1`.
        data: the bytes of the file.

    Raises:
        TypeError: a field has another type.
        ValueError: `name` or `mime_type` is empty.

    """

    name: str = field(validator=_TEXT)
    mime_type: str = field(validator=_TEXT)
    data: bytes = field(converter=_to_bytes, validator=instance_of(bytes), repr=lambda data: f"<{len(data)} bytes>")

    @property
    def file_name(self) -> str:
        """The name with a file extension; a missing one is guessed from the MIME type."""
        return complete_file_name(self.name, self.mime_type)


@set_module("toolloop.responses")
@frozen
class LinkResponse(Response):
    """A named URL, sent as JSON text.

    Raises:
        TypeError: a field is not a str.
        ValueError: `url` is empty.

    """

    name: str = field(validator=instance_of(str))
    url: str = field(validator=_TEXT)


@set_module("toolloop.responses")
@frozen
class EmptyResponse(Response):
    """Success without a value. `None` means the same."""


def _to_tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise TypeError(f"blocks: expected a list of content blocks, got {describe_type(value)}")
    return tuple(value)


@set_module("toolloop.responses")
@frozen
class RawOutputs(Response):
    """Content blocks of the Messages API, sent unchanged. The list may also hold strings, files and responses.

    A ready `tool_result` block of the call is used as the result, and the other blocks follow it. Without one, they go
    inside the result, if it may hold them. Blocks of unknown types are passed on.

    Args:
        blocks: mappings or SDK blocks; strings, responses, paths and bytes are converted.

    Raises:
        TypeError: `blocks` is not a list.

    """

    blocks: tuple[Any, ...] = field(converter=_to_tuple)


def complete_file_name(name: str, mime_type: str) -> str:
    """Return a file name with an extension; a missing one is guessed from the MIME type."""
    name = make_well_formed(name)
    if PurePath(name).suffix:
        return name
    return name + (_load_known_types().guess_extension(mime_type.partition(";")[0].strip().lower()) or "")


def mime_type_of(name: str) -> str:
    """Guess the MIME type of a file from its extension."""
    guessed, encoding = _load_known_types().guess_type(name)
    return "application/octet-stream" if encoding or not guessed else guessed


@cache
def _load_known_types() -> mimetypes.MimeTypes:
    return mimetypes.MimeTypes()  # Python's own table: the system's configuration must not change a request
