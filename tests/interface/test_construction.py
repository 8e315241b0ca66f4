"""What a handle takes when it is made, and what it refuses at once."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import anthropic
import pytest
from anthropic import NOT_GIVEN, beta_tool, omit

from tests.kit.each import each
from tests.kit.tools import MODEL, TOOLS, add, assistant, params, user, write
from tests.kit.world import open_over_http
from toolloop import (
    AsyncToolLoopHandle,
    AsyncToolRunner,
    AsyncWorker,
    Budget,
    LoopConfig,
    LoopContext,
    MemoryStore,
    Texts,
    ToolLoopHandle,
    ToolRegistry,
    ToolRunner,
    Worker,
    tool,
)
from toolloop.errors import BadTool, IllegalCommand, InvalidHistory
from toolloop.providers import AnthropicProvider
from toolloop.testing import AsyncScriptedProvider, FakeMessagesAPI, ScriptedProvider, reply

LOOKUP = {"name": "lookup", "description": "Look up.", "input_schema": {"type": "object", "properties": {}}}


def make_handle(provider: Any = None, **parts: Any) -> ToolLoopHandle:
    """A handle of these parts, over a provider that has nothing to say."""
    return ToolLoopHandle(provider or ScriptedProvider([]), **{"params": params(), **parts})


def test_construction_does_no_io_and_starts_no_clock() -> None:
    """No request, no reading of the time; a second handle of the same parts is as new."""

    def clock() -> float:
        raise AssertionError("the clock was read")

    with FakeMessagesAPI([]) as api:
        handle = make_handle(api.client(), tools=TOOLS, clock=clock, config=LoopConfig(timeout=1))
        assert (api.requests, handle.iterations, handle.is_finished, handle.pending) == ([], 0, False, ())


def test_a_provider_of_any_kind_is_taken() -> None:
    """A client, a provider made of one, and anything with `send`."""
    with FakeMessagesAPI([reply("a"), reply("b")]) as api:
        assert make_handle(api.client()).run().unwrap().text == "a"
        assert make_handle(AnthropicProvider(api.client())).run().unwrap().text == "b"
    assert make_handle(ScriptedProvider([reply("c")])).run().unwrap().text == "c"


def test_params_go_out_as_they_were_given() -> None:
    """Every parameter is in the body, in its order, after which come tools and messages; NOT_GIVEN and omit are not."""
    asked = params(
        system="Be brief.", stop_sequences=["x"], metadata={"user_id": "u"}, tool_choice=NOT_GIVEN, top_k=omit
    )
    with open_over_http([reply("fine")], asked=asked, tools=[add]) as at:
        at.expect_done()
        body = at.api.requests[0].json
        assert {name: body[name] for name in body if name not in ("tools", "messages")} == {
            "model": MODEL,
            "max_tokens": 256,
            "system": "Be brief.",
            "stop_sequences": ["x"],
            "metadata": {"user_id": "u"},
        }
        assert [named["name"] for named in body["tools"]] == ["add"]


def test_raw_definitions_follow_the_tools_and_are_external() -> None:
    """`params["tools"]` may hold server tools and raw definitions."""
    with open_over_http([reply("fine")], asked=params(tools=[LOOKUP]), tools=[write, add]) as at:
        at.expect_done()
        assert [named["name"] for named in at.api.requests[0].json["tools"]] == ["write", "add", "lookup"]


def test_betas_and_headers_go_out_as_headers() -> None:
    """With `betas`, what goes out carries the header and not the field."""
    asked = params(betas=["context-management-2025-06-27"], extra_headers={"x-mine": "1"})
    with open_over_http([reply("fine")], asked=asked) as at:
        at.expect_done()
        (request,) = at.api.requests
        assert request.headers["anthropic-beta"] == "context-management-2025-06-27"
        assert request.headers["x-mine"] == "1"
        assert "betas" not in request.json


def test_the_messages_of_the_caller_are_copied() -> None:
    """What the caller does to its own list and parameters afterwards changes nothing."""
    asked = params(metadata={"user_id": "u"})
    with open_over_http([reply("fine")], asked=asked) as at:
        asked["messages"].append(user("later"))
        asked["metadata"]["user_id"] = "other"
        at.expect_done()
        assert (at.list_sent(), at.api.requests[0].json["metadata"]) == ([user()], {"user_id": "u"})


def test_sdk_blocks_and_messages_are_taken_where_messages_are() -> None:
    """A reply of the SDK, and blocks of it, are turned into the JSON that the SDK would send."""
    with FakeMessagesAPI([reply("hi", calls=[("add", {"a": 1, "b": 2})]), reply("fine")]) as api:
        client = api.client()
        tools: Any = ToolRegistry([add]).definitions()
        said = client.messages.create(
            model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "x"}], tools=tools
        )
        call = next(block for block in said.content if block.type == "tool_use")
        answer = user([{"type": "tool_result", "tool_use_id": call.id, "content": "3"}])
        handle = make_handle(client, params=params(messages=[user("x"), said, answer]), tools=[add])
        assert handle.run().unwrap().text == "fine"
        sent = api.requests[1].json["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
        assert sent[1] == assistant([block.to_dict() for block in said.content])
        blocks = make_handle(client, params=params(messages=[user("x"), assistant(said.content), answer]), tools=[add])
        assert blocks.messages[1] == sent[1]


def test_tools_of_the_sdk_and_a_registry_are_taken() -> None:
    """Objects made with `beta_tool`, and one `ToolRegistry`."""

    @beta_tool
    def double(number: int) -> str:
        """Double.

        Args:
            number: what to double.
        """
        return str(number * 2)

    for tools in ([double], ToolRegistry([double])):
        with open_over_http([reply(calls=[("double", {"number": 4})]), reply("fine")], tools=tools) as at:
            turn = at.turn()
            assert [result.content for result in turn.results if result] == ["8"]


def test_ids_are_random_unless_given() -> None:
    """Two loops have two ids."""
    assert make_handle(loop_id="mine").loop_id == "mine"
    assert make_handle().loop_id != make_handle().loop_id


BROKEN: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "params is not a mapping": (lambda: make_handle(params=["x"]), TypeError, "params"),
    "no model": (lambda: make_handle(params={"max_tokens": 9, "messages": [user()]}), ValueError, "'model'"),
    "no max_tokens": (lambda: make_handle(params={"model": MODEL, "messages": [user()]}), ValueError, "'max_tokens'"),
    "stream": (lambda: make_handle(params=params(stream=True)), ValueError, "streaming"),
    "stream is refused even if off": (lambda: make_handle(params=params(stream=False)), ValueError, "streaming"),
    "a parameter that is not JSON": (
        lambda: make_handle(params=params(metadata={"a": {1}})),
        TypeError,
        "params['metadata'].a",
    ),
    "a parameter that is not a number": (lambda: make_handle(params=params(top_p=float("nan"))), TypeError, "top_p"),
    "a parameter with itself in it": (lambda: make_handle(params=params(metadata=cycle())), TypeError, "metadata"),
    "messages is a text": (lambda: make_handle(params=params(messages="hi")), TypeError, "messages"),
    "messages is not a list": (lambda: make_handle(params=params(messages=5)), TypeError, "messages"),
    "a message of a wrong type": (lambda: make_handle(params=params(messages=[5])), InvalidHistory, "messages[0]"),
    "a message that is not JSON": (
        lambda: make_handle(params=params(messages=[user(b"x")])),
        TypeError,
        "messages[0].content",
    ),
    "a message that is not a number": (
        lambda: make_handle(params=params(messages=[user(float("inf"))])),
        TypeError,
        "messages[0]",
    ),
    "a message with itself in it": (
        lambda: make_handle(params=params(messages=[user([cycle()])])),
        TypeError,
        "messages[0]",
    ),
    "ends with the model": (
        lambda: make_handle(params=params(messages=[user(), assistant("x")])),
        InvalidHistory,
        "messages[1]",
    ),
    "an unknown role": (
        lambda: make_handle(params=params(messages=[{"role": "tool", "content": "x"}])),
        InvalidHistory,
        "the role is 'tool' [unknown-role]. Use the role user, assistant or system.",
    ),
    "tools is not a list": (lambda: make_handle(tools=5), TypeError, "tools"),
    "tools is one tool": (lambda: make_handle(tools=add), TypeError, "tools"),
    "something that is not a tool": (lambda: make_handle(tools=[len]), BadTool, "tool"),
    "two tools of one name": (lambda: make_handle(tools=[add, write, add]), BadTool, "'add'"),
    "two raw tools of one name": (lambda: make_handle(params=params(tools=[LOOKUP, LOOKUP])), BadTool, "'lookup'"),
    "a raw tool with a function's name": (
        lambda: make_handle(tools=[add], params=params(tools=[{**LOOKUP, "name": "add"}])),
        BadTool,
        "'add'",
    ),
    "params tools is not a list": (lambda: make_handle(params=params(tools=5)), TypeError, "tools"),
    "a parameter with a slip in its name": (
        lambda: make_handle(params=params(max_token=3)),
        ValueError,
        "params has 'max_token', which is not a parameter of messages.create. Did you mean 'max_tokens'?",
    ),
    "a parameter of no API": (
        lambda: make_handle(params=params(zzz=3)),
        ValueError,
        "newer than this library in extra_body",
    ),
    "the store is a path": (
        lambda: make_handle(store="x.db"),
        TypeError,
        "store is a str; give a store, such as SqliteStore('loops.db') or MemoryStore()",
    ),
    "the store is a class": (lambda: make_handle(store=MemoryStore), TypeError, "store is the class MemoryStore"),
    "the store of open() is a path": (
        lambda: ToolLoopHandle.open("x.db", "a", ScriptedProvider([]), params=params()),  # type: ignore[arg-type]
        TypeError,
        "store is a str",
    ),
    "the store of restore() is a path": (
        lambda: ToolLoopHandle.restore(make_handle().snapshot(), ScriptedProvider([]), store="x.db"),  # type: ignore[arg-type]
        TypeError,
        "store is a str",
    ),
    "config is not a config": (lambda: make_handle(config={"max_iterations": 3}), TypeError, "config"),
    "context is not a context": (lambda: make_handle(context=5), TypeError, "context"),
}


def cycle() -> dict[str, Any]:
    """A value that contains itself."""
    gc.collect()  # what an earlier test left behind shall not end at the bottom of a recursion
    value: dict[str, Any] = {}
    value["again"] = value
    return value


@each(("broken", "kind", "word"), BROKEN.values())
def test_bad_parts_are_refused_at_once(broken: Callable[[], Any], kind: type[Exception], word: str) -> None:
    """Each kind of bad input raises when the handle is made, and says which part it is."""
    with pytest.raises(kind) as caught:
        broken()
    assert type(caught.value) is kind
    assert word in str(caught.value)


# Each takes a provider and tools; nothing else that they are given is right, or there.
SYNC_DOORS: list[Callable[[Any, Any], object]] = [
    lambda provider, tools: ToolLoopHandle(provider, params={}, tools=tools),
    lambda provider, tools: ToolLoopHandle.open(MemoryStore(), "a", provider, tools=tools),
    lambda provider, tools: ToolLoopHandle.restore({}, provider, tools=tools),
    lambda provider, tools: ToolRunner(provider, params={}, tools=tools),
    lambda provider, tools: Worker(MemoryStore(), provider, tools),
]
ASYNC_DOORS: list[Callable[[Any, Any], object]] = [
    lambda provider, tools: AsyncToolLoopHandle(provider, params={}, tools=tools),
    lambda provider, tools: AsyncToolLoopHandle.open(MemoryStore(), "a", provider, tools=tools),
    lambda provider, tools: AsyncToolLoopHandle.restore({}, provider, tools=tools),
    lambda provider, tools: AsyncToolRunner(provider, params={}, tools=tools),
    lambda provider, tools: AsyncWorker(MemoryStore(), provider, tools),
]


@each("door", SYNC_DOORS + ASYNC_DOORS)
def test_a_wrong_provider_or_tool_is_refused_first(door: Callable[[Any, Any], object]) -> None:
    """The message says what was expected, what came, and what to pass."""
    provider = ScriptedProvider([]) if door in SYNC_DOORS else AsyncScriptedProvider([])
    client = "Anthropic" if door in SYNC_DOORS else "AsyncAnthropic"
    expected = (
        rf"^provider: expected a client of the anthropic SDK, such as anthropic\.{client}\(\), or an object with "
        r"`send\(request\)` \(toolloop\.providers\.Provider or AsyncProvider\), got an int$"
    )
    with pytest.raises(TypeError, match=expected):
        door(42, [42])
    with pytest.raises(BadTool, match=r"^int is not a tool\. Pass a function made with @tool$"):
        door(provider, [42])
    with pytest.raises(TypeError, match=r"^tools: expected a list of tools or a ToolRegistry, got an int$"):
        door(provider, 42)


@each("door", SYNC_DOORS + ASYNC_DOORS)
def test_a_provider_of_the_other_kind_is_refused_first(door: Callable[[Any, Any], object]) -> None:
    """The message names the client and the kind of handle that fit."""
    others: list[Any] = [anthropic.AsyncAnthropic(api_key="x"), AsyncScriptedProvider([])]
    kind, fits = "async", "Anthropic"
    if door in ASYNC_DOORS:
        others = [anthropic.Anthropic(api_key="x"), ScriptedProvider([])]
        kind, fits = "sync", "AsyncAnthropic"
    for other, method in zip(others, ("messages.create", "send"), strict=True):
        says = rf"{type(other).__name__}.{method} is {kind}, .* Pass anthropic\.{fits}\(\) .* use the {kind} handle"
        with pytest.raises(TypeError, match=says):
            door(other, ())


def test_an_async_tool_is_refused_under_the_sync_handle() -> None:
    """It names the tool, and the handle that takes it."""

    @tool
    async def later() -> str:
        """Wait."""
        return "done"

    with pytest.raises(BadTool, match=r"'later'.*AsyncToolLoopHandle") as caught:
        make_handle(tools=[later])
    assert caught.value.tool == "later"


@each("name", ["on_tool_call", "stop_when"])
def test_an_async_callable_is_refused_under_the_sync_handle(name: str) -> None:
    """An async policy or stop condition would never be awaited."""

    async def callable_(*_: Any) -> None:
        return None

    config: dict[str, Any] = {name: callable_}
    with pytest.raises(TypeError, match="AsyncToolLoopHandle"):
        make_handle(config=LoopConfig(**config))


def test_an_invalid_history_tells_all_its_problems() -> None:
    """Where, which rule, how to mend it, and the list that was refused."""
    calls = assistant([{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}])
    messages = [user(), calls, user("no result"), user([])]
    with pytest.raises(InvalidHistory) as caught:
        make_handle(params=params(messages=messages), tools=[add])
    problem = caught.value.problems[0]
    assert problem.path.startswith("messages[1]")
    assert (problem.level, bool(problem.rule), bool(problem.message), bool(problem.remedy)) == (
        "error",
        True,
        True,
        True,
    )
    assert caught.value.messages == messages


CONFIGS: list[tuple[str, Any]] = [
    *[(name, value) for name in ("max_iterations", "max_pauses", "max_depth") for value in (-1, 1.5, "3", True)],
    *[("max_calls_per_reply", value) for value in (0, -1, 1.5, "3", True)],
    *[("max_parallel_tools", value) for value in (0, -1, 2.0, "8", False)],
    *[("timeout", value) for value in (-0.1, "1", True, float("nan"), float("inf"))],
    ("budget", 5),
    ("budget", {"requests": 1}),
    ("execution", "serial"),
    ("execution", None),
    ("on_tool_call", "ask"),
    ("stop_when", 5),
    ("observers", 5),
    ("observers", [5]),
    ("texts", {"denied": "no"}),
]


@each(("name", "value"), CONFIGS)
def test_a_bad_value_of_the_configuration_names_its_field(name: str, value: Any) -> None:
    """It raises at once, and says what it got."""
    with pytest.raises(ValueError, match=name):
        LoopConfig(**{name: value})


@each("part", ["requests", "tool_calls", "input_tokens", "output_tokens", "total_tokens"])
def test_a_bad_part_of_the_budget_is_named(part: str) -> None:
    """Each part of a budget is a whole number from zero up."""
    with pytest.raises(ValueError, match=part):
        LoopConfig(budget=Budget(**{part: -1}))


@each("depth", [-1, None, 1.5, "0", True])
def test_a_bad_depth_is_named(depth: Any) -> None:
    """The depth of a context is a whole number from zero up."""
    with pytest.raises(ValueError, match="depth"):
        LoopContext(depth=depth)


@each("text", ["", "  ", "{reason", "{nobody}", "{0}", 5])
def test_a_text_for_the_model_that_cannot_be_said_is_refused(text: Any) -> None:
    """Blank texts and unknown places in braces would fail in the middle of a loop."""
    with pytest.raises(ValueError, match=r"texts\.denied"):
        LoopConfig(texts=Texts(denied=text))


def test_none_is_unlimited_and_the_defaults_are_those_of_the_contract() -> None:
    """Every limit may be None; the defaults are documented."""
    config = LoopConfig()
    assert (config.max_iterations, config.max_pauses, config.timeout, config.max_depth) == (10, 10, None, 3)
    assert config.max_calls_per_reply == 1000
    assert (config.budget, config.max_parallel_tools, config.execution) == (None, 32, "barrier")
    free = LoopConfig(
        max_iterations=None, max_pauses=None, max_calls_per_reply=None, max_depth=None, max_parallel_tools=None
    )
    assert make_handle(config=free, context=LoopContext(depth=99)).depth == 99


def test_any_object_with_a_depth_is_a_context() -> None:
    """Its state, if it has one, is what the tools read; a depth that is not a whole number is refused."""
    assert make_handle(context=SimpleNamespace(depth=2)).depth == 2
    assert make_handle(context=SimpleNamespace(depth=0, state=5)).depth == 0
    for depth in (-1, "2", None, True):
        with pytest.raises(TypeError, match="without a whole number as its depth"):
            make_handle(context=SimpleNamespace(depth=depth))


def test_importing_toolloop_imports_nothing_heavy() -> None:
    """`import toolloop` and a handle over a provider of one's own need neither the SDK nor a database."""
    heavy = "anthropic", "pydantic", "httpx2", "anyio", "cattrs", "sqlite3"
    code = f"import sys, toolloop; print([name for name in {heavy!r} if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def chunks() -> Iterator[dict[str, Any]]:
    yield user("one")
    yield user("two")


