"""The runtime of each loop of a tree: its tools, configuration, request maker, policies and compaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from attrs import define, evolve

from toolloop._engine.compacting import Compactor
from toolloop._engine.policies import Around, Policies
from toolloop._engine.sub_loops import SubLoop
from toolloop._interface.calls import PolicyView
from toolloop._interface.config import LoopConfig
from toolloop._messages.tool_changes import decode_changing, list_defined, may_add_tools
from toolloop._requests.params import Secrets, list_external_names
from toolloop._requests.request_maker import RequestMaker
from toolloop.events import Observer
from toolloop.machine.record.loop import Loop, Path, State, list_messages
from toolloop.machine.values.jsontext import decode
from toolloop.machine.values.setup import Setup, drop_brought, keep_annotations, keep_gone
from toolloop.prices import Prices
from toolloop.tools import Tool, ToolRegistry
from toolloop.tools.registry import list_definitions


@define(eq=False)
class Runtime:
    """The parts that drive one loop.

    Attributes:
        within: the calls that the loop is inside of; see `Setup`.
        prices: the prices that its configuration has.
        requests: makes its requests.
        policies: judge its calls.
        compactor: decides when to compact its history; None without a strategy.
        is_new: whether another driver began the loop, so that its tools must be compared with those here.
        is_unchecked: whether its tools changed, so that its history must be checked against them.
        checked_params: the parameters of the last request, which were checked.
        secrets: calls the caller's code for the parameters that are not stored; None if they are known.
        read_at: the number of answered requests when the lists of servers were last read; -1: never.

    """

    tools: ToolRegistry
    config: LoopConfig
    within: tuple[tuple[int, str, int], ...]
    prices: Prices | None
    requests: RequestMaker
    policies: Policies
    compactor: Compactor | None
    is_new: bool = False
    is_unchecked: bool = False
    checked_params: str | None = None
    secrets: Callable[[], Secrets] | None = None
    read_at: int = -1

    @classmethod
    def of(cls, setup: Setup, tools: ToolRegistry, config: LoopConfig, secrets: Secrets) -> Runtime:
        """Return the runtime of a loop with this setup."""
        definitions = list_definitions(_sort_tools(setup, tools))
        requests, strategies = RequestMaker(definitions, secrets, config.cache), config.strategies()
        return cls(
            tools,
            config,
            setup.within,
            config.pricing(),
            requests,
            Policies(tools, config),
            Compactor(strategies, tools, requests) if strategies else None,
        )

    def list_external(self, loop: Loop) -> frozenset[str]:
        """Return the names of the tools that the caller runs: those that only the parameters or messages define.

        The messages are read only where a call has a name that is known neither here nor to the parameters.
        """
        given = decode(loop.setup.params).get("tools") or () if '"tools"' in loop.setup.params else ()
        names = list_external_names({"tools": given}, self.tools.names) if given else frozenset[str]()
        if all(call.name in names or self.tools.get(call.name) for call in loop.calls):
            return names
        defined = list_defined(decode_changing(list_messages(loop)))
        return names | list_external_names({"tools": defined}, self.tools.names)

    def list_known_tools(self, loop: Loop) -> Collection[str] | None:
        """Return the names of all tools that a result may refer to; None if not all are known."""
        defined = decode(loop.setup.params).get("tools") or ()
        named = all(isinstance(tool, dict) and isinstance(tool.get("name"), str) for tool in defined)
        if not named or may_add_tools(list_messages(loop)):
            return None
        return frozenset(self.tools.names) | self.list_external(loop)

    def take_tools(self, setup: Setup, tools: ToolRegistry) -> None:
        """Drive the loop with other tools from now on."""
        new = Runtime.of(setup, tools, self.config, self.requests.secrets)
        self.tools, self.requests, self.policies, self.compactor = new.tools, new.requests, new.policies, new.compactor
        self.is_unchecked = True

    def follow_lists(self, setup: Setup) -> None:
        """Drive the loop with the tools that it has from each server: another handle may have adopted a new list.

        Raises:
            BadTool: as for `ToolRegistry.as_of`.

        """
        tools = self.tools.as_of(setup.tools)
        if [*tools] != [*self.tools]:
            self.take_tools(setup, tools)

    def renew_setup(self, setup: Setup, *, is_user_turn: bool = False) -> Setup:
        """Return the setup of a loop with the tools and callables of this process.

        `is_user_turn`: whether a user turn begins. Only then the hints of a server become milder, because the policies
        and persons who decide in a turn rely on them.
        """
        setup = drop_brought(setup, self.tools.names)
        facts = tuple(tool.facts() for tool in _sort_tools(setup, self.tools))
        tools, gone_tools = keep_gone(setup, facts if is_user_turn else keep_annotations(setup, facts))
        return evolve(
            setup,
            tools=tools,
            gone_tools=gone_tools,
            gone=(setup.gone | {facts.name for facts in setup.tools}) - set(self.tools.names),
            gone_secrets=tuple((name, secret) for name, secret in setup.gone_secrets if name not in self.tools.names),
            callables=self.config.callables(),
            members=True,
        )


def _sort_tools(setup: Setup, tools: ToolRegistry) -> list[Tool[..., Any]]:
    """Return tools in the order in which the loop has them, so that its requests keep their bytes."""
    places = {facts.name: place for place, facts in enumerate(setup.tools)}
    return sorted(tools, key=lambda tool: places.get(tool.name, len(places)))


class Runtimes:
    """The runtimes of a tree of loops."""

    def __init__(self, root: Runtime, metadata: Callable[[], Mapping[str, str]] = dict) -> None:
        """Start with the runtime of the outermost loop. `metadata`: reads that of the loop."""
        self.root = root
        self._metadata = metadata
        self._nested: dict[Path, Runtime] = {}

    def at(self, state: State, path: Path) -> Runtime | None:
        """Return the runtime of a loop; None if the loop does not exist, or the tool of its call is gone."""
        runtime = self.root
        for depth in range(1, len(path) + 1):
            loop, call = state.at(path[:depth]), state.find_call(path[:depth])
            tool = None if call is None else runtime.tools.get(call.name)
            if loop is None or call is None or not isinstance(tool, SubLoop):
                return None
            known = self._nested.get(path[:depth])
            if known is None or known.within != loop.setup.within:
                ask = partial(tool.secrets, decode(call.effective_input))
                known = evolve(self.begin(loop.setup, tool, Secrets()), is_new=True, secrets=ask)
                self._nested[path[:depth]] = known
            runtime = known
        return runtime

    def find_prices(self, state: State, path: Path) -> Prices | None:
        """Return the prices for a loop: its own, or those of the nearest loop around it that has some."""
        around = (self.at(state, path[:depth]) for depth in range(len(path), -1, -1))
        return next((each.prices for each in around if each is not None and each.prices is not None), None)

    def begin(self, setup: Setup, tool: SubLoop, secrets: Secrets) -> Runtime:
        """Make the runtime of a new loop inside a call of this tool."""
        runtime = self._nested[setup.path] = Runtime.of(setup, tool.registry, tool.config, secrets)
        return runtime

    def keep(self, state: State, *, as_new: bool) -> None:
        """Drop the runtimes of loops that are gone. `as_new`: another driver may have driven the others meanwhile."""
        self._nested = {path: runtime for path, runtime in self._nested.items() if path in state.loops}
        for runtime in self._nested.values():
            runtime.is_new = runtime.is_new or as_new

    def find_around(self, state: State, path: Path) -> Around:
        """Return the policies of the loops around the loop at a path, and the view of the innermost of these."""
        policies, view = [], None
        for depth in range(len(path)):
            runtime, loop = self.at(state, path[:depth]), state.at(path[:depth])
            if runtime is not None and loop is not None:
                view = PolicyView(loop, view, self._metadata)
                policies += [] if runtime.config.on_tool_call is None else [runtime.config.on_tool_call]
        return Around(tuple(policies), view, self._metadata)

    def find_observers(self, path: Path) -> Sequence[Observer]:
        """Return the observers of a loop: its own, and those of the loops above it."""
        if not path:
            return self.root.config.observers
        nested = (self._nested.get(path[:depth]) for depth in range(1, len(path) + 1))
        inside = (runtime.config.observers for runtime in nested if runtime is not None)
        return [*self.root.config.observers, *(observer for observers in inside for observer in observers)]


class ToolsOfLoops(Protocol):
    """The tools of each loop of a tree: `Runtimes`, or the facts that the journal keeps."""

    @property
    def root(self) -> Runtime:
        """The runtime of the outermost loop."""
        ...

    def at(self, state: State, path: Path) -> Runtime | None:
        """Return the runtime of the loop at a path, if it has one."""
        ...
