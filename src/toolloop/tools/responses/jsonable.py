"""Convert Python values to JSON."""

from __future__ import annotations

import inspect
import json
from collections import UserString
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import attrs

from toolloop.machine.values.jsontext import JSON, describe_type, make_well_formed
from toolloop.tools.responses.failure_texts import Unsendable, make_headline
from toolloop.tools.responses.response_types import EmptyResponse, JsonResponse, LinkResponse, Response, TextResponse

_REMEDY = "return text, JSON values, a dataclass, an attrs class, a pydantic model or a response"


def to_json_text(value: Any) -> str:
    """Return the compact JSON text of a value.

    pydantic converts the types that it supports: dataclasses, models, dates, decimals, enums, sets, generators and so
    on. Instances of attrs classes become objects, and NumPy values become numbers and lists. NaN and infinities become
    `null`, and a lone surrogate becomes U+FFFD.

    Raises:
        Unsendable: the value holds an unsupported type, bytes that are not UTF-8 text, or itself.

    """
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - `import toolloop` must not import it

    try:
        plain = to_jsonable_python(_put_in_order(value), fallback=_make_plainer, inf_nan_mode="null")
        return make_well_formed(json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except Unsendable:
        raise
    except RecursionError as error:
        raise Unsendable("it contains itself, or is nested too deeply for JSON") from error
    except UnicodeDecodeError as error:
        raise Unsendable("it holds bytes that are not UTF-8 text; return them as a FileResponse") from error
    except Exception as error:
        raise Unsendable(f"it cannot be converted to JSON: {make_headline(error)}") from error


def _put_in_order(value: Any) -> Any:
    """Return the value with sets as sorted lists, and with keys as JSON writes them.

    So a repeated run sends the same bytes, and two keys never become one.
    """
    if isinstance(value, (set, frozenset)):
        return sorted(map(_put_in_order, value), key=to_json_text)
    if isinstance(value, (list, tuple)):
        return [_put_in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = {_to_key(key): _put_in_order(item) for key, item in value.items()}
    if len(named) < len(value):
        raise Unsendable(f"two of its keys are the same text in JSON; the keys are {', '.join(map(repr, named))}")
    return named


def _to_key(key: Any) -> Any:
    if isinstance(key, str):
        return make_well_formed(str.__str__(key))
    return json.dumps(key) if key is None or isinstance(key, (bool, int)) else key


def to_json(value: Any) -> JSON:
    """Return a value as plain JSON values.

    Raises:
        Unsendable: see `to_json_text`.

    """
    return json.loads(to_json_text(value))


def _make_plainer(value: Any) -> Any:
    """Return a value that pydantic supports, or one step closer to it."""
    kind = type(value)
    if isinstance(value, Response):
        return _unwrap(value)
    if attrs.has(kind):
        return {each.name: getattr(value, each.name) for each in attrs.fields(kind)}
    for base, plain in _PLAINER.items():
        if isinstance(value, base):
            return plain(value)
    if getattr(getattr(value, "dtype", None), "kind", "") in {"M", "m"}:  # NumPy's times, to the nanosecond
        value = value.astype(str)
    for method in ("to_dict", "tolist"):
        if not isinstance(value, type) and callable(getattr(value, method, None)):
            return getattr(value, method)()
    if isinstance(value, (Collection, Iterator)):
        return list(value)
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns that it was never awaited
        raise Unsendable("it is a coroutine; await it in the tool, and declare the tool with async def")
    raise Unsendable(f"a value of type {kind.__name__} cannot be converted to JSON: {_REMEDY}")


_PLAINER: dict[type, Any] = {UserString: str, PurePath: str, memoryview: bytes, Mapping: dict}


def _unwrap(response: Response) -> Any:
    match response:
        case TextResponse():
            return response.text
        case JsonResponse():
            return response.data
        case LinkResponse():
            return {"name": response.name, "url": response.url}
        case EmptyResponse():
            return None
    what = describe_type(response)
    raise Unsendable(f"it holds {what} inside data; return that alone, or combine several in RawOutputs([...])")
