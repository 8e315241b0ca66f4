"""`LoopConfig(cache=...)`: what the next request reads from the cache, and the marks that make it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.each import each
from tests.kit.effort import examples
from tests.kit.prompt_cache import look, looks, share_read
from tests.kit.tools import params, user
from tests.kit.world import open_over_http
from tests.recorded.second_opinion.shapes import cache_marks
from toolloop import Completed, LoopConfig, ToolLoopHandle, sub_loop
from toolloop.compaction import DropRounds
from toolloop.testing import FakeMessagesAPI, ScriptedProvider, reply
from toolloop.testing.api.signing import content_blocks, without_marks

SHORT, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
MARKS = st.sampled_from([None, SHORT, LONG])


@each("calls", (1, 8, 32))
def test_the_next_request_reads_all_that_the_last_one_sent(calls: int) -> None:
    """Also after a round with more blocks than the API looks back."""
    assert share_read("5m", calls=calls) >= 0.95
    assert share_read("1h", calls=calls) >= 0.95
    assert share_read(None, calls=calls) == 0


def test_after_half_an_hour_the_cache_is_warm_only_with_a_mark_of_an_hour() -> None:
    """A person thought about a call meanwhile."""
    assert share_read("1h", wait=1800.0) >= 0.95
    assert share_read("1h", calls=32, wait=1800.0) >= 0.95
    assert share_read("1h", wait=3601.0) == 0
    assert share_read("5m", wait=1800.0) == 0
    assert share_read(None, wait=1800.0) == 0


# --- the marks -------------------------------------------------------------------------------------------------------


def make_marked(text: str, mark: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **({} if mark is None else {"cache_control": mark})}


def live(steps: list[int], asked: dict[str, Any], texts: list[Any], **config: Any) -> list[dict[str, Any]]:
    """Live a loop, and return its requests. A step is a number of calls, 0 for an end, -1 for a pause."""
    kinds: dict[int, Any] = {0: reply("end"), -1: reply("hm", stop_reason="pause_turn")}
    script = [kinds[step] if step in kinds else looks(step) for step in steps]
    with FakeMessagesAPI([*script, reply("end")]) as api:
        loop = ToolLoopHandle(
            api.client(), params=asked, tools=[look], config=LoopConfig(**config, max_iterations=None)
        )
        for text in texts:
            assert isinstance(loop.run(), Completed)
            if len(api.requests) > len(steps):
                break
            loop.follow_up([user([text])])
        assert api.refused == []
        return [request.json for request in api.requests]


def to_plain(body: dict[str, Any]) -> Any:
    """Return a request without its marks, and with texts as blocks."""
    messages = [{**message, "content": content_blocks(message["content"])} for message in body["messages"]]
    return without_marks({**body, "messages": messages})


@given(
    steps=st.lists(st.sampled_from([-1, 0, 0, 1, 3, 20]), max_size=4),
    cache=st.sampled_from(["5m", "1h"]),
    system=MARKS,
    top=MARKS,
    said=MARKS,
    drops=st.booleans(),
)
@examples(15, deep=1000, deadline=None)
def test_no_life_breaks_a_rule_and_only_marks_differ(
    *, steps: list[int], cache: Any, system: Any, top: Any, said: Any, drops: bool
) -> None:
    """The caller's marks come first: with few, one or no place left, and of either lifetime."""
    asked = params(system=[make_marked("Be brief.", system)], **({} if top is None else {"cache_control": top}))
    said = SHORT if SHORT in (system, top) and said else said  # the caller's own marks are in order
    texts = [make_marked("more", said if number == 1 else None) for number in range(len(steps) + 1)]
    config = {"compaction": DropRounds(keep_last=1, at_tokens=2_000)} if drops else {}
    without = live(steps, asked, texts, **config)
    if cache == "1h" and system == SHORT:
        with pytest.raises(ValueError, match="Set 'ttl': '1h'"):
            live(steps, asked, texts, cache=cache, **config)
        return
    bodies = live(steps, asked, texts, cache=cache, **config)
    assert [to_plain(body) for body in bodies] == [to_plain(body) for body in without]
    for body, bare in zip(bodies, without, strict=True):
        assert cache_marks(body) == [] or cache_marks(bare) != []
        assert "cache_control" in body or (said == SHORT and cache == "1h") or (said == LONG and cache == "5m")


