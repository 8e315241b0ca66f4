"""A model checker: every world that two drivers of one stored loop can make, and what must be so in each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from attrs import define, field

from tests.properties.explorer_drivers import Drivers
from tests.properties.explorer_scene import Broken
from tests.properties.explorer_world import Asked, Driver, World, normal
from toolloop.stores import audit


@define
class Explorer:
    """Explores all that drivers can do. `seen`: each world, with the one before it and the step between."""

    drivers: Drivers
    seen: dict[World, tuple[World | None, str, Asked | None]] = field(factory=dict)
    finals: set[World] = field(factory=set)
    first: World = field(init=False)
    _clean: set[int] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        scene = self.drivers.scene
        node = self.drivers.journals.start(*scene.start)
        self.first = World(node, None, 0, (Driver(0), Driver(1)), scene.crashes, scene.slow)

    def explore(self) -> int:
        """Every world that can be; how many there are.

        Raises:
            Broken: a promise is broken in one of them, or one of them has no way out.

        """
        self.seen[self.first] = None, "", None
        back: dict[World, list[World]] = {}
        todo = deque([self.first])
        while todo:
            world = todo.popleft()
            goes_on = False
            for label, after in self._moves(world):
                if not label.endswith("crashes"):
                    goes_on = True
                    back.setdefault(after, []).append(world)
                if after not in self.seen:
                    self.seen[after] = world, label, self.drivers.asked
                    todo.append(after)
            if not goes_on:
                self._check_final(world)
        self._check_ways_out(back)
        return len(self.seen)

    def _moves(self, world: World) -> Iterator[tuple[str, World]]:
        try:
            for label, moved in self.drivers.moves(world):
                after = normal(moved)
                if after != world:
                    yield label, after
        except Broken as broken:
            raise self._broken(world, broken.label, broken.why) from None

    def trace(self, world: World) -> list[str]:
        """How it came to a world."""
        steps = []
        at: World | None = world
        while at is not None:
            at, label, _ = self.seen[at]
            steps.append(label)
        return steps[-2::-1]

    def questions(self, world: World) -> list[Asked]:
        """What stores were asked on the way to a world."""
        asked = []
        at: World | None = world
        while at is not None:
            at, _, question = self.seen[at]
            asked += [question] if question is not None else []
        return asked[::-1]

    def _broken(self, world: World, label: str, why: str) -> Broken:
        steps = "\n  ".join([*self.trace(world), label])
        return Broken(f"{why}, after {len(self.seen)} worlds:\n  {steps}")

    def _check_final(self, world: World) -> None:
        """Where nothing can happen any more, all is done, and the journal tells all of it."""
        if any(driver.at != "done" for driver in world.drivers):
            raise self._broken(world, "", "nobody can go on")
        if world.owed:
            raise self._broken(world, "", f"a finished result is lost ({', '.join(sorted(world.owed))})")
        if world.node not in self._clean:
            problems = audit(self.drivers.journals.whole(world.node)).problems
            if problems:
                raise self._broken(world, "", f"the audit finds {problems[0]}")
            self._clean.add(world.node)
        self.finals.add(world)

    def _check_ways_out(self, back: Mapping[World, list[World]]) -> None:
        """From every world there is a way to the end without a crash."""
        out, todo = set(self.finals), list(self.finals)
        while todo:
            for world in back.get(todo.pop(), ()):
                if world not in out:
                    out.add(world)
                    todo.append(world)
        for world in self.seen:
            if world not in out:
                raise self._broken(world, "", "there is no way to the end")
