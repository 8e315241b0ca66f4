"""What a content block may hold: blocks of the kinds that a `tool_result` takes, and those of a user message.

The source is the API's documentation and the parameter types of the SDK. What only the API can know (whether a file or
an address exists, what an image shows) is left to it.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON

#: The kinds of blocks that a `tool_result` may hold (source: the SDK's `ToolResultBlockParam`).
RESULT_KINDS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})

# What fewer calls may be answered with (source: rule 25 and section 3 of the Messages API; the SDK's types).
_BY_CODE: Final = frozenset({"text"})
IN_TOOLSETS: Final = frozenset({"text", "image", "browser_state"})
_OF_OTHERS: Final = RESULT_KINDS - {"browser_state"}

#: The most characters of base64 that one image may have.
MOST_IMAGE_CHARACTERS: Final = 5 * 1024 * 1024

#: How long and wide an image may be, and how large each of many may be (source: the API's documentation of vision).
MOST_PIXELS: Final = 8000
MANY_IMAGES: Final = 20
MOST_PIXELS_OF_MANY: Final = 2000

IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_PDF: Final = "application/pdf"

_HEAD = 1368  # characters of base64 that hold the first 1,024 bytes, by which a file is known
_PDF_MARK = b"%PDF-"  # stands in them somewhere: readers pass over what comes before it
_SHOWN = 40


def kinds_taken(*, by_code: bool, toolset: str | None) -> frozenset[str]:
    """The kinds of blocks that the result of a call may hold.

    Args:
        by_code: the call was made by code execution.
        toolset: the name of the toolset that the tool is a member of.

    """
    if by_code:
        return _BY_CODE
    return _OF_OTHERS if toolset is None else IN_TOOLSETS


@frozen
class Flaw:
    """Something wrong in a block.

    Attributes:
        path: of the object it is in, inside the block: `source`, `content[1]`; empty for the block itself.
        key: of that object, which has the wrong value, is missing, or is not known.
        rule: the id of the rule in `toolloop.history` that it breaks.
        text: what is wrong there.

    """

    path: str
    key: str
    rule: str
    text: str


_Check = Callable[[str, str, JSON], Iterator[Flaw]]  # of a path, a key of the object there, and the value of that key


def misfits(block: JSON, path: str = "") -> list[tuple[str, str]]:
    """What the API would refuse in a content block of one of the `RESULT_KINDS`.

    Args:
        block: the block, as JSON.
        path: of the block itself; it goes before the paths inside.

    Returns:
        Where, and what is wrong there. Nothing for a block that fits.

    """
    return [(flaw.path, flaw.text) for flaw in flaws(block, path)]


def flaws(block: JSON, path: str = "") -> Iterator[Flaw]:
    """Like `misfits`, with the rules that are broken."""
    return _BLOCK(path, "", block)


def cache_mark_flaws(block: Mapping[str, JSON], path: str = "") -> Iterator[Flaw]:
    """What is wrong with the cache mark of a block of any kind, if it has one."""
    if block.get("cache_control") is not None:
        yield from _CACHE(path, "cache_control", block["cache_control"])


def media_type_of(data: bytes) -> str | None:
    """The media type of an image or a PDF, by its first bytes; None for anything else."""
    if data[:4] == b"RIFF":
        return "image/webp" if data[8:12] == b"WEBP" else None
    return next((kind for start, kind in _STARTS if data.startswith(start)), None)


_STARTS = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (_PDF_MARK, _PDF),
)


def named(value: JSON) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    return next((name for kind, name in _NAMES if isinstance(value, kind)), f"a {type(value).__name__}")


_NAMES = (
    (bool, "true or false"),
    (str, "a string"),
    (int | float, "a number"),
    (dict, "an object"),
    (list, "a list"),
)


# --- the shapes of values --------------------------------------------------------------------------------------------


def _is(kind: type, words: str) -> _Check:
    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, kind):
            yield _wrong(path, key, value, words)

    return check


def _wrong(path: str, key: str, value: JSON, words: str) -> Flaw:
    return Flaw(path, key, "block-fields", f"{repr(key) if key else 'the block'} is {named(value)}, not {words}")


def _one_of(*values: str) -> _Check:
    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, str):
            yield _wrong(path, key, value, "a string")
        elif value not in values:
            yield Flaw(path, key, "block-fields", f"{key!r} is {_short(value)}; it may be {', '.join(values)}")

    return check


def _short(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


def _list(inner: _Check) -> _Check:
    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, list):
            yield _wrong(path, key, value, "a list")
            return
        for index, item in enumerate(value):
            yield from inner(path, f"{key}[{index}]", item)

    return check


def _string_or(inner: _Check) -> _Check:
    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        return iter(()) if isinstance(value, str) else inner(path, key, value)

    return check


def _object(required: Mapping[str, _Check], optional: Mapping[str, _Check], what: str = "") -> _Check:
    """An object of these keys and no others; null stands for an optional one that is absent."""
    known = {**required, **optional}

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        if not isinstance(value, dict):
            yield _wrong(path, key, value, "an object")
            return
        inside = f"{path}.{key}" if path and key else path or key
        kind = what or repr(key)
        for name in required:
            if name not in value:
                yield Flaw(inside, name, "block-fields", f"{'the block' if what else kind} has no {name!r}")
        for name, item in value.items():
            if name == "type" and what:
                continue
            if name not in known:
                owner = f"a {what}" if what else kind
                yield Flaw(inside, name, "unknown-key", f"{owner} has no key {_short(name)}")
            elif item is not None or name in required:
                yield from known[name](inside, name, item)

    return check


def _tagged(kinds: Mapping[str, _Check]) -> _Check:
    """An object whose `type` says what else it holds."""

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(value, dict):
            yield _wrong(path, key, value, "an object")
        elif not isinstance(kind, str) or kind not in kinds:
            inside = f"{path}.{key}" if path and key else path or key
            has = f"the type {_short(kind)}" if isinstance(kind, str) else "no type"
            may_be = ", ".join(kinds)
            what = repr(key) if key else "the block"
            yield Flaw(inside, "type", "block-fields", f"{what} has {has}; it may be {may_be}")
        else:
            yield from kinds[kind](path, key, value)

    return check


def _words(path: str, key: str, value: JSON) -> Iterator[Flaw]:
    if not isinstance(value, str):
        yield _wrong(path, key, value, "a string")
    elif not value.strip():
        yield Flaw(path, key, "blank-text", "the text block has no words")


_STRING = _is(str, "a string")
_MAPPING = _is(dict, "an object")
_MAPPINGS = _list(_MAPPING)


# --- files -----------------------------------------------------------------------------------------------------------


def _file(*media_types: str) -> _Check:
    """A file inside the request: base64 whose first bytes are those of its kind of file."""
    fields = _object({"media_type": _one_of(*media_types), "data": _STRING}, {"type": _STRING})

    def check(path: str, key: str, value: JSON) -> Iterator[Flaw]:
        yield from fields(path, key, value)
        data, declared = value.get("data"), value.get("media_type")
        if isinstance(data, str):
            inside = f"{path}.{key}" if path else key
            yield from _base64(inside, data, declared if declared in media_types else None)

    return check


def _base64(path: str, data: str, declared: str | None) -> Iterator[Flaw]:
    if not data:
        yield Flaw(path, "data", "block-fields", "'data' is empty")
        return
    if len(data) > MOST_IMAGE_CHARACTERS and declared in IMAGE_TYPES:
        too_long = f"the image has {len(data)} characters of base64; at most {MOST_IMAGE_CHARACTERS} (5 MB) are taken"
        yield Flaw(path, "data", "image-limits", too_long)
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError as error:  # a character that is not ASCII is one too
        yield Flaw(path, "data", "block-fields", f"'data' is not base64: {error}")
        return
    start = binascii.a2b_base64(data[:_HEAD])
    real = media_type_of(start)
    if declared is None or real == declared or (declared == _PDF and real is None and _PDF_MARK in start):
        return
    what = f"the bytes are those of {real}" if real else "the bytes are not those of such a file"
    yield Flaw(path, "media_type", "block-fields", f"'media_type' is {declared!r}, and {what}")


_URL = _object({"url": _STRING}, {"type": _STRING})
_UPLOADED = _object({"file_id": _STRING}, {"type": _STRING})


# --- blocks ----------------------------------------------------------------------------------------------------------

_CACHE = _object({"type": _one_of("ephemeral")}, {"ttl": _one_of("5m", "1h")})
_CITING = _object({}, {"enabled": _is(bool, "true or false")})


def _block(what: str, required: Mapping[str, _Check], optional: Mapping[str, _Check] | None = None) -> _Check:
    return _object(required, {"cache_control": _CACHE, **(optional or {})}, what)


_TEXT = _block("text block", {"text": _words}, {"citations": _MAPPINGS})
_IMAGE = _block(
    "image block",
    {"source": _tagged({"base64": _file(*IMAGE_TYPES), "url": _URL, "file": _UPLOADED})},
    {"transformations": _MAPPING},
)
_DOCUMENT = _block(
    "document block",
    {
        "source": _tagged(
            {
                "base64": _file(_PDF),
                "text": _object({"media_type": _one_of("text/plain"), "data": _STRING}, {"type": _STRING}),
                "content": _object(
                    {"content": _string_or(_list(_tagged({"text": _TEXT, "image": _IMAGE})))}, {"type": _STRING}
                ),
                "url": _URL,
                "file": _UPLOADED,
            }
        )
    },
    {"citations": _CITING, "context": _STRING, "title": _STRING},
)
_BLOCK = _tagged(
    {
        "text": _TEXT,
        "image": _IMAGE,
        "document": _DOCUMENT,
        "search_result": _block(
            "search_result block",
            {"content": _list(_tagged({"text": _TEXT})), "source": _STRING, "title": _STRING},
            {"citations": _CITING},
        ),
        "tool_reference": _block("tool_reference block", {"tool_name": _STRING}),
        "browser_state": _block("browser_state block", {"tabs": _MAPPINGS}, {"state_changes": _MAPPINGS}),
    }
)
