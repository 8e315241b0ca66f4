"""The state of a loop and of the loops inside its calls: a flat map by path of call ids."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from toolloop.machine.record.loop import Loop

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
