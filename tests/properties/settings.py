"""How a drawn loop is set up, and where it is stored."""

from __future__ import annotations

from typing import Any

from attrs import evolve, frozen

from tests.properties.bench import PARAMS_TOOLS, StopWhen, policy
from tests.properties.shortening import STRATEGIES
from toolloop import LoopConfig, LoopDetection, MemoryStore, SqliteStore
from toolloop.core.setup import Setup
from toolloop.stores.protocol import Head, Store

BINDS, FREE = "claude-opus-5-5", "claude-opus-4-8"


class Killed(BaseException):
    """The process was killed in the middle of something, or somebody pressed Ctrl-C."""


class Clock:
    """The time of a loop under test; it passes when a rule says so, and with each look at it while `pace` is set."""

    def __init__(self) -> None:
        """Begin somewhere."""
        self.now = 1_000_000.0
        self.pace = 0.0

    def __call__(self) -> float:
        """Seconds since the epoch."""
        self.now += self.pace
        return self.now

    def is_over(self, moment: Any) -> bool:
        """Whether a moment that a handle shows has come; None never does."""
        return moment is not None and moment.timestamp() <= self.now


@frozen
class Setting:
    """How a loop is set up; drawn."""

    model: str
    execution: str
    parallel: int
    iterations: int
    pauses: int
    has_policy: bool
    has_stop_when: bool
    meddling: int  # how often in a row the caller does something else than to drive the loop
    patience: float | None = None  # how many seconds a call waits for a decision
    store: str = ""  # the kind of store; none if it is empty
    pace: float = 0.0  # how many seconds pass with each look at the clock while a turn is driven
    circles: LoopDetection | None = None
    compaction: tuple[str, ...] = ()  # names of strategies

    def config(self, stop_when: StopWhen) -> LoopConfig:
        """The configuration of a handle."""
        return LoopConfig(
            execution=self.execution,  # type: ignore[arg-type]  # drawn from the two there are
            max_parallel_tools=self.parallel,
            max_iterations=self.iterations,
            max_pauses=self.pauses,
            decision_timeout=self.patience,
            loop_detection=self.circles,
            compaction=[STRATEGIES[name] for name in self.compaction],
            on_tool_call=policy if self.has_policy else None,
            stop_when=stop_when if self.has_stop_when else None,
        )

    def params(self) -> dict[str, Any]:
        """The parameters of its requests."""
        return {
            "model": self.model,
            "max_tokens": 1000,
            "thinking": {"type": "adaptive"},
            "tools": PARAMS_TOOLS,
            "messages": [{"role": "user", "content": "Begin."}],
        }


def config_of(setup: Setup, config: LoopConfig) -> LoopConfig:
    """The callables of a configuration, with the limits that a loop has."""
    return evolve(
        config,
        max_iterations=setup.limits.max_iterations,
        max_pauses=setup.limits.max_pauses,
        max_parallel_tools=setup.max_parallel_tools,
    )


def new_store(kind: str, path: str) -> Store:
    """An empty store of a kind."""
    return SqliteStore(path) if kind == "sqlite" else MemoryStore()


def copy_loop(store: Store, loop_id: str, to: Store) -> None:
    """Copy a loop as it is, its lease included: what another process finds where this one is killed now."""
    row = next(row for row in store.list(limit=1000) if row.loop_id == loop_id)
    to.create(loop_id, store.load(loop_id).entries, head=Head(row.status, row.deadline))
    if row.lease is not None:
        to.acquire(loop_id, row.lease.owner, until=row.lease.until)
