"""The types of content blocks: their members, and the places where each is allowed.

`check` and the results of tools use this one table. Its sources are the documentation of the API and the parameter
types of the SDK. Whether a file or a URL exists is not checked.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from toolloop._messages.schema import (
    BOOLEAN,
    OBJECT,
    STRING,
    Flaw,
    Members,
    Shape,
    accept_any,
    accept_list_of,
    accept_matching,
    accept_members,
    accept_one_of,
    accept_string_or,
    accept_tagged,
    join_key,
    name_type,
)
from toolloop.machine.values.jsontext import JSON

__all__ = [
    "BLOCKS",
    "IMAGE_TYPES",
    "MOST_CACHE_MARKS",
    "MOST_IMAGE_CHARACTERS",
    "RESULT_KINDS",
    "BlockType",
    "find_misfits",
    "is_known",
    "list_result_kinds",
    "media_type_of",
    "name_type",
]

#: The maximum number of cache marks in a request (rule 34 of the Messages API).
MOST_CACHE_MARKS: Final = 4
#: The largest number of base64 characters of one image.
MOST_IMAGE_CHARACTERS: Final = 5 * 1024 * 1024

IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF: Final = "application/pdf"
_PDF_MARK: Final = b"%PDF-"  # it may be anywhere in the first 1,024 bytes
_HEAD: Final = 1368  # characters of base64 that hold these


@frozen
class BlockType:
    """A type of content block.

    Attributes:
        places: where it is allowed: in a message of the role `user`, `assistant` or `system`; or in the `result` of a
            call, of a `toolset` member, of a call made by `code`, or in an `error` result.
        shape: the shape of the whole block.

    """

    places: frozenset[str]
    shape: Shape


# --- values ----------------------------------------------------------------------------------------------------------


def _check_words(path: str, key: str, value: JSON) -> Iterator[Flaw]:
    yield from STRING(path, key, value)
    if isinstance(value, str) and not value.strip():
        yield Flaw(path, key, "blank-text", "the text block is blank")


def _accept_file(*media_types: str) -> Shape:
    """Accept a file as base64. Its first bytes must match its media type."""
    shape = accept_members({"type": STRING, "media_type": accept_one_of(*media_types), "data": STRING})

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        yield from shape(path, key, value)
        data, declared = value.get("data"), value.get("media_type")
        if isinstance(data, str):
            yield from _check_base64(join_key(path, key), data, declared if declared in media_types else None)

    return check


def _check_base64(path: str, data: str, declared: str | None) -> Iterator[Flaw]:
    if not data:
        yield Flaw(path, "data", "block-fields", "'data' is empty")
        return
    if len(data) > MOST_IMAGE_CHARACTERS and declared in IMAGE_TYPES:
        size = f"the image has {len(data)} characters of base64; at most {MOST_IMAGE_CHARACTERS} (5 MB) are allowed"
        yield Flaw(path, "data", "image-limits", size)
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:  # also for a character that is not ASCII
        yield Flaw(path, "data", "block-fields", f"'data' is not base64: {error}")
        return
    start = binascii.a2b_base64(data[:_HEAD])
    real = media_type_of(start)
    if declared is None or real == declared or (declared == _PDF and real is None and _PDF_MARK in start):
        return
    actual = f"the bytes are {real}" if real else "the bytes are of another type"
    yield Flaw(path, "media_type", "block-fields", f"'media_type' is {declared!r}, but {actual}")


def media_type_of(data: bytes) -> str | None:
    """Detect the media type of an image or a PDF from its first bytes; None for anything else."""
    if data[:4] == b"RIFF":
        return "image/webp" if data[8:12] == b"WEBP" else None
    return next((kind for start, kind in _STARTS if data.startswith(start)), None)


_STARTS: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (_PDF_MARK, _PDF),
)

_OBJECTS: Final = accept_list_of(OBJECT)
_URL: Final = accept_members({"type": STRING, "url": STRING})
_UPLOADED: Final = accept_members({"type": STRING, "file_id": STRING})
_ID: Final = accept_matching("[a-zA-Z0-9_-]+")
_MARK: Final = accept_members({"type": accept_one_of("ephemeral")}, {"ttl": accept_one_of("5m", "1h")})

# Members that several types of blocks share.
_MARKED: Final = {"cache_control": _MARK}
_CITED: Final = _MARKED | {"citations": accept_members({}, {"enabled": BOOLEAN})}
_CALL: Final = {"name": STRING, "input": OBJECT}
_CALLER: Final = _MARKED | {"caller": accept_members({"type": STRING}, {"tool_id": STRING})}  # the model, or code
_SERVER_RESULTS: Final = (
    *("web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result", "advisor_tool_result"),
    *("code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
)


def _accept_kinds(*kinds: str) -> Shape:
    """Accept a block of one of these types."""

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        return accept_tagged({kind: BLOCKS[kind].shape for kind in kinds})(path, key, value)

    return check


_IMAGE_SOURCE: Final = accept_tagged({"base64": _accept_file(*IMAGE_TYPES), "url": _URL, "file": _UPLOADED})
_DOCUMENT_SOURCE: Final = accept_tagged(
    {
        "base64": _accept_file(_PDF),
        "text": accept_members({"type": STRING, "media_type": accept_one_of("text/plain"), "data": STRING}),
        "content": accept_members(
            {"type": STRING, "content": accept_string_or(accept_list_of(_accept_kinds("text", "image")))}
        ),
        "url": _URL,
        "file": _UPLOADED,
    }
)
# The tools that a system message adds or removes (rule 22).
_REFERENCES: Final = {
    "tool_reference": accept_members({"type": STRING, "name": STRING}),
    "mcp_tool_reference": accept_members({"type": STRING, "name": STRING, "server_name": STRING}),
    "mcp_toolset_reference": accept_members({"type": STRING, "server_name": STRING}),
}
_ADDED: Final = {**_REFERENCES, "tool_definition": accept_members({"type": STRING, "definition": OBJECT})}


def _check_only_mark(path: str, key: str, value: JSON) -> Iterator[Flaw]:
    """Accept any block, and check only its cache mark: the API wrote the rest."""
    if value.get("cache_control") is not None:
        yield from _MARK(join_key(path, key), "cache_control", value["cache_control"])


# --- the table -------------------------------------------------------------------------------------------------------

# For each type: the places where it is allowed, the required members and the optional members.
_TABLE: Final[dict[str, tuple[str, Members, Members]]] = {
    "text": (
        "user assistant system result toolset code error",
        {"text": _check_words},
        _MARKED | {"citations": _OBJECTS},
    ),
    "image": ("user result toolset", {"source": _IMAGE_SOURCE}, _MARKED | {"transformations": OBJECT}),
    "document": ("user result", {"source": _DOCUMENT_SOURCE}, _CITED | {"context": STRING, "title": STRING}),
    "search_result": (
        "user result",
        {"content": accept_list_of(_accept_kinds("text")), "source": STRING, "title": STRING},
        _CITED,
    ),
    "tool_reference": ("result", {"tool_name": STRING}, _MARKED),
    "browser_state": ("toolset", {"tabs": _OBJECTS}, _MARKED | {"state_changes": _OBJECTS}),
    "thinking": ("assistant", {"thinking": STRING, "signature": STRING}, {}),
    "redacted_thinking": ("assistant", {"data": STRING}, {}),
    "tool_use": ("assistant", {"id": _ID, **_CALL}, _CALLER | {"toolset_name": STRING}),
    "tool_result": (
        "user",
        {"tool_use_id": _ID},
        _MARKED | {"content": accept_any, "is_error": BOOLEAN, "toolset_name": STRING},
    ),
    "server_tool_use": ("assistant", {"id": accept_matching("srvtoolu_[a-zA-Z0-9_]+"), **_CALL}, _CALLER),
    "mcp_tool_use": ("assistant", {"id": _ID, **_CALL, "server_name": STRING}, _MARKED),
    "mcp_tool_result": ("assistant", {"tool_use_id": STRING}, _MARKED | {"content": accept_any, "is_error": BOOLEAN}),
    **dict.fromkeys(_SERVER_RESULTS, ("assistant", {"tool_use_id": STRING, "content": accept_any}, _CALLER)),
    "compaction": (
        "user assistant",
        {},
        _MARKED | {"content": STRING, "encrypted_content": STRING, "signature": STRING, "tool_changes": _OBJECTS},
    ),
    "container_upload": ("user assistant", {"file_id": STRING}, _MARKED),
    "tool_addition": ("system", {"tool": accept_tagged(_ADDED, unknown="unknown-block")}, _MARKED),
    "tool_removal": ("system", {"tool": accept_tagged(_REFERENCES, unknown="unknown-block")}, _MARKED),
}
_OPAQUE: Final = ("connector_text", "fallback", "mcp_tool_listing")

BLOCKS: Final[Mapping[str, BlockType]] = {
    kind: BlockType(
        frozenset(places.split()), accept_members({"type": accept_any, **required}, optional, name=f"a {kind} block")
    )
    for kind, (places, required, optional) in _TABLE.items()
} | dict.fromkeys(_OPAQUE, BlockType(frozenset({"user", "assistant"}), _check_only_mark))

# A block of an unknown type, such as one of a newer API.
_UNKNOWN: Final = BlockType(frozenset({"user", "assistant", "result"}), _check_only_mark)
_UNKNOWN_ANSWER: Final = BlockType(frozenset({"assistant"}), _check_only_mark)


# --- queries ------------------------------------------------------------------------------------------------------


def type_of(kind: str) -> BlockType:
    """Return the block type with this name. Of unknown types, only the cache mark is checked."""
    unknown = _UNKNOWN_ANSWER if kind.endswith("_tool_result") else _UNKNOWN
    return BLOCKS.get(kind, unknown)


def is_known(kind: str) -> bool:
    """Return whether this version knows the block type."""
    return kind in BLOCKS or kind.endswith("_tool_result")


def list_kinds(*places: str) -> frozenset[str]:
    """Return the known types of blocks that are allowed in one of these places."""
    return frozenset(kind for kind, block in BLOCKS.items() if block.places.intersection(places))


#: The types of blocks that a `tool_result` may hold (source: the SDK's `ToolResultBlockParam`).
RESULT_KINDS: Final = list_kinds("result", "toolset")
_BY_CALL: Final = {place: list_kinds(place) for place in ("result", "toolset", "code")}


def list_result_kinds(*, by_code: bool, toolset: str | None) -> frozenset[str]:
    """Return the types of blocks that the result of a call may hold.

    Source: rule 25 and section 3 of the API notes; the SDK's types.

    Args:
        by_code: whether code execution made the call.
        toolset: the name of the toolset that the tool belongs to, if any.

    """
    return _BY_CALL["code" if by_code else "result" if toolset is None else "toolset"]


def find_misfits(block: JSON, path: str = "") -> list[tuple[str, str]]:
    """Find the errors in a content block of a result.

    Args:
        block: the block, as JSON.
        path: the path of the block, the prefix of the paths in it.

    Returns:
        The path and a description of each error. Empty for a valid block.

    """
    return [
        (flaw.path, flaw.text)
        for flaw in _accept_kinds(*(kind for kind in BLOCKS if kind in RESULT_KINDS))(path, "", block)
    ]
