"""Accept tools made with `anthropic.beta_tool`, without importing the SDK."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from attrs import frozen

from toolloop._public import set_module
from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, plain
from toolloop.tools.arguments import Arguments
from toolloop.tools.function import Tool, is_async
from toolloop.tools.signature import check_name
from toolloop.tools.tool_errors import InvalidInput, shown


@set_module("toolloop.types")
class SdkTool(Protocol):
    """A tool of the anthropic SDK, sync or async: made with `beta_tool`, or an instance of a built-in tool."""

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        ...

    def to_dict(self) -> Mapping[str, object]:
        """Return the definition for `tools`."""
        ...

    def call(self, arguments: object, /) -> object:
        """Run the tool. `arguments`: the input of the call."""
        ...


def as_tool(obj: Tool[..., Any] | SdkTool) -> Tool[..., Any]:
    """Return a `Tool` unchanged, and wrap a tool of the anthropic SDK: no approval needed, effect `"once"`.

    An SDK tool is recognized by its public members (`name`, `to_dict()`, `call(input)`). If it was made from a
    function, input is validated as for `@tool`, and the function is called directly. `call` would validate again,
    less strictly, and would report a validation error inside the function as invalid input (anthropic-sdk 2.11).

    Raises:
        BadTool: the object is neither.

    """
    if isinstance(obj, Tool):
        return obj
    call, to_dict = getattr(obj, "call", None), getattr(obj, "to_dict", None)
    if isinstance(obj, type) or not (callable(call) and callable(to_dict)):
        raise _refusal(obj)
    definition = plain(to_dict())
    name = check_name(getattr(obj, "name", None))
    function = getattr(obj, "func", None)
    intake = SdkIntake(name, definition, None if function is None else _arguments(name, function))
    function = function or call
    return Tool(
        name=name,
        description=definition.get("description", ""),
        function=function,
        needs_approval=False,
        effect="once",
        is_async=is_async(function),
        intake=intake,
    )


@frozen
class SdkIntake:
    """The intake of an SDK tool. Its definition is sent unchanged.

    Attributes:
        name: the tool's name.
        fields: its `to_dict()`.
        arguments: the parameters of its function; None for a tool whose schema only the API knows.

    """

    name: str
    fields: dict[str, JSON]
    arguments: Arguments | None

    def definition(self) -> JSON:
        """Return the definition for `tools`."""
        return self.fields

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments, or raise `InvalidInput`."""
        if self.arguments is not None:
            return self.arguments.fit(given)
        if not isinstance(given, Mapping):
            raise InvalidInput(self.name, [f"input: expected an object, got {shown(given)}"])
        return {"input": dict(given)}


def _arguments(name: str, function: Callable[..., Any]) -> Arguments:
    """Return the parameters as the SDK reads them: `**kwargs` and missing annotations are allowed."""
    untyped = inspect.Parameter.empty
    parameters = [
        parameter.replace(annotation=Any if parameter.annotation is untyped else parameter.annotation)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    known = cast("dict[str, Any]", getattr(inspect.unwrap(function), "__globals__", {}))
    return Arguments(name, parameters, {}, (known, {}))


def _refusal(obj: object) -> BadTool:
    if isinstance(obj, Mapping):
        name = str(obj.get("name", "?"))
        return BadTool(f"{name} is a definition without a function. Pass it in params['tools'] instead", tool=name)
    name = getattr(obj, "__name__", type(obj).__name__)
    remedy = f"Decorate it with @tool, or pass tool({name})" if callable(obj) else "Pass a function made with @tool"
    return BadTool(f"{name} is not a tool. {remedy}", tool=name)
