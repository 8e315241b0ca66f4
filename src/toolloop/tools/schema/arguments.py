"""JSON Schema and validation of a function's parameters, by pydantic, which is imported when a schema is first used.

The two agree: what the schema accepts becomes arguments, and what it does not accept is invalid. So an input is judged
as JSON, strictly: `"5"` is no integer, and neither is `true`; but `5.0` is one, as JSON Schema has it.

The exceptions are what no schema can say. A validator or converter of a class or model may refuse more, and one that
runs before pydantic's own (mode "before", "wrap" or "plain", or the `__init__` of a model) may take more. A format such
as `date` counts. A text may hold no half of a surrogate pair.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from toolloop.core.errors import BadTool
from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, decode, encode
from toolloop.tools.failures import InvalidInput
from toolloop.tools.schema.closing import close
from toolloop.tools.schema.describing import refuse_sets
from toolloop.tools.schema.guarding import mended
from toolloop.tools.schema.signature import resolve
from toolloop.tools.schema.twins import Twins
from toolloop.tools.schema.words import follow, is_readable, problems, shown, unreadable

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails, SchemaValidator

# What the API takes as the name of a field, of the outermost ones only (source: refusals of the live API as reported to
# claude-code #79418 and n8n #30590, "input_schema.properties: Property keys should match pattern").
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


@frozen(eq=False, repr=False)
class Arguments:
    """The parameters of one function: their schema, and the way from a call's input to arguments.

    The two agree, with the exceptions that the module names.

    Args:
        tool: the tool's name, for errors.
        parameters: the parameters that the model fills in.
        texts: descriptions of parameters; what the annotation itself says comes first.
        names: globals and locals, for annotations that are still text.
        strict: whether an input is judged as its schema does, and not as pydantic does when it may convert.
        closed: whether every object must be closed, nested ones too: for `strict` of the API.

    """

    tool: str
    parameters: Sequence[inspect.Parameter]
    texts: Mapping[str, str]
    names: tuple[dict[str, Any], Mapping[str, Any]]
    strict: bool = False
    closed: bool = False

    def schema(self) -> JSON:
        """The JSON Schema of the input: the same text from run to run.

        Raises:
            BadTool: an annotation cannot be described; the message names the parameter.

        """
        adapter = self._made[0]
        try:
            schema = _described(adapter)
        except Exception as error:
            # pydantic says why in many ways; and what the caller's own classes add to a schema may be anything.
            raise self._refusal(error) from error
        for name, described in schema.get("properties", {}).items():
            if not PROPERTY.fullmatch(name):
                raise BadTool(
                    f"parameter {name!r} of {self.tool} cannot be sent: the API takes names of 1 to 64 letters of "
                    "ASCII, digits, underscores, dots and hyphens. Rename it, or give it an alias",
                    tool=self.tool,
                )
            if name in self.texts:
                described.setdefault("description", self.texts[name])
        if self.closed:
            close(schema, self.tool)
        return schema

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments that a call's input stands for, defaults filled in.

        Raises:
            InvalidInput: it does not fit; every field that is wrong is named.
            BadTool: as for `schema`.

        """
        if type(given) is not dict and not isinstance(given, Mapping):
            raise InvalidInput(self.tool, [f"input: expected an object, got {shown(given)}"])
        read, validate = self._judge
        value = dict(given)
        while True:
            readable = read(value)
            try:
                return validate(readable)
            except Exception as error:  # noqa: BLE001 - what makes a default may raise anything
                value = self._mended(value, error)

    def _mended(self, value: dict[str, JSON], error: Exception) -> dict[str, JSON]:
        """What to judge instead of an input that did not fit; or `InvalidInput`."""
        from pydantic_core import ValidationError  # noqa: PLC0415 - pydantic is slow to import

        if not isinstance(error, ValidationError):
            raise InvalidInput(self.tool, ["input: what it leaves out could not be filled in"]) from error
        errors = error.errors(include_url=False, include_input=False)
        mended = with_integers(value, errors) if self.strict else None
        if mended is None:
            raise InvalidInput(self.tool, problems(errors, value)) from error
        return mended

    @cached_property
    def _judge(self) -> tuple[Callable[[dict[str, JSON]], Any], Callable[[Any], dict[str, Any]]]:
        """What reads an input, or raises `InvalidInput`; and what then makes arguments of it, or raises anything."""
        _, validator, simple = self._made
        if not self.strict:
            return lambda value: value, validator.validate_python

        # An array may be a set, a text may be a UUID: only of JSON pydantic takes that strictly.
        def as_json(value: dict[str, JSON]) -> str:
            try:
                return encode(value)
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidInput(self.tool, [unreadable(value)]) from error

        def as_it_is(value: dict[str, JSON]) -> dict[str, JSON]:
            if not is_readable(value):
                raise InvalidInput(self.tool, [unreadable(value)])
            return value

        options: dict[str, Any] = {"strict": True} | ({"extra": "forbid"} if self.closed else {})
        if simple:
            return as_it_is, partial(validator.validate_python, **options)
        return as_json, partial(validator.validate_json, **options)

    @cached_property
    def _made(self) -> tuple[TypeAdapter[Any], SchemaValidator, bool]:
        """What pydantic makes of the parameters; and whether Python's own values are all that they can be."""
        twins = Twins(self.names[1])
        parameters = [self._resolved(parameter) for parameter in self.parameters]
        if self.strict:
            parameters = [self._mapped(parameter, twins) for parameter in parameters]
        try:
            return *self._make(parameters), twins.are_simple
        except Exception as error:
            raise self._refusal(error) from error

    def _make(self, parameters: Sequence[inspect.Parameter]) -> tuple[TypeAdapter[Any], SchemaValidator]:
        from pydantic import TypeAdapter  # noqa: PLC0415 - pydantic is slow to import
        from pydantic_core import SchemaValidator  # noqa: PLC0415 - likewise

        # pydantic describes and validates the parameters of a function. The tool's own function must not run while its
        # input is judged, so a stand-in with the same parameters hands back what it was given.
        def arguments(**given: Any) -> dict[str, Any]:
            return given

        arguments.__dict__["__signature__"] = inspect.Signature(parameters)
        arguments.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        # An infinity is no number of JSON; an integer may be too large to be any other number.
        config: Any = {"allow_inf_nan": False} if self.strict else {}
        adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", arguments), config=config | {"defer_build": True})
        # Names local to the function in which a class was defined are known only here.
        adapter.rebuild(_types_namespace={**self.names[0], **self.names[1]})
        # Not with the validators that the models have already: what is mended in their schemas would count for nothing.
        schema = mended(adapter.core_schema, exact=self.strict)
        try:
            return adapter, SchemaValidator(schema, config, _use_prebuilt=False)
        except TypeError:  # a pydantic without that switch: inside its own models it judges as it does everywhere
            return adapter, SchemaValidator(schema, config)

    def _mapped(self, parameter: inspect.Parameter, twins: Twins) -> inspect.Parameter:
        try:
            refuse_sets(parameter.default)
            return parameter.replace(annotation=twins.map(parameter.annotation))
        except Exception as error:
            raise self._refusal(error, parameter.name) from error

    def _refusal(self, error: Exception, name: str | None = None) -> BadTool:
        """Why there is no schema; the first parameter that has none by itself is named."""
        if isinstance(error, BadTool):
            return error
        name = name or next(filter(None, map(self._unfit, self.parameters)), None)
        told = getattr(error, "message", str(error)).partition("\n")[0]
        return BadTool(
            f"{self.tool} cannot be a tool: there is no schema of "
            f"{'its parameters' if name is None else f'its parameter {name!r}'}: {told.rstrip('. ')}. "
            "Take JSON types, attrs classes, dataclasses, TypedDict, enums or pydantic models",
            tool=self.tool,
        )

    def _unfit(self, parameter: inspect.Parameter) -> str | None:
        try:
            one = self._resolved(parameter)
            if self.strict:
                one = one.replace(annotation=Twins(self.names[1]).map(one.annotation))
            _described(self._make([one])[0])
        except Exception:  # noqa: BLE001 - whatever pydantic raises, this is the one
            return parameter.name
        return None

    def _resolved(self, parameter: inspect.Parameter) -> inspect.Parameter:
        try:
            annotation = resolve(parameter.annotation, *self.names)
        except NameError as error:
            raise BadTool(
                f"parameter {parameter.name!r} of {self.tool} is annotated {parameter.annotation!r}: {error}. "
                "Define or import it where the module is run, not only for the type checker",
                tool=self.tool,
            ) from error
        try:
            _ = getattr(parameter.default, "__hash__", None) or copy.deepcopy(parameter.default)
        except Exception as error:
            raise BadTool(
                f"parameter {parameter.name!r} of {self.tool} has a default that cannot be copied for each call: "
                f"{error}. Take None, and make it in the function",
                tool=self.tool,
            ) from error
        kind = parameter.kind if parameter.kind is parameter.VAR_KEYWORD else parameter.KEYWORD_ONLY
        return parameter.replace(annotation=annotation, kind=kind)


def _described(adapter: TypeAdapter[Any]) -> JSON:
    """The schema, as text can hold it."""
    from toolloop.tools.schema.generating import Generator  # noqa: PLC0415 - pydantic is slow to import

    schema = adapter.json_schema(schema_generator=Generator)
    encode(schema)
    return schema


def with_integers(value: dict[str, JSON], errors: Iterable[ErrorDetails]) -> dict[str, JSON] | None:
    """A copy in which the floats without a fraction that should be integers are; None if there is none of these."""
    paths = [
        path
        for path, found in (follow(error["loc"], value) for error in errors if error["type"].startswith("int"))
        if path and isinstance(found, float) and found.is_integer()
    ]
    if not paths:
        return None
    try:
        copy: dict[str, JSON] = decode(encode(value))
    except (TypeError, ValueError, RecursionError):
        return None  # no JSON at all, so its errors stand
    for *outer, last in paths:
        inside: Any = copy
        for step in outer:
            inside = inside[step]
        inside[last] = int(inside[last])
    return copy
