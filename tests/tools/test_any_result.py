"""Properties of the adapter: whatever a tool returns, the result is valid."""

from __future__ import annotations

import base64
import copy
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from hypothesis.strategies import SearchStrategy

from tests.messages.bodies import HI, OPUS
from tests.tools.answering import ADAPTER, BY_CODE, CALL, IMAGES, OF_TOOLSET, PDF, answer
from toolloop import ToolLoopHandle, ToolRegistry
from toolloop._messages import blocks
from toolloop.events import CallFinished
from toolloop.responses import (
    AnthropicMessagesToolResponseAdapter,
    EmptyResponse,
    FileResponse,
    JsonResponse,
    LinkResponse,
    RawOutputs,
    TextResponse,
)
from toolloop.testing import ScriptedProvider, call, reply
from toolloop.tools import ToolError, content_of, tool

CALLS = st.sampled_from([CALL, BY_CODE, OF_TOOLSET])
TEXTS = st.text(st.characters(codec=None) | st.characters(categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", " ", "\n"]
)
SOME = TEXTS.filter(str.strip)
FILES = st.binary(max_size=12) | st.sampled_from([*IMAGES.values(), PDF, "é".encode("utf-16")])
ADAPTERS = st.sampled_from([ADAPTER, AnthropicMessagesToolResponseAdapter(max_chars=5)])


class Colour(Enum):
    RED = "red"
    NONE = None


@attrs.frozen
class Box:
    inside: Any


LEAVES: SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    TEXTS,
    st.binary(max_size=5),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
    st.complex_numbers(),
    st.sampled_from([Colour.RED, Colour.NONE, Path("a"), object, len, np.float32(1), np.arange(2), Decimal("sNaN")]),
    st.builds(object),
)


def _keys() -> SearchStrategy[Any]:
    return TEXTS | st.integers() | st.booleans() | st.none() | st.dates() | st.sampled_from(list(Colour)) | st.tuples()


def _wrap(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(TEXTS | st.integers(), max_size=3),
        st.dictionaries(_keys(), inner, max_size=3),
        inner.map(Box),
        inner.map(lambda value: SimpleNamespace(a=value)),
    )


CACHE = st.sampled_from(
    [None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral", "ttl": "2h"}]
)
BASE64 = st.sampled_from(["", "AA==", "iVBORw0KGgo=", "JVBERi0=", "?"]) | st.builds(
    lambda data, end: base64.b64encode(data[:end]).decode(), FILES, st.integers(0, 40)
)
SOURCES = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("base64"),
            "media_type": st.sampled_from(["image/png", "application/pdf", "x"]),
            "data": BASE64,
        }
    ),
    st.fixed_dictionaries({"type": st.just("url"), "url": TEXTS}),
    st.fixed_dictionaries({"type": st.just("text"), "media_type": st.just("text/plain"), "data": TEXTS}),
    st.fixed_dictionaries(
        {
            "type": st.just("content"),
            "content": st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), max_size=2),
        }
    ),
    TEXTS,
)
SEEN = st.fixed_dictionaries(
    {"type": st.just("text"), "text": TEXTS | st.integers()}, optional={"cache_control": CACHE, "author": TEXTS}
)
CITING = st.sampled_from([None, {}, {"enabled": True}, {"enabled": 1}])
BLOCKS = st.one_of(
    SEEN,
    st.fixed_dictionaries({"type": st.just("image"), "source": SOURCES}, optional={"cache_control": CACHE}),
    st.fixed_dictionaries(
        {"type": st.just("document"), "source": SOURCES}, optional={"title": TEXTS, "citations": CITING}
    ),
    st.fixed_dictionaries(
        {"type": st.just("search_result"), "source": TEXTS, "title": TEXTS, "content": st.lists(SEEN, max_size=2)},
        optional={"citations": CITING},
    ),
    st.fixed_dictionaries({"type": st.just("tool_reference"), "tool_name": st.just("look")}),
    st.fixed_dictionaries({"type": st.just("browser_state"), "tabs": st.lists(st.just({}), max_size=1)}),
    # Every other type, known or not, with a member that some of them need.
    st.fixed_dictionaries(
        {"type": st.sampled_from([*sorted(blocks.BLOCKS), "web_tool_result", "of_next_year", "", None])},
        optional={"file_id": st.just("f"), "content": TEXTS | st.lists(SEEN, max_size=2), "tool_use_id": SOME},
    ),
)
RESPONSES = st.one_of(
    st.builds(TextResponse, TEXTS),
    st.builds(FileResponse, SOME, SOME | st.sampled_from(["image/png", "text/plain; charset=utf-16"]), FILES),
    st.builds(LinkResponse, TEXTS, SOME),
    st.just(EmptyResponse()),
    st.builds(JsonResponse, LEAVES),
)
MIXED = st.lists(BLOCKS | RESPONSES | TEXTS | FILES | st.just(Path(__file__)), max_size=6)
RETURNED: SearchStrategy[Any] = st.one_of(
    st.recursive(LEAVES, _wrap, max_leaves=6),
    FILES,
    RESPONSES,
    st.lists(SEEN, max_size=6),
    st.lists(BLOCKS, max_size=6),
    MIXED,
    MIXED.map(RawOutputs),
    st.builds(ToolError, TEXTS | MIXED),
    st.builds(ValueError, TEXTS),
)


