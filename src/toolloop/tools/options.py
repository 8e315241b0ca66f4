"""Validate the options of a tool when it is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from sys import float_info
from typing import Any, get_args

from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, to_plain
from toolloop.machine.values.setup import ToolEffect
from toolloop.tools.signature import Signature, is_async

DESCRIBE = "Write a docstring that says what it does, or pass description="


def read_api_fields(given: Mapping[str, Any], name: str) -> dict[str, JSON]:
    """Return the given fields of the API's tool definition, as JSON.

    Raises:
        BadTool: a field is not JSON, or two fields exclude each other (source: messages-api, rule 35).

    """
    try:
        fields: dict[str, JSON] = to_plain({key: value for key, value in given.items() if value is not None}, name)
    except TypeError as error:
        raise BadTool(f"{name} cannot be a tool: {error}", tool=name) from error
    if fields.get("defer_loading") and "cache_control" in fields:
        raise BadTool(
            f"{name} has cache_control and defer_loading=True, but the API refuses them together. Remove one",
            tool=name,
        )
    return fields


def check_described(tool: str, given: str | None, doc: str | None) -> None:
    """Raise `BadTool` if a tool has no description. An empty one that is given is the caller's decision."""
    if given is None and not (doc or "").strip():
        raise BadTool(f"{tool} has no description, by which the model chooses it. {DESCRIBE}", tool=tool)


def check_effect(effect: object, name: str) -> None:
    """Raise `BadTool` if it is not an effect."""
    if effect not in get_args(ToolEffect):
        raise BadTool(f'effect of {name}: expected "pure", "keyed" or "once", got {effect!r}', tool=name)


def check_timeout(timeout: Any, name: str) -> None:
    """Raise `BadTool` if it is not a number of seconds."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= float_info.max:
        raise BadTool(
            f"timeout of {name}: expected a positive number of seconds, or None for no limit, got {timeout!r}",
            tool=name,
        )


def to_names(names: Any) -> Any:
    """Return names as a tuple; one text is one name. `check_shown` refuses other values."""
    if isinstance(names, str):
        return (names,)
    return tuple(names) if isinstance(names, (list, tuple)) else names


def check_shown(name: str, *, diff: Any, path: Any, secret: Any) -> None:
    """Check which parameters are shown as a diff, and which are hidden.

    Args:
        name: the name of the tool.
        diff: the parameters with the old and the new text, or no names.
        path: the parameter with the file of the diff, or None.
        secret: the hidden parameters.

    Raises:
        BadTool: a value is not a name, or they contradict each other.

    """
    for option, names in (("diff", diff), ("path", () if path is None else (path,)), ("secret", secret)):
        if not isinstance(names, tuple) or not all(isinstance(each, str) for each in names):
            raise BadTool(f"{option} of {name}: expected names of parameters, got {names!r}", tool=name)
    if diff and (len(diff) != 2 or diff[0] == diff[1]):  # noqa: PLR2004 - the old and the new text
        raise BadTool(
            f"diff of {name}: expected two parameters, with the old and the new text, got {diff!r}", tool=name
        )
    if path is not None and not diff:
        raise BadTool(f"path of {name} names the file of a diff. Give diff=, too, or leave path out", tool=name)
    if both := next((each for each in secret if each in (*diff, path)), None):
        raise BadTool(f"{name}: {both!r} cannot be secret and shown in the diff. Leave it out of one", tool=name)


def check_names(name: str, names: Collection[str], definition: Mapping[str, JSON]) -> None:
    """Raise `BadTool` if a name of `diff`, `path` or `secret` is not that of a parameter in the schema of a tool."""
    schema = definition.get("input_schema", {})
    if not names or schema.get("additionalProperties", True):
        return  # the schema is open, or only the API knows it
    parameters = schema.get("properties", {})
    if (strange := next((each for each in names if each not in parameters), None)) is not None:
        raise BadTool(
            f"diff, path or secret of {name} names {strange!r}, which is not a parameter. Give the name of one: "
            f"{', '.join(parameters) or 'there are none'}",
            tool=name,
        )


def check_preview(preview: object, name: str) -> None:
    """Raise `BadTool` if it cannot be called."""
    if preview is not None and not callable(preview):
        raise BadTool(f"preview of {name}: expected a function of the input, or None, got {preview!r}", tool=name)


def bind_arguments(
    option: Any, what: str, tool: str, signature: Signature, fit: Callable[[Mapping[str, JSON]], dict[str, Any]]
) -> Any:
    """Return a predicate or preview that calls a function with the arguments of a call; other values unchanged.

    Args:
        option: the function. It takes any of the parameters, and may have others with defaults, but none with the name
            of a parameter of the tool that the model does not fill in: its value would not be the one of the call.
        what: its name for the error, such as `preview`.
        tool: the name of the tool.
        signature: that of the tool.
        fit: makes the arguments from an input. If it raises, the function is not called.

    Raises:
        BadTool: the function has a parameter that the tool does not have.

    """
    if not callable(option):
        return option
    names, parameters = set[str](), [each.name for each in signature.parameters]
    for each in _read_parameters(option, what, tool):
        if each.kind is each.VAR_KEYWORD:
            names |= set(parameters)
        elif each.name in parameters and each.kind is not each.POSITIONAL_ONLY:
            names.add(each.name)
        elif each.kind is not each.VAR_POSITIONAL and (each.default is each.empty or each.name in signature.hidden):
            raise BadTool(
                f"{what} of {tool} takes {each.name!r}, which is not a parameter that the model fills in. With "
                f"typed=True it takes these, by name: {', '.join(parameters) or 'there are none'}",
                tool=tool,
            )
    return partial(_acall if is_async(option) else _call, option, frozenset(names), fit)


def _read_parameters(function: Callable[..., Any], what: str, tool: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise BadTool(
            f"{what} of {tool}: its signature cannot be read ({error}), which typed=True needs. Pass a function",
            tool=tool,
        ) from error


def _select(names: Collection[str], fit: Callable[[Mapping[str, JSON]], dict[str, Any]], given: Any) -> dict[str, Any]:
    """Return the arguments with these names. `given`: a call, or its input."""
    arguments = fit(given if isinstance(given, dict) else given.effective_input)
    return {name: value for name, value in arguments.items() if name in names}


def _call(function: Callable[..., Any], names: Collection[str], fit: Any, given: Any) -> Any:
    return function(**_select(names, fit, given))


async def _acall(function: Callable[..., Any], names: Collection[str], fit: Any, given: Any) -> Any:
    return await function(**_select(names, fit, given))
