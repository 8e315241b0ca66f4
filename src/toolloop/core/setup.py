"""What a loop is set up with: limits, parameters, and what is known of its tools."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from toolloop.core.texts import Texts
from toolloop.core.values import ToolEffect

Execution = Literal["barrier", "ready"]


@frozen
class Budget:
    """What the whole loop may use; None is no limit. Each is checked before a request, `tool_calls` before a tool too.

    Args:
        requests: answered model requests.
        tool_calls: tools started.
        input_tokens: uncached, written to the cache and read from it together.
        output_tokens: thinking included.
        total_tokens: input and output.

    """

    requests: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None


@frozen
class Limits:
    """The limits of a loop; None is no limit. See `LoopConfig`."""

    max_iterations: int | None = 10
    max_pauses: int | None = 10
    timeout: float | None = None
    max_depth: int | None = 3
    budget: Budget = field(factory=Budget)


@frozen
class ToolFacts:
    """What the machine must know of a tool, and what is compared when a loop wakes up. `digest`: of its definition."""

    name: str
    effect: ToolEffect
    approval: Literal["always", "never", "predicate"]
    digest: str


@frozen
class Setup:
    """What a loop is set up with.

    Attributes:
        params: JSON text of the request parameters but `messages`, and but what is secret.
        gone: the names of tools that the loop had before it woke up without them.
        tool_timeout: how many seconds a tool may take that has no limit of its own; None is no limit.
        callables: the names of the callables that the configuration set (`on_tool_call`, `stop_when`,
            `result_filters`).
        decision_timeout: how many seconds a call may wait for a decision, where its policy does not say; None is no
            limit.

    """

    loop_id: str
    params: str
    limits: Limits = field(factory=Limits)
    depth: int = 0
    execution: Execution = "barrier"
    max_parallel_tools: int | None = 8
    tool_timeout: float | None = None
    texts: Texts = field(factory=Texts)
    tools: tuple[ToolFacts, ...] = ()
    gone: frozenset[str] = frozenset()
    callables: frozenset[str] = frozenset()
    decision_timeout: float | None = None

    def repeatable(self, name: str) -> bool:
        """Whether a tool may be run again without asking."""
        return any(facts.name == name and facts.effect != "once" for facts in self.tools)
