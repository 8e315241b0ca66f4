"""`sub_loop`: what it is as a tool, and what a child loop begins with. Nothing is driven here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit import inside
from tests.kit.concurrency import async_loop, sync_loop
from tests.kit.each import each
from tests.kit.tools import MODEL, add, assistant, user, write
from toolloop import Approve, LoopConfig, Texts, Tool, ToolContext, ToolLoopHandle, ToolRegistry, sub_loop, tool
from toolloop._engine.sub_loops import SubLoop
from toolloop.errors import BadTool, Drift, InvalidHistory
from toolloop.machine.record.journal_events import Opened
from toolloop.machine.record.loop import Ready
from toolloop.machine.tree import begin
from toolloop.machine.values.calls import Call
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Setup
from toolloop.testing import ScriptedProvider, reply
from toolloop.tools import InvalidInput, as_tool

PARAMS = {"model": MODEL, "max_tokens": 64}
TOPIC = {"type": "object", "properties": {"topic": {"type": "string"}}, "required": ["topic"]}
PARENT = Setup(loop_id="loop", params=encode(PARAMS))


def make_sub_loop(**parts: Any) -> SubLoop:
    return sub_loop("ask", "Ask another.", **{"params": PARAMS, **parts})


def open_child(child: SubLoop, given: Any = None, parent: Setup = PARENT) -> Opened:
    call = Call("toolu_1", "ask", encode({"prompt": "Do it."} if given is None else given))
    return child.begun(parent, 2, call, at=5.0)[0]


def first_messages(event: Opened) -> list[Any]:
    return [decode(text) for text in event.messages]


# --- the tool --------------------------------------------------------------------------------------------------------


def test_it_is_a_tool_that_takes_a_prompt() -> None:
    """Its definition has one required string, and registries take it as it is."""
    child = make_sub_loop(needs_approval=True)
    assert child.definition() == {
        "name": "ask",
        "description": "Ask another.",
        "input_schema": {
            "additionalProperties": False,
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "description": "The task, with everything that is needed for it."}
            },
            "required": ["prompt"],
        },
    }
    assert (child.needs_approval, child.is_async, repr(child)) == (True, False, "<SubLoop ask>")
    assert isinstance(child, Tool)
    assert as_tool(child) is child
    assert ToolRegistry([add, child]).get("ask") is child


def test_it_may_have_a_schema_of_its_own() -> None:
    """The schema goes out as it is, and judges the input."""
    child = make_sub_loop(input_schema=TOPIC)
    assert child.input_schema == TOPIC
    assert child.prepare({"topic": "bees"}) == {"topic": "bees"}
    with pytest.raises(InvalidInput) as caught:
        child.prepare({"topic": 3})
    assert caught.value.problems == ("topic: 3 is not of type 'string'",)


@each(
    ("given", "problem"),
    [
        ({}, "prompt: Missing required keyword only argument"),
        ({"prompt": 3}, "prompt: Input should be a valid string, got 3"),
        ({"prompt": " \n"}, 'prompt: expected a text that is not blank, got " \\n"'),
        ({"prompt": "x", "tone": "calm"}, 'tone: Unexpected keyword argument, got "calm"'),
    ],
)
def test_a_prompt_that_does_not_fit_is_reported_field_by_field(given: Any, problem: str) -> None:
    """As for any tool; a blank prompt is one that the API would refuse in the child."""
    with pytest.raises(InvalidInput) as caught:
        make_sub_loop().prepare(given)
    assert caught.value.problems == (problem,)


def test_only_a_loop_can_run_it() -> None:
    """Calling it says what to do instead."""
    child = make_sub_loop()
    context = ToolContext(call_id="c", loop_id="l", iteration=1, depth=1, idempotency_key="k")
    attempts: list[Callable[[], object]] = [lambda: child("x"), lambda: child.run({"prompt": "x"}, context)]
    for attempt in attempts:
        with pytest.raises(TypeError, match=r"the sub_loop 'ask' cannot be called.*which drives it"):
            attempt()


async def _give_later(_: Any) -> dict[str, Any]:
    return PARAMS


@each(
    ("parts", "kind", "words"),
    [
        ({"name": "a b"}, BadTool, "'a b' is not a valid tool name"),
        ({"description": None}, BadTool, "description of ask is None"),
        ({"needs_approval": "yes"}, BadTool, "needs_approval of ask is 'yes'"),
        ({"config": {}}, TypeError, "config of the sub_loop 'ask' is a dict"),
        ({"tools": add}, TypeError, "tools: expected a list of tools"),
        ({"tools": [3]}, BadTool, "int is not a tool"),
        ({"tools": [add, add]}, BadTool, "two tools are named 'add'"),
        ({"input_schema": {"type": "string"}}, BadTool, "JSON Schema of an object"),
        ({"params": 3}, TypeError, "sub_loop('ask'): params: expected"),
        ({"params": {"model": MODEL}}, ValueError, "no 'max_tokens'"),
        ({"params": {"max_tokens": 3}}, ValueError, "no 'model'"),
        ({"params": {**PARAMS, "stream": True}}, ValueError, "'stream'"),
        ({"params": {**PARAMS, "system": object()}}, TypeError, "params['system']"),
        ({"params": {**PARAMS, "system": " "}}, ValueError, "params['system']"),
        ({"params": {**PARAMS, "tools": [add.definition()]}, "tools": [add]}, BadTool, "two tools are named 'add'"),
        ({"params": {**PARAMS, "messages": "hello"}}, TypeError, "messages: expected a list of messages, got a str"),
        ({"params": {**PARAMS, "messages": [user(" ")]}}, InvalidHistory, "sub_loop('ask')"),
        ({"params": _give_later}, TypeError, "the params function is async"),
    ],
)
def test_bad_values_raise_at_once(parts: dict[str, Any], kind: type[Exception], words: str) -> None:
    """Each says what is wrong."""
    given: dict[str, Any] = {"name": "ask", "description": "Ask.", "params": PARAMS, **parts}
    with pytest.raises(kind) as caught:
        sub_loop(given.pop("name"), given.pop("description"), **given)
    assert words in str(caught.value)


def test_without_jsonschema_a_schema_is_refused_and_a_prompt_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(ImportError, match=r"input_schema of 'ask'.*pip install 'toolloop\[schema\]'") as caught:
        make_sub_loop(input_schema=TOPIC)
    assert caught.value.name == "jsonschema"
    assert make_sub_loop().prepare({"prompt": "x"}) == {"prompt": "x"}


# --- what a child begins with ----------------------------------------------------------------------------------------


def test_a_child_begins_inside_the_call() -> None:
    """It has the id of the outermost loop, the call as its place, its own parameters, tools and configuration."""
    config = LoopConfig(max_iterations=4, max_depth=None, texts=Texts(expired="Too late."), stop_when=lambda _: False)
    event = open_child(make_sub_loop(params={**PARAMS, "system": "Be brief."}, tools=[add, write], config=config))
    setup = event.setup
    assert (event.at, event.seconds, event.path) == (5.0, 0.0, ("toolu_1",))
    assert (setup.loop_id, setup.depth, setup.within, setup.path) == ("loop", 1, ((2, "toolu_1", 1),), ("toolu_1",))
    assert decode(setup.params) == {**PARAMS, "system": "Be brief."}
    assert setup.tools == (add.facts(), write.facts())
    assert (setup.limits.max_iterations, setup.texts.expired, setup.callables) == (
        4,
        "Too late.",
        frozenset({"stop_when"}),
    )
    assert first_messages(event) == [user("Do it.")]
    assert isinstance(begin(event).root.phase, Ready)


@each(
    ("given", "task"),
    [
        ({"prompt": "Find it.", "topic": "bees"}, "Find it."),
        ({"topic": "bees", "deep": True}, '{"topic":"bees","deep":true}'),
        ({"prompt": {"text": "x"}, "topic": "y"}, '{"prompt":{"text":"x"},"topic":"y"}'),
        ({"prompt": " ", "topic": "y"}, '{"prompt":" ","topic":"y"}'),
    ],
)
def test_the_task_is_the_prompt_or_else_the_input(given: Any, task: str) -> None:
    """An input without a text called `prompt` is passed on as JSON."""
    assert first_messages(open_child(make_sub_loop(input_schema={"type": "object"}), given)) == [user(task)]


def test_the_messages_of_a_mapping_come_before_the_task() -> None:
    """They are examples, or a context that every child has."""
    before = [user("Who are you?"), assistant("A clerk.")]
    assert first_messages(open_child(make_sub_loop(params={**PARAMS, "messages": before}))) == [*before, user("Do it.")]


def test_a_function_makes_the_parameters_of_each_child() -> None:
    """It is given the effective input; without messages of its own the task is the only one."""
    seen: list[Any] = []

    def params(given: dict[str, Any]) -> dict[str, Any]:
        seen.append(given)
        return {**PARAMS, "system": f"You know all about {given['topic']}."}

    event = open_child(make_sub_loop(params=params, input_schema=TOPIC), {"topic": "bees"})
    assert seen == [{"topic": "bees"}]
    assert decode(event.setup.params)["system"] == "You know all about bees."
    assert first_messages(event) == [user('{"topic":"bees"}')]


def test_the_messages_of_a_function_are_all_there_is() -> None:
    """Nothing is added to them."""
    messages = [user("a"), assistant("b"), user("c")]
    child = make_sub_loop(params=lambda _: {**PARAMS, "messages": messages})
    assert first_messages(open_child(child)) == messages


@each(
    ("params", "kind", "words"),
    [
        (lambda _: 1 / 0, ZeroDivisionError, "division"),
        (lambda _: None, TypeError, "sub_loop('ask'): params: expected the keyword arguments"),
        (lambda _: {"model": MODEL}, ValueError, "no 'max_tokens'"),
        (lambda _: {**PARAMS, "stream": True}, ValueError, "sub_loop('ask'): params has 'stream'"),
        (lambda _: {**PARAMS, "messages": []}, InvalidHistory, "sub_loop('ask')"),
        (lambda _: {**PARAMS, "messages": [assistant("x")]}, InvalidHistory, "sub_loop('ask')"),
        (lambda _: _give_later(_), TypeError, "the params function returned an awaitable"),  # noqa: PLW0108 - it hides that it is async
    ],
)
def test_what_a_function_returns_is_checked_when_it_is_called(
    params: Callable[[Any], Any], kind: type[Exception], words: str
) -> None:
    """Making the tool does not call it."""
    child = make_sub_loop(params=params)
    with pytest.raises(kind) as caught:
        open_child(child)
    assert words in str(caught.value)


def test_secrets_are_in_no_event_and_come_back_by_the_same_parameters() -> None:
    """Headers, timeouts and tokens of MCP servers stay with the process; each child has a copy of its own."""
    server = {"type": "url", "name": "mail", "url": "https://mail.test", "authorization_token": "s3cret"}
    given = {**PARAMS, "extra_headers": {"x-key": "s3cret"}, "timeout": 3.0, "mcp_servers": [server]}
    for params in (given, lambda _: given):
        child = make_sub_loop(params=params)
        assert "s3cret" not in repr(open_child(child))
        secrets = child.secrets({"prompt": "x"})
        assert secrets.options == {"extra_headers": {"x-key": "s3cret"}, "timeout": 3.0}
        assert secrets.mcp_tokens == {("mail", "https://mail.test"): "s3cret"}
        secrets.options.clear()
        secrets.mcp_tokens.clear()
        assert child.secrets({"prompt": "x"}).options["timeout"] == 3.0
        assert child.secrets({"prompt": "x"}).mcp_tokens != {}
        assert "s3cret" not in repr(child)


def test_a_later_change_of_the_mapping_changes_nothing() -> None:
    """The parameters were read when the tool was made."""
    given: dict[str, Any] = {**PARAMS, "messages": [user("a")]}
    child = make_sub_loop(params=given)
    given["model"] = "other"
    given["messages"].append(assistant("b"))
    event = open_child(child)
    assert decode(event.setup.params)["model"] == MODEL
    assert first_messages(event) == [user("a"), user("Do it.")]


# --- what is compared when a loop wakes up ---------------------------------------------------------------------------


@tool(name="add")
def other_add(a: int, b: int, c: int) -> str:
    """Add."""
    return str(a + b + c)


def policy(*_: Any) -> Approve:
    return Approve()


INNER = sub_loop("inner", "", params=PARAMS, tools=[add])
OTHERS: dict[str, dict[str, Any]] = {
    "a tool": {"tools": [other_add, INNER]},
    "a tool less": {"tools": [add]},
    "a tool of a child": {"tools": [add, sub_loop("inner", "", params=PARAMS, tools=[other_add])]},
    "a callable": {"config": LoopConfig(on_tool_call=policy)},
    "a parameter": {"params": {**PARAMS, "system": "Be brief."}},
    "a schema": {"input_schema": TOPIC},
    "a function": {"params": lambda _: PARAMS},
}


@each("parts", OTHERS.values())
def test_another_child_is_another_tool(parts: dict[str, Any]) -> None:
    """Tools at any depth, callables and stored parameters are what a loop is compared by when it wakes up."""
    assert make_sub_loop(tools=[add, INNER]).facts() != make_sub_loop(**{"tools": [add, INNER], **parts}).facts()


def test_what_may_differ_from_process_to_process_is_the_same_tool() -> None:
    """Secrets, limits and the order of tools are not drift."""
    one = make_sub_loop(tools=[add, write])
    two = make_sub_loop(
        params={**PARAMS, "extra_headers": {"x-key": "s3cret"}},
        tools=[write, add],
        config=LoopConfig(max_iterations=99),
    )
    assert one.facts() == two.facts()


def make_within(*tools: Any, **config: Any) -> SubLoop:
    """A loop inside a loop inside a call."""
    params = {"model": MODEL, "max_tokens": 64}
    inner = sub_loop("inner", "Ask the inner.", params=params, tools=tools, config=LoopConfig(**config))
    return sub_loop("outer", "Ask the outer.", params=params, tools=[inner])


@tool
async def fetch(page: str) -> str:
    """Fetch a page."""
    return page


async def judge(*_: Any) -> bool:
    return True


async def async_policy(*_: Any) -> Approve:
    return Approve()


ASYNC: dict[str, tuple[SubLoop, str]] = {
    "a tool": (make_within(add, fetch), "the tool 'fetch' is async"),
    "a predicate": (make_within(tool(add.function, needs_approval=judge)), "needs_approval of the tool 'add' is async"),
    "a policy": (make_within(on_tool_call=async_policy), "a callable in the config of the sub_loop 'inner' is async"),
    "a predicate of its own": (
        sub_loop("ask", "", params={"model": MODEL, "max_tokens": 64}, needs_approval=judge),
        "needs_approval of the tool 'ask' is async",
    ),
}


@each(("outer", "words"), ASYNC.values())
def test_what_is_async_needs_the_async_handle_at_any_depth(outer: SubLoop, words: str) -> None:
    """The sync handle refuses it at once, by name; the async one takes it."""
    with pytest.raises(BadTool) as caught:
        sync_loop([], [outer])
    assert words in str(caught.value)
    assert "AsyncToolLoopHandle" in str(caught.value)
    assert outer.name in inside.tools_of(async_loop([], [outer]))


def test_another_tool_deep_inside_is_drift() -> None:
    """A loop that wakes up is compared with all that its calls may begin."""
    asleep = sync_loop([], [make_within(write, on_tool_call=policy)]).snapshot()
    provider = ScriptedProvider([reply("done")])
    unguarded = make_within(tool(write.function), on_tool_call=policy)
    for now, change in (
        (unguarded, "the approval of tool 'outer/inner/write' changed from always to never"),
        (make_within(write), "config.on_tool_call of tool 'outer/inner' is missing"),
    ):
        with pytest.raises(Drift) as caught:
            ToolLoopHandle.restore(asleep, provider, tools=[now]).run()
        assert caught.value.changes == (change,)
    other = make_within(write, add, on_tool_call=policy)
    assert ToolLoopHandle.restore(asleep, provider, tools=[other]).run().unwrap().text == "done"
