"""What the schema tells beside types: descriptions and defaults, the same bytes from run to run."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs

from toolloop.core.freezing import frozen
from toolloop.core.jsontext import JSON, canonical, encode

# No default. That of attrs would not do: given as a default it means that there is none.
NOTHING: Any = object()

_TYPES: dict[str, Any] = {
    "integer": int,
    "number": (int, float),
    "string": str,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


@frozen(eq=False)
class Telling:
    """What is said about a field; in `Annotated[..., Telling(...)]`. What the annotation itself says comes first."""

    description: str | None
    default: Any = NOTHING

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[..., Any]) -> JSON:
        """What pydantic says of the field, and this."""
        described = handler(schema)
        if self.description:
            described.setdefault("description", self.description)
        if self.default is not NOTHING:
            with suppress(TypeError, ValueError):  # not JSON: it is the class's own affair
                described.setdefault("default", told(self.default))
        return with_fitting_default(described)


def refuse_sets(info: Any) -> None:
    """Refuse sets where pydantic writes them into the schema in their own order, which differs from run to run.

    Raises:
        TypeError: there is one in the examples or the extra schema of a field, or of a class.

    """
    extra = info.get("json_schema_extra") if isinstance(info, dict) else getattr(info, "json_schema_extra", None)
    if _holds_set([getattr(info, "examples", None), extra]):
        raise TypeError("its examples or json_schema_extra hold a set, which has no order: give a list")


def refuse_sets_in(kind: Any) -> None:
    """The same for the fields and the configuration of one of pydantic's classes."""
    configs = (getattr(kind, name, None) for name in ("model_config", "__pydantic_config__"))
    for each in (*configs, *getattr(kind, "__pydantic_fields__", {}).values()):
        refuse_sets(each)


def _holds_set(value: Any) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, set | frozenset) or any(map(_holds_set, inside))


def with_fitting_default(described: dict[str, JSON]) -> dict[str, JSON]:
    """Without a default that the schema beside it refuses, such as that of `n: int = None`."""
    if "default" in described and (kind := _TYPES.get(described.get("type", ""))):
        default = described["default"]
        if not isinstance(default, kind) or isinstance(default, bool) is not (kind is bool):
            del described["default"]
    return described


def told(default: object) -> JSON:
    """A default as JSON.

    Raises:
        TypeError: it is not JSON.
        ValueError: it holds NaN or an infinity.

    """
    from pydantic_core import PydanticSerializationError  # noqa: PLC0415 - pydantic is slow to import

    try:
        value = _plain(default)
    except PydanticSerializationError as error:
        raise TypeError(str(error)) from error
    encode(value)
    return value


def _plain(value: Any) -> JSON:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - pydantic is slow to import

    value = _opened(value)
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        # The order of a set differs from run to run.
        return sorted((_plain(item) for item in value), key=canonical)
    return to_jsonable_python(value, inf_nan_mode="constants", by_alias=True)


def _opened(value: Any) -> Any:
    """The fields of an instance, as its schema names them; what has none as it is."""
    kind = type(value)
    if hasattr(kind, "__pydantic_fields__"):
        return kind.__pydantic_serializer__.to_python(value, by_alias=True)
    if dataclasses.is_dataclass(kind):
        return {each: getattr(value, each) for each in _given_to(kind)}
    if attrs.has(kind):
        return {str(each.alias): getattr(value, each.name) for each in attrs.fields(kind) if each.init}
    return value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value


def _given_to(kind: Any) -> list[str]:
    """The fields of a dataclass that its constructor takes.

    Raises:
        TypeError: it takes one that it does not keep.

    """
    kept = dataclasses.fields(kind)
    parameters = inspect.signature(kind.__init__).parameters.keys() - {"self"}
    if parameters - {each.name for each in kept}:
        raise TypeError(f"{kind.__name__} does not keep all that it is given")
    return [each.name for each in kept if each.init]
