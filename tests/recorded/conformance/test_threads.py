"""The SDK's runner with threads and ours: the same fake takes the bodies of both, scene by scene."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import pytest
from anthropic import beta_tool
from anthropic.lib.tools import ToolError

from tests.recorded.conformance.replaying import params_of, reply_of, results_of, with_own_tools
from tests.recorded.conformance.traffic import Exchange, Traffic, with_traffic
from toolloop import ToolRunner
from toolloop.testing import FakeMessagesAPI

# The SDK's runner warns of the models of old recordings.
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")

# Those that one user turn leads through.
SCENES = [
    *("sdk_basic_call", "sdk_tool_raises", "sdk_streamed_call", "sdk_web_search_only", "pause_turn_web_search"),
    *("multiple_parallel_tool_calls", "tool_with_thinking"),
]


def sdk_tools(exchanges: Sequence[Exchange], own: Sequence[str]) -> list[Any]:
    """Tools of the SDK that give the recorded results, each in the order of its calls."""
    results, waiting = results_of(exchanges), defaultdict[str, deque[Any]](deque)
    for exchange in exchanges:
        for block in reply_of(exchange)["content"]:
            if block["type"] == "tool_use":
                waiting[block["name"]].append(results[block["id"]])
    defined = {each["name"]: each for each in exchanges[0].request.get("tools", ())}
    return [_sdk_tool(defined[name], waiting[name]) for name in own]


def _sdk_tool(defined: dict[str, Any], waiting: deque[Any]) -> Any:
    def give(**_: Any) -> Any:
        recorded = waiting.popleft()
        if recorded.get("is_error"):
            raise ToolError(recorded["content"])
        return recorded["content"]

    name, description = defined["name"], defined.get("description", "")
    return beta_tool(give, name=name, description=description, input_schema=defined["input_schema"])


def did(api: FakeMessagesAPI) -> list[Any]:
    """What each request does to a thread, and which roles and blocks it carries."""
    return [
        ((request.json.get("thread") or {}).get("type"), _shape(request.json["messages"])) for request in api.requests
    ]


def _shape(messages: Sequence[Any]) -> list[Any]:
    contents = [(each["role"], each["content"]) for each in messages]
    return [
        (role, content if isinstance(content, str) else [block["type"] for block in content])
        for role, content in contents
    ]


def played(exchanges: Sequence[Exchange], *, is_ours: bool, code: str | None = None) -> FakeMessagesAPI:
    """The API after one of the runners went through a scene. `code`: with which the second request is refused."""
    answers, codes = [reply_of(exchange) for exchange in exchanges], iter([None, code])
    own = with_own_tools(exchanges)
    with FakeMessagesAPI(answers, verify_signatures=False, refuse_thread=lambda _: next(codes, None)) as api:
        runner: Any
        if is_ours:
            runner = ToolRunner(api.client(), threads=True, **own)
        else:
            names = [tool.name for tool in own["tools"]]
            asked = params_of(exchanges[0], own=names)
            tools = [*sdk_tools(exchanges, names), *asked.pop("tools", ())]
            runner = api.client().beta.messages.tool_runner(**asked, tools=tools)
        assert len(list(runner)) == len(answers)
        return api


@with_traffic(*SCENES)
def test_the_fake_takes_the_bodies_of_both_runners(traffic: Traffic) -> None:
    """They create a thread, and continue it with the same new messages; to the model both look alike."""
    ours, theirs = (played(traffic.answered, is_ours=is_ours) for is_ours in (True, False))
    assert (ours.refused, theirs.refused) == ([], [])
    assert did(ours) == did(theirs)
    assert _seen(ours) == _seen(theirs)


@pytest.mark.parametrize("code", ["thread_not_found", "thread_already_continued", "thread_unsupported_request"])
@with_traffic("sdk_basic_call")
def test_both_runners_recover_alike(traffic: Traffic, code: str) -> None:
    """A refused thread is followed by the whole history, as a new thread or without one."""
    ours, theirs = (played(traffic.answered, is_ours=is_ours, code=code) for is_ours in (True, False))
    assert [request.refusal for request in ours.refused] == [f"thread: {code}"]
    assert did(ours) == did(theirs)
    assert _seen(ours) == _seen(theirs)


def _seen(api: FakeMessagesAPI) -> list[Any]:
    return [_shape(request.whole["messages"]) for request in api.requests if request.refusal is None]
