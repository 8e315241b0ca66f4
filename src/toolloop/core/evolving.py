"""Frozen values, made at a third of what attrs takes for it: a turn makes some forty, and they lead its profile.

attrs fills each field of a frozen class through `object.__setattr__`, and finds its slot by name each time. Here a
value begins as one of a twin class, which is the same but that it can be changed: a plain store fills a slot there.
Then it takes on its own class, and is frozen. For each use one function is compiled, as attrs compiles a constructor.
Of seventeen fields, `evolve` took 18,300 instructions and takes 8,700, an `evolver` 3,900; a constructor took 16,000
and takes 4,600.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import NOTHING, Attribute, fields

T = TypeVar("T")

if TYPE_CHECKING:
    from attrs import evolve
else:
    _MAKERS: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def evolve(value: Any, /, **changes: Any) -> Any:
        """The value with some fields changed: `attrs.evolve`. The type checker sees that, which knows the fields.

        Raises:
            TypeError: the class has no such field, or does more than fill its slots.

        """
        key = (value.__class__, *changes)
        make = _MAKERS.get(key)
        if make is None:
            make = _MAKERS[key] = evolver(*key)
        return make(value, **changes)


def evolver(kind: type[Any], *changed: str) -> Callable[..., Any]:
    """A function that is `evolve` for a class and these fields, all of which it takes, and is quicker than that.

    For the few places that every turn passes. Show the type checker `attrs.evolve` in its place.

    Raises:
        TypeError: the class has no such field, or does more than fill its slots.

    """
    names = [item.name for item in _plain_fields(kind)]
    if unknown := [name for name in changed if name not in names]:
        raise TypeError(f"{kind.__name__} has no field {', '.join(unknown)}")
    lines = [f"def evolved(_value, {', '.join(changed)}):", " _made = _twin()"]
    lines += [f" _made.{name} = {name if name in changed else f'_value.{name}'}" for name in names]
    lines += [" _made.__class__ = _kind", " return _made"]

    def compile_now() -> None:
        scope.update(_twin=twin_of(kind), _kind=kind)
        exec("\n".join(lines), scope)  # noqa: S102 - made of the names of our own fields
        made.__code__ = scope["evolved"].__code__

    scope: dict[str, Any] = {"_compile_now": compile_now}
    exec(_AT_FIRST, scope)  # noqa: S102 - see there
    made = scope["evolved"]
    return cast("Callable[..., Any]", made)


# What an evolver is at first: it takes on its code when it is first used, so that an import compiles none of them. All
# thirty would take 16 million instructions, or 5 of the 150 milliseconds that an import may take.
_AT_FIRST = compile(
    "def evolved(*args, **named):\n _compile_now()\n return evolved(*args, **named)", "<evolver>", "exec"
)


def quick(kind: type[T]) -> type[T]:
    """A frozen class with a constructor of the same arguments that costs less. It is compiled when it is first used.

    Raises:
        TypeError: when it is used, of a class that does more than fill its slots.

    """
    constructor: Callable[..., None] = vars(kind)["__init__"]

    @wraps(constructor)
    def first(self: Any, *args: Any, **kwargs: Any) -> None:
        compiled = _constructor(kind, constructor)
        setattr(kind, "__init__", compiled)  # noqa: B010 - mypy knows that this is no way
        compiled(self, *args, **kwargs)

    setattr(kind, "__init__", first)  # noqa: B010 - likewise
    return kind


def _constructor(kind: type[Any], usual: Callable[..., None]) -> Callable[..., Any]:
    items = _plain_fields(kind)
    scope: dict[str, Any] = {"_NOTHING": NOTHING, "_usual": usual, "_kind": kind, "_twin": twin_of(kind)}
    scope["_become"] = vars(object)["__class__"].__set__  # what is frozen lets nobody say `self.__class__ = ...`
    scope |= {f"_default_{item.name}": getattr(item.default, "factory", item.default) for item in items}
    named = [item for item in items if item.kw_only]
    takes = [_parameter(item) for item in items if not item.kw_only]
    takes += ["*", *map(_parameter, named)] if named else []
    passed = [f"{item.name}={item.name}" for item in items]
    lines = [f"def __init__(self, {', '.join(takes)}):", " if self.__class__ is not _kind:  # but an heir of it"]
    lines += [f"  return _usual(self, {', '.join(passed)})", " _become(self, _twin)"]
    lines += [f" self.{item.name} = {_value(item)}" for item in items]
    lines += [" self.__class__ = _kind"]
    return wraps(usual)(_compiled(lines, "__init__", **scope))


def _parameter(item: Attribute[Any]) -> str:
    if item.default is NOTHING:
        return item.name
    return f"{item.name}=_NOTHING" if _is_made(item) else f"{item.name}=_default_{item.name}"


def _value(item: Attribute[Any]) -> str:
    return f"_default_{item.name}() if {item.name} is _NOTHING else {item.name}" if _is_made(item) else item.name


def _is_made(item: Attribute[Any]) -> bool:
    """Whether the default of a field is made anew for each value."""
    return hasattr(item.default, "factory")


_TWINS: dict[type[Any], Any] = {}


def twin_of(kind: type[Any]) -> Any:
    """The class of the same slots whose values can be changed, and then be given the class itself: see above.

    It adds nothing to the class, so the two have one layout, and may take each other's place.
    """
    if kind not in _TWINS:
        free = {"__init__": object.__init__, "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
        _TWINS[kind] = type(f"_{kind.__name__}", (kind,), {"__slots__": (), **free})
    return _TWINS[kind]


def _plain_fields(kind: type[Any]) -> tuple[Attribute[Any], ...]:
    """The fields of a class, if there is no more to making a value of it than to fill them.

    Raises:
        TypeError: there is.

    """
    items: tuple[Attribute[Any], ...] = fields(kind)
    slots = {name for owner in kind.__mro__ for name in getattr(owner, "__slots__", ())}
    if hasattr(kind, "__attrs_post_init__") or not all(_is_plain(item) and item.name in slots for item in items):
        raise TypeError(
            f"{kind.__name__} does more than fill its slots: use attrs.evolve, and the constructor of attrs"
        )
    return items


def _is_plain(item: Attribute[Any]) -> bool:
    if item.converter or item.validator or getattr(item.default, "takes_self", False):
        return False
    return item.init and item.alias in (None, item.name)


def _compiled(lines: list[str], name: str, **scope: Any) -> Callable[..., Any]:
    exec("\n".join(lines), scope)  # noqa: S102 - made of the names of our own fields
    made: Callable[..., Any] = scope[name]
    return made


__all__ = ["evolve", "evolver", "quick", "twin_of"]
