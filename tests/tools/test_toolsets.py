"""Toolsets of the anthropic SDK: their members run like tools, and their results are those of the SDK's runner."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

import anthropic
import httpx2
import pytest
from anthropic.lib.tools import ToolError as SdkToolError
from anthropic.tools import browser, computer
from anthropic.types import beta
from hypothesis import given, strategies as st

from tests.kit.effort import IS_DEEP, examples
from tests.kit.world import Clock
from toolloop import (
    Answer,
    Approve,
    AsyncToolLoopHandle,
    Deny,
    LoopConfig,
    ToolLoopHandle,
    Yielded,
    tool,
)
from toolloop.errors import BadTool
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider
from toolloop.tools import ToolRegistry, toolset

MEMBERS: dict[str, tuple[str, ...]] = {
    "computer": get_args(beta.BetaComputerMemberName),
    "browser": get_args(beta.BetaBrowserMemberName),
}
PARAMS: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
TAB: Any = {"tab_id": "t1", "url": "https://a.example", "title": "A", "active": True}
CONFIGS: Any = {name: {"enabled": True} for name in ("file_upload", "javascript_exec")}
HALTED = "Not executed: an earlier {}action in this turn failed."


def perform(family: str, name: str, given: Any) -> Any:
    """What a member returns, or raises where its text says so."""
    text = getattr(given, "text", None)
    if text == "fail":
        raise SdkToolError("no such window")
    if text == "break":
        raise OSError("gone")
    results: dict[str, Any] = {
        "screenshot": computer.BetaScreenshotResult(data="iVBORw0KGgo="),
        "cursor_position": computer.BetaComputerCursorPositionResult(x=1, y=2),
        "navigate": browser.BetaBrowserNavigateResult(url="https://b.example", status=200, title="B"),
        "list_tabs": [TAB],
        **dict.fromkeys(("new_tab", "switch_tab"), TAB),
        **dict.fromkeys(("read_page", "find", "get_page_text", "read_console", "read_network"), "a text"),
        "javascript_exec": "5",
    }
    results["zoom"] = results["screenshot"]
    return results.get(name, "typed" if name == "type" and family == "browser" else None)


class Desktop(computer.BetaAbstractComputerToolset20260801):
    def execute(self, context: Any, name: Any, given: Any) -> Any:
        return perform("computer", name, given)


class AsyncDesktop(computer.BetaAsyncAbstractComputerToolset20260801):
    async def execute(self, context: Any, name: Any, given: Any) -> Any:
        await asyncio.sleep(0)
        return perform("computer", name, given)


class Browser(browser.BetaAbstractBrowserToolset20260801):
    def execute(self, context: Any, name: Any, given: Any) -> Any:
        return perform("browser", name, given)

    def _browser_state(self, context: Any) -> Any:
        return browser.BetaBrowserState(tabs=[TAB])


class AsyncBrowser(browser.BetaAsyncAbstractBrowserToolset20260801):
    async def execute(self, context: Any, name: Any, given: Any) -> Any:
        await asyncio.sleep(0)
        return perform("browser", name, given)

    async def _browser_state(self, context: Any) -> Any:
        return browser.BetaBrowserState(tabs=[TAB])


def desktop() -> Any:
    return Desktop(confirm=lambda context: True)


def surf(kind: Any) -> Any:
    policy = browser.BetaLocalFilePolicy(upload_roots=[Path(__file__).parent])
    return kind(confirm=lambda context: True, configs=CONFIGS, url_policy=None, file_policy=policy)


MAKERS: dict[str, Any] = {
    "computer": desktop,
    "browser": lambda: surf(Browser),
    "async computer": lambda: AsyncDesktop(confirm=lambda context: True),
    "async browser": lambda: surf(AsyncBrowser),
}
KINDS = list(MAKERS)


def body(*blocks: Any, stop: str = "tool_use") -> dict[str, Any]:
    content = [*blocks] or [{"type": "text", "text": "done"}]
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": stop, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


def member(call_id: str, name: str, family: str = "computer", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given, "toolset_name": family}


# --- inputs, from the types of the SDK ---


def values(schema: Mapping[str, Any], defined: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """The JSON values of a schema that pydantic makes."""
    if "$ref" in schema:
        return values(defined[schema["$ref"].rpartition("/")[2]], defined)
    if "anyOf" in schema:
        return st.one_of([values(each, defined) for each in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    if schema["type"] == "object":
        required = {*schema.get("required", ())}
        fields = {name: values(each, defined) for name, each in schema.get("properties", {}).items()}
        return st.fixed_dictionaries(
            {name: each for name, each in fields.items() if name in required},
            optional={name: each for name, each in fields.items() if name not in required},
        )
    if schema["type"] == "array":
        return st.lists(values(schema["items"], defined), min_size=2, max_size=4)
    return {
        "string": st.sampled_from(["a", "fail", "break", "https://a.example", "t1"]),
        "integer": st.integers(0, 9),
        "number": st.integers(1, 3) | st.just(0.5),
        "boolean": st.booleans(),
        "null": st.none(),
    }[schema["type"]]


@cache
def inputs(family: str) -> dict[str, st.SearchStrategy[Any]]:
    """The inputs of each member of a toolset."""
    schemas = {each.name.partition(".")[2]: each.input_schema for each in toolset(MAKERS[family]())}
    return {name: values(schema, schema.get("$defs", {})) for name, schema in schemas.items()}


@st.composite
def replies(draw: st.DrawFn, names: Mapping[str, tuple[str, ...]] = MEMBERS) -> dict[str, Any]:
    """A reply with calls of members of both toolsets, in any order."""
    drawn = draw(
        st.lists(st.sampled_from([(f, name) for f, found in names.items() for name in found]), min_size=1, max_size=5)
    )
    calls = [
        member(f"toolu_{at}", name, family, **draw(inputs(family)[name])) for at, (family, name) in enumerate(drawn)
    ]
    return body(*calls)


# --- the SDK's runner, and a loop ---


def of_the_sdk(reply: dict[str, Any], *tools: Any, is_async: bool = False) -> list[Any]:
    """The results that the SDK's runner sends for a reply."""
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=reply if len(sent) == 1 else body(stop="end_turn"))

    async def run() -> None:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        client = anthropic.AsyncAnthropic(api_key="k", max_retries=0, http_client=http)
        await client.beta.messages.tool_runner(**PARAMS, tools=tools).until_done()

    if is_async:
        asyncio.run(run())
    else:
        http = httpx2.Client(transport=httpx2.MockTransport(answer))
        client = anthropic.Anthropic(api_key="k", max_retries=0, http_client=http)
        client.beta.messages.tool_runner(**PARAMS, tools=tools).until_done()
    found: list[Any] = sent[1]["messages"][-1]["content"]
    return found


