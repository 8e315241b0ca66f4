"""What a loop is set up with: limits, parameters, and what is known of its tools."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from tests.oracle.texts import Texts
from tests.oracle.values import ToolEffect

Execution = Literal["barrier", "ready"]
LoopAction = Literal["warn", "stop", "inject_warning"]


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
class LoopDetection:
    """Notice a model that makes the same calls again and again, with the same results.

    Args:
        threshold: how many times in a row make a circle: of one round, or of a cycle of up to four rounds. It is told
            of then, and at each multiple.
        action: `warn`: an event and a line in the log. `stop`: the loop ends too, before anything of the round is
            judged or run. `inject_warning`: the model is told too, after the results of the round.

    """

    threshold: int = 3
    action: LoopAction = "warn"


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
        within: the calls that this loop runs inside of, from the outermost down: of each the iteration, its id, and
            which run of it this is, counted from 1.
        callables: the names of the callables that the configuration set (`on_tool_call`, `stop_when`,
            `result_filters`).
        decision_timeout: how many seconds a call may wait for a decision, where its policy does not say; None is no
            limit.
        loop_detection: what is done about a model that goes in circles; None does not look.
        shows_replies: the caller has the word over each reply with calls before it is judged, and once more when all
            of them have their results.

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
    loop_detection: LoopDetection | None = None
    within: tuple[tuple[int, str, int], ...] = ()
    shows_replies: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The ids of the calls that lead to this loop, from the outermost down."""
        return tuple([call_id for _, call_id, _ in self.within]) if self.within else ()

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Which run of which call each of these is, for ids may come again: its iteration, and its number."""
        return tuple([(iteration, run) for iteration, _, run in self.within]) if self.within else ()

    def repeatable(self, name: str) -> bool:
        """Whether a tool may be run again without asking."""
        return any(facts.name == name and facts.effect != "once" for facts in self.tools)
