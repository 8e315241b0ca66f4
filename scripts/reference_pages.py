"""The pages of the reference as plain Markdown, from signatures and docstrings, for readers without the site.

A page has the docstring of its module, then each name of `__all__`: a signature, the docstring, and the public methods
and properties. The site shows its own form of the same docstrings instead; see `scripts/site_pages.py`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from scripts.surface import HANDED_OUT, constant

LONGEST_DEFAULT = 40
LONGEST_LINE = 100
_SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields):")
_ITEM = re.compile(r"(?P<names>[*\w.]+(?:, [*\w.]+)*): (?P<text>.*)")


def page(door: str) -> str:
    """Return the page of a public module, without its title."""
    module = importlib.import_module(door)
    parts = [_text(module.__doc__)]
    for name in sorted(module.__all__, key=lambda name: (name.lower(), name)):
        parts += _describe(name, getattr(module, name))
    return "\n\n".join(part for part in parts if part)


def _describe(name: str, value: Any) -> Iterator[str]:
    yield f"## {name}"
    if inspect.isclass(value):
        is_made_by_callers = name not in HANDED_OUT and not getattr(value, "_is_protocol", False)
        yield _signature(name, value) if is_made_by_callers else ""
        yield _text(value.__doc__)
        for member, found in _members(value):
            yield from _describe_member(f"{name}.{member}", found)
    elif inspect.isfunction(value):
        yield _signature(name, value)
        yield _text(value.__doc__)
    else:
        yield constant(name, value)


def _members(owner: type) -> list[tuple[str, Any]]:
    """Return the public methods and properties of a class, also those that it inherits from the library."""
    found = dict[str, Any]()
    for base in owner.__mro__:
        for name, member in vars(base).items() if base.__module__.startswith("toolloop") else ():
            function = getattr(member, "__func__", member)
            is_member = isinstance(member, (property, cached_property)) or inspect.isfunction(function)
            if is_member and not name.startswith("_"):
                found.setdefault(name, member)
    return sorted(found.items())


def _describe_member(name: str, member: Any) -> Iterator[str]:
    yield f"### {name}"
    if isinstance(member, (property, cached_property)):
        getter: Any = member.fget if isinstance(member, property) else member.func
        yield _code(f"{name}: {_annotation(inspect.signature(getter).return_annotation)}")
        yield _text(getter.__doc__)
    else:
        is_bound = not isinstance(member, staticmethod)
        yield _signature(name, getattr(member, "__func__", member), skip=1 if is_bound else 0)
        yield _text(getattr(member, "__func__", member).__doc__)


def _signature(name: str, value: Any, *, skip: int = 0) -> str:
    """Return a signature as a block of code. `skip`: how many parameters the caller does not give, such as `self`."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # a class of the standard library's, such as an exception, has none
        return ""
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    kinds, parts = inspect.Parameter, list[str]()
    parameters = list(signature.parameters.values())[skip:]
    for index, parameter in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if parameter.kind is kinds.KEYWORD_ONLY and before not in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL):
            parts.append("*")
        parts.append(_parameter(parameter))
        after = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if parameter.kind is kinds.POSITIONAL_ONLY is not after:
            parts.append("/")
    returned = "" if inspect.isclass(value) else f" -> {_annotation(signature.return_annotation)}"
    line = f"{prefix}{name}({', '.join(parts)}){returned}"
    if len(line) > LONGEST_LINE:
        line = f"{prefix}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"
    return _code(line)


def _parameter(parameter: inspect.Parameter) -> str:
    kinds = inspect.Parameter
    stars = "*" if parameter.kind is kinds.VAR_POSITIONAL else "**" if parameter.kind is kinds.VAR_KEYWORD else ""
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = repr(parameter.default)
        is_plain = len(default) <= LONGEST_DEFAULT and not default.startswith("<") and default != "NOTHING"
        text += f" = {default if is_plain else '...'}"
    return text


def _annotation(value: Any) -> str:
    if value is inspect.Signature.empty:
        return "Any"
    text = value if isinstance(value, str) else value.__name__ if isinstance(value, type) else str(value)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


def _text(docstring: str | None) -> str:
    """Return a docstring as Markdown: each of its sections becomes a list."""
    lines, in_section = list[str](), False
    for line in inspect.cleandoc(docstring or "").splitlines():
        if found := _SECTION.fullmatch(line):
            lines += [f"**{found[1]}**", ""]
            in_section = True
        elif in_section and line and not line.startswith(" "):
            in_section = False
            lines.append(line)
        elif in_section:
            lines.append(_listed(line.removeprefix("    ")))
        else:
            lines.append(line)
    return "\n".join(lines).strip()


def _listed(line: str) -> str:
    """Return a line of a section: an item, or what continues one."""
    if not line.startswith(" ") and (found := _ITEM.fullmatch(line)):
        names = ", ".join(f"`{name}`" for name in found["names"].split(", "))
        return f"- {names}: {found['text']}"
    return f"  {line.strip()}" if line.startswith(" ") else line
