"""What a driver needs for each loop of a tree: its tools, its configuration, who is asked about its calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from attrs import define, field

from toolloop.core.evolving import evolve
from toolloop.core.jsontext import decode
from toolloop.core.setup import Setup
from toolloop.core.states import Ledger, Running, State
from toolloop.core.tree import round_of
from toolloop.core.values import Status
from toolloop.handle.compactor import Compactor
from toolloop.handle.config import LoopConfig
from toolloop.handle.judging import Judges
from toolloop.handle.params import RequestMaker, Secrets, external_names
from toolloop.handle.recording import Observer, Path
from toolloop.handle.sub_loops import SubLoop
from toolloop.handle.tooling import Toolbox, definitions_in_order, facts_in_order
from toolloop.tools import ToolRegistry


@define(eq=False)
class Kit:
    """What a driver needs for one loop of a tree.

    Attributes:
        within: the calls that the loop runs inside of; see `Setup`.
        requests: makes its requests.
        judges: who is asked about its calls.
        toolbox: prepares its calls.
        compactor: decides when its history is compacted.
        is_new: the loop was begun elsewhere, and it is still to be looked at whether it has other tools here.
        is_unjudged: its tools changed while it slept, and whether they fit its history is still to be looked at.
        ask: gives the secrets of its parameters, which are not at hand yet.

    """

    tools: ToolRegistry
    config: LoopConfig
    within: tuple[tuple[int, str, int], ...]
    requests: RequestMaker
    judges: Judges
    toolbox: Toolbox
    compactor: Compactor
    is_new: bool = False
    is_unjudged: bool = False
    ask: Callable[[], Secrets] | None = None
    _externals: tuple[str, frozenset[str]] = field(default=("", frozenset()))

    @classmethod
    def of(cls, setup: Setup, tools: ToolRegistry, config: LoopConfig, *, caller_state: Any, secrets: Secrets) -> Kit:
        """The kit of a loop that is set up so."""
        requests = RequestMaker(definitions_in_order(setup, tools), secrets)
        judges, toolbox = Judges(tools, config), Toolbox(tools, caller_state)
        return cls(tools, config, setup.within, requests, judges, toolbox, Compactor(config.strategies()))

    def external(self, setup: Setup) -> frozenset[str]:
        """The names of tools that only the parameters define, looked up once for each change of these."""
        if self._externals[0] is not setup.params:
            self._externals = setup.params, external_names(decode(setup.params), self.tools.names)
        return self._externals[1]

    def known_tools(self, ledger: Ledger) -> Collection[str] | None:
        """The names of all tools that a result may refer to; None where some have no name, or came with a message."""
        defined = decode(ledger.setup.params).get("tools") or ()
        named = all(isinstance(tool, dict) and isinstance(tool.get("name"), str) for tool in defined)
        if not named or any('"tool_addition"' in text for text in ledger.messages):
            return None
        return frozenset(self.tools.names) | self.external(ledger.setup)

    def whole(self, setup: Setup) -> str:
        """The parameters of its requests with all tools among them, as JSON: the same text until they change."""
        return self.requests.parameters(setup.params)

    def fetch_secrets(self) -> None:
        """Have the secrets at hand. This runs code of the caller's.

        Raises:
            Exception: whatever that raises.

        """
        if self.ask is not None:
            self.requests.secrets = self.ask()
            self.ask = None

    def changes(self, setup: Setup) -> Setup | None:
        """The set-up of a loop with the tools and callables that it has here; None if it has these already."""
        wanted = evolve(
            setup,
            tools=facts_in_order(setup, self.tools),
            gone=(setup.gone | {facts.name for facts in setup.tools}) - set(self.tools.names),
            callables=self.config.callables(),
        )
        return None if wanted == setup else wanted


class Kits:
    """The kits of a tree of loops. It knows nothing of the handle: whoever is told of events may outlive that."""

    def __init__(self, root: Kit, caller_state: Any) -> None:
        """`caller_state`: the caller's own object, which all tools of the tree see."""
        self.root = root
        self._caller_state = caller_state
        self._known: dict[Path, Kit] = {}

    def at(self, state: State, path: Path) -> Kit | None:
        """The kit of a loop of the tree; None if there is no such loop, or the tool of its call is gone."""
        kit = self.root
        for depth, call_id in enumerate(path, 1):
            round_ = round_of(state)
            call = None if round_ is None else round_.find(call_id)
            if call is None or call.child is None:
                return None
            tool = kit.tools.get(call.name)
            if not isinstance(tool, SubLoop):
                return None
            state = call.child
            known = self._known.get(path[:depth])
            if known is None or known.within != state.ledger.setup.within:
                known = self._made(state.ledger.setup, tool, Secrets())
                known.is_new = True
                known.ask = partial(tool.secrets, decode(call.effective_input))
            kit = known
        return kit

    def begin(self, setup: Setup, tool: SubLoop, secrets: Secrets) -> None:
        """A loop begins inside of a call of this tool."""
        self._made(setup, tool, secrets)

    def _made(self, setup: Setup, tool: SubLoop, secrets: Secrets) -> Kit:
        kit = Kit.of(setup, tool.registry, tool.config, caller_state=self._caller_state, secrets=secrets)
        self._known[setup.path] = kit
        return kit

    def keep(self, paths: Collection[Path], *, as_new: bool) -> None:
        """Forget the loops that are no more. `as_new`: somebody else may have driven the others meanwhile."""
        self._known = {path: kit for path, kit in self._known.items() if path in paths}
        for kit in self._known.values():
            kit.is_new = kit.is_new or as_new

    def audience(self, path: Path) -> Sequence[Observer]:
        """Who is told of what happens in a loop: its own observers, and those of all loops above it."""
        if not path:
            return self.root.config.observers
        kits = (self._known.get(path[:depth]) for depth in range(1, len(path) + 1))
        inside = (kit.config.observers for kit in kits if kit is not None)
        return [*self.root.config.observers, *(observer for observers in inside for observer in observers)]


def driven_at(state: State, path: Path) -> State | None:
    """The loop at a path while it is being driven; None where it is no more, or a loop above it stands still."""
    for call_id in path:
        call = state.round.find(call_id) if isinstance(state, Running) else None
        if call is None or call.child is None or call.status is not Status.RUNNING:
            return None
        state = call.child
    return state
