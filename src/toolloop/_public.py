"""How a class or function is shown as a name of the public module that exports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ForwardRef, TypeVar

from toolloop._names import deprecated_names

_T = TypeVar("_T")


def set_module(name: str) -> Callable[[_T], _T]:
    """Show a class or function as a name of the public module that exports it: in tracebacks, reprs and pickles.

    The annotations of a class remember the module that defines it, so `typing.get_type_hints` still resolves them.
    `inspect.getsource` of a class looks into the public module, and does not find it; that of a method does. The same
    holds for NumPy and pandas, which set `__module__`, too.
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


def export(package: dict[str, Any], moved: Mapping[str, str] | None = None) -> None:
    """Make all that a package imports its `__all__`, and show these names as its own.

    Args:
        package: its `globals()`.
        moved: as in `deprecated_names`.

    """
    names = [name for name, value in package.items() if name[0] != "_" and not isinstance(value, ModuleType)]
    for name in names:
        if getattr(package[name], "__module__", "").count(".") > 1:  # still named by the room that defines it
            set_module(package["__name__"])(package[name])
    package["__all__"] = sorted(names)
    package["__dir__"] = lambda: list(package["__all__"])
    if moved:
        package["__getattr__"] = deprecated_names(package["__name__"], moved)
