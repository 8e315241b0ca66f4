"""`sub_loop`: a tool whose calls are loops. The handle of the outermost loop drives all loops of the tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Never

from attrs import evolve, field, frozen

from toolloop._interface.config import DEFAULT_CONFIG, LoopConfig
from toolloop._interface.loop_params import Beginning, add_reader, as_registry, begin_with, refuse_short_marks
from toolloop._messages.reading import is_blank
from toolloop._public import set_module
from toolloop._requests.params import Secrets
from toolloop.errors import BadTool
from toolloop.machine.record import journal_events as ev
from toolloop.machine.rules.limits import take_lesser
from toolloop.machine.values.calls import Call
from toolloop.machine.values.jsontext import JSON, decode, describe_type, encode, fingerprint
from toolloop.machine.values.setup import LoopFacts, Setup, ToolFacts
from toolloop.tools import InvalidInput, Tool, ToolRegistry
from toolloop.tools.calls import NeedsApproval
from toolloop.tools.function import FunctionIntake, Intake
from toolloop.tools.json_schema import JsonSchema
from toolloop.tools.registry import Tools
from toolloop.tools.signature import check_name, is_async, read_signature, refuse_awaitable
from toolloop.tools.tool_errors import quote_value

# The maximum nesting, whatever `max_depth` is, because each event contains the path of its loop.
_DEEPEST = 32

ParamsOf = Callable[[dict[str, JSON]], Mapping[str, Any]]


@set_module("toolloop")
def sub_loop(  # noqa: PLR0913 - the options of a tool and of a loop
    name: str,
    description: str,
    *,
    params: Mapping[str, Any] | ParamsOf,
    tools: Tools = (),
    config: LoopConfig = DEFAULT_CONFIG,
    input_schema: Mapping[str, JSON] | None = None,
    needs_approval: NeedsApproval = False,
) -> SubLoop:
    """Make a tool whose call is a loop, the child loop. The last text of the child is the call's result.

    The handle of the outermost loop drives the child. You decide the child's calls there too: they are in `pending`,
    with their `path`. Snapshots and journals contain the child inside the call. The parent's `total_usage` and budget
    include the child's usage.

    Args:
        name: the name that the model uses.
        description: the description for the model.
        params: the keyword arguments of `messages.create` for the child; or a plain function that takes the input of
            the call and returns them. The function is called when the child begins. It is called again, only for
            headers, timeouts and tokens, when a stored loop is opened. `messages` may be left out. Messages of a
            mapping come before the task: a user message with the `prompt` of the input, or with the input as JSON.
            Messages that a function returns are the whole history.
        tools: the child's tools, as for a handle; they may include other tools made by `sub_loop`.
        config: the child's limits and callables. The parent's `max_depth` and `timeout` apply to the child too; the
            parent's `tool_timeout` does not.
        input_schema: the JSON Schema of the input, an object (needs `jsonschema`). Without it, the input is one
            string, `prompt`.
        needs_approval: whether a call waits for the caller's decision: a bool, or a predicate on the call.

    Raises:
        BadTool: the name, description, tools, schema or `needs_approval` are not valid.
        InvalidHistory: the API would refuse the messages of `params`.
        TypeError: `params` or `config` has the wrong type.
        ValueError: a parameter is missing, cannot be set by the caller, or would be refused by the API.
        ImportError: `input_schema` is given, and `jsonschema` is not installed.

    """
    check_name(name)
    if not isinstance(description, str):
        raise BadTool(f"description of {name} is {description!r}; give a string", tool=name)
    if not (isinstance(needs_approval, bool) or callable(needs_approval)):
        raise BadTool(f"needs_approval of {name} is {needs_approval!r}; give a bool, or a predicate", tool=name)
    if not isinstance(config, LoopConfig):
        raise TypeError(f"config of the sub_loop {name!r} is {describe_type(config)}; give a LoopConfig")
    registry = add_reader(as_registry(tools), config.keep_results)
    return SubLoop(
        name,
        description,
        _make_undriven(name),
        needs_approval,
        "once",
        is_async=False,
        intake=_make_intake(name, description, input_schema),
        registry=registry,
        config=config,
        params=_check_params(params, registry, config, asked=_name_sub_loop(name)),
    )


@set_module("toolloop.types")
@frozen(eq=False, repr=False, slots=False)
class SubLoop(Tool[..., Never]):
    """A tool whose calls are loops. `sub_loop` makes it. Only a loop can run it.

    Attributes:
        registry: the child's tools.
        config: the child's limits and callables.

    """

    registry: ToolRegistry = field(kw_only=True)
    config: LoopConfig = field(kw_only=True)
    _params: Beginning | ParamsOf = field(alias="params", kw_only=True)

    def facts(self) -> ToolFacts:
        """Return the facts about the tool, with those about the child, because its tools may wait for approval too."""
        params = fingerprint(self._params.stored) if isinstance(self._params, Beginning) else ""
        tools = tuple(tool.facts() for tool in sorted(self.registry, key=lambda tool: tool.name))
        return evolve(super().facts(), inside=LoopFacts(params, tools, self.config.callables()))

    def begun(self, parent: Setup, iteration: int, call: Call, *, at: float) -> tuple[ev.Opened, Secrets]:
        """Return the first event of the child, and the parameters that no journal stores.

        Args:
            parent: the setup of the call's loop.
            iteration: the iteration that the call belongs to.
            call: the call.
            at: the time, in seconds since the epoch.

        Raises:
            InvalidHistory: the API would refuse the messages.
            Exception: a `params` function raised it, or its return value is not valid.

        """
        begins = self._begin(decode(call.effective_input))
        messages = begins.messages or ()
        begins.refuse_invalid(messages, self.registry, asked=_name_sub_loop(self.name))
        limits = self.config.limits()
        deepest = take_lesser(parent.limits.max_depth, parent.depth - len(parent.within) + _DEEPEST)
        setup = begins.make_setup(
            self.registry,
            self.config,
            loop_id=parent.loop_id,
            limits=evolve(limits, max_depth=take_lesser(limits.max_depth, deepest)),
            depth=parent.depth + 1,
            within=(*parent.within, (iteration, call.id, call.attempts + 1)),
        )
        return ev.Opened(setup=setup, messages=messages, at=at, path=setup.path), _copy_secrets(begins.secrets)

    def secrets(self, input: dict[str, JSON]) -> Secrets:  # noqa: A002 - the API's name for it
        """Return the parameters that no journal stores, for a call with this input.

        Raises:
            Exception: as for `begun`.

        """
        return _copy_secrets(self._begin(input).secrets)

    def _begin(self, given: dict[str, JSON]) -> Beginning:
        """Return the parameters for an input, with the child's first messages."""
        task = _make_message(_make_task(given))
        if isinstance(self._params, Beginning):
            return evolve(self._params, messages=(*(self._params.messages or ()), task))
        params = refuse_awaitable(self._params(given), f"{_name_sub_loop(self.name)}: the params function")
        begins = begin_with(params, self.registry, asked=_name_sub_loop(self.name), output=self.config.format())
        return evolve(begins, messages=(task,)) if begins.messages is None else begins

    def __repr__(self) -> str:
        return f"<SubLoop {self.name}>"


