"""Convert annotations for pydantic: a class with named fields is replaced by a `TypedDict`.

pydantic does not support attrs classes, and it accepts extra fields for dataclasses and TypedDicts. So each of these
classes gets a closed `TypedDict` with the same fields. pydantic describes and validates it, and the class is
instantiated with the result. Importing this module does not import pydantic.
"""

from __future__ import annotations

import dataclasses
import sys
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, ClassVar, NotRequired, Required, Union, get_args, get_origin

import attrs
from attrs import frozen

from toolloop.machine.values.jsontext import JSON, encode, to_canonical
from toolloop.tools.annotations import is_alias, read_annotated_text, read_docstring, read_own_doc, resolve

# An unknown default. `attrs.NOTHING` cannot be used: it is the value of an attrs field without a default.
_UNKNOWN: Any = object()
# pydantic validates these lazily, while the function is already running.
_LISTS = {abc.Iterable, abc.Collection, abc.Reversible, abc.Container}
_USED_UP = {abc.Iterator, abc.Generator}
# A class with one of these attributes has pydantic support of its own.
_PYDANTIC = ("__get_pydantic_core_schema__", "__pydantic_fields__", "__pydantic_config__")


@frozen
class _Field:
    """A field of a class: the name of its argument, its annotation, its default, its description."""

    name: str
    annotation: Any
    required: bool
    default: Any = _UNKNOWN
    text: str | None = None


class FieldTypes:
    """Map annotations to types for pydantic. The `TypedDict` of a class is made once.

    Args:
        local: names that the annotations of a class may use in addition to those of its module.

    """

    def __init__(self, local: Mapping[str, Any]) -> None:
        """Start with an empty mapping."""
        self._local = dict(local)
        self._made: dict[Any, Any] = {}
        self._open: set[Any] = set()

    def map(self, annotation: Any) -> Any:
        """Return the annotation for pydantic.

        Raises:
            TypeError: it cannot be read from JSON.
            NameError: a name in an annotation of a class is not defined.

        """
        origin, args = get_origin(annotation), get_args(annotation)
        kind = origin or annotation
        if origin is Annotated:
            return Annotated[(self.map(annotation.__origin__), *annotation.__metadata__)]
        if origin in (Union, UnionType):
            return Union[tuple(map(self.map, args))]  # noqa: UP007 - the members are known only here
        if is_alias(kind):
            return self._map_alias(annotation, kind, args)
        if hasattr(kind, "__supertype__"):  # a `NewType`
            return self.map(kind.__supertype__)
        return self._map_type(annotation, kind, args) if isinstance(kind, type) else annotation

    def _map_type(self, annotation: Any, kind: Any, args: tuple[Any, ...]) -> Any:
        if fields := _choose_reader(kind):
            return self._map_class(kind, args, fields)
        if kind in _USED_UP:
            raise TypeError(f"{annotation} can be read only once: use a list")
        if kind in _LISTS:
            kind = annotation = list
        return kind[tuple(each if each is ... else self.map(each) for each in args)] if args else annotation

    def _map_alias(self, annotation: Any, alias: Any, args: tuple[Any, ...]) -> Any:
        if annotation in self._open:  # it refers to itself, which pydantic supports
            return annotation
        self._open.add(annotation)
        value = resolve(alias.__value__, vars(sys.modules.get(alias.__module__, sys)), self._local)
        value = _substitute(value, dict(zip(alias.__type_params__, args, strict=False)))
        mapped = self.map(value)
        self._open.discard(annotation)
        return annotation if mapped == value else mapped

    def _map_class(self, kind: Any, args: tuple[Any, ...], fields: _Reader) -> Any:
        from pydantic import AfterValidator, Field  # noqa: PLC0415 - pydantic is slow to import
        from typing_extensions import TypedDict, is_typeddict  # noqa: PLC0415 - pydantic brings it

        if (kind, args) in self._made:
            return self._made[kind, args]
        make: Any = TypedDict  # the type checker accepts only literal fields
        closed = make(kind.__name__, {})
        described, texts = read_docstring(read_own_doc(kind))
        closed.__module__, closed.__qualname__, closed.__doc__ = kind.__module__, kind.__qualname__, described or None
        closed.__pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}
        made = closed if is_typeddict(kind) else Annotated[closed, AfterValidator(_make_builder(kind))]
        self._made[kind, args] = made  # before its fields, which may refer to it
        meant = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
        annotations, required = {}, set()
        self._open, opened = set(), self._open  # an alias that recurs in a field ends at this class
        for field in fields(kind, self._read_hints(kind)):
            annotation = _substitute(field.annotation, meant)
            text = read_annotated_text(annotation) or field.text or texts.get(field.name)
            about = Field(description=text, json_schema_extra=_describe_default(field.default))
            annotations[field.name] = Annotated[self.map(annotation), about]
            required |= {field.name} if field.required else set()
        self._open = opened
        closed.__annotations__ = {
            name: each if name in required else NotRequired[each] for name, each in annotations.items()
        }
        closed.__required_keys__, closed.__optional_keys__ = frozenset(required), frozenset(annotations) - required
        return made

    def _read_hints(self, kind: Any) -> dict[str, Any]:
        from typing_extensions import get_type_hints  # noqa: PLC0415 - pydantic brings it

        if "<locals>" not in kind.__qualname__:
            try:
                return get_type_hints(kind, include_extras=True)
            except NameError:
                pass
        return get_type_hints(kind, localns=self._local, include_extras=True)


