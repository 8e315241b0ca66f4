"""The state of a loop and of the loops inside its calls: a flat map by path of call ids."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from toolloop.machine.record.loop import Loop, find_round_calls
from toolloop.machine.values.calls import Call

Path = tuple[str, ...]


@frozen
class State:
    """A tree of loops as one immutable value. `loops`: by path, parents before children; () is the outermost loop."""

    loops: Mapping[Path, Loop] = field(repr=False)

    @property
    def root(self) -> Loop:
        """Return the outermost loop."""
        return self.loops[()]

    def at(self, path: Path) -> Loop | None:
        """Return the loop at a path, or None."""
        return self.loops.get(path)

    def calls_along(self, path: Path) -> list[Call | None]:
        """Return the calls that lead to the loop at a path, from the outermost down; None for each that is gone."""
        return [self.find_call(path[:length]) for length in range(1, len(path) + 1)]

    def find_call(self, path: Path) -> Call | None:
        """Return the call at a path, if its round is open or a loop after a limit resumes with it."""
        loop = self.at(path[:-1])
        return None if loop is None else find_round_calls(loop).find(path[-1])
