"""Accept tools made with `anthropic.beta_tool`, toolsets of the SDK, and the lists of servers.

The SDK is not imported before it is needed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Protocol, cast, get_args

from attrs import frozen

from toolloop._public import set_module
from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, encode, to_plain
from toolloop.machine.values.setup import ToolEffect, ToolFacts
from toolloop.tools.arguments import Arguments, find_problems
from toolloop.tools.calls import NeedsApproval
from toolloop.tools.context import ToolContext
from toolloop.tools.function import Tool
from toolloop.tools.options import check_effect, check_timeout
from toolloop.tools.responses.response_types import RawOutputs
from toolloop.tools.signature import check_name, is_async
from toolloop.tools.tool_errors import InvalidInput, quote_value

_MOST_LISTS = 16  # how many older lists of a server are known


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


@set_module("toolloop.types")
class SdkToolset(Protocol):
    """A toolset of the anthropic SDK, sync or async: an instance of its browser or computer classes."""

    @property
    def toolset_name(self) -> str:
        """The name of the toolset, such as `computer`."""
        ...

    def to_dict(self) -> Any:
        """Return the definition for `tools`."""
        ...

    def tool_result(self, tool_use: Any, /) -> Any:
        """Run a member. `tool_use`: the block of the call."""
        ...


@set_module("toolloop.types")
class ServerTools(list[Tool[..., Any]]):
    """The tools of a server that may change them. `open_mcp` makes it.

    A loop that gets this list itself, as `tools=tools` or `tools=[pay, tools]`, reads the tools of the server again
    before each user turn, and goes on with these. A copy of it, such as `[pay, *tools]`, does not change.

    Attributes:
        fetch: returns the current tools, or an awaitable of them.
        may_change: whether the server may change them.

    """

    def __init__(self, tools: Iterable[Tool[..., Any]], fetch: Callable[[], Any], *, may_change: bool) -> None:
        """Store the first list."""
        super().__init__(tools)
        self.fetch: Callable[[], Any] = fetch
        self.may_change: bool = may_change
        self._known: dict[frozenset[ToolFacts], tuple[Tool[..., Any], ...]] = {}
        self._note()

    def update(self, tools: Sequence[Tool[..., Any]]) -> None:
        """Replace the tools, if they are others. Loops go on with theirs until their next user turn."""
        if [(tool.facts(), tool.function) for tool in tools] != [(tool.facts(), tool.function) for tool in self]:
            self[:] = tools
            self._note()

    @property
    def known(self) -> dict[frozenset[ToolFacts], tuple[Tool[..., Any], ...]]:
        """The lists that the server had, by the facts about their tools, from the oldest to the current one."""
        return self._known

    def _note(self) -> None:
        facts = frozenset(tool.facts() for tool in self)
        known = {had: tools for had, tools in self._known.items() if had != facts}
        self._known = {**dict([*known.items()][1 - _MOST_LISTS :]), facts: tuple(self)}


def as_tools(obj: Tool[..., Any] | SdkTool | SdkToolset) -> list[Tool[..., Any]]:
    """Return the tools that an object stands for: the members of a toolset, or itself."""
    if isinstance(getattr(obj, "toolset_name", None), str) and not isinstance(obj, type):
        return toolset(cast("SdkToolset", obj))
    return [as_tool(cast("SdkTool", obj))]


@set_module("toolloop.tools")
def toolset(
    given: SdkToolset,
    *,
    needs_approval: NeedsApproval = True,
    effect: ToolEffect = "once",
    timeout: float | None = None,
) -> list[Tool[..., Any]]:
    """Return the members of a toolset of the anthropic SDK as tools, named such as `computer.left_click`.

    Pass them all to one loop: `tools=[*toolset(desktop, needs_approval=ask)]`. `tools=[desktop]` is short for
    `tools=toolset(desktop)`. A member that the toolset disables is left out.

    Args:
        given: an object of a class such as `anthropic.tools.computer.BetaAbstractComputerToolset20260801`.
        needs_approval: whether a call waits for a decision, or a predicate on the call.
        effect: as for `tool`.
        timeout: seconds that a call may take; None means the loop's limit.

    Raises:
        BadTool: the installed SDK has no types of members of this toolset, or an option is invalid.

    """
    family, definition = given.toolset_name, to_plain(given.to_dict())
    check_effect(effect, family)
    check_timeout(timeout, family)
    configs: Mapping[str, Any] = definition.get("configs") or {}
    off = {name for name, config in configs.items() if config is not None and config.get("enabled") is False}
    return [
        Tool(
            name=f"{family}.{name}",
            description="",
            function=partial(_arun_member if is_async(given.tool_result) else _run_member, given, name),
            needs_approval=needs_approval,
            effect=effect,
            is_async=is_async(given.tool_result),
            intake=MemberIntake(f"{family}.{name}", definition, model),
            contexts=("context",),
            timeout=timeout,
            schema=schema,
        )
        for name, (model, schema) in _list_members(family).items()
        if name not in off
    ]


@cache  # the schemas of a browser take a tenth of a second
def _list_members(family: str) -> Mapping[str, tuple[Any, str]]:
    """Return the model of the input of each member of a toolset, from the types that the SDK generates, and its schema.

    Raises:
        BadTool: the installed SDK has none.

    """
    from anthropic.types import beta  # noqa: PLC0415 - slow to import, and loaded where there is a toolset

    union = getattr(beta, f"BetaResponse{family.title()}ToolUseBlock", None)
    if union is None:
        raise BadTool(f"the installed anthropic has no members of the toolset {family!r}. Upgrade it", tool=family)
    blocks = [block.model_fields for block in get_args(get_args(union)[0])]
    models = {get_args(fields["name"].annotation)[0]: fields["input"].annotation for fields in blocks}
    return {name: (model, encode(model.model_json_schema())) for name, model in models.items()}


def _make_tool_use_block(given: SdkToolset, name: str, arguments: dict[str, JSON], context: ToolContext) -> Any:
    from anthropic.types.beta import BetaToolUseBlock  # noqa: PLC0415 - as above

    return BetaToolUseBlock(
        id=context.call_id, name=name, input=arguments, type="tool_use", toolset_name=given.toolset_name
    )


def _run_member(given: SdkToolset, name: str, arguments: dict[str, JSON], context: ToolContext) -> RawOutputs:
    """Run a member as the SDK's runner does. Its result may be an error."""
    return RawOutputs([given.tool_result(_make_tool_use_block(given, name, arguments, context))])


