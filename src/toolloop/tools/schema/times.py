"""Dates and times as texts in ISO 8601, and as nothing else."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any

from toolloop.core.jsontext import encode

TIMES = {dt.date: "date", dt.datetime: "datetime", dt.time: "time", dt.timedelta: "time_delta"}
_NUMBER = re.compile(r"[\s\d.+-]*")
_DATE = re.compile(r"\d+-\d+-\d+")


def time(kind: type) -> Any:
    """A date, time or duration for pydantic, which would read the text `"5"` as seconds since 1970."""
    from pydantic import AfterValidator, TypeAdapter, WithJsonSchema  # noqa: PLC0415 - pydantic is slow to import
    from pydantic_core import PydanticCustomError  # noqa: PLC0415 - likewise

    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def parse(text: str) -> Any:
        if _NUMBER.fullmatch(text) and not _DATE.fullmatch(text):
            raise PydanticCustomError(f"{TIMES[kind]}_number", "is a number")
        return adapter.validate_json(encode(text), strict=True)

    return Annotated[str, AfterValidator(parse), WithJsonSchema(adapter.json_schema())]
