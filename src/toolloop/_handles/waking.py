"""Wake a stored loop: the changes that a driver makes in a loop that another one may have driven last."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from attrs import asdict, evolve, field, frozen

from toolloop._engine.runtimes import Runtime
from toolloop._interface.drift import Difference, find_changes, list_tools_with_open_calls
from toolloop._interface.loop_params import check_request
from toolloop.errors import BadTool, Drift
from toolloop.machine.record.loop import State
from toolloop.machine.values.jsontext import decode, encode
from toolloop.machine.values.setup import Limits, Setup

# `leave`, for workers, refuses like `raise`, and also if a tool is missing that has no open calls.
OnDrift = Literal["raise", "accept", "strict", "leave"]


@frozen
class WakeUp:
    """How to take a loop over.

    Attributes:
        on_drift: `raise` refuses changes that may let a gated call run, `strict` refuses any change, `accept` none, and
            `leave` also refuses tools that are missing.
        given: the changes that the caller gave, by the fields of `Setup`: the old and the new value. Parameters and
            limits that were changed meanwhile are kept.

    """

    on_drift: OnDrift = "raise"
    given: Mapping[str, tuple[Any, Any]] = field(factory=dict)

    def compare(self, state: State, runtime: Runtime) -> tuple[Setup | None, tuple[str, ...]]:
        """Return the new setup of the outermost loop, and the tools whose open calls must be approved again.

        The setup is None if it is unchanged. The names of the tools are as in `Woken`.

        Args:
            state: the state of the tree.
            runtime: the runtime of the outermost loop.

        Raises:
            Drift: a change of this loop, or of those inside its calls, is refused.

        """
        old = state.root.setup
        given = {name: _merge(name, was, new, getattr(old, name)) for name, (was, new) in self.given.items()}
        new = runtime.renew_setup(evolve(old, **given))
        if new == old:
            return None, ()
        still_open = list_tools_with_open_calls(state)
        found = list(find_changes(old, new, still_open))
        refused = tuple(change.text for change in found if self._is_refused(change))
        if refused and self.on_drift != "accept":
            raise Drift(
                f"the loop was stored with a different configuration: {'; '.join(refused)}. "
                'Restore it, or pass on_drift="accept" to continue with the current one',
                changes=refused,
                missing=tuple(change.missing for change in found if change.missing),
            )
        try:
            check_request(decode(new.params), runtime.tools.definitions(), asked="next_turn()")
        except (BadTool, ValueError) as error:
            problem = f"the stored parameters do not fit the current tools, so open the loop with other params: {error}"
            raise Drift(problem, changes=()) from error
        changed = sorted({change.tool for change in found if change.tool})
        return new, tuple(name for name in changed if _is_on_a_path(name, still_open))

    def _is_refused(self, change: Difference) -> bool:
        is_missing = self.on_drift == "leave" and bool(change.missing)
        return change.is_unsafe or is_missing or self.on_drift == "strict"


def _is_on_a_path(name: str, still_open: Collection[str]) -> bool:
    """Return whether a tool, or one of the outer tools that precede it, has open calls."""
    return any(f"{name}/".startswith(f"{each}/") for each in still_open)


def _merge(name: str, was: Any, new: Any, now: Any) -> Any:
    """Return the new value of a field of `Setup`. Parameters and limits that changed since it was read are kept."""
    if now == was:
        return new
    match name:
        case "params":
            return encode(_merge_each(*map(decode, (was, new, now))))
        case "limits":
            return Limits(**_merge_each(*(asdict(limits, recurse=False) for limits in (was, new, now))))
    return now


def _merge_each(was: dict[str, Any], new: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    sides = {name: new if now.get(name) == was.get(name) else now for name in [*new, *now]}
    return {name: side[name] for name, side in sides.items() if name in side}