async def _arun_member(given: SdkToolset, name: str, arguments: dict[str, JSON], context: ToolContext) -> RawOutputs:
    return RawOutputs([await given.tool_result(_make_tool_use_block(given, name, arguments, context))])


@frozen
class MemberIntake:
    """The intake of a member of a toolset.

    Attributes:
        name: the name of the member, after that of the toolset.
        fields: the definition of the toolset.
        model: the SDK's class of the input.

    """

    name: str
    fields: dict[str, JSON]
    model: Any

    def definition(self) -> JSON:
        """Return the definition of the whole toolset."""
        return self.fields

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments, or raise `InvalidInput`."""
        from pydantic import ValidationError  # noqa: PLC0415 - as above

        try:
            self.model.model_validate(given)
        except ValidationError as error:
            raise InvalidInput(self.name, find_problems(error, given)) from error
        return {"arguments": dict(given)}


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
        raise _make_object_error(obj)
    definition = to_plain(to_dict())
    name = check_name(getattr(obj, "name", None))
    function = getattr(obj, "func", None)
    intake = SdkIntake(name, definition, None if function is None else _read_arguments(name, function))
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
            raise InvalidInput(self.name, [f"input: expected an object, got {quote_value(given)}"])
        return {"input": dict(given)}


def _read_arguments(name: str, function: Callable[..., Any]) -> Arguments:
    """Return the parameters as the SDK reads them: `**kwargs` and missing annotations are allowed."""
    untyped = inspect.Parameter.empty
    parameters = [
        parameter.replace(annotation=Any if parameter.annotation is untyped else parameter.annotation)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    known = cast("dict[str, Any]", getattr(inspect.unwrap(function), "__globals__", {}))
    return Arguments(name, parameters, {}, (known, {}))


def _make_object_error(obj: object) -> BadTool:
    if isinstance(obj, Mapping):
        name = str(obj.get("name", "?"))
        return BadTool(f"{name} is a definition without a function. Pass it in params['tools'] instead", tool=name)
    name = getattr(obj, "__name__", type(obj).__name__)
    remedy = f"Decorate it with @tool, or pass tool({name})" if callable(obj) else "Pass a function made with @tool"
    return BadTool(f"{name} is not a tool. {remedy}", tool=name)
