"""`@tool`: a function that the model may call."""

from __future__ import annotations

import functools
import inspect
import logging
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
    overload,
)

from attrs import field, frozen

from toolloop.machine.errors import BadTool
from toolloop.machine.jsontext import JSON, decode, encode, fingerprint
from toolloop.machine.setup import Approval, ToolEffect, ToolFacts
from toolloop.tools.arguments import Arguments
from toolloop.tools.calls import NeedsApproval, Preview
from toolloop.tools.failures import InvalidInput
from toolloop.tools.options import api_fields, check_effect, check_preview, check_timeout
from toolloop.tools.signature import Signature, check_name, read_docstring, read_signature

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from toolloop.tools.context import ToolContext

LOG = logging.getLogger("toolloop.tools")

P = ParamSpec("P")
R = TypeVar("R")


class Intake(Protocol):
    """Defines a tool to the API, and turns the input of a call into arguments."""

    def definition(self) -> JSON:
        """Return the definition that goes into `tools`."""
        ...

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments, or raise `InvalidInput`."""
        ...


@frozen(eq=False, repr=False, slots=False)
class Tool(Generic[P, R]):
    """A function that the model may call. `tool` and `as_tool` make it; calling it calls the function.

    Attributes:
        name: the name by which the model calls it.
        function: the function itself.
        needs_approval: whether a call waits for the caller's decision: a bool, or a predicate on the call.
        effect: `"pure"` and `"keyed"` may run again after a crash, `"once"` may not.
        is_async: whether `run` returns an awaitable.
        timeout: seconds that a call may take; None means the loop's limit.
        preview: a function of the input that says what a call would do, for the person who decides.

    """

    name: str
    _described: str | Callable[[], str] = field(alias="description")
    function: Callable[P, R]
    needs_approval: NeedsApproval
    effect: ToolEffect
    is_async: bool
    _intake: Intake = field(alias="intake")
    _contexts: tuple[str, ...] = field(default=(), alias="contexts")
    timeout: float | None = field(default=None, kw_only=True)
    preview: Preview | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        # For code that reads the name, docstring or signature of a function.
        doc = getattr(self.function, "__doc__", None)
        vars(self).update(__name__=self.name, __doc__=doc, __wrapped__=self.function)

    @cached_property
    def description(self) -> str:
        """The description for the model. A docstring is parsed when this is first read."""
        return self._described if isinstance(self._described, str) else self._described()

    def definition(self) -> dict[str, JSON]:
        """Return the definition that goes into `tools`: a new copy, the same bytes from run to run.

        Raises:
            BadTool: an annotation of the function has no schema, `strict=True` cannot be kept, or an example of an
                input does not fit.

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

    def facts(self) -> ToolFacts:
        """Return what a loop records of the tool, to compare it when another driver takes the loop over."""
        needs, definition = self.needs_approval, self.definition()
        approval: Approval = "predicate" if callable(needs) else "always" if needs else "never"
        schema = definition.get("input_schema")
        return ToolFacts(self.name, self.effect, approval, fingerprint(definition), encode(schema) if schema else None)

    def prepare(self, input: Mapping[str, JSON]) -> dict[str, Any]:  # noqa: A002 - the API's own word for it
        """Return the arguments for a call's input. The function does not run.

        Raises:
            InvalidInput: the input does not fit; `problems` names each field.
            BadTool: an annotation of the function has no schema.

        """
        return self._intake.fit(input)

    def run(self, prepared: Mapping[str, Any], context: ToolContext) -> Any | Awaitable[Any]:
        """Call the function with prepared arguments, and the context where it asks for one."""
        function: Callable[..., Any] = self.function
        return function(**prepared, **dict.fromkeys(self._contexts, context))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it were not a tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


