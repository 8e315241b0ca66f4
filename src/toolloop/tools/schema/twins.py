"""Annotations that pydantic does not take, or takes in another way than it describes, mapped to ones that fit.

A class with named fields (attrs class, dataclass, `TypedDict`, named tuple) gets a twin: a closed `TypedDict` of the
same fields, for pydantic to describe and to validate. What comes out of the twin is given to the class itself. So
nesting and recursion are pydantic's affair, and making instances is that of the class.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import types
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Required, Union, get_args, get_origin

import attrs

from toolloop.core.freezing import frozen
from toolloop.tools.context import ToolContext
from toolloop.tools.schema.aliases import Alias, value_of
from toolloop.tools.schema.choices import literal, members, named_by
from toolloop.tools.schema.describing import NOTHING, Telling, refuse_sets
from toolloop.tools.schema.docstring import own_doc, read_docstring
from toolloop.tools.schema.signature import is_alias, said
from toolloop.tools.schema.structuring import builder, is_plain_dataclass

# Containers whose items may need a twin. What iterates lazily would be validated while the function runs already.
_CONTAINERS: dict[Any, Any] = {
    each: each
    for each in (
        *(list, dict, tuple, set, frozenset, collections.deque, collections.defaultdict, collections.OrderedDict),
        *(abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet, abc.Mapping, abc.MutableMapping),
    )
} | dict.fromkeys([abc.Iterable, abc.Iterator, abc.Generator, abc.Reversible, abc.Container, abc.Collection], list)
_TIMES = (dt.date, dt.datetime, dt.time, dt.timedelta)
_SIMPLE = (str, int, float, bool, type(None), object, None, Any, *_TIMES)
_LAZY = {abc.Iterator, abc.Generator}
# pydantic takes more or less than it says of these.
_REFUSED = {complex: "give two numbers", type: "give its name", abc.Hashable: "say which values it takes"}


@frozen
class Field:
    """A field of a class: what it is given by, its type, its default, what is said about it."""

    name: str
    annotation: Any
    default: Any = NOTHING
    required: bool = True
    text: str | None = None


class Twins:
    """Maps annotations; the twin of a class is made once.

    Args:
        classes: what the annotations of a class may refer to beside the names of its module.

    Attributes:
        are_simple: whether all that was mapped consists of strings, numbers, bools, lists, dicts and classes of these.

    """

    are_simple: bool

    def __init__(self, classes: Mapping[str, Any]) -> None:
        """Nothing is mapped yet."""
        self.are_simple = True
        self._classes = dict(classes)
        self._made: dict[Any, Any] = {}

    def map(self, annotation: Any) -> Any:
        """The annotation, for pydantic.

        Raises:
            TypeError: nothing that a call could give would fit it.
            NameError: a name in an annotation of a class is not known.

        """
        origin, args = get_origin(annotation), get_args(annotation)
        kind = origin or annotation
        mapped: Any = annotation
        if origin is Annotated:
            for each in annotation.__metadata__:
                refuse_sets(each)
            mapped = Annotated[(self.map(annotation.__origin__), *annotation.__metadata__)]
        elif origin in {Union, types.UnionType}:
            mapped = Union[tuple(map(self.map, args))]  # noqa: UP007 - the members are known only here
        elif origin is Literal:
            mapped = literal(annotation)
        elif kind in _CONTAINERS:
            mapped = self._container(_CONTAINERS[kind], args, annotation)
        elif kind in _REFUSED:
            raise TypeError(f"{annotation} is not JSON: {_REFUSED[kind]}")
        elif hasattr(annotation, "__supertype__"):  # a `NewType`
            mapped = self.map(annotation.__supertype__)
        elif is_alias(kind):
            mapped = self._alias(kind, args)
        elif isinstance(kind, type):
            mapped = self._class(kind, args, annotation)
        else:
            self.are_simple &= annotation in _SIMPLE
        return mapped

    def _container(self, kind: Any, args: tuple[Any, ...], annotation: Any) -> Any:
        if (get_origin(annotation) or annotation) in _LAZY:
            raise TypeError(f"{annotation} is used up by reading it: take a list")
        self.are_simple &= kind in {list, dict}
        if not args:
            return kind if kind is list else annotation
        mapped = tuple(each if each is ... else self.map(each) for each in args)
        if issubclass(kind, abc.Mapping):
            self.are_simple &= args[0] is str
            mapped = (named_by(mapped[0]), *mapped[1:])
        return kind[mapped]

    def _alias(self, alias: Any, args: tuple[Any, ...]) -> Any:
        if (alias, args) not in self._made:
            made = Alias(f"{alias.__name__}:{len(self._made)}")
            self._made[alias, args] = Annotated[Any, made]  # before its value, for it may refer to itself
            meant = dict(zip(getattr(alias, "__type_params__", ()), args, strict=False))
            made.stands_for(self.map(substituted(value_of(alias, self._classes), meant)))
        return self._made[alias, args]

    def _class(self, kind: type, args: tuple[Any, ...], annotation: Any) -> Any:
        from typing_extensions import is_typeddict  # noqa: PLC0415 - pydantic brings it

        if issubclass(kind, ToolContext):
            raise TypeError(
                "a ToolContext is given for a parameter annotated ToolContext itself, or ToolContext | None"
            )
        if issubclass(kind, enum.Enum):
            self.are_simple = False
            return members(kind)
        if attrs.has(kind):
            # cattrs would look the names up itself, but only in the module of the class.
            self._looking_up(kind, lambda names: attrs.resolve_types(kind, localns=names))
            return self._twin(kind, args, _of_attrs)
        if is_plain_dataclass(kind):
            return self._twin(kind, args, _of_dataclass)
        if is_typeddict(kind) and not hasattr(kind, "__pydantic_config__"):
            return self._twin(kind, args, _of_typeddict)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._twin(kind, args, _of_named_tuple)
        self.are_simple &= kind in _SIMPLE
        return annotation

    def _twin(self, kind: Any, args: tuple[Any, ...], fields: Any) -> Any:
        from pydantic import AfterValidator  # noqa: PLC0415 - pydantic is slow to import
        from typing_extensions import TypedDict, get_type_hints, is_typeddict  # noqa: PLC0415 - likewise

        if (kind, args) in self._made:
            return self._made[kind, args]
        make: Any = TypedDict  # the type checker wants to see the fields
        of = f"[{', '.join(getattr(each, '__name__', str(each)) for each in args)}]" if args else ""
        twin = make(kind.__name__ + of, {})
        described, texts = read_docstring(own_doc(kind))
        twin.__module__, twin.__qualname__, twin.__doc__ = kind.__module__, kind.__qualname__ + of, described or None
        # Closed, so that a misspelt field is told; and an infinity is no number of JSON.
        twin.__pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}
        made = twin if is_typeddict(kind) else Annotated[twin, AfterValidator(builder(kind))]
        self._made[kind, args] = made  # before its fields, for they may refer to it
        meant = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
        hints = self._looking_up(kind, lambda names: get_type_hints(kind, localns=names, include_extras=True))
        annotations: dict[str, Any] = {}
        for field in fields(kind, hints):
            annotation = substituted(field.annotation, meant)
            telling = Telling(said(annotation) or field.text or texts.get(field.name), field.default)
            mapped: Any = Annotated[self.map(annotation), telling]
            annotations[field.name] = mapped if field.required else NotRequired[mapped]
        twin.__annotations__ = annotations
        twin.__required_keys__ = frozenset(name for name in annotations if get_origin(annotations[name]) is Annotated)
        twin.__optional_keys__ = frozenset(annotations) - twin.__required_keys__
        return made

    def _looking_up(self, kind: type, look_up: Callable[[dict[str, Any] | None], Any]) -> Any:
        """What looks up the names in a class, given the local ones where it needs them."""
        if "<locals>" not in kind.__qualname__:
            try:
                return look_up(None)
            except NameError:
                pass
        return look_up(self._classes)


def _of_attrs(kind: type, hints: Mapping[str, Any]) -> Iterator[Field]:
    for each in attrs.fields(kind):
        if each.init:
            annotation = hints.get(each.name, Any if each.type is None else each.type)
            required = each.default is attrs.NOTHING
            default = NOTHING if required or isinstance(each.default, attrs.Factory) else each.default  # type: ignore[arg-type] # attrs types its factory as a function
            yield Field(str(each.alias), annotation, default, required, each.metadata.get("description"))


def _of_dataclass(kind: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for name, each in kind.__dataclass_fields__.items():  # `dataclasses.fields` leaves what is only for the init out
        annotation = hints[name]
        if not each.init or annotation is ClassVar or get_origin(annotation) is ClassVar:
            continue
        if isinstance(annotation, dataclasses.InitVar):
            annotation = annotation.type
        default = NOTHING if each.default is dataclasses.MISSING else each.default
        required = default is NOTHING and each.default_factory is dataclasses.MISSING
        yield Field(name, annotation, default, required, each.metadata.get("description"))


def _of_typeddict(kind: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    from typing_extensions import ReadOnly  # noqa: PLC0415 - pydantic brings it

    for name, hint in hints.items():
        required, annotation = name in kind.__required_keys__, hint
        # What is said beside the type counts: annotations that are text hid it when the class was made.
        while get_origin(annotation) in {NotRequired, ReadOnly, Required}:
            if get_origin(annotation) is not ReadOnly:
                required = get_origin(annotation) is Required
            (annotation,) = get_args(annotation)
        yield Field(name, annotation, required=required)


def _of_named_tuple(kind: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for name in kind._fields:
        default = kind._field_defaults.get(name, NOTHING)
        yield Field(name, hints.get(name, Any), default, default is NOTHING)


def substituted(annotation: Any, meant: Mapping[Any, Any]) -> Any:
    """An annotation with what its type variables stand for."""
    if annotation in meant:
        return meant[annotation]
    variables = getattr(annotation, "__parameters__", ()) if get_args(annotation) else ()
    if not meant or not variables:
        return annotation
    return annotation[tuple(meant.get(each, each) for each in variables)]
