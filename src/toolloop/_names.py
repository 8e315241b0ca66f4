"""How public modules hand out their names: on first use, and under old names with a warning.

`import toolloop` loads this, so it imports nothing that costs time, not even `typing`.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def deprecated_names(module: str, moved: Mapping[str, str], *, stacklevel: int = 2) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module some of whose names have moved. `moved`: name, then `module:name`."""

    def find_name(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        import warnings  # noqa: PLC0415 - not every program uses an old name

        origin, _, new = moved[name].partition(":")
        warnings.warn(f"{module}.{name} is now {origin}.{new}", DeprecationWarning, stacklevel=stacklevel)
        return getattr(import_module(origin), new)

    return find_name


def lazy_names(
    package: str,
    origins: Mapping[str, tuple[str, ...]],
    modules: tuple[str, ...] = (),
    moved: Mapping[str, str] | None = None,
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__all__`, `__getattr__` and `__dir__` of a package that imports its names on first use (PEP 562).

    Args:
        package: its name.
        origins: the modules that define its names, and these names.
        modules: its public modules.
        moved: as in `deprecated_names`.

    """
    names = {name: origin for origin, defined in origins.items() for name in defined}
    find_old = deprecated_names(package, moved or {}, stacklevel=3)

    def find_name(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in names:
            return find_old(name)
        import_module("toolloop.machine")  # as a whole: threads that import parts of it may wait for each other
        value = getattr(import_module(names[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(names), find_name, lambda: sorted((*names, *modules))
