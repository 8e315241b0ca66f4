"""What a function asks for: its parameters, their annotations and texts. Cheap, and without pydantic."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from typing import Annotated, Any

from toolloop.core.errors import BadTool
from toolloop.core.freezing import frozen
from toolloop.tools.context import ToolContext
from toolloop.tools.schema.docstring import own_doc

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What the API takes as a tool's name (source: messages-api, `tools`).
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

_REFUSED: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values; a tool's input is an object with named fields",
    inspect.Parameter.VAR_KEYWORD: "takes any name; a tool's input has named fields",
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; a tool's input is given by name",
}


@frozen
class Signature:
    """A function as a tool sees it.

    Attributes:
        name: the function's own name.
        doc: its docstring.
        parameters: those the model fills in, by name; annotations may still hold names to resolve.
        texts: the description of each parameter whose annotation has one.
        contexts: the parameters that take the `ToolContext`.
        names: what annotations may refer to: the globals and locals at the decoration.

    """

    name: str
    doc: str | None
    parameters: tuple[inspect.Parameter, ...]
    texts: Mapping[str, str]
    contexts: tuple[str, ...]
    names: tuple[dict[str, Any], Mapping[str, Any]]


def check_name(name: object) -> str:
    """A name that the API takes, or `BadTool`."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise BadTool(
        f"{name!r} cannot be the name of a tool: the API takes 1 to 64 letters, digits, underscores and hyphens. "
        "Give another one with @tool(name=...)",
        tool=str(name),
    )


def read_signature(fn: Callable[..., Any], outer: Mapping[str, Any]) -> Signature:
    """Read a function, bound method, `functools.partial` or callable object.

    Args:
        fn: the function. What a partial binds is hidden from the model.
        outer: the local names where it is made a tool, for annotations that are text.

    Raises:
        BadTool: it cannot be a tool; the message names the parameter.

    """
    inner, bound = _inner(fn)
    name = getattr(inner, "__name__", type(inner).__name__)
    called = _called(inner)
    known = getattr(inspect.unwrap(called), "__globals__", {})
    texts: dict[str, str] = {}
    # Linters move an import that only annotations need under TYPE_CHECKING, so this one name is known here anyway.
    local = {**({} if "ToolContext" in known else {"ToolContext": ToolContext}), **outer}
    parameters: list[inspect.Parameter] = []
    contexts: list[str] = []
    for parameter in _parameters(fn, name):
        if parameter.name in bound:
            continue
        _check(parameter, name)
        annotation = parameter.annotation
        try:
            annotation = resolve(annotation, known, local)
        except NameError:  # a class defined further down: resolved when the schema is first used
            pass
        except Exception as error:
            raise BadTool(
                f"parameter {parameter.name!r} of {name} has an annotation that is no type: {error}", tool=name
            ) from error
        if _is_context(annotation):
            contexts.append(parameter.name)
            continue
        parameters.append(parameter.replace(annotation=annotation))
        if text := said(annotation):
            texts[parameter.name] = text
    # The frame's other locals are let go: only classes and aliases can be named by the fields of a class.
    classes = {key: value for key, value in local.items() if isinstance(value, type) or is_alias(value)}
    return Signature(name, _doc(inner, called), tuple(parameters), texts, tuple(contexts), (known, classes))


def resolve(annotation: Any, known: dict[str, Any], local: Mapping[str, Any]) -> Any:
    """An annotation with every name in it looked up.

    Raises:
        NameError: a name is not known (yet).

    """

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    return typing.get_type_hints(holder, known, dict(local), include_extras=True)["it"]


def is_alias(annotation: object) -> bool:
    """Whether it is what a `type` statement makes: `typing` and `typing_extensions` have one each."""
    return type(annotation).__name__ == "TypeAliasType"


def said(annotation: Any) -> str | None:
    """The text of `Annotated[..., "text"]`."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    return next((extra for extra in annotation.__metadata__ if isinstance(extra, str)), None)


def _is_context(annotation: Any) -> bool:
    """Whether it is a `ToolContext`, or one that may be None; however that is written."""
    origin = typing.get_origin(annotation)
    if origin in {typing.Union, types.UnionType}:
        return any(map(_is_context, typing.get_args(annotation)))
    if origin in {Annotated, typing.Final}:
        return _is_context(typing.get_args(annotation)[0])
    if is_alias(annotation):
        return annotation.__value__ is ToolContext
    return annotation is ToolContext or getattr(annotation, "__supertype__", None) is ToolContext


def _inner(fn: Callable[..., Any]) -> tuple[Any, set[str]]:
    """What a partial is made of, and the names that it binds."""
    inner: Any = fn
    bound: set[str] = set()
    while isinstance(inner, functools.partial):
        bound |= inner.keywords.keys()
        inner = inner.func
    return inner, bound


def _called(inner: Any) -> Any:
    """What runs when it is called: of a class or a callable object the method with the parameters."""
    if hasattr(inner, "__code__") or hasattr(inner, "__wrapped__") or inspect.ismethod(inner):
        return inner
    return getattr(inner, "__init__" if isinstance(inner, type) else "__call__", inner)


def _doc(inner: Any, called: Any) -> str | None:
    """The docstring, of a callable object that of its `__call__` if it has one."""
    if isinstance(inner, type):
        return own_doc(inner)
    own: str | None = getattr(inner, "__doc__", None)
    return own if called is inner else getattr(called, "__doc__", None) or own


def _parameters(fn: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    called = _called(_inner(fn)[0])
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise BadTool(f"{name} yields, and a tool has one result: return it", tool=name)
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise BadTool(
            f"{fn!r} cannot be a tool: it is no function with a signature to read ({error})", tool=name
        ) from error


def _check(parameter: inspect.Parameter, name: str) -> None:
    why = _REFUSED.get(parameter.kind)
    if why is None and parameter.annotation is inspect.Parameter.empty:
        why = "has no annotation, so the model cannot be told what to give"
        if parameter.name in {"self", "cls"}:
            why += ": make a tool of the bound method, tool(object.method)"
    if why is not None:
        raise BadTool(f"{name} cannot be a tool: its parameter {parameter.name!r} {why}", tool=name)
