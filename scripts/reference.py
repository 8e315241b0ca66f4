"""An extension of griffe: what the reference shows beyond the docstrings.

A class gets the constructor that attrs writes for it, and a constant gets a text. Classes that only the library creates
are shown without a constructor.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, cast

import attrs
import griffe

from scripts.surface import HANDED_OUT, MODULES, constant

LONGEST_DEFAULT = 40


class Reference(griffe.Extension):
    """Complete the public names of the package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Look through the public modules once the package is loaded."""
        for path in MODULES:
            module = importlib.import_module(f"{pkg.path}.{path}".rstrip("."))
            found = pkg[path] if path else pkg
            found.exports = list(module.__all__)  # made when the module is imported, so griffe cannot read them
            for name in module.__all__:
                value = getattr(module, name)
                if inspect.isfunction(value) and found.members[name].is_module:
                    # The package exports a function with the name of its module.
                    found.members[name] = griffe.Alias(name, found[name].members[name], parent=found)
                _complete(found.members[name], value)


def _complete(member: griffe.Object | griffe.Alias, value: object) -> None:
    target = member.final_target if isinstance(member, griffe.Alias) else member
    if isinstance(target, griffe.Attribute) and not target.docstring:
        target.docstring = griffe.Docstring(constant(member.name, value), parent=target)
    elif isinstance(target, griffe.Class) and target.name in HANDED_OUT:
        target.members.pop("__init__", None)
    elif isinstance(target, griffe.Class) and "__init__" not in target.members and attrs.has(cast("type", value)):
        target.set_member("__init__", _constructor(target, cast("type", value)))


def _constructor(found: griffe.Class, value: type) -> griffe.Function:
    own = inspect.signature(value).parameters
    parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
    for field in attrs.fields(value):
        if (parameter := own.get(field.alias or field.name)) is None:
            continue
        is_named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        kind = griffe.ParameterKind.keyword_only if is_named else griffe.ParameterKind.positional_or_keyword
        member = found.all_members.get(field.name)
        annotation = member.annotation if isinstance(member, griffe.Attribute) else None
        parameters.append(griffe.Parameter(parameter.name, annotation=annotation, kind=kind, default=_default(field)))
    return griffe.Function("__init__", parameters=griffe.Parameters(*parameters), returns="None", parent=found)


def _default(field: attrs.Attribute[Any]) -> str | None:
    if field.default is attrs.NOTHING:
        return None
    text = repr(field.default)
    return text if len(text) <= LONGEST_DEFAULT and not text.startswith(("<", "Factory")) else "..."
