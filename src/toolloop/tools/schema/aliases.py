"""Type aliases: what a `type` statement makes, which may refer to itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from toolloop.tools.schema.signature import resolve


def value_of(alias: Any, local: Mapping[str, Any]) -> Any:
    """What an alias stands for; one that is made of a text is looked up where it was made.

    Raises:
        NameError: a name in it is not known.

    """
    known = vars(sys.modules.get(alias.__module__, sys))
    return resolve(alias.__value__, known, local)


class Alias:
    """An alias, for pydantic: in `Annotated[Any, Alias(...)]`.

    pydantic would look its value up itself, and find there what has not been mapped.

    Args:
        ref: what its schema is known by: its name, a colon, and what makes it unique.

    """

    def __init__(self, ref: str) -> None:
        """Say what it stands for next."""
        self._ref = ref
        self._kind: Any = None
        self._is_open = False
        self._is_recursive = False

    def stands_for(self, kind: Any) -> None:
        """Say what it stands for, which may hold the alias itself."""
        self._kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """How pydantic validates and describes it."""
        from pydantic_core import core_schema  # noqa: PLC0415 - pydantic is slow to import

        if self._is_open:
            self._is_recursive = True
            return core_schema.definition_reference_schema(self._ref)
        self._is_open = True
        try:
            schema = handler.generate_schema(self._kind)
        finally:
            self._is_open = False
        return core_schema.chain_schema([schema], ref=self._ref) if self._is_recursive else schema
