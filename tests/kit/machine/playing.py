"""A play: a tree of loops with a script for each, driven by a plain driver that performs what is outstanding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from attrs import define, evolve, field
from hypothesis import strategies as st

from tests.kit.machine import making as m
from toolloop.machine.queries import answer_of, driven, outstanding
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.effects import CancelRequest, Conclude, Effect, EndTurn, Judge, RunCall, SendRequest
from toolloop.machine.record.loop import Finished, Loop, Path, State, Waiting
from toolloop.machine.tree import begin, fold, step
from toolloop.machine.values.setup import Budget, Limits, Texts

# What the model asks for, reply by reply: the ids of its calls. One that begins with "p" is a loop of its own; a pause
# is a reply in which it asks for nothing. When there is no reply left, it ends its turn.
Script = Sequence[Sequence[str]]

USAGE = {"input_tokens": 3, "cache_read_input_tokens": 1, "cache_creation_input_tokens": 1, "output_tokens": 2}
USES = {"requests": 1, "tool_calls": 0, "input_tokens": 5, "output_tokens": 2, "total_tokens": 7}  # of one reply
UNLIMITED = Limits(max_iterations=None, max_pauses=None, max_depth=None)
PARTS = tuple(USES)


@define
class Play:
    """A tree of loops and its driver.

    Attributes:
        scripts: by the path of the loop; of one that is not named, nothing but its end.
        limits: by the path of the loop.
        eager: everything that may start does, before anything of it ends; else one thing after the other.
        seconds: how long each request and each tool takes.
        asks: the ids of the calls that wait for the caller's word.
        tool: the name that all calls have: what it says of their effect.
        begun: what was begun, in this order: the path of a loop for a request, that of a call for a tool.
        under_way: what was begun whose end has not come.

    """

    scripts: Mapping[Path, Script]
    limits: Mapping[Path, Limits] = field(factory=dict)
    eager: bool = False
    seconds: float = 0.0
    texts: Texts = field(factory=Texts)
    asks: Sequence[str] = ()
    tool: str = "pure"
    begun: list[tuple[str, Path]] = field(factory=list)
    under_way: list[tuple[str, Path]] = field(factory=list)
    journal: list[ev.Event] = field(factory=list)
    state: State = field(init=False)

    def __attrs_post_init__(self) -> None:
        first = m.make_opened(limits=self.limits.get((), UNLIMITED), texts=self.texts)
        self.journal.append(first)
        self.state = begin(first)

    @property
    def requests(self) -> list[Path]:
        """The loops that made a request, each time."""
        return [path for what, path in self.begun if what == "request"]

    @property
    def tools(self) -> list[str]:
        """The calls that were started, those that are loops too."""
        return ["/".join(path) for what, path in self.begun if what == "tool"]

    def at(self, *path: str) -> Loop:
        """The loop at a path."""
        return self.state.loops[path]

    def take(self, event: ev.Event) -> None:
        """Let it happen."""
        self.state = step(self.state, event)
        self.journal.append(event)

    def extend(self, limits: Limits) -> None:
        self.take(ev.Changed(limits=limits))

    @property
    def end_(self) -> Finished:
        """How the outermost loop ended."""
        assert isinstance(self.state.root.phase, Finished)
        return self.state.root.phase

    def run(self) -> Finished:
        """Drive to the end; the caller says nothing but "continue"."""
        for _ in range(1000):
            if isinstance(self.state.root.phase, Finished):
                assert fold(self.journal) == self.state
                return self.end_
            self.move()
        raise AssertionError("the loop never ends")

    def move(self) -> None:
        """One thing that is to be done, or the end of one that is under way."""
        effects = outstanding(self.state)
        if self.under_way and not (self.eager and effects):
            self.end()
        elif effects:
            self.perform(effects[0])
        else:
            assert isinstance(self.state.root.phase, Waiting), self.state
            self.take(ev.Continued())

    def perform(self, effect: Effect) -> None:
        """Begin what is to be done, or do it where that takes no time."""
        path = effect.path
        match effect:
            case SendRequest():
                self.take(ev.Requested(path=path))
                self._begin("request", path)
            case RunCall(call_id=call_id):
                self._begin("tool", (*path, call_id))
                self.take(
                    self.open_inside(path, call_id) if call_id.startswith("p") else ev.Started(call_id, path=path)
                )
            case CancelRequest():
                self.under_way.remove(("request", path))
                self.take(ev.RequestFailed(path=path))
            case Judge(calls=calls):
                asked = m.asks(*(call_id for call_id in calls if call_id in self.asks))
                self.take(evolve(asked, path=path))
            case Conclude(call_id=call_id):
                child = self.at(*path, call_id)
                self.take(ev.Ended(call_id, answer_of(child, self.texts), path=path))
            case EndTurn():
                self.take(ev.TurnEnded(path=path))

    def _begin(self, what: str, path: Path) -> None:
        self.begun.append((what, path))
        if self.takes_time(what, path):
            self.under_way.append((what, path))

    def takes_time(self, what: str, path: Path) -> bool:
        """Whether it is under way until its end is recorded: a request is, and a tool that is not a loop."""
        return what == "request" or not path[-1].startswith("p")

    def open_inside(self, path: Path, call_id: str) -> ev.Opened:
        """The beginning of the loop inside a call."""
        above = self.at(*path)
        opened = m.child(self.state, *path, call_id)
        setup = evolve(above.setup, limits=self.limits.get(opened.path, UNLIMITED), depth=above.setup.depth + 1)
        return evolve(opened, setup=evolve(setup, within=opened.setup.within), messages=(m.user(),))

    def end(self, *chosen: tuple[str, Path]) -> None:
        """What is under way ends: what is chosen, or what was begun first."""
        what, path = chosen[0] if chosen else self.under_way[0]
        self.under_way.remove((what, path))
        if what == "tool":
            self.take(evolve(m.make_ended(path[-1]), path=path[:-1], seconds=self.seconds))
            return
        script, said = self.scripts.get(path, ()), self.at(*path).iterations
        asked = script[said] if said < len(script) else None
        if asked is None:
            reply = m.make_replied("end_turn", m.text("/".join(("done", *path))), usage=USAGE)
        else:
            calls = [m.call(call_id, self.tool) for call_id in asked]
            reply = m.make_replied("tool_use" if asked else "pause_turn", m.text("half"), *calls, usage=USAGE)
        self.take(evolve(reply, path=path, seconds=self.seconds))

    def count(self) -> int:
        """How many loops there are at this moment."""
        return len(driven(self.state))

    def loses(self) -> None:
        """The requests that are under way are not awaited any more: time was up."""
        self.under_way = [(what, path) for what, path in self.under_way if what != "request"]

    def sleeps(self) -> None:
        """The tree goes to sleep, and another driver takes it up."""
        self.journal = [ev.Adopted(self.state)]
        self.take(ev.Woken())


def limits(**changes: Any) -> Limits:
    """No limits but these; a part of the budget by its own name."""
    parts = {name: changes.pop(name) for name in PARTS if name in changes}
    return evolve(UNLIMITED, budget=Budget(**parts), **changes)


@st.composite
def trees(draw: st.DrawFn) -> dict[Path, Script]:
    """Up to three loops deep, up to three calls in a round."""
    scripts: dict[Path, Script] = {}
    numbers = count()

    def grow(path: Path) -> None:
        kinds = st.sampled_from("tp" if len(path) < 2 else "t")
        rounds = draw(st.lists(st.lists(kinds, max_size=3), max_size=2))
        scripts[path] = [[f"{kind}{next(numbers)}" for kind in calls] for calls in rounds]
        for calls in scripts[path]:
            for call_id in calls:
                if call_id.startswith("p"):
                    grow((*path, call_id))

    grow(())
    return scripts


def tell_outcome(state: State) -> Any:
    """What came of a tree: its history, what ran in it, and what each request used."""
    used = sorted((entry.path, entry.iteration) for entry in state.root.usage_log)
    return m.history(state), sorted(state.root.started), used, state.root.total_usage
