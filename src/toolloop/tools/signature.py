"""Read the declaration of a function: name, parameters, annotations, docstring, async. Does not import pydantic."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from typing import Annotated, Any

from attrs import frozen

from toolloop.errors import BadTool
from toolloop.tools.annotations import is_alias, read_annotated_text, read_own_doc, resolve
from toolloop.tools.context import ToolContext

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolloop.machine.values.jsontext import JSON

# The names that the API accepts for a tool (source: messages-api, `tools`), and for a property at the top of an input
# schema (source: refusals of the live API as reported to claude-code #79418 and n8n #30590).
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")

_REFUSED: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values, but a tool's input is an object with named fields",
    inspect.Parameter.VAR_KEYWORD: "takes any name, but the fields of a tool's input are fixed",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but a tool's input is passed by name",
}


@frozen
class Signature:
    """The parts of a function that a tool is made from.

    Attributes:
        name: the function's own name.
        doc: its docstring.
        parameters: the parameters that the model fills in; annotations may still hold names to resolve.
        texts: the descriptions that annotations give, by parameter.
        contexts: the parameters that take the `ToolContext`.
        hidden: the names of all parameters that the model does not fill in: those, and those that a partial binds.
        names: the globals and locals that annotations may refer to.

    """

    name: str
    doc: str | None
    parameters: tuple[inspect.Parameter, ...]
    texts: Mapping[str, str]
    contexts: tuple[str, ...]
    hidden: frozenset[str]
    names: tuple[dict[str, Any], Mapping[str, Any]]


def check_name(name: object) -> str:
    """Return a tool name, or raise `BadTool` if the API does not accept it."""
    if isinstance(name, str) and _TOOL_NAME.fullmatch(name):
        return name
    raise BadTool(
        f"{name!r} is not a valid tool name: the API accepts 1 to 64 letters, digits, underscores and hyphens. "
        "Choose another name with @tool(name=...)",
        tool=str(name),
    )


def check_properties(schema: Mapping[str, JSON], tool: str) -> None:
    """Raise `BadTool` if the API does not accept the name of a property in an input schema."""
    for name in schema.get("properties", {}):
        if not _PROPERTY_NAME.fullmatch(name):
            raise BadTool(
                f"{tool} cannot be a tool: {name!r} is not a valid parameter name: the API accepts 1 to 64 ASCII "
                "letters, digits, underscores, dots and hyphens. Rename the parameter, or give it an alias",
                tool=tool,
            )


def read_signature(fn: Callable[..., Any], outer: Mapping[str, Any]) -> Signature:
    """Read a function, bound method, `functools.partial` or callable object.

    Args:
        fn: the function. The model does not see arguments that a partial binds.
        outer: the local names where the tool is made, for annotations that are strings.

    Raises:
        BadTool: it cannot be a tool; the message names the parameter.

    """
    inner: Any = fn
    bound: set[str] = set()
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = inner.func
    name = getattr(inner, "__name__", type(inner).__name__)
    called = _find_called(inner)
    known = getattr(inspect.unwrap(called), "__globals__", {})
    # Linters move imports that only annotations need under TYPE_CHECKING, so `ToolContext` is always defined here.
    local = {**({} if "ToolContext" in known else {"ToolContext": ToolContext}), **outer}
    texts: dict[str, str] = {}
    parameters: list[inspect.Parameter] = []
    contexts: list[str] = []
    for parameter in _list_parameters(fn, called, name):
        if parameter.name in bound:
            continue
        _check(parameter, name)
        annotation = parameter.annotation
        try:
            annotation = resolve(annotation, known, local)
        except NameError:  # a class defined later in the module; resolved when the schema is first used
            annotation = _drop_state(annotation, known, local)
        except Exception as error:
            raise BadTool(
                f"parameter {parameter.name!r} of {name} has an annotation that is not a type: {error}", tool=name
            ) from error
        if _is_context(annotation):
            contexts.append(parameter.name)
            continue
        parameters.append(parameter.replace(annotation=annotation))
        if text := read_annotated_text(annotation):
            texts[parameter.name] = text
    # Only classes and aliases are kept, because annotations in a class refer to nothing else.
    classes = {key: value for key, value in local.items() if isinstance(value, type) or is_alias(value)}
    hidden = frozenset(each.name for each in _list_parameters(inner, called, name)) - {each.name for each in parameters}
    return Signature(
        name, _read_doc(inner, called), tuple(parameters), texts, tuple(contexts), hidden, (known, classes)
    )


def _is_context(annotation: Any) -> bool:
    """Return whether it is a `ToolContext`, or a `ToolContext | None`, in any notation."""
    origin = typing.get_origin(annotation)
    if origin in {typing.Union, types.UnionType}:
        return any(map(_is_context, typing.get_args(annotation)))
    if origin in {Annotated, typing.Final}:
        return _is_context(typing.get_args(annotation)[0])
    if is_alias(annotation):
        return _is_context(annotation.__value__)
    if isinstance(annotation, typing.NewType):
        return _is_context(annotation.__supertype__)
    return annotation is ToolContext or origin is ToolContext


def _drop_state(annotation: Any, known: dict[str, Any], local: Mapping[str, Any]) -> Any:
    """Return `ToolContext` for a `ToolContext[State]` whose `State` is not defined at run time, or not yet."""
    head, bracket, _ = annotation.partition("[") if isinstance(annotation, str) else ("", "", "")
    try:
        return ToolContext if bracket and resolve(head, known, local) is ToolContext else annotation
    except Exception:  # noqa: BLE001 - the part before the bracket may be any code, and is resolved again later
        return annotation


def _find_called(inner: Any) -> Any:
    """Return the function with the parameters: `__init__` for a class, `__call__` for a callable object."""
    if hasattr(inner, "__code__") or hasattr(inner, "__wrapped__") or inspect.ismethod(inner):
        return inner
    return getattr(inner, "__init__" if isinstance(inner, type) else "__call__", inner)


def _read_doc(inner: Any, called: Any) -> str | None:
    if isinstance(inner, type):
        return read_own_doc(inner)
    own: str | None = getattr(inner, "__doc__", None)
    return own if called is inner else getattr(called, "__doc__", None) or own


def _list_parameters(fn: Callable[..., Any], called: Any, name: str) -> list[inspect.Parameter]:
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise BadTool(f"{name} is a generator, but a tool has one result. Return it instead of yielding", tool=name)
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise BadTool(f"{fn!r} cannot be a tool: its signature cannot be read ({error})", tool=name) from error


def _check(parameter: inspect.Parameter, name: str) -> None:
    why = _REFUSED.get(parameter.kind)
    if why is None and parameter.annotation is inspect.Parameter.empty:
        why = "has no annotation, which the schema needs"
        if parameter.name in {"self", "cls"}:
            why += ". Make a tool from the bound method: tool(object.method)"
    if why is not None:
        raise BadTool(f"{name} cannot be a tool: its parameter {parameter.name!r} {why}", tool=name)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call returns an awaitable, as far as the declaration shows."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    call = getattr(inner, "__call__", None)  # noqa: B004 - an object may have an async `__call__`
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call)


def refuse_awaitable(value: Any, what: str) -> Any:
    """Return the return value of a plain function if it is not an awaitable.

    Args:
        value: the return value.
        what: the function's name for the error.

    Raises:
        TypeError: the value is an awaitable. Only functions declared async are awaited.

    """
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(
        f"{what} returned an awaitable, but is not declared with `async def`. Declare it with `async "
        "def` and use AsyncToolLoopHandle, or return a plain value"
    )
