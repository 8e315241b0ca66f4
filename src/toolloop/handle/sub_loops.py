"""`sub_loop`: a tool whose calls are loops of their own, inside the call. The outermost handle drives them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Never

from attrs import field

from toolloop.core import events as ev
from toolloop.core.errors import BadTool
from toolloop.core.evolving import evolve
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.limits import lesser
from toolloop.core.setup import Setup
from toolloop.core.values import Call
from toolloop.handle.beginning import Beginning, as_registry, begin_with
from toolloop.handle.config import DEFAULT_CONFIG, LoopConfig
from toolloop.handle.judging import discard
from toolloop.handle.params import Secrets
from toolloop.handle.tooling import facts_of
from toolloop.history.reading import is_blank
from toolloop.tools import InvalidInput, Tool, ToolContext, ToolRegistry
from toolloop.tools.function import FunctionIntake, Intake, is_async
from toolloop.tools.schema.signature import check_name, read_signature
from toolloop.tools.schema.words import shown

# How many loops may be inside of each other, whatever `max_depth` says: no snapshot of more could be read again.
_DEEPEST = 32

ParamsOf = Callable[[dict[str, JSON]], Mapping[str, Any]]


def sub_loop(  # noqa: PLR0913 - what a tool has, and what a loop has
    name: str,
    description: str,
    *,
    params: Mapping[str, Any] | ParamsOf,
    tools: Iterable[Any] | ToolRegistry = (),
    config: LoopConfig = DEFAULT_CONFIG,
    input_schema: Mapping[str, JSON] | None = None,
    needs_approval: bool | Callable[[Any], Any] = False,
) -> SubLoop:
    """A tool whose call is a loop of its own: a child loop. Its last text is the call's result.

    The handle of the outermost loop drives it, and asks its caller about the child's calls too: they are in `pending`,
    with their `path`. Snapshot and journal hold the child inside the call. What it uses counts in the parent's
    `total_usage` and budget.

    Args:
        name: by which the model calls it.
        description: what the model is told about it.
        params: the keyword arguments of `messages.create`, for the child; or an ordinary function that is given the
            input of the call and returns them. It is asked when the child begins, and again for headers, timeouts and
            tokens alone when the loop wakes up. `messages` may be left out. Those of a mapping come before the task:
            a user message with the `prompt` of the input, else with the input as JSON. Those that a function returns
            are all there is.
        tools: the child's tools, as for a handle; others that `sub_loop` made may be among them.
        config: the child's limits and callables. Its depth is bounded by the parent's `max_depth` too, its time by the
            parent's `timeout`; a `tool_timeout` of the parent is not for a call that is a loop.
        input_schema: the JSON Schema of the input, an object (needs `jsonschema`); without one the input is one text,
            `prompt`.
        needs_approval: whether a call waits for the caller's word, or a predicate on the call.

    Raises:
        BadTool: name, description, tools, schema or `needs_approval` make no tool.
        InvalidHistory: the API would refuse the messages of `params`.
        TypeError: `params` or `config` is none.
        ValueError: a parameter that is missing, not the caller's to give, or that the API refuses.
        ImportError: there is an `input_schema`, and no `jsonschema`.

    """
    check_name(name)
    if not isinstance(description, str):
        raise BadTool(f"description of {name} is {description!r}; it is a text", tool=name)
    if not (isinstance(needs_approval, bool) or callable(needs_approval)):
        raise BadTool(f"needs_approval of {name} is {needs_approval!r}; give a bool, or a predicate", tool=name)
    if not isinstance(config, LoopConfig):
        raise TypeError(f"config of the sub_loop {name!r} is a {type(config).__name__}; give a LoopConfig")
    registry = as_registry(tools)
    return SubLoop(
        name,
        description,
        _undriven(name),
        needs_approval,
        "once",
        is_async=False,
        intake=_intake(name, description, input_schema),
        registry=registry,
        config=config,
        params=_checked(params, registry, asked=_asked(name)),
    )


@frozen(eq=False, repr=False, slots=False)
class SubLoop(Tool[..., Never]):
    """A tool whose call is a loop of its own. Made by `sub_loop`; the loop drives it, and nobody else can run it.

    Attributes:
        registry: the child's tools.
        config: the child's limits and callables.

    """

    registry: ToolRegistry = field(kw_only=True)
    config: LoopConfig = field(kw_only=True)
    _params: Beginning | ParamsOf = field(kw_only=True)

    def run(self, prepared: Mapping[str, Any], context: ToolContext) -> Never:
        """Nobody can: the loop drives it.

        Raises:
            TypeError: says so.

        """
        self.function(prepared, context)

    def compared(self) -> dict[str, JSON]:
        """What is compared when a loop wakes up with a tool of this name: the definition, and what the child has."""
        inner = [facts_of(tool) for tool in sorted(self.registry, key=lambda tool: tool.name)]
        return {
            "definition": self.definition(),
            "inner tools": [[facts.name, facts.effect, facts.approval, facts.digest] for facts in inner],
            "callables": sorted(self.config.callables()),
            "parameters": self._params.stored if isinstance(self._params, Beginning) else None,
        }

    def opened(self, parent: Setup, iteration: int, call: Call, *, at: float, seconds: float = 0.0) -> ev.Opened:
        """The event with which the child begins. See `begun`. `seconds`: active ones, as for any event."""
        return evolve(self.begun(parent, iteration, call, at=at)[0], seconds=seconds)

    def begun(self, parent: Setup, iteration: int, call: Call, *, at: float) -> tuple[ev.Opened, Secrets]:
        """The event with which the child begins, and what of its parameters is in no journal.

        Args:
            parent: the setup of the loop that the call is of.
            iteration: the iteration that the call is of.
            call: the call.
            at: when, in seconds since the epoch.

        Raises:
            InvalidHistory: the API would refuse the messages.
            Exception: a `params` function raised it, or it says what is wrong with what that returned.

        """
        begins = self._begin(decode(call.effective_input))
        messages = begins.messages or ()
        begins.refuse_invalid(messages, self.registry, asked=_asked(self.name))
        limits = self.config.limits()
        deepest = lesser(parent.limits.max_depth, parent.depth - len(parent.within) + _DEEPEST)
        setup = begins.setup(
            self.registry,
            self.config,
            loop_id=parent.loop_id,
            limits=evolve(limits, max_depth=lesser(limits.max_depth, deepest)),
            depth=parent.depth + 1,
            within=(*parent.within, (iteration, call.id, call.attempts + 1)),
        )
        return ev.Opened(setup=setup, messages=messages, at=at, path=setup.path), _copied(begins.secrets)

    def secrets(self, input: dict[str, JSON]) -> Secrets:  # noqa: A002 - the API's own word for it
        """What of the child's parameters is in no journal, for a call with this input.

        Raises:
            Exception: as for `opened`.

        """
        return _copied(self._begin(input).secrets)

    def _begin(self, given: dict[str, JSON]) -> Beginning:
        """The parameters for an input, with all of the child's first messages."""
        task = _message(_task(given))
        if isinstance(self._params, Beginning):
            return evolve(self._params, messages=(*(self._params.messages or ()), task))
        params = self._params(given)
        if inspect.isawaitable(params):
            discard(params)
            raise TypeError(f"{_asked(self.name)}: the params function is async, and nobody awaits it")
        begins = begin_with(params, self.registry, asked=_asked(self.name))
        return evolve(begins, messages=(task,)) if begins.messages is None else begins

    def __repr__(self) -> str:
        return f"<SubLoop {self.name}>"


