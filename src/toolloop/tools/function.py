"""`@tool`: a function that the model may call."""

from __future__ import annotations

import functools
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
    overload,
)

from attrs import field

from toolloop.core.errors import BadTool
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.core.values import ToolEffect
from toolloop.tools.failures import InvalidInput
from toolloop.tools.options import api_fields, check_effect, check_timeout, opened_by
from toolloop.tools.schema.arguments import Arguments
from toolloop.tools.schema.docstring import read_docstring
from toolloop.tools.schema.signature import Signature, check_name, read_signature

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from toolloop.tools.context import ToolContext

P = ParamSpec("P")
R = TypeVar("R")


class Intake(Protocol):
    """How a tool is defined to the API, and how a call's input becomes arguments."""

    def definition(self) -> JSON:
        """What goes into `tools`."""
        ...

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments, or `InvalidInput`."""
        ...


@frozen(eq=False, repr=False, slots=False)
class Tool(Generic[P, R]):
    """A function that the model may call. Made by `tool` or `as_tool`; calling it calls the function.

    Attributes:
        name: the name by which the model calls it.
        function: the function itself.
        needs_approval: whether a call waits for the caller's word: a bool, or a predicate on the call.
        effect: `"pure"` and `"keyed"` may be run again after a crash, `"once"` may not.
        is_async: whether `run` gives an awaitable.
        timeout: how many seconds a call may take; None leaves that to the loop.
        opens: what is opened before the loop's first turn and closed after it: a context manager, sync or async.

    """

    name: str
    _described: str | Callable[[], str] = field(alias="description")
    function: Callable[P, R]
    needs_approval: bool | Callable[[Any], Any]
    effect: ToolEffect
    is_async: bool
    _intake: Intake
    _contexts: tuple[str, ...] = ()
    timeout: float | None = field(default=None, kw_only=True)
    opens: object | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        # What asks a function for its name, docstring or signature gets those of this one.
        doc = getattr(self.function, "__doc__", None)
        vars(self).update(__name__=self.name, __doc__=doc, __wrapped__=self.function)

    @cached_property
    def description(self) -> str:
        """What the model is told about it. A docstring is parsed when this is first asked for."""
        return self._described if isinstance(self._described, str) else self._described()

    def definition(self) -> dict[str, JSON]:
        """The definition that goes into `tools`: a new copy, the same bytes from run to run.

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

    def compared(self) -> dict[str, JSON]:
        """What is compared when a loop wakes up with a tool of this name, part by part: here the definition alone."""
        return {"definition": self.definition()}

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
    timeout: float | None
    opens: object | None
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
    timeout: float | None = None,
    opens: object | None = None,
    strict: bool | None = None,
    cache_control: Mapping[str, JSON] | None = None,
    defer_loading: bool | None = None,
    allowed_callers: Iterable[str] | None = None,
    input_examples: Iterable[Mapping[str, JSON]] | None = None,
    eager_input_streaming: bool | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of an annotated function. Works as `@tool`, `@tool(...)` and `tool(function, ...)`.

    What the schema accepts the function gets, as its annotations say; what it does not accept never reaches the
    function. The caller's own validators are an exception: they may refuse more, and one that runs before pydantic's
    own may take more.

    Args:
        fn: a function, bound method, `functools.partial` or callable object, sync or async; a decorated function
            is read through `functools.wraps`. A parameter annotated `ToolContext` is filled in and hidden from the
            model, and so is what a partial binds.
        name: instead of the function's own name.
        description: instead of the docstring's summary and the paragraphs after it.
        needs_approval: whether a call waits for the caller's word, or a predicate on the call.
        effect: whether it may run again: `"pure"` and `"keyed"` (by `ToolContext.idempotency_key`) may, `"once"` not.
        timeout: seconds that a call may take; more than 0.
        opens: a context manager, sync or async: opened before the loop's first turn, inside `with handle:`, and closed
            after it. A callable object that is itself a context manager opens itself.
        strict: a field of the API's tool definition, sent if given; so are the following. Every object in the schema is
            closed then; a parameter that takes an object with any fields is refused, and so is one that takes anything.
        cache_control: likewise: `{"type": "ephemeral"}`, with a `ttl` of `"5m"` or `"1h"` if wanted.
        defer_loading: likewise; not together with `cache_control`.
        allowed_callers: likewise: `"direct"` and `"code_execution_…"`.
        input_examples: likewise: inputs that fit the schema, which is checked when the definition is first made.
        eager_input_streaming: likewise.

    Raises:
        BadTool: the function cannot be a tool, and the message names the parameter; or an option makes no sense.

    """
    frame = sys._getframe(1)  # noqa: SLF001 - annotations that are text may name what is local to the caller
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
        if not isinstance(description, str | None):
            raise BadTool(f"description of {own} is {description!r}; it is a text", tool=own)
        check_effect(effect, own)
        check_timeout(timeout, own)
        extra = api_fields(fields, own)
        intake = FunctionIntake(own, signature, description, extra)
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
            opens=opened_by(function, opens, own),
        )

    return make if fn is None else make(fn)


@frozen(eq=False)
class FunctionIntake:
    """The intake of a function made a tool by `tool`."""

    name: str
    signature: Signature
    told: str | None
    fields: dict[str, JSON]

    def description(self) -> str:
        """What was given, else what the docstring says."""
        return self._docstring[0] if self.told is None else self.told

    def definition(self) -> JSON:
        """What goes into `tools`, keys always in this order."""
        description = self.description()
        described = {"description": description} if description else {}
        schema = self.arguments.schema()
        for index, example in enumerate(self.fields.get("input_examples", ())):
            try:
                self.arguments.fit(example)
            except InvalidInput as error:
                problems = "; ".join(error.problems)
                raise BadTool(
                    f"input_examples[{index}] of {self.name} does not fit: {problems}", tool=self.name
                ) from error
        return {"name": self.name, **described, "input_schema": schema, **self.fields}

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments, or `InvalidInput`."""
        return self.arguments.fit(given)

    @cached_property
    def arguments(self) -> Arguments:
        """The parameters, judged as their schema does."""
        said = {**self._docstring[1], **self.signature.texts}
        closed = bool(self.fields.get("strict"))
        return Arguments(self.name, self.signature.parameters, said, self.signature.names, strict=True, closed=closed)

    @cached_property
    def _docstring(self) -> tuple[str, dict[str, str]]:
        return read_docstring(self.signature.doc)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives an awaitable, as far as can be known without calling it."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    call = getattr(inner, "__call__", None)  # noqa: B004 - an object may have an async `__call__`
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(call)