def of_ours(reply: dict[str, Any], *tools: Any, is_async: bool = False) -> tuple[list[Any], list[str]]:
    """The results that a loop sends whose every call is approved, and the names of the calls in the order asked."""
    asked: list[str] = []

    def approve(handle: Any, turn: Yielded) -> None:
        asked.extend(call.name for call in turn.pending)
        handle.decide({call.id: Approve(digest=call.digest) for call in turn.pending})
        turn.continue_loop()

    async def drive() -> Any:
        provider = AsyncScriptedProvider([reply, body(stop="end_turn")])
        handle = AsyncToolLoopHandle(provider, params=PARAMS, tools=tools)
        while isinstance(turn := await handle.next_turn(), Yielded):
            approve(handle, turn)
        return provider.requests

    if is_async:
        return asyncio.run(drive())[-1]["messages"][-1]["content"], asked
    provider = ScriptedProvider([reply, body(stop="end_turn")])
    handle = ToolLoopHandle(provider, params=PARAMS, tools=tools)
    while isinstance(turn := handle.next_turn(), Yielded):
        approve(handle, turn)
    return provider.requests[-1]["messages"][-1]["content"], asked


def to_plain(block: Mapping[str, Any]) -> Any:
    """A result in one form: the API takes a text and a list with one text block alike."""
    match block["content"]:
        case [{"type": "text", "text": str(text), **rest}] if not rest:
            return {**block, "content": text}
    return dict(block)


@pytest.mark.parametrize("kind", KINDS if IS_DEEP else ("browser", "async computer"))
@examples(1, deep=20)
@given(data=st.data())
def test_each_member_runs_as_under_the_sdk_with_one_approval_each(kind: str, data: st.DataObject) -> None:
    """In the order of the model. A member that is approved runs once, so that its state is that of the SDK's object."""
    family = kind.rpartition(" ")[2]
    is_async, drawn = kind.startswith("async"), inputs(family)
    assert drawn.keys() == {*MEMBERS[family]}
    calls = [member(f"toolu_{name}", name, family, **data.draw(drawn[name])) for name in MEMBERS[family]]
    for call in calls:  # one reply each, because an error ends the rest
        sent, asked = of_ours(body(call), MAKERS[kind](), is_async=is_async)
        assert [*map(to_plain, sent)] == [*map(to_plain, of_the_sdk(body(call), MAKERS[kind](), is_async=is_async))]
        assert asked == [f"{family}.{call['name']}"]


