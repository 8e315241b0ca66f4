"""Reading the events of a journal quickly.

A journal has thousands of small objects of a few plain values each. For each class one function is compiled, as attrs
compiles a constructor: it takes a value of the very type of its field as it is, asks the hooks of `shapes` about any
other, and fills the slots of a new value, as `evolving` does. It says nothing of what is wrong: `shapes.read` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import attrs

from toolloop.core.evolving import twin_of
from toolloop.core.jsontext import JSON
from toolloop.core.replies import Reply
from toolloop.core.values import Result
from toolloop.stores.shapes import hook_of, is_checked

_PLAIN = (str, int, float, bool, Reply)  # a reply, and the content of a result, are looked at where their text is


@cache
def quick(kind: Any) -> Callable[[dict[str, JSON]], Any]:
    """A function that reads a class from fields that nobody else will use."""
    if (is_checked(kind) and kind is not Result) or any(
        hasattr(item.default, "factory") for item in attrs.fields(kind)
    ):
        return hook_of(kind)
    attrs.resolve_types(kind)
    lines = ["def read(fields):", " made = twin()"]
    scope: dict[str, Any] = {"kind": kind, "twin": twin_of(kind)}
    for item in attrs.fields(kind):
        name, of = item.name, _of_some(item.type)
        scope[f"type_{name}"] = of if of in _PLAIN else _none_of(item.type)
        scope[f"hook_{name}"] = quick(of) if attrs.has(of) and of not in _PLAIN else hook_of(item.type)
        indent = " "
        if item.default is not attrs.NOTHING:
            indent = "  "
            scope[f"default_{name}"] = item.default
            lines += [f" if {name!r} not in fields:", f"  made.{name} = default_{name}", " else:"]
        lines += [
            f"{indent}value = fields.pop({name!r})",
            f"{indent}if value.__class__ is not type_{name}:",
            f"{indent} value = hook_{name}(value)",
            *([f"{indent}elif value - value:", f"{indent} raise ValueError"] if of is float else ()),
            f"{indent}made.{name} = value",
        ]
    lines += [" if fields:", "  raise LookupError", " made.__class__ = kind", " return made"]
    exec("\n".join(lines), scope)  # noqa: S102 - made of the names of our own fields
    read: Callable[[dict[str, JSON]], Any] = scope["read"]
    return read


def _none_of(kind: Any) -> Any:
    """The type of None, if that is allowed; else one that no value of JSON has."""
    return NoneType if NoneType in get_args(kind) else object


def _of_some(kind: Any) -> Any:
    """The type of what is not None."""
    some = [part for part in get_args(kind) if part is not NoneType]
    return some[0] if get_origin(kind) in (Union, UnionType) and len(some) == 1 else kind
