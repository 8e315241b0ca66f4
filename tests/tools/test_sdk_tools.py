"""Tools of the anthropic SDK are taken as they are."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools import BetaAbstractMemoryTool, BetaBuiltinFunctionTool
from pydantic import BaseModel

from toolloop.tools import InvalidInput, ToolContext, ToolRegistry, as_tool, tool

CONTEXT = ToolContext(call_id="c", loop_id="l", iteration=1, depth=0, idempotency_key="k")


class Point(BaseModel):
    x: int


@beta_tool(cache_control={"type": "ephemeral"}, strict=True)
def place(point: Point, count: int = 1) -> str:
    """Place points.

    Args:
        point: where
        count: how many
    """
    return f"{point.x} {count}"


@beta_async_tool
async def wait(seconds: float) -> str:
    """Wait."""
    return str(seconds)


@beta_tool(input_schema={"type": "object", "properties": {"any": {}}})
def loose(**kwargs: Any) -> str:
    """Take anything."""
    return str(kwargs)


@beta_tool
def untyped(a, b=2) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the SDK takes such functions
    """Take two."""
    return f"{a} {b}"


def run(obj: Any, given: dict[str, Any]) -> Any:
    made = as_tool(obj)
    return made.run(made.prepare(given), CONTEXT)


def run_under_the_sdk(made: Any, given: Any) -> Any:
    result = made.call(given)
    return result.send(None) if inspect.iscoroutine(result) else result


def test_its_definition_is_verbatim() -> None:
    made = as_tool(place)
    assert made.definition() == place.to_dict()
    assert list(made.definition()) == list(place.to_dict())
    assert (made.name, made.description, made.input_schema) == ("place", "Place points.", place.input_schema)
    assert (made.needs_approval, made.effect, made.is_async) == (False, "once", False)


def test_it_answers_as_under_the_sdk() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        (place, {"point": {"x": 5}, "count": 3}),
        (loose, {"any": [1], "other": None}),
        (loose, {}),
        (untyped, {"a": [1]}),
    ]
    for made, given in cases:
        assert run(made, given) == run_under_the_sdk(made, given)


def test_an_async_one_gives_an_awaitable() -> None:
    running = run(wait, {"seconds": 1})
    assert inspect.iscoroutine(running)
    with pytest.raises(StopIteration, match=r"1\.0"):
        running.send(None)
    assert as_tool(wait).is_async


def test_invalid_input_is_reported_field_by_field_and_the_function_does_not_run() -> None:
    cases: list[tuple[Any, Any, str]] = [
        (place, {"point": {"x": "q"}}, 'point.x: Input should be a valid integer, got "q"'),
        (place, {}, "point: Missing required keyword only argument"),
        (place, {"point": {"x": 1}, "z": 1}, "z: Unexpected keyword argument, got 1"),
        (wait, {"seconds": None}, "seconds: Input should be a valid number, got null"),
        (untyped, {}, "a: Missing required keyword only argument"),
        (place, [], "input: expected an object, got []"),
    ]
    for made, given, problem in cases:
        with pytest.raises(InvalidInput) as caught:
            as_tool(made).prepare(given)
        assert caught.value.problems == (problem,)
        with pytest.raises((ValueError, TypeError)):
            run_under_the_sdk(made, given)


class Memory(BetaAbstractMemoryTool):
    def view(self, command: Any) -> str:
        return f"seen {command.path}"

    create = str_replace = insert = delete = rename = view


def test_a_built_in_tool_is_defined_by_the_api_and_run_here() -> None:
    memory = Memory()
    made = as_tool(memory)
    assert isinstance(memory, BetaBuiltinFunctionTool)
    assert made.definition() == {"type": "memory_20250818", "name": "memory"}
    assert (made.name, made.input_schema, made.is_async) == ("memory", {}, False)
    assert run(memory, {"command": "view", "path": "/memories"}) == "seen /memories"
    with pytest.raises(InvalidInput, match=r"expected an object, got \[\]"):
        made.prepare([])  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "fits"), [("5", False), (5, True), (5.0, True), (True, False), (None, False)])
def test_both_kinds_in_one_registry_judge_an_input_alike(given: Any, fits: bool) -> None:
    """Strictly: the SDK itself would take `"5"` for an integer."""

    def count(number: int) -> str:
        """Count."""
        return str(number)

    registry = ToolRegistry([tool(count, name="ours"), beta_tool(name="theirs")(count)])
    for made in registry:
        if fits:
            assert made.prepare({"number": given}) == {"number": 5}
        else:
            with pytest.raises(InvalidInput, match="number: Input should be a valid integer"):
                made.prepare({"number": given})
