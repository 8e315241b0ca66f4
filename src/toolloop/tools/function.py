"""`@tool`: a function that the model may call."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from attrs import field, frozen

from toolloop._public import set_module
from toolloop.errors import BadTool
from toolloop.machine.values.jsontext import JSON, decode, encode, fingerprint
from toolloop.machine.values.setup import Approval, ToolAnnotations, ToolEffect, ToolFacts
from toolloop.tools.annotations import read_docstring
from toolloop.tools.arguments import Arguments
from toolloop.tools.calls import NeedsApproval, NeedsApprovalOfTyped, Preview, TypedPreview
from toolloop.tools.options import (
    DESCRIBE,
    bind_arguments,
    check_described,
    check_effect,
    check_names,
    check_preview,
    check_shown,
    check_timeout,
    read_api_fields,
    to_names,
)
from toolloop.tools.signature import Signature, check_name, is_async, read_signature
from toolloop.tools.tool_errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from toolloop.tools.context import ToolContext

P = ParamSpec("P")
R = TypeVar("R")


class Intake(Protocol):
    """Define a tool for the API, and convert the input of a call to arguments."""

    def definition(self) -> JSON:
        """Return the definition that goes into `tools`."""
        ...

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """Return the arguments, or raise `InvalidInput`."""
        ...


@set_module("toolloop")
@frozen(eq=False, repr=False, slots=False)
class Tool(Generic[P, R]):
    """A function that the model may call, made by `tool` or `as_tool`. Calling it calls the function.

    Attributes:
        name: the name that the model calls it by.
        function: the function itself.
        needs_approval: whether a call waits for a decision: a bool, or a predicate on the call.
        effect: `"pure"` and `"keyed"` may run again after a crash, `"once"` may not.
        is_async: whether `run` returns an awaitable.
        timeout: seconds that a call may take; None means the loop's limit.
        preview: a function of the input that describes the effects of a call, for the person who decides.
        diff: the parameters with the old and the new text, which are shown as one diff.
        path: the parameter that names the file of the diff.
        secret: the parameters whose values are hidden from persons.
        annotations: the hints of the MCP server that has the tool; None for other tools.

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
    diff: tuple[str, ...] = field(default=(), converter=to_names, kw_only=True)
    path: str | None = field(default=None, kw_only=True)
    secret: tuple[str, ...] = field(default=(), converter=to_names, kw_only=True)
    annotations: ToolAnnotations | None = field(default=None, kw_only=True)
    _schema: str = field(default="{}", alias="schema", kw_only=True)  # JSON text; of a tool that another one defines

    def __attrs_post_init__(self) -> None:
        check_shown(self.name, diff=self.diff, path=self.path, secret=self.secret)
        # Some code reads the name, docstring or signature of a function.
        doc = getattr(self.function, "__doc__", None)
        vars(self).update(__name__=self.name, __doc__=doc, __wrapped__=self.function)

    @cached_property
    def description(self) -> str:
        """The description for the model. The docstring is parsed on first access."""
        return self._described if isinstance(self._described, str) else self._described()

    def definition(self) -> dict[str, JSON]:
        """Return a new copy of the definition for `tools`. Its bytes do not change from run to run.

        Raises:
            BadTool: an annotation of the function has no schema, the schema cannot satisfy `strict=True`, an input
                example is invalid, or the docstring describes only parameters.

        """
        definition: dict[str, JSON] = decode(self._definition)
        return definition

    @cached_property
    def _definition(self) -> str:
        # Made on first use, because pydantic is slow to import.
        return encode(self._intake.definition())

    @property
    def shown_names(self) -> tuple[str, ...]:
        """The parameters of `diff`, `path` and `secret`."""
        return (*self.diff, *(() if self.path is None else (self.path,)), *self.secret)

    @property
    def input_schema(self) -> dict[str, JSON]:
        """A copy of the JSON Schema of the input. Empty for a tool whose schema only the API knows."""
        schema: dict[str, JSON] = self.definition().get("input_schema") or decode(self._schema)
        return schema

    def facts(self) -> ToolFacts:
        """Return the facts that a loop records about the tool, to detect drift and to show its calls.

        Raises:
            BadTool: as for `definition`, or `diff`, `path` or `secret` names a parameter that the schema does not have.

        """
        needs, definition = self.needs_approval, self.definition()
        check_names(self.name, self.shown_names, definition)
        approval: Approval = "predicate" if callable(needs) else "always" if needs else "never"
        schema = self.input_schema
        return ToolFacts(
            self.name,
            self.effect,
            approval,
            fingerprint(definition),
            encode(schema) if schema else None,
            diff=self.diff,
            path=self.path,
            secret=self.secret,
            annotations=self.annotations,
        )

    def prepare(self, input: Mapping[str, JSON]) -> dict[str, Any]:  # noqa: A002 - the API's own word for it
        """Return the arguments for a call's input, without running the function.

        Raises:
            InvalidInput: the input is invalid; `problems` names each field.
            BadTool: an annotation of the function has no schema.

        """
        return self._intake.fit(input)

    def run(self, prepared: Mapping[str, Any], context: ToolContext) -> Any | Awaitable[Any]:
        """Call the function with the prepared arguments, and with the context if it has a parameter for it."""
        function: Callable[..., Any] = self.function
        return function(**prepared, **dict.fromkeys(self._contexts, context))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it were not a tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


class _Options(TypedDict, total=False):
    name: str | None
    description: str | None
    effect: ToolEffect
    timeout: float | None
    diff: Sequence[str]
    path: str | None
    secret: str | Sequence[str]
    strict: bool | None
    cache_control: Mapping[str, JSON] | None
    defer_loading: bool | None
    allowed_callers: Sequence[str] | None
    input_examples: Sequence[Mapping[str, JSON]] | None
    eager_input_streaming: bool | None


