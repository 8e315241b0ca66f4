"""Any reply, in any pieces, cut anywhere: the whole reply or an `Error`, never half of one in the history."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.concurrency import play
from tests.kit.effort import examples
from tests.kit.streams import read, text_in
from tests.kit.tools import TOOLS, params
from toolloop import AsyncToolLoopHandle, Completed, Error, ToolLoopHandle, Yielded
from toolloop.events import InputDelta, ModelRequestFailed, ThinkingDelta
from toolloop.testing import FakeMessagesAPI, call, fault, reply, server_call, server_result, streamed

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip)
TEXTS = WORDS.map(lambda text: {"type": "text", "text": text})
THOUGHTS = WORDS.map(lambda text: {"type": "thinking", "thinking": text, "signature": ""})
SEARCHES = WORDS.map(lambda text: [server_call("web_search", {"query": text}), server_result("web_search")])
CALLS = st.one_of(
    st.builds(lambda a, b: call("add", {"a": a, "b": b}), st.integers(-(2**70), 2**70), st.integers()),
    st.builds(lambda path: call("look", {"path": path}), WORDS),
)


@st.composite
def replies(draw: st.DrawFn) -> dict[str, Any]:
    """A reply with blocks of all kinds."""
    content: list[Any] = [draw(THOUGHTS)] if draw(st.booleans()) else []
    for part in draw(st.lists(st.one_of(TEXTS, SEARCHES), max_size=3)):
        content += part if isinstance(part, list) else [part]
    calls = draw(st.lists(CALLS, max_size=2))
    if not calls:
        content.append(draw(TEXTS))
    return reply(content=[*content, *calls])


ODD = st.one_of(
    st.just({}),
    st.builds(lambda at: {"cut_bytes": at}, st.integers(0, 4000)),
    st.builds(lambda at: {"cut": at}, st.integers(0, 40)),
    st.builds(lambda at: {"end": at}, st.integers(-6, -1)),
    st.builds(lambda at, status: {"end": at, "fault": fault(status)}, st.integers(-9, -1), st.sampled_from([400, 529])),
)


@pytest.mark.parametrize("driver", ["sync", "asyncio", "trio"])
def test_a_reply_in_any_pieces_cut_anywhere(driver: str) -> None:
    """What is read is a beginning of the reply; what is in the history is all of it, or nothing."""

    @examples(20 if driver == "sync" else 8)
    @given(replies(), ODD, st.one_of(st.none(), st.integers(1, 50)), st.booleans())
    def whatever(answer: dict[str, Any], odd: dict[str, Any], chunk: int | None, noise: bool) -> None:
        asked = params(tools=[{"type": "web_search_20250305", "name": "web_search"}])

        async def story() -> None:
            how = streamed(answer, chunk=chunk, noise=noise, **odd)
            with FakeMessagesAPI([how, answer], verify_signatures=False) as api:
                if driver == "sync":
                    await told(ToolLoopHandle(api.client(), params=asked, tools=TOOLS), api, is_odd=bool(odd))
                else:
                    async with api.async_client() as client:
                        handle = AsyncToolLoopHandle(client, params=asked, tools=TOOLS)
                        await told(handle, api, is_odd=bool(odd))
                assert [request.refusal for request in api.refused] == []

        play(driver, story)

    whatever()


async def told(handle: ToolLoopHandle | AsyncToolLoopHandle, api: FakeMessagesAPI, *, is_odd: bool) -> None:
    """Read the turn; if it failed, once more. Then it is what it would have been without streaming."""
    before = handle.messages
    seen, turn = await read(handle)
    read_so_far = text_in(seen)
    if isinstance(turn, Error):
        assert is_odd
        assert isinstance(seen[-1], ModelRequestFailed)
        assert handle.messages == before
        assert handle.iterations == 0
        assert (turn.partial_text or "").replace("\n", "") == read_so_far.replace("\n", "")
        handle.retry()
        seen, turn = await read(handle)
        assert text_in(seen).startswith(read_so_far)
    assert isinstance(turn, (Yielded, Completed))
    message = turn.message if isinstance(turn, Yielded) else handle.messages[-1]
    blocks = message["content"]
    assert "".join(block["text"] for block in blocks if block["type"] == "text") == text_in(seen)
    thought = "".join(event.thinking for event in seen if isinstance(event, ThinkingDelta))
    assert "".join(block["thinking"] for block in blocks if block["type"] == "thinking") == thought
    inputs = {event.call_id for event in seen if isinstance(event, InputDelta)}
    assert inputs <= {block["id"] for block in blocks if block["type"] in ("tool_use", "server_tool_use")}
    if isinstance(turn, Yielded):
        assert handle.messages[-2] == message
        assert len(turn.results) == sum(block["type"] == "tool_use" for block in blocks)
    assert len(api.requests) <= 2