def test_a_fifth_mark_is_left_out() -> None:
    """Three marks of the caller leave room for the one at the end, four for none."""
    for count, has_top in ((3, True), (4, False)):
        asked = params(messages=[user([make_marked("a", SHORT)] * count)])
        body = live([20], asked, [make_marked("more", None)], cache="5m")[-1]
        assert ("cache_control" in body, cache_marks(body)) == (has_top, [])


def test_a_mark_of_an_hour_at_the_beginning_goes_with_marks_of_five_minutes() -> None:
    """Such as on a long document. Behind it, the loop adds its own."""
    asked = params(messages=[user([make_marked("a document", LONG)])])
    body = live([20, 20], asked, [make_marked("more", None)], cache="5m")[-1]
    assert body["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert [block["cache_control"] for block in body["messages"][2]["content"] if "cache_control" in block] == [
        {"type": "ephemeral", "ttl": "5m"}
    ]
    assert cache_marks(body) == []


def of_handle(api: FakeMessagesAPI, asked: dict[str, Any], config: LoopConfig) -> None:
    ToolLoopHandle(api.client(), params=asked, tools=[look], config=config)


def of_sub_loop(_: FakeMessagesAPI, asked: dict[str, Any], config: LoopConfig) -> None:
    sub_loop("helper", "Helps.", params={**asked, "messages": []}, tools=[look], config=config)


def of_update(api: FakeMessagesAPI, asked: dict[str, Any], config: LoopConfig) -> None:
    ToolLoopHandle(api.client(), params=params(), tools=[look], config=config).update_params(system=asked["system"])


def of_restore(api: FakeMessagesAPI, asked: dict[str, Any], config: LoopConfig) -> None:
    snapshot = ToolLoopHandle(api.client(), params=asked, tools=[look]).snapshot()
    ToolLoopHandle.restore(snapshot, api.client(), tools=[look], config=config)


@each("make", (of_handle, of_sub_loop, of_update, of_restore))
def test_an_hour_beside_a_mark_of_five_minutes_is_refused(make: Callable[..., None]) -> None:
    """Wherever both are given. The error says what to do."""
    asked = params(system=[make_marked("Be brief.", SHORT)])
    with FakeMessagesAPI([]) as api:
        make(api, asked, LoopConfig(cache="5m"))
        with pytest.raises(ValueError, match=r"cache mark of five minutes.*Set 'ttl': '1h' in that mark"):
            make(api, asked, LoopConfig(cache="1h"))


def test_another_lifetime_is_refused() -> None:
    """The API has two."""
    with pytest.raises(ValueError, match="cache is '10m'; give one of 5m, 1h, or None"):
        LoopConfig(cache="10m")  # type: ignore[arg-type]  # what is tested


# --- diagnostics -----------------------------------------------------------------------------------------------------


def test_diagnostics_compare_with_the_last_reply_of_this_branch() -> None:
    """A copy continues from the reply that it has, whatever the original did since."""
    asked = params(diagnostics={"previous_message_id": None}, betas=["cache-diagnosis-2026-04-07"])
    with open_over_http([looks(1), reply("a"), reply("b"), reply("c")], asked=asked, tools=[look]) as at:
        at.turn().continue_loop()
        at.expect_done()
        copy = at.handle.fork()
        for loop in (at.handle, copy):
            loop.follow_up([user("more")])
            loop.run()
        bodies = [request.json["diagnostics"]["previous_message_id"] for request in at.api.requests]
    assert bodies == [None, "msg_fake_000001", "msg_fake_000002", "msg_fake_000002"]


@pytest.mark.parametrize(
    ("diagnostics", "reason"),
    [
        (None, None),
        ({"cache_miss_reason": None}, "pending"),
        ({"cache_miss_reason": {"type": "messages_changed", "cache_missed_input_tokens": 900}}, "messages_changed"),
        ({"cache_miss_reason": "odd"}, None),
        ([], None),
    ],
)
def test_the_usage_of_a_request_says_why_the_cache_missed(diagnostics: Any, reason: str | None) -> None:
    """As the API says it, also after a sleep; an answer of another shape fails nothing."""
    script = [{**reply("a"), "diagnostics": diagnostics}]
    handle = ToolLoopHandle(ScriptedProvider(script), params=params())
    handle.run().unwrap()
    woken = ToolLoopHandle.restore(handle.snapshot(), ScriptedProvider([]))
    assert [each.usage_log[0].cache_miss for each in (handle, woken)] == [reason, reason]
