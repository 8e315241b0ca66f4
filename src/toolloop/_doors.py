"""`door`: a package whose names are imported when somebody asks for them.

A program that drives a loop needs neither the audit of a store nor the runner, and shall not wait for them when it
starts. (Source: PEP 562, and the lazy imports of scientific Python.) It is a class of modules, and no `__getattr__` in
each package, which type checkers would take for "every name is here". They, and those who read, see plain imports,
under `TYPE_CHECKING`; a test holds them against the table and `__all__`.

It is on no floor, for it must not be inside another package: who imports `toolloop.core.doors` has its lock, and then
waits for `toolloop`, which waits for that lock, if two threads import at once.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def door(package: str, names: Mapping[str, Collection[str]], modules: Collection[str] = ()) -> None:
    """Make a package import its public names at first use.

    Args:
        package: its `__name__`.
        names: what `__all__` lists, by the module that has it.
        modules: those of its own modules that are there without an import of their own.

    """
    room: Any = sys.modules[package]
    vars(room)["_behind"] = {
        **{module: (f"{package}.{module}", None) for module in modules},
        **{name: (module, name) for module, inside in names.items() for name in inside},
    }
    room.__class__ = _Door


class _Door(ModuleType):
    _behind: Mapping[str, tuple[str, str | None]]

    def __getattr__(self, name: str) -> Any:
        if name not in self._behind:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
        module, inside = self._behind[name]
        value = import_module(module)
        # Kept: the next one who asks finds it without this.
        found = vars(self)[name] = getattr(value, inside) if inside else value
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        # Python puts a module that was imported into its package; the function of the same name is what is public.
        is_hidden = isinstance(value, ModuleType) and self._behind.get(name, ("", None))[1]
        if not is_hidden:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self._behind} - {"TYPE_CHECKING"})

    def __reduce__(self) -> tuple[Any, ...]:
        # By its name: what pickles functions by value (cloudpickle) meets modules, and knows their own class only.
        return import_module, (self.__name__,)


__all__ = ["door"]