def test_any_iterable_of_messages_is_taken() -> None:
    """A tuple or a generator is as good as a list."""
    assert make_handle(params=params(messages=chunks())).messages == (user("one"), user("two"))


@each(("part", "value"), [("loop_id", 5), ("loop_id", b"x"), ("clock", 5), ("clock", "now")])
def test_a_part_of_another_type_is_refused_at_once(part: str, value: Any) -> None:
    """It would fail in the middle of a loop, or be another after a sleep."""
    with pytest.raises(TypeError, match=part):
        make_handle(**{part: value})


def test_an_observer_or_a_predicate_that_would_not_be_awaited_is_refused() -> None:
    """An async observer under any handle, an async `needs_approval` under the sync one."""

    async def later(*_: Any) -> bool:
        return True

    @tool(needs_approval=later)
    def guarded() -> str:
        """Guarded."""
        return "x"

    with pytest.raises(ValueError, match="observers"):
        LoopConfig(observers=[later])
    with pytest.raises(BadTool, match="guarded"):
        make_handle(tools=[guarded])


@each("given", [{}, {"messages": []}])
def test_an_empty_conversation_is_begun_by_a_user(given: dict[str, Any]) -> None:
    """`next_turn()` before that says what to do; then it is a chat, with strings as the user's messages."""
    with FakeMessagesAPI([reply("hello"), reply("bye")]) as api:
        handle = ToolLoopHandle(api.client(), params={"model": MODEL, "max_tokens": 9, **given})
        for _ in range(2):
            with pytest.raises(IllegalCommand, match=r"follow_up\(") as caught:
                handle.next_turn()
        assert caught.value.allowed == ("follow_up()", "messages_mut()")
        assert (handle.messages, handle.is_finished, api.requests) == ((), False, [])
        with pytest.raises(InvalidHistory):
            handle.follow_up([{"role": "assistant", "content": "I begin"}])
        handle = ToolLoopHandle.restore(handle.snapshot(), api.client())
        handle.follow_up("Hi")
        assert handle.run().text == "hello"
        handle.follow_up("Good bye")
        assert handle.run().text == "bye"
        assert [message["content"] for message in api.requests[-1].json["messages"] if message["role"] == "user"] == [
            "Hi",
            "Good bye",
        ]
