"""The parameters and limits that a caller changes, read once: before the state is known to which they apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from toolloop._interface.config import LoopConfig
from toolloop._requests.params import Secrets, check_params, split
from toolloop.machine.values.jsontext import JSON

# The parameters that must fit each other and the history. Cache marks of all of them count together.
SHAPING: Final = frozenset({"cache_control", "max_tokens", "model", "system", "thinking", "tool_choice", "tools"})


@frozen
class ParamChanges:
    """Other request parameters, as `update_params` takes them.

    Attributes:
        stored: the stored parameters, as JSON.
        secrets: the parameters that are never stored.
        names: the names of all given parameters, including removed ones.

    """

    stored: dict[str, JSON]
    secrets: Secrets
    names: tuple[str, ...]
    removed: frozenset[str]


def read_params(changes: Mapping[str, Any]) -> ParamChanges:
    """Read the arguments of `update_params`; None removes a parameter.

    Raises:
        TypeError: a parameter is not JSON.
        ValueError: a parameter cannot be set this way, or is required and cannot be removed.

    """
    asked = "update_params()"
    if "messages" in changes:
        raise ValueError(f"{asked}: messages is not allowed here. Change the history with messages_mut()")
    given = check_params(changes, asked=asked)
    removed = frozenset(name for name, value in given.items() if value is None)
    if needed := removed & {"model", "max_tokens"}:
        raise ValueError(f"{asked}: {', '.join(sorted(needed))} cannot be removed; give another value")
    stored, secrets = split({name: value for name, value in given.items() if value is not None})
    return ParamChanges(stored, secrets, tuple(given), removed)


def read_limits(**limits: Any) -> dict[str, Any]:
    """Read the arguments of `extend`, by the fields of `Limits`; None keeps a limit.

    Raises:
        ValueError: a limit is out of range.

    """
    changes = {name: value for name, value in limits.items() if value is not None}
    LoopConfig(**changes)  # checks the values
    return changes