@frozen(eq=False)
class _PromptIntake(FunctionIntake):
    """The intake of a child loop that is given a text."""

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The input, or `InvalidInput`."""
        fields = super().fit(given)
        if is_blank(fields["prompt"]):
            raise InvalidInput(self.name, [f"prompt: expected a text with words in it, got {shown(fields['prompt'])}"])
        return fields


def _intake(name: str, description: str, schema: Mapping[str, JSON] | None) -> Intake:
    if schema is None:
        return _PromptIntake(name, read_signature(_prompted, {}), description, {})
    try:
        from toolloop.tools.schema.given import GivenIntake  # noqa: PLC0415 - not everybody has jsonschema
    except ImportError as missing:
        raise ImportError(
            f"the input_schema of the sub_loop {name!r} is judged with jsonschema ({missing}): "
            "pip install 'toolloop[schema]'",
            name=missing.name,
        ) from missing
    return GivenIntake.of(name, description, schema)


def _prompted(prompt: Annotated[str, "The task, with everything that is needed for it."]) -> None:
    """Nothing runs it: its signature is the schema."""


def _undriven(name: str) -> Callable[..., Never]:
    def undriven(*_: object, **__: object) -> Never:
        raise TypeError(f"the sub_loop {name!r} cannot be called: give it to a loop among its tools, which drives it")

    return undriven


def _checked(params: Any, registry: ToolRegistry, *, asked: str) -> Beginning | ParamsOf:
    """The parameters as a `SubLoop` has them: a function as it is, a mapping read and checked."""
    if callable(params) and not isinstance(params, Mapping):
        if is_async(params):
            raise TypeError(f"{asked}: the params function is async, and nobody awaits it; give an ordinary one")
        function: ParamsOf = params
        return function
    begins = begin_with(params, registry, asked=asked)
    begins.refuse_invalid((*(begins.messages or ()), _message("the task")), registry, asked=asked)
    return begins


def _copied(secrets: Secrets) -> Secrets:
    """Secrets of a loop's own: those of a mapping are shared by all its children."""
    return Secrets(dict(secrets.options), dict(secrets.mcp_tokens))


def _asked(name: str) -> str:
    return f"sub_loop({name!r})"


def _task(given: Mapping[str, JSON]) -> str:
    """What a child is told to do: the prompt, if its input has one, else all of the input."""
    prompt = given.get("prompt")
    return prompt if isinstance(prompt, str) and not is_blank(prompt) else encode(given)


def _message(text: str) -> str:
    return encode({"role": "user", "content": text})