class ToolOptions(TypedDict, total=False):
    """The keyword arguments of `tool`."""

    name: str | None
    description: str | None
    needs_approval: NeedsApproval
    effect: ToolEffect
    timeout: float | None
    preview: Preview | None
    strict: bool | None
    cache_control: Mapping[str, JSON] | None
    defer_loading: bool | None
    allowed_callers: Sequence[str] | None
    input_examples: Sequence[Mapping[str, JSON]] | None
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
    needs_approval: NeedsApproval = False,
    effect: ToolEffect = "once",
    timeout: float | None = None,
    preview: Preview | None = None,
    strict: bool | None = None,
    cache_control: Mapping[str, JSON] | None = None,
    defer_loading: bool | None = None,
    allowed_callers: Sequence[str] | None = None,
    input_examples: Sequence[Mapping[str, JSON]] | None = None,
    eager_input_streaming: bool | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of an annotated function. Works as `@tool`, `@tool(...)` and `tool(function, ...)`.

    pydantic makes the schema of the annotations, and validates each input strictly before the function runs.

    Args:
        fn: a function, bound method, `functools.partial` or callable object, sync or async; a decorated function
            is read through `functools.wraps`. A parameter annotated `ToolContext` is filled in and hidden from the
            model, and so are the arguments that a partial binds.
        name: instead of the function's own name.
        description: instead of the docstring's summary and the paragraphs after it.
        needs_approval: whether a call waits for the caller's decision, or a predicate on the call.
        effect: whether it may run again after a crash: `"pure"` may, `"keyed"` may with the same
            `ToolContext.idempotency_key`, `"once"` may not.
        timeout: seconds that a call may take; more than 0.
        preview: a function of the input (a dictionary) that returns what a call would do, as text, a unified diff or
            Markdown. It is called when a call begins to wait for a decision, and what it returns is stored with the
            call. It must not have effects. It may be async under an async handle.
        strict: a field of the API's tool definition, sent if given; so are the following. It closes each object with
            named fields in the schema; the API refuses objects with any fields.
        cache_control: `{"type": "ephemeral"}`, with a `ttl` of `"5m"` or `"1h"` if wanted.
        defer_loading: not together with `cache_control`.
        allowed_callers: `"direct"` and `"code_execution_…"`.
        input_examples: inputs that fit the schema; this is checked when the definition is first made.
        eager_input_streaming: whether the model's input for this tool is streamed without buffering.

    Raises:
        BadTool: the function cannot be a tool (the message names the parameter), or an option is invalid.

    """
    frame = sys._getframe(1)  # noqa: SLF001 - annotations that are strings may name locals of the caller
    outer = {} if frame.f_locals is frame.f_globals else frame.f_locals
    fields = {
        "strict": strict,
        "cache_control": cache_control,
        "defer_loading": defer_loading,
        "allowed_callers": allowed_callers,
        "input_examples": input_examples,
        "eager_input_streaming": eager_input_streaming,
    }

    def make(function: Callable[P, R]) -> Tool[P, R]:
        if isinstance(function, Tool):
            raise BadTool(
                f"{function.name} is a tool already: give the options where it is made, or make another one with "
                f"tool({function.name}.function, ...)",
                tool=function.name,
            )
        signature = read_signature(function, outer)
        own = check_name(name or signature.name)
        check_effect(effect, own)
        check_timeout(timeout, own)
        check_preview(preview, own)
        intake = FunctionIntake(own, signature, description, api_fields(fields, own))
        return Tool(
            own,
            intake.description,
            function,
            needs_approval,
            effect,
            is_async(function),
            intake,
            signature.contexts,
            timeout=timeout,
            preview=preview,
        )

    return make if fn is None else make(fn)


@frozen(eq=False, slots=False)
class FunctionIntake:
    """The intake of a function that `tool` made a tool.

    Attributes:
        name: the tool's name.
        signature: the function's parameters and docstring.
        given: the description that the caller gave, if any.
        fields: the API's other fields of the definition.

    """

    name: str
    signature: Signature
    given: str | None
    fields: dict[str, JSON]

    def description(self) -> str:
        """Return the given description, or else that of the docstring."""
        return self._docstring[0] if self.given is None else self.given

    def definition(self) -> JSON:
        """Return the definition that goes into `tools`, keys always in this order."""
        description = self.description()
        described = {"description": description} if description else {}
        if not description:  # a line of the log and not a warning: under `-W error` that would end a program
            LOG.warning(
                "the tool %s has no description, by which the model chooses it: write a docstring or give description=",
                self.name,
                extra={"tool": self.name},
            )
        schema = self._arguments.schema()
        for index, example in enumerate(self.fields.get("input_examples", ())):
            try:
                self._arguments.fit(example)
            except InvalidInput as error:
                problems = "; ".join(error.problems)
                raise BadTool(
                    f"input_examples[{index}] of {self.name} does not fit: {problems}", tool=self.name
                ) from error
        return {"name": self.name, **described, "input_schema": schema, **self.fields}

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments, or raise `InvalidInput`."""
        return self._arguments.fit(given)

    @cached_property
    def _arguments(self) -> Arguments:
        texts = {**self._docstring[1], **self.signature.texts}
        closed = bool(self.fields.get("strict"))
        return Arguments(self.name, self.signature.parameters, texts, self.signature.names, closed)

    @cached_property
    def _docstring(self) -> tuple[str, dict[str, str]]:
        return read_docstring(self.signature.doc)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling it returns an awaitable, as far as can be known without calling it."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    call = getattr(inner, "__call__", None)  # noqa: B004 - an object may have an async `__call__`
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call)


def not_awaitable(value: Any, what: str) -> Any:
    """Return the value that a plain function returned.

    Args:
        value: what it returned.
        what: names the function, for the error.

    Raises:
        TypeError: it is an awaitable. Only functions that are declared async are awaited.

    """
    if not inspect.isawaitable(value):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(
        f"{what} returned an awaitable, which was not awaited. Declare it with `async def` and use "
        "AsyncToolLoopHandle, or return a value"
    )
