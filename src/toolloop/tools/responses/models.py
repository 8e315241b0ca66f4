"""Pydantic's models and dataclasses, by their own serializers."""

from __future__ import annotations

import json
from typing import Any

from toolloop.core.jsontext import JSON


def is_dataclass_of_pydantic(kind: type) -> bool:
    """Whether a dataclass has a serializer of its own; one that it inherits does not know the fields it adds."""
    return "__pydantic_serializer__" in vars(kind)


def dumped(value: Any) -> JSON:
    """What a model or a dataclass of pydantic is in JSON mode. In no other: a field may be hidden in that one alone.

    Raises:
        ValueError: it holds bytes that pydantic cannot write, or a dict two of whose keys are one as JSON.

    """
    serializer = None if hasattr(value, "model_dump") else type(value).__pydantic_serializer__
    try:
        plain = serializer.to_python(value, mode="json") if serializer else value.model_dump(mode="json")
    except UnicodeDecodeError:
        raise ValueError(
            "it holds bytes that are no UTF-8 text; its model_config may say how they are written: "
            "ser_json_bytes='base64'"
        ) from None
    try:
        text = serializer.to_json(value, warnings=False) if serializer else value.model_dump_json(warnings=False)
    except Exception:  # noqa: BLE001 - it is none of pydantic's, or holds half a surrogate pair, which is mended later
        return plain
    # Of two keys that are one as JSON a dict keeps the last, without a word; the text has both.
    json.loads(text, object_pairs_hook=_check_keys, parse_int=str)
    return plain


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    keys = {key for key, _ in pairs}
    for key, _ in pairs:
        if key not in keys:
            raise ValueError(f"it holds a dict with two keys that are {key[:40]!r} as JSON")
        keys.remove(key)
