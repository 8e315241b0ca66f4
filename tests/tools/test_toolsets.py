"""Toolsets of the anthropic SDK: their members run like tools, and their results are those of the SDK's runner."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

import anthropic
import httpx2
import pytest
from anthropic.lib.tools import ToolError as SdkToolError
from anthropic.tools import computer
from anthropic.types import beta
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from toolloop import Approve, Deny, ToolLoopHandle, Yielded
from toolloop.errors import BadTool
from toolloop.testing import ScriptedProvider
from toolloop.tools import ToolRegistry, toolset

NAMES: tuple[str, ...] = get_args(beta.BetaComputerMemberName)
PNG = "iVBORw0KGgo="
INPUTS: dict[str, Any] = {
    "coordinate": [1, 2],
    "start_coordinate": [3, 4],
    "region": [0, 0, 5, 5],
    "text": "a",
    "duration": 1.0,
    "scroll_direction": "down",
    "scroll_amount": 2,
}


def do(context: Any, given: Any) -> Any:
    if getattr(given, "text", None) == "fail":
        raise SdkToolError("no such window")
    if getattr(given, "text", None) == "break":
        raise OSError("gone")


def see(context: Any, given: Any) -> Any:
    return computer.BetaScreenshotResult(data=PNG)


def point(context: Any, given: Any) -> Any:
    return computer.BetaComputerCursorPositionResult(x=1, y=2)


def bind(name: str) -> Any:
    work = {"screenshot": see, "zoom": see, "cursor_position": point}.get(name, do)
    return lambda self, context, given: work(context, given)


Desktop: Any = type("Desktop", (computer.BetaAbstractComputerToolset20260801,), {name: bind(name) for name in NAMES})


def desktop() -> Any:
    return Desktop(confirm=lambda context: True)


def body(*blocks: Any, stop: str = "tool_use") -> dict[str, Any]:
    content = [*blocks] or [{"type": "text", "text": "done"}]
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def member(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given, "toolset_name": "computer"}


def inputs(name: str) -> dict[str, Any]:
    """The least input of a member, from its schema."""
    schema = {each.name.partition(".")[2]: each.input_schema for each in toolset(desktop())}[name]
    return {key: INPUTS[key] for key in schema.get("required", ())}


def of_the_sdk(reply: dict[str, Any]) -> list[Any]:
    """The results that the SDK's runner sends for a reply."""
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=reply if len(sent) == 1 else body(stop="end_turn"))

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = anthropic.Anthropic(api_key="k", max_retries=0, http_client=http)
    messages: Any = [{"role": "user", "content": "hi"}]
    client.beta.messages.tool_runner(model="m", max_tokens=9, messages=messages, tools=[desktop()]).until_done()
    found: list[Any] = sent[1]["messages"][-1]["content"]
    return found


def of_ours(reply: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """The results that a loop sends whose every call is approved, and the names of the calls in the order asked."""
    asked: list[str] = []
    provider = ScriptedProvider([reply, body(stop="end_turn")])
    params = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    handle = ToolLoopHandle(provider, params=params, tools=[desktop()])
    while isinstance(turn := handle.next_turn(), Yielded):
        assert len(turn.pending) <= 1
        asked += [call.name for call in turn.pending]
        handle.decide({call.id: Approve(digest=call.digest) for call in turn.pending})
        turn.continue_loop()
    return provider.requests[-1]["messages"][-1]["content"], asked


def plain(block: Mapping[str, Any]) -> Any:
    """A result in one form: the API takes a text and a list with one text block alike."""
    match block["content"]:
        case [{"type": "text", "text": str(text), **rest}] if not rest:
            return {**block, "content": text}
    return dict(block)


def test_each_member_runs_as_under_the_sdk_with_one_approval_each() -> None:
    reply = body(*(member(f"toolu_{name}", name, **inputs(name)) for name in NAMES))
    sent, asked = of_ours(reply)
    assert [*map(plain, sent)] == [*map(plain, of_the_sdk(reply))]
    assert asked == [f"computer.{name}" for name in NAMES]


CALLS = st.lists(
    st.one_of(
        st.sampled_from(NAMES).map(lambda name: (name, inputs(name))),
        st.sampled_from(["fail", "break", "ok"]).map(lambda text: ("type", {"text": text})),
    ),
    min_size=1,
    max_size=5,
)


@examples(15)
@given(CALLS)
def test_any_reply_is_answered_as_under_the_sdk(calls: list[tuple[str, dict[str, Any]]]) -> None:
    """Also where a member fails, so that the rest is not run. Only errors of other classes have a text of our own."""
    reply = body(*(member(f"toolu_{at}", name, **given) for at, (name, given) in enumerate(calls)))
    assert [*map(plain, of_ours(reply)[0])] == [*map(plain, of_the_sdk(reply))]


def test_the_rest_is_not_run_after_a_denial() -> None:
    provider = ScriptedProvider(
        [body(member("a", "wait", duration=1), member("b", "screenshot")), body(stop="end_turn")]
    )
    params = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    handle = ToolLoopHandle(provider, params=params, tools=[desktop()])
    turn = handle.next_turn()
    assert isinstance(turn, Yielded)
    assert [(call.name, call.toolset) for call in turn.pending] == [("computer.wait", "computer")]
    handle.decide({"a": Deny("no")})
    turn.continue_loop()
    handle.run()
    texts = [block["content"] for block in provider.requests[-1]["messages"][-1]["content"]]
    assert texts[1] == "Not executed: an earlier computer action in this turn failed."


def test_a_toolset_has_one_definition_at_the_place_of_its_first_member() -> None:
    registry = ToolRegistry([desktop()])
    assert registry.definitions() == [{"type": "computer_toolset_20260801"}]
    assert registry.names == tuple(f"computer.{name}" for name in NAMES)


def test_a_disabled_member_is_left_out_and_an_option_is_checked() -> None:
    given = Desktop(confirm=lambda context: True, configs={"wait": {"enabled": False}})
    assert "computer.wait" not in [each.name for each in toolset(given, needs_approval=False)]
    with pytest.raises(BadTool, match="effect of computer"):
        toolset(given, effect="often")  # type: ignore[arg-type]  # it is refused
