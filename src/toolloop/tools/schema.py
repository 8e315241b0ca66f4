"""JSON Schema and validation of a function's parameters, by pydantic, which is imported when a schema is first used."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from attrs import frozen

from toolloop.core.errors import BadTool
from toolloop.core.jsontext import JSON, canonical, encode
from toolloop.tools.failures import InvalidInput, shortened
from toolloop.tools.signature import resolve

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# How much of a wrong value the model is shown.
_SHOWN = 80
_MISSING = object()


@frozen(eq=False, repr=False)
class Arguments:
    """The parameters of one function: their schema, and the way from a call's input to arguments.

    Args:
        tool: the tool's name, for errors.
        parameters: the parameters that the model fills in.
        texts: descriptions of parameters; what the annotation itself says comes first.
        names: globals and locals, for annotations that are still text.

    """

    tool: str
    parameters: Sequence[inspect.Parameter]
    texts: Mapping[str, str]
    names: tuple[dict[str, Any], Mapping[str, Any]]

    def schema(self) -> JSON:
        """The JSON Schema of the input: the same text from run to run.

        Raises:
            BadTool: an annotation is no type that pydantic can describe.

        """
        from pydantic.errors import PydanticInvalidForJsonSchema  # noqa: PLC0415 - pydantic is slow to import

        try:
            schema = self._adapter.json_schema(schema_generator=_generator())
        except PydanticInvalidForJsonSchema as error:
            raise BadTool(f"{self.tool} cannot be a tool: {error.message}", tool=self.tool) from error
        for name, described in schema.get("properties", {}).items():
            if name in self.texts:
                described.setdefault("description", self.texts[name])
        return schema

    def fit(self, given: Mapping[str, JSON]) -> dict[str, Any]:
        """The arguments that a call's input stands for, defaults filled in.

        Raises:
            InvalidInput: it does not fit; every field that is wrong is named.
            BadTool: as for `schema`.

        """
        if not isinstance(given, Mapping):
            raise InvalidInput(self.tool, [f"input: expected an object, got {_shown(given)}"])
        adapter = self._adapter
        from pydantic import ValidationError  # noqa: PLC0415 - pydantic is slow to import

        try:
            arguments: dict[str, Any] = adapter.validate_python(dict(given))
        except ValidationError as error:
            problems = _problems(error.errors(include_url=False, include_context=False), given)
            raise InvalidInput(self.tool, problems) from error
        except Exception as error:
            # A validator of the caller's own may raise anything: then the input is what it cannot take.
            raise InvalidInput(self.tool, [f"input: {type(error).__name__}: {error}"]) from error
        return arguments

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        from pydantic import TypeAdapter  # noqa: PLC0415 - pydantic is slow to import

        # pydantic describes and validates the parameters of a function. The tool's own function must not run while its
        # input is judged, so a stand-in with the same parameters hands back what it was given.
        def arguments(**given: Any) -> dict[str, Any]:
            return given

        by_name = [self._resolved(parameter) for parameter in self.parameters]
        arguments.__dict__["__signature__"] = inspect.Signature(by_name)
        arguments.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name}
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", arguments), config={"defer_build": True})
            # Names local to the function in which a class was defined are known only here.
            adapter.rebuild(_types_namespace={**self.names[0], **self.names[1]})
        except Exception as error:
            told = getattr(error, "message", str(error)).partition("\n")[0]
            raise BadTool(
                f"{self.tool} cannot be a tool: pydantic makes no schema of its parameters: {told} "
                "Take JSON types, dataclasses, enums, typing_extensions.TypedDict or pydantic models",
                tool=self.tool,
            ) from error
        return adapter

    def _resolved(self, parameter: inspect.Parameter) -> inspect.Parameter:
        try:
            annotation = resolve(parameter.annotation, *self.names)
        except NameError as error:
            raise BadTool(
                f"parameter {parameter.name!r} of {self.tool} is annotated {parameter.annotation!r}: {error}. "
                "Define or import it where the module is run, not only for the type checker",
                tool=self.tool,
            ) from error
        kind = parameter.kind if parameter.kind is parameter.VAR_KEYWORD else parameter.KEYWORD_ONLY
        return parameter.replace(annotation=annotation, kind=kind)


def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - pydantic is slow to import

    class Generator(GenerateJsonSchema):
        # A default that is not JSON is the function's own affair; it stays out of the schema.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic declares it so

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic calls it so
            # A title made of the name tells the model nothing, in every request.
            return False

        def encode_default(self, dft: Any) -> Any:
            encoded = super().encode_default(dft)
            # The order of a set differs from run to run.
            return sorted(encoded, key=canonical) if isinstance(dft, set | frozenset) else encoded

    return Generator


def _problems(errors: Iterable[Any], given: JSON) -> list[str]:
    """One text per field; what the branches of a union expect is joined."""
    expected: dict[str, list[str]] = {}
    got: dict[str, object] = {}
    for error in errors:
        steps, value = _follow(error["loc"], given)
        message = error["msg"].replace("Input should be", "expected", 1)
        if "missing" in error["type"]:
            steps, value, message = [*steps, error["loc"][-1]], _MISSING, "required"
        elif error["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            message = "no such field"
        path = _joined(steps)
        expected.setdefault(path, []).append(message)
        got[path] = value
    return [
        f"{path}: {' or '.join(dict.fromkeys(messages))}, "
        + ("but it is missing" if got[path] is _MISSING else f"got {_shown(got[path])}")
        for path, messages in expected.items()
    ]


def _follow(loc: Iterable[str | int], value: JSON) -> tuple[list[str | int], JSON]:
    """The part of a pydantic location that is in the input, and what is there; names of union branches are not."""
    path: list[str | int] = []
    for step in loc:
        inside = step in value if isinstance(value, dict) else isinstance(value, list) and isinstance(step, int)
        if inside:
            path.append(step)
            value = value[step]
    return path, value


def _joined(path: Iterable[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "input"


def _shown(value: JSON) -> str:
    try:
        return shortened(encode(value), _SHOWN)
    except (TypeError, ValueError):
        return type(value).__name__
