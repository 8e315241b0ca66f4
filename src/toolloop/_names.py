"""How public modules hand out their names: on first use, under one module, and under old names with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, ForwardRef, TypeVar

_T = TypeVar("_T")


def set_module(name: str) -> Callable[[_T], _T]:
    """Show a class or function as a name of the public module that exports it: in tracebacks, reprs and pickles.

    The annotations of a class remember the module that defines it, so `typing.get_type_hints` still resolves them.
    """

    def mark(value: Any) -> Any:
        annotations = vars(value).get("__annotations__", {}) if isinstance(value, type) else {}
        for key, annotation in annotations.items():
            text = getattr(annotation, "__forward_arg__", annotation)
            if isinstance(text, str) and getattr(annotation, "__forward_module__", None) is None:
                annotations[key] = ForwardRef(text, is_argument=False, module=value.__module__, is_class=True)
        value.__module__ = name
        return value

    return mark


def export(package: dict[str, Any]) -> None:
    """Make all that a package imports its `__all__`, and show these names as its own.

    Args:
        package: its `globals()`.

    """
    names = [name for name, value in package.items() if name[0] != "_" and not isinstance(value, ModuleType)]
    for name in names:
        if getattr(package[name], "__module__", "").count(".") > 1:  # defined in a room, and nobody's yet
            set_module(package["__name__"])(package[name])
    package["__all__"] = sorted(names)


def lazy_names(
    package: str, origins: Mapping[str, tuple[str, ...]], modules: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__all__`, `__getattr__` and `__dir__` of a package that imports its names on first use (PEP 562).

    Args:
        package: its name.
        origins: the modules that define its names, and these names.
        modules: its public modules.

    """
    names = {name: origin for origin, defined in origins.items() for name in defined}

    def find_name(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        import_module("toolloop.machine")  # as a whole: threads that import parts of it may wait for each other
        value = getattr(import_module(names[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(names), find_name, lambda: sorted((*names, *modules))


def deprecated_names(module: str, moved: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module some of whose names have moved. `moved`: name, then `module:name`."""

    def find_name(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        origin, _, new = moved[name].partition(":")
        warnings.warn(f"{module}.{name} is now {origin}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(origin), new)

    return find_name
