"""What each content block may hold (messages-api.md, rules 3, 4 and 20, section 3; the SDK's parameter types)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolloop.testing.schema import (
    Found,
    Key,
    Shape,
    anything,
    array,
    boolean,
    fields,
    mapping,
    need,
    one_of,
    optional,
    pattern,
    string,
    tagged,
    text_or,
)

if TYPE_CHECKING:
    from toolloop.testing.refusals import Context

CLIENT_ID = pattern("^[a-zA-Z0-9_-]+$")
SERVER_ID = pattern("^srvtoolu_[a-zA-Z0-9_]+$")

CACHE = optional(fields({"type": need(one_of("ephemeral")), "ttl": optional(one_of("5m", "1h"))}))
CITING = optional(fields({"enabled": optional(boolean)}))
CALLER = optional(fields({"type": need(string), "tool_id": string}))
_IMAGE_TYPE = one_of("image/jpeg", "image/png", "image/gif", "image/webp")


def _block(**keys: Key | Shape) -> Shape:
    return fields({"type": string, "cache_control": CACHE, **keys})


def _server_result(**keys: Key | Shape) -> Shape:
    # What a server tool gave back belongs to the server: its inside is taken as it is.
    return _block(tool_use_id=need(string), content=need(anything), **keys)


def _source(**keys: Key | Shape) -> Shape:
    return fields({"type": string, **keys})


def _some_text(value: Any, path: str, context: Context) -> Found:
    yield from string(value, path, context)
    if not value and isinstance(value, str):
        yield False, f"{path}: String should have at least 1 character"


_URL = _source(url=need(string))
_FILE = _source(file_id=need(string))

TEXT = _block(text=need(string), citations=optional(array(mapping)))
IMAGE = _block(
    source=need(
        tagged(
            {"base64": _source(data=need(string), media_type=need(_IMAGE_TYPE)), "url": _URL, "file": _FILE},
        )
    ),
    transformations=optional(mapping),
)
_INNER = array(tagged({"text": TEXT, "image": IMAGE}))
DOCUMENT = _block(
    source=need(
        tagged(
            {
                "base64": _source(data=need(string), media_type=need(one_of("application/pdf"))),
                "text": _source(data=need(string), media_type=need(one_of("text/plain"))),
                "content": _source(content=need(text_or(_INNER))),
                "url": _URL,
                "file": _FILE,
            }
        )
    ),
    citations=CITING,
    context=optional(string),
    title=optional(string),
)
SEARCH_RESULT = _block(
    content=need(array(tagged({"text": TEXT}))), source=need(string), title=need(string), citations=CITING
)
RESULT_CONTENT: dict[str, Shape] = {
    "text": TEXT,
    "image": IMAGE,
    "search_result": SEARCH_RESULT,
    "document": DOCUMENT,
    "tool_reference": _block(tool_name=need(string)),
    "browser_state": _block(tabs=need(array(mapping)), state_changes=optional(array(mapping))),
}
SERVER_RESULTS = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "advisor_tool_result",
    "mcp_tool_result",
)
THINKING = ("thinking", "redacted_thinking")
_REFERENCES: dict[str, Shape] = {
    "tool_reference": _source(name=need(string)),
    "mcp_tool_reference": _source(name=need(string), server_name=need(string)),
    "mcp_toolset_reference": _source(server_name=need(string)),
}

BLOCKS: dict[str, Shape] = {
    "text": TEXT,
    "image": IMAGE,
    "document": DOCUMENT,
    "search_result": SEARCH_RESULT,
    "thinking": fields({"type": string, "thinking": need(string), "signature": need(string)}),
    "redacted_thinking": fields({"type": string, "data": need(string)}),
    "tool_use": _block(
        id=need(CLIENT_ID),
        name=need(string),
        input=need(mapping),
        caller=CALLER,
        toolset_name=optional(string),
    ),
    "tool_result": _block(
        tool_use_id=need(CLIENT_ID),
        content=optional(text_or(array(tagged(RESULT_CONTENT)))),
        is_error=optional(boolean),
        toolset_name=optional(string),
    ),
    "server_tool_use": _block(id=need(SERVER_ID), name=need(string), input=need(mapping), caller=CALLER),
    **{kind: _server_result(caller=CALLER) for kind in SERVER_RESULTS},
    "mcp_tool_use": _block(id=need(CLIENT_ID), name=need(string), input=need(mapping), server_name=need(string)),
    "mcp_tool_result": _block(tool_use_id=need(string), content=anything, is_error=optional(boolean)),
    "mcp_tool_listing": _block(mcp_server_name=string, tools=anything),
    "container_upload": _block(file_id=need(string)),
    "compaction": _block(
        content=optional(_some_text),
        encrypted_content=optional(string),
        signature=optional(string),
        tool_changes=optional(array(mapping)),
    ),
    "fallback": fields({"type": string, "from": anything, "to": anything, "trigger": anything}),
    "tool_addition": _block(
        tool=need(tagged({**_REFERENCES, "tool_definition": _source(definition=need(mapping))}, in_path=False))
    ),
    "tool_removal": _block(tool=need(tagged(_REFERENCES, in_path=False))),
}
_BLOCK = tagged(BLOCKS)


def content_block(value: Any, path: str, context: Context) -> Found:
    """A block of a message. What the server itself handed out it takes back, new keys and new types included."""
    found = list(_BLOCK(value, path, context))
    if found and isinstance(value, dict) and context.is_own(value):
        # Wrong values of known keys stay wrong: the API refuses those of its own replies too (rule 20).
        found = [(extra, message) for extra, message in found if not extra] if value.get("type") in BLOCKS else []
    yield from found
