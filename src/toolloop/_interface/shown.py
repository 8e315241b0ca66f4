"""Calls as they were shown, and decisions that are bound to exactly that."""

from __future__ import annotations

from typing import Protocol

from attrs import evolve

from toolloop._public import set_module
from toolloop.machine.values.calls import Decision
from toolloop.machine.values.jsontext import describe_type

# A call by its id, by its path joined with "/", or by the path itself, which is unambiguous.
Named = str | tuple[str, ...]


@set_module("toolloop.types")
class Shown(Protocol):
    """A call as it was shown: a `ToolCall`, or the item of a store or an inbox."""

    @property
    def path(self) -> tuple[str, ...]:
        """The ids from the outermost call down to it."""
        ...

    @property
    def digest(self) -> str:
        """The hash that binds a decision to it."""
        ...


def bind_to_digest(call: str | Shown, decision: Decision) -> tuple[Named, Decision]:
    """Return the name or path of a call, and the decision. A decision about a shown call is bound to its digest."""
    if isinstance(call, str):
        return call, decision
    if hasattr(call, "path") and hasattr(call, "digest"):
        is_bound = getattr(decision, "digest", "") is not None  # values that are not decisions are refused later
        return call.path, decision if is_bound else evolve(decision, digest=call.digest)
    raise TypeError(f"expected the id of a call, or a ToolCall, got {describe_type(call)}")
