"""`@tool`: a function that the model may call."""

from __future__ import annotations

import inspect
import sys
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    overload,
)

from attrs import frozen

from toolloop.core.errors import BadTool
from toolloop.core.jsontext import JSON, decode, encode, plain
from toolloop.core.values import ToolEffect
from toolloop.tools.schema import Arguments
from toolloop.tools.signature import check_name, read_signature

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from toolloop.tools.context import ToolContext

P = ParamSpec("P")
R = TypeVar("R")

# What running a tool a second time does to the world: nothing; nothing if it is given the same idempotency key; harm.


class Intake(Protocol):
    """How a tool is defined to the API, and how a call's input becomes arguments."""

    def definition(self) -> JSON:
        """What goes into `tools`."""
        ...

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments, or `InvalidInput`."""
        ...


@frozen(eq=False, repr=False)
class Tool(Generic[P, R]):
    """A function that the model may call. Made by `tool` or `as_tool`; calling it calls the function.

    Attributes:
        name: the name by which the model calls it.
        description: what the model is told about it.
        function: the function itself.
        needs_approval: whether a call waits for the caller's word: a bool, or a predicate on the call.
        effect: `"pure"` and `"keyed"` may be run again after a crash, `"once"` may not.
        is_async: whether `run` gives an awaitable.

    """

    name: str
    description: str
    function: Callable[P, R]
    needs_approval: bool | Callable[[Any], Any]
    effect: ToolEffect
    is_async: bool
    _intake: Intake
    _contexts: tuple[str, ...] = ()

    def definition(self) -> dict[str, JSON]:
        """The definition that goes into `tools`: a new copy, the same bytes from run to run.

        Raises:
            BadTool: an annotation of the function has no schema.

        """
        definition: dict[str, JSON] = decode(self._definition)
        return definition

    @cached_property
    def _definition(self) -> str:
        # Made at first use: pydantic is slow to import.
        return encode(self._intake.definition())

    @property
    def input_schema(self) -> dict[str, JSON]:
        """The JSON Schema of the input: a copy. Empty for a tool whose schema only the API knows."""
        schema: dict[str, JSON] = self.definition().get("input_schema", {})
        return schema

    def prepare(self, input: Mapping[str, JSON]) -> dict[str, Any]:  # noqa: A002 - the API's own word for it
        """The arguments that a call's input stands for. The function does not run.

        Raises:
            InvalidInput: the input does not fit; `problems` names each field.
            BadTool: an annotation of the function has no schema.

        """
        return self._intake.fit(input)

    def run(self, prepared: Mapping[str, Any], context: ToolContext) -> Any | Awaitable[Any]:
        """Call the function with what `prepare` gave; the context goes to the parameters that ask for it.

        Returns what the function returns: an awaitable, if it is async. Raises what the function raises.
        """
        function: Callable[..., Any] = self.function
        return function(**prepared, **dict.fromkeys(self._contexts, context))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it were no tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


class ToolOptions(TypedDict, total=False):
    """The keyword arguments of `tool`."""

    name: str | None
    description: str | None
    needs_approval: bool | Callable[[Any], Any]
    effect: ToolEffect
    strict: bool | None
    cache_control: Mapping[str, JSON] | None
    defer_loading: bool | None
    allowed_callers: Iterable[str] | None
    input_examples: Iterable[Mapping[str, JSON]] | None
    eager_input_streaming: bool | None


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(  # noqa: PLR0913 - the API's tool fields
    fn: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: bool | Callable[[Any], Any] = False,
    effect: ToolEffect = "once",
    strict: bool | None = None,
    cache_control: Mapping[str, JSON] | None = None,
    defer_loading: bool | None = None,
    allowed_callers: Iterable[str] | None = None,
    input_examples: Iterable[Mapping[str, JSON]] | None = None,
    eager_input_streaming: bool | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of an annotated function. Works as `@tool`, `@tool(...)` and `tool(function, ...)`.

    Args:
        fn: a function, bound method or `functools.partial`, sync or async. A parameter annotated `ToolContext` is
            filled in and hidden from the model, and so is what a partial binds by name.
        name: instead of the function's own name.
        description: instead of the docstring without its `Args:` section.
        needs_approval: whether a call waits for the caller's word, or a predicate on the call.
        effect: whether it may run again: `"pure"` and `"keyed"` (by `ToolContext.idempotency_key`) may, `"once"` not.
        strict: a field of the API's tool definition, sent if given; so are the following.
        cache_control: likewise.
        defer_loading: likewise.
        allowed_callers: likewise.
        input_examples: likewise.
        eager_input_streaming: likewise.

    Raises:
        BadTool: the function cannot be a tool. The message names the parameter.

    """
    frame = sys._getframe(1)  # noqa: SLF001 - annotations that are text may name what is local to the caller
    outer = {} if frame.f_locals is frame.f_globals else frame.f_locals
    fields = {
        "strict": strict,
        "cache_control": cache_control,
        "defer_loading": defer_loading,
        "allowed_callers": None if allowed_callers is None else list(allowed_callers),
        "input_examples": None if input_examples is None else list(input_examples),
        "eager_input_streaming": eager_input_streaming,
    }

    def make(function: Callable[P, R]) -> Tool[P, R]:
        signature = read_signature(function, outer)
        own = check_name(name or signature.name)
        told = signature.description if description is None else description
        if effect not in get_args(ToolEffect):
            raise BadTool(f'effect of {own} is {effect!r}; it is "pure", "keyed" or "once"', tool=own)
        try:
            extra = plain({key: value for key, value in fields.items() if value is not None}, own)
        except TypeError as error:
            raise BadTool(f"{own} cannot be a tool: {error}", tool=own) from error
        arguments = Arguments(own, signature.parameters, signature.texts, signature.names)
        intake = FunctionIntake(own, told, arguments, extra)
        return Tool(own, told, function, needs_approval, effect, is_async(function), intake, signature.contexts)

    return make if fn is None else make(fn)


@frozen
class FunctionIntake:
    """The intake of a function made a tool by `tool`."""

    name: str
    description: str
    arguments: Arguments
    fields: dict[str, JSON]

    def definition(self) -> JSON:
        """What goes into `tools`, keys always in this order."""
        described = {"description": self.description} if self.description else {}
        return {"name": self.name, **described, "input_schema": self.arguments.schema(), **self.fields}

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments, or `InvalidInput`."""
        return self.arguments.fit(given)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives an awaitable, as far as can be known without calling it."""
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async `__call__`
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