@examples(12)
@given(replies(), st.booleans())
def test_any_reply_is_answered_as_under_the_sdk(reply: dict[str, Any], is_async: bool) -> None:
    """Also where a member fails, so that the rest of its toolset is not run, and that of the other one is."""
    kinds = KINDS[2:] if is_async else KINDS[:2]
    ours, asked = of_ours(reply, *(MAKERS[kind]() for kind in kinds), is_async=is_async)
    assert [*map(to_plain, ours)] == [
        *map(to_plain, of_the_sdk(reply, *(MAKERS[kind]() for kind in kinds), is_async=is_async))
    ]
    for family in MEMBERS:
        of_family = [block["name"] for block in reply["content"] if block["toolset_name"] == family]
        names = [name.partition(".")[2] for name in asked if name.startswith(family)]
        assert names == of_family[: len(names)]


# --- what ends the rest ---


def end_call(how: str, family: str) -> tuple[list[str], list[str]]:
    """The results after a first call of a member that ended so, and what ran."""
    clock, ran = Clock(1000.0), list[str]()
    config = LoopConfig(decision_timeout=60.0)
    first = member("a", "key", family, text="fail" if how == "failed" else "break" if how == "raised" else "a")
    given = {} if family == "computer" else {"tab_id": "t1"}
    provider = ScriptedProvider([body(first, member("b", "screenshot", family, **given)), body(stop="end_turn")])
    made = MAKERS[family]()
    execute = made.execute

    def note(context: Any, name: Any, given: Any) -> Any:
        ran.append(name)
        return execute(context, name, given)

    made.execute = note
    handle = ToolLoopHandle(provider, params=PARAMS, tools=[made], config=config, clock=clock)
    turn = handle.next_turn()
    assert isinstance(turn, Yielded)
    assert [(call.name, call.toolset, call.why) for call in turn.pending] == [(f"{family}.key", family, "approval")]
    if how == "expired":
        clock.now += 61.0
        handle.tick(clock.now)
    else:
        decisions: dict[str, Any] = {"denied": Deny("no"), "answered": Answer("no", is_error=True)}
        handle.decide({"a": decisions.get(how) or Approve()})
    turn.continue_loop()
    while isinstance(turn := handle.next_turn(), Yielded):
        handle.decide({call.id: Approve() for call in turn.pending})
        turn.continue_loop()
    results = provider.requests[-1]["messages"][-1]["content"]
    return [to_plain(block)["content"] for block in results if block["type"] == "tool_result"], ran


@pytest.mark.parametrize("family", MEMBERS)
@pytest.mark.parametrize("how", ["denied", "expired", "answered", "failed", "raised"])
def test_the_rest_is_not_run_after_an_error(how: str, family: str) -> None:
    """No approval is asked for it. The model reads the API's own text."""
    results, ran = end_call(how, family)
    assert results[1] == HALTED.format("computer " if family == "computer" else "")
    assert ran == (["key"] if how in ("failed", "raised") else [])


@pytest.mark.parametrize("family", MEMBERS)
def test_the_rest_runs_after_a_member_that_ended_well(family: str) -> None:
    results, ran = end_call("well", family)
    assert (len(results), ran) == (2, ["key", "screenshot"])


# --- definitions ---


@tool(needs_approval=True)
def wait(duration: float) -> str:
    """Wait."""
    return "waited"


@pytest.mark.parametrize("kind", KINDS)
def test_a_toolset_has_one_definition_at_the_place_of_its_first_member(kind: str) -> None:
    family, registry = kind.rpartition(" ")[2], ToolRegistry([wait, MAKERS[kind]()])
    assert [each.get("type") for each in registry.definitions()] == [None, f"{family}_toolset_20260801"]
    assert registry.names == ("wait", *(f"{family}.{name}" for name in MEMBERS[family]))
    assert all(each.is_async == kind.startswith("async") for each in registry if each.name != "wait")


def test_a_disabled_member_is_left_out_and_an_option_is_checked() -> None:
    given = Desktop(confirm=lambda context: True, configs={"wait": {"enabled": False}})
    assert "computer.wait" not in [each.name for each in toolset(given, needs_approval=False)]
    with pytest.raises(BadTool, match="effect of computer"):
        toolset(given, effect="often")  # type: ignore[arg-type]  # it is refused


def test_an_async_toolset_needs_an_async_handle() -> None:
    with pytest.raises(BadTool, match=r"the tool 'computer\.key' is async"):
        ToolLoopHandle(ScriptedProvider([]), params=PARAMS, tools=[MAKERS["async computer"]()])
