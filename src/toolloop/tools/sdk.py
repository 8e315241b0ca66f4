"""Tools made with `anthropic.beta_tool` and its kin, taken as they are."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Callable, Mapping
from typing import Any, Self

from toolloop.core.errors import BadTool
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, plain
from toolloop.tools.failures import InvalidInput
from toolloop.tools.function import Tool, is_async
from toolloop.tools.schema.arguments import Arguments
from toolloop.tools.schema.signature import check_name

LOG = logging.getLogger("toolloop.tools")


def as_tool(obj: object) -> Tool[..., Any]:
    """A `Tool` as it is; a tool of the anthropic SDK, wrapped: no approval needed, effect `"once"`.

    An SDK tool is known by its public face (`name`, `to_dict()`, `call(input)`), so that nothing is imported. One made
    of a function is validated once, by `prepare`, and runs its function directly: `call` would validate again, and
    would report a validation error of the function's own as invalid input (anthropic-sdk 2.11).

    Raises:
        BadTool: it is neither.

    """
    if isinstance(obj, Tool):
        return obj
    call, to_dict = getattr(obj, "call", None), getattr(obj, "to_dict", None)
    if isinstance(obj, type) or not (callable(call) and callable(to_dict)):
        raise _refusal(obj)
    definition = plain(to_dict())
    name = check_name(getattr(obj, "name", None))
    function = getattr(obj, "func", None)
    if function is None:
        intake = SdkIntake(name, definition, None)
        function = call
    else:
        intake = SdkIntake(name, definition, _arguments(name, function))
    description = definition.get("description", "")
    closing = SdkClosing(obj) if any(hasattr(obj, face) for face in _CLOSING_FACES) else None
    return Tool(name, description, function, False, "once", is_async(function), intake, opens=closing)


# How a tool of the SDK is closed. A tool made of a context manager keeps that under the last name, entered already when
# it was decorated, or when it first ran (anthropic-sdk 2.12).
_CLOSING_FACES = ("aclose", "close", "_context_manager")


@frozen(eq=False)
class SdkClosing:
    """A tool of the SDK as a context manager: it is open already, and closed with the loop."""

    _tool: Any

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            close = getattr(self._tool, "close", None)
            if callable(close) and inspect.iscoroutine(closing := close()):
                closing.close()
                LOG.warning("the tool %s has an async close(), which needs AsyncToolLoopHandle", self._tool)
        finally:
            if (inner := getattr(self._tool, "_context_manager", None)) is not None:
                inner.__exit__(None, None, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            close = getattr(self._tool, "aclose", None) or getattr(self._tool, "close", None)
            if close is not None and inspect.isawaitable(closed := close()):
                await closed
        finally:
            inner = getattr(self._tool, "_context_manager", None)
            if inner is not None and hasattr(inner, "__aexit__"):
                await inner.__aexit__(None, None, None)
            elif inner is not None:
                inner.__exit__(None, None, None)


@frozen
class SdkIntake:
    """The intake of an SDK tool: its definition verbatim, its input judged as the SDK judges it.

    Attributes:
        name: the tool's name.
        fields: its `to_dict()`.
        arguments: the parameters of its function; None for a tool whose schema only the API knows.

    """

    name: str
    fields: dict[str, JSON]
    arguments: Arguments | None

    def definition(self) -> JSON:
        """What goes into `tools`."""
        return self.fields

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments, or `InvalidInput`."""
        if self.arguments is not None:
            return self.arguments.fit(given)
        if not isinstance(given, Mapping):
            raise InvalidInput(self.name, [f"input: expected an object, got {type(given).__name__}"])
        return {"input": dict(given)}


def _arguments(name: str, function: Callable[..., Any]) -> Arguments:
    """The parameters as the SDK takes them: `**kwargs` and parameters without annotation included."""
    signature = inspect.signature(function)
    untyped = inspect.Parameter.empty
    parameters = [
        parameter.replace(annotation=Any if parameter.annotation is untyped else parameter.annotation)
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    known = typing.cast("dict[str, Any]", getattr(inspect.unwrap(function), "__globals__", {}))
    return Arguments(name, parameters, {}, (known, {}))


def _refusal(obj: object) -> BadTool:
    if isinstance(obj, Mapping):
        name = str(obj.get("name", "?"))
        return BadTool(f"the definition of {name} is not a tool that can run: put it into params['tools']", tool=name)
    name = getattr(obj, "__name__", type(obj).__name__)
    remedy = f"decorate it with @tool, or give tool({name})" if callable(obj) else "give a function made with @tool"
    return BadTool(f"{name} is not a tool: {remedy}", tool=name)