def to_default_json(value: Any) -> JSON:
    """Return a default as JSON, the same in each run.

    Raises:
        ValueError: it is not JSON (pydantic's error is a `ValueError`), or an instance of a class with fields.

    """
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - pydantic is slow to import

    if isinstance(value, (set, frozenset)):  # the order of a set differs from run to run
        return sorted(map(to_default_json, value), key=to_canonical)
    if hasattr(value, "__pydantic_fields__") or dataclasses.is_dataclass(value) or attrs.has(type(value)):
        raise ValueError("a schema cannot hold a default with fields")
    plain = to_jsonable_python(value, inf_nan_mode="constants")
    encode(plain)
    return plain


def _describe_default(default: object) -> Any:
    try:
        return None if default is _UNKNOWN else {"default": to_default_json(default)}
    except ValueError:
        return None


def _make_builder(kind: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a function that makes an instance. Errors of converters and validators become validation errors."""

    def build(given: dict[str, Any]) -> Any:
        from pydantic_core import PydanticCustomError  # noqa: PLC0415 - pydantic is slow to import

        try:
            return kind(**given)
        except Exception as error:
            # The errors of attrs validators have several arguments; the text is the first.
            text = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
            raise PydanticCustomError("refused", "{text}", {"text": text or type(error).__name__}) from error

    return build


_Reader = Callable[[Any, Mapping[str, Any]], Iterator[_Field]]


def _choose_reader(kind: Any) -> _Reader | None:
    """Return the function that reads the fields of a class, or None for a class that pydantic reads itself."""
    from typing_extensions import is_typeddict  # noqa: PLC0415 - pydantic brings it

    if any(hasattr(kind, name) for name in _PYDANTIC):
        return None
    if attrs.has(kind):
        return _read_attrs
    if dataclasses.is_dataclass(kind):
        return _read_dataclass
    return _read_typeddict if is_typeddict(kind) else None


def _read_attrs(kind: Any, hints: Mapping[str, Any]) -> Iterator[_Field]:
    for each in attrs.fields(kind):
        if each.init:
            annotation = hints.get(each.name, Any if each.type is None else each.type)
            required = each.default is attrs.NOTHING
            default = _UNKNOWN if required or hasattr(each.default, "takes_self") else each.default
            yield _Field(each.alias, annotation, required, default, each.metadata.get("description"))


def _read_dataclass(kind: Any, hints: Mapping[str, Any]) -> Iterator[_Field]:
    missing = dataclasses.MISSING
    for name, each in kind.__dataclass_fields__.items():  # `dataclasses.fields` leaves out an `InitVar`
        annotation = hints[name]
        if each.init and annotation is not ClassVar and get_origin(annotation) is not ClassVar:
            annotation = annotation.type if isinstance(annotation, dataclasses.InitVar) else annotation
            default = _UNKNOWN if each.default is missing else each.default
            required = each.default is each.default_factory is missing
            yield _Field(name, annotation, required, default, each.metadata.get("description"))


def _read_typeddict(kind: Any, hints: Mapping[str, Any]) -> Iterator[_Field]:
    from typing_extensions import ReadOnly  # noqa: PLC0415 - pydantic brings it

    for name, hint in hints.items():
        required, annotation = name in kind.__required_keys__, hint
        # If annotations are strings, Python does not see `NotRequired` when it makes the class.
        while (origin := get_origin(annotation)) in {NotRequired, ReadOnly, Required}:
            required = required if origin is ReadOnly else origin is Required
            (annotation,) = get_args(annotation)
        yield _Field(name, annotation, required)


def _substitute(annotation: Any, meant: Mapping[Any, Any]) -> Any:
    """Return an annotation with its type variables replaced."""
    if annotation in meant:
        return meant[annotation]
    variables = getattr(annotation, "__parameters__", ()) if get_args(annotation) else ()
    if not meant or not variables:
        return annotation
    return annotation[tuple(meant.get(each, each) for each in variables)]