@frozen(eq=False)
class _PromptIntake(FunctionIntake):
    """Takes an input that is one text, the task."""

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments, or raise `InvalidInput`."""
        fields = super().fit(given)
        if is_blank(fields["prompt"]):
            raise InvalidInput(
                self.name, [f"prompt: expected a text that is not blank, got {quote_value(fields['prompt'])}"]
            )
        return fields


def _make_intake(name: str, description: str, schema: Mapping[str, JSON] | None) -> Intake:
    if schema is None:
        return _PromptIntake(name, read_signature(_take_prompt, {}), description, {})
    return JsonSchema.of(name, description, schema)


def _take_prompt(prompt: Annotated[str, "The task, with everything that is needed for it."]) -> None:
    """Define the schema by its signature. It never runs."""


def _make_undriven(name: str) -> Callable[..., Never]:
    def refuse_call(*_: object, **__: object) -> Never:
        raise TypeError(f"the sub_loop {name!r} cannot be called. Pass it to a loop in tools=[...], which drives it")

    return refuse_call


def _check_params(
    params: Mapping[str, Any] | ParamsOf, registry: ToolRegistry, config: LoopConfig, *, asked: str
) -> Beginning | ParamsOf:
    """Return a function unchanged, or a mapping read and checked."""
    if callable(params) and not isinstance(params, Mapping):
        if is_async(params):
            raise TypeError(f"{asked}: the params function is async, which is not supported. Give a plain function")
        return params
    begins = begin_with(params, registry, asked=asked, output=config.format())
    refuse_short_marks(begins.stored, registry, config.cache, asked=asked)
    begins.refuse_invalid((*(begins.messages or ()), _make_message("the task")), registry, asked=asked)
    return begins


def _copy_secrets(secrets: Secrets) -> Secrets:
    """Return a copy for one child, because all children share the secrets of a mapping."""
    return Secrets(dict(secrets.options), dict(secrets.mcp_tokens))


def _name_sub_loop(name: str) -> str:
    return f"sub_loop({name!r})"


def _make_task(given: Mapping[str, JSON]) -> str:
    """Return the child's task: the prompt if its input has one, else the whole input."""
    prompt = given.get("prompt")
    return prompt if isinstance(prompt, str) and not is_blank(prompt) else encode(given)


def _make_message(text: str) -> str:
    return encode({"role": "user", "content": text})