class ToolOptions(_Options, total=False):
    """The keyword arguments of `tool`."""

    needs_approval: NeedsApproval
    preview: Preview | None
    typed: Literal[False]


class TypedOptions(_Options, total=False):
    """The keyword arguments of `tool` beside `typed=True`."""

    needs_approval: NeedsApprovalOfTyped
    preview: TypedPreview | None


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
@overload
def tool(fn: Callable[P, R], /, *, typed: Literal[True], **options: Unpack[TypedOptions]) -> Tool[P, R]: ...
@overload
def tool(*, typed: Literal[True], **options: Unpack[TypedOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
@set_module("toolloop")
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
    typed: bool = False,
    diff: Sequence[str] = (),
    path: str | None = None,
    secret: str | Sequence[str] = (),
    strict: bool | None = None,
    cache_control: Mapping[str, JSON] | None = None,
    defer_loading: bool | None = None,
    allowed_callers: Sequence[str] | None = None,
    input_examples: Sequence[Mapping[str, JSON]] | None = None,
    eager_input_streaming: bool | None = None,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool from an annotated function. Works as `@tool`, `@tool(...)` and `tool(function, ...)`.

    pydantic generates the schema from the annotations, and validates each input strictly before the function runs.

    Args:
        fn: a function, bound method, `functools.partial` or callable object, sync or async. The signature of a
            decorated function is read through `functools.wraps`. The model does not see parameters annotated
            `ToolContext`, which toolloop fills in, or arguments that a partial binds.
        name: the name for the model; the function's own name if left out.
        description: the description for the model; the docstring's text before its first section if left out. If it is
            empty, none is sent.
        needs_approval: whether a call waits for a decision, or a predicate on the call.
        effect: whether it may run again after a crash: `"pure"` may, `"keyed"` may with the same
            `ToolContext.idempotency_key`, `"once"` may not.
        timeout: seconds that a call may take; more than 0.
        preview: a function of the input (a dictionary) that describes the effects of a call, as text, a unified diff
            or Markdown. It runs when a call begins to wait for a decision, and its return value is stored with the
            call. It must not have effects. It may be async under an async handle.
        typed: whether `needs_approval` and `preview` take the arguments of the function instead, validated: each its
            parameters of the same names. If there are none for a call, because a validator raises, approval is needed.
        diff: two parameters, with the old and the new text. Pages show them as one diff, with every line of both.
        path: the parameter that names the file of the diff.
        secret: parameters whose values persons do not see: rows, pages, links, notifications and the audit trail have
            "hidden, 40 characters, ends in 9f". The model, the tool and the journal have the values.
        strict: a field of the API's tool definition, sent if given; so are the following. In the schema, it closes
            each object with named fields. The API refuses objects that accept any field.
        cache_control: `{"type": "ephemeral"}`, optionally with a `ttl` of `"5m"` or `"1h"`.
        defer_loading: cannot be combined with `cache_control`.
        allowed_callers: `"direct"` and `"code_execution_…"`.
        input_examples: inputs that match the schema; checked when the definition is first made.
        eager_input_streaming: whether the model's input for this tool is streamed without buffering.

    Raises:
        BadTool: the function cannot become a tool (the message names the parameter), it has neither a docstring nor
            `description`, or an option is invalid.

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
                f"{function.name} is already a tool. Pass the options where it is made, or make a second tool with "
                f"tool({function.name}.function, ...)",
                tool=function.name,
            )
        signature = read_signature(function, outer)
        own = check_name(name or signature.name)
        check_described(own, description, signature.doc)
        check_effect(effect, own)
        check_timeout(timeout, own)
        check_preview(preview, own)
        intake = FunctionIntake(own, signature, description, read_api_fields(fields, own))
        asked, shown = needs_approval, preview
        if typed:
            asked = bind_arguments(asked, "needs_approval", own, signature, intake.fit)
            shown = bind_arguments(shown, "preview", own, signature, intake.fit)
        made = Tool(
            own,
            intake.choose_description,
            function,
            asked,
            effect,
            is_async(function),
            intake,
            signature.contexts,
            timeout=timeout,
            preview=shown,
            diff=to_names(diff),
            path=path,
            secret=to_names(secret),
        )
        parameters = {parameter.name for parameter in signature.parameters}
        if not parameters.issuperset(made.shown_names):
            made.facts()  # refuses the names that are not those of fields of the schema either
        return made

    return make if fn is None else make(fn)


@frozen(eq=False, repr=False, slots=False)
class FunctionIntake:
    """The intake of a tool that `tool` made from a function.

    Attributes:
        name: the tool's name.
        signature: the function's parameters and docstring.
        given: the `description` argument of `tool`, if any.
        fields: the other fields of the API's tool definition.

    """

    name: str
    signature: Signature
    given: str | None
    fields: dict[str, JSON]

    def choose_description(self) -> str:
        """Return the given description, or else the docstring's."""
        return self._docstring[0] if self.given is None else self.given

    def definition(self) -> JSON:
        """Return the definition for `tools`, with its keys always in the same order."""
        description = self.choose_description()
        described = {"description": description} if description else {}
        if not description and self.given is None:
            raise BadTool(f"the docstring of {self.name} has only sections. {DESCRIBE}", tool=self.name)
        schema = self._arguments.make_schema()
        for index, example in enumerate(self.fields.get("input_examples", ())):
            try:
                self._arguments.fit(example)
            except InvalidInput as error:
                problems = "; ".join(error.problems)
                raise BadTool(
                    f"input_examples[{index}] of {self.name} is invalid: {problems}", tool=self.name
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