@given(RETURNED, CALLS, ADAPTERS)
def test_the_result_of_any_value_is_valid(value: Any, asked: Any, adapter: Any) -> None:
    """For plain calls, calls made by code and members of toolsets: it is JSON, and the same each time."""
    kept = copy.deepcopy(asked)
    block = answer(value, asked=asked, adapter=adapter)
    assert block == answer(value, asked=asked, adapter=adapter)
    assert asked == kept
    assert block.get("toolset_name") == asked.get("toolset_name")
    if "caller" in asked or block.get("is_error"):
        assert {each["type"] for each in block["content"]} <= {"text"}


@given(RETURNED, CALLS)
def test_the_content_of_a_result_is_content_again(value: Any, asked: Any) -> None:
    """The content may be filtered and passed again."""
    block = answer(value, asked=asked)
    given = RawOutputs(block["content"]) if isinstance(block["content"], list) else block["content"]
    again = content_of(given, is_error=block.get("is_error", False))
    again = [{"type": "text", "text": again}] if again and isinstance(again, str) else again
    assert again == block["content"]


class Checked(AnthropicMessagesToolResponseAdapter):
    """A loop checks the messages of each adapter that makes them itself."""

    def create_messages(self, call: Any, response: Any) -> Any:
        return super().create_messages(call, response)


class Spoken(AnthropicMessagesToolResponseAdapter):
    """It has texts of its own, and its messages are made as ever."""

    def to_plain_text(self, value: Any) -> str:
        return f"\ud800{value!s}"


class CheckedSpoken(Spoken, Checked):
    """Both."""


def finish(adapter: Any, value: Any, **more: Any) -> tuple[Any, list[Any]]:
    """The messages after a call that returned or raised this, and the events of its end."""

    @tool
    def act() -> Any:
        """Act."""
        if isinstance(value, BaseException):
            raise value
        return value

    script = [reply(calls=[call("act", id="toolu_1", **more)])]
    params = {"model": OPUS, "max_tokens": 9, "messages": [HI]}
    handle = ToolLoopHandle(ScriptedProvider(script), params=params, tools=ToolRegistry([act], adapter=adapter))
    turn = handle.next_turn()
    return handle.messages, [attrs.evolve(each, seconds=0) for each in turn.events if isinstance(each, CallFinished)]


@given(
    RETURNED,
    st.sampled_from([{}, {"caller": BY_CODE["caller"]}, {"toolset_name": "computer"}]),
    st.sampled_from([{}, {"max_chars": 5}]),
    st.sampled_from([(AnthropicMessagesToolResponseAdapter, Checked), (Spoken, CheckedSpoken)]),
)
@example(b"", {}, {}, (Spoken, CheckedSpoken))
def test_a_loop_has_nothing_to_change_in_a_result_of_this_adapter(
    value: Any, more: Any, limits: Any, kinds: tuple[Any, Any]
) -> None:
    """It takes the message as it is: with the checks, it would be the same."""
    own, checked = (finish(kind(**limits), value, **more) for kind in kinds)
    assert own == checked
    assert len(own[1]) == 1


@pytest.mark.parametrize("where", ["adapter", "class"])
def test_what_replaces_its_method_is_checked(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the patch of a test."""
    adapter: Any = AnthropicMessagesToolResponseAdapter()
    patched = adapter if where == "adapter" else AnthropicMessagesToolResponseAdapter
    monkeypatch.setattr(patched, "create_messages", lambda *_: [{"role": "assistant", "content": []}])
    messages, (end,) = finish(adapter, "x")
    assert (end.outcome, end.is_error) == ("failed", True)
    assert "create_messages returned an invalid message" in messages[2]["content"][0]["content"]
