"""The setup of a loop: its limits, its parameters, the texts that the model sees, and facts about its tools."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

Execution = Literal["barrier", "ready"]
LoopAction = Literal["warn", "stop", "inject_warning"]
# Whether a tool may be run again: "once" must not, because its effects would be repeated.
ToolEffect = Literal["pure", "keyed", "once"]
# Which calls of a tool wait for a decision.
Approval = Literal["never", "predicate", "always"]


@frozen
class Budget:
    """How much a loop may use; None is unlimited. Each part is checked before a request, `tool_calls` before tools too.

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
    """Detect a model that makes the same calls in round after round, with the same results.

    Args:
        threshold: how many times in a row the same round is a repetition. It is reported then, and at each multiple.
        action: `warn` emits an event and a line in the log. `stop` also ends the loop before any call of the round is
            judged or run. `inject_warning` also tells the model, after the results of the round.

    """

    threshold: int = 3
    action: LoopAction = "warn"


@frozen
class Limits:
    """The limits of a loop; None means no limit. See `LoopConfig`."""

    max_iterations: int | None = 10
    max_pauses: int | None = 10
    max_calls_per_reply: int | None = 1000
    timeout: float | None = None
    max_depth: int | None = 3
    budget: Budget = field(factory=Budget)


@frozen
class Texts:
    """The texts the model sees. Each is a format string; only its own names in braces are filled in.

    Give another one as `LoopConfig(texts=Texts(denied="Not allowed: {reason}"))`. None may be blank: the API refuses an
    error without a text.
    """

    denied: str = "This call was denied and did not run. Reason: {reason}"
    not_run: str = "This call was not run: the loop stopped before it started."
    cancelled: str = "This call was cancelled while it ran. It may have had effects."
    uncertain: str = "This call was started, and nobody saw it end. It may have had effects. Note: {reason}"
    unknown_tool: str = "There is no tool named {name!r}. The tools are: {known}."
    tool_gone: str = "The tool {name!r} is no longer there. This call did not run."
    invalid_input: str = "The input does not fit the schema of {name}, so the call did not run:\n{problems}"
    timed_out: str = "This call took longer than {seconds} seconds and was cancelled. It may have had effects."
    left_behind: str = (
        "This call took longer than {seconds} seconds, and nobody waits for it any more. It may still be running, and "
        "may have effects."
    )
    failed: str = "{error}"
    edited: str = "Note: the call {id} ({name}) ran with another input than the one you gave: {input}"
    expired: str = "This call expired: nobody decided on it in time, and it did not run here."
    loop_warning: str = (
        "You called {name} {count} times in a row with identical arguments. If that brings you no further, try "
        "something else, or say what stands in the way."
    )
    no_answer: str = "The loop inside this call came to an end without an answer: {reason}."
    cut_short: str = "The loop inside this call was cut short: {reason}. Its last words were: {text}"


@frozen
class ToolFacts:
    """Facts about a tool, which are compared when another driver takes a loop over.

    Attributes:
        digest: of its definition.
        input_schema: JSON text, also for those who decide without the tool; None if it has none.
        inside: of a tool whose calls are loops.

    """

    name: str
    effect: ToolEffect
    approval: Approval
    digest: str
    input_schema: str | None = None
    inside: LoopFacts | None = None


@frozen
class LoopFacts:
    """Facts about the loops inside the calls of a tool, as in `Setup`. `params`: digest of their parameters."""

    params: str
    tools: tuple[ToolFacts, ...]
    callables: frozenset[str]


@frozen
class Setup:
    """The setup of a loop.

    Attributes:
        params: JSON text of the request parameters without `messages` and without secrets.
        gone: the names of tools that the loop had before it was reopened without them.
        tool_timeout: seconds that a tool without its own limit may take; None means no limit.
        within: the calls inside which this loop runs, from the outermost down: the iteration and the id of each, and
            which run of it this is, counted from 1.
        callables: the names of the callables that the configuration set (`on_tool_call`, `stop_when`,
            `result_filters`).
        decision_timeout: seconds that a call may wait for a decision, unless its policy says otherwise; None is no
            limit.
        loop_detection: how a model that repeats the same round is handled; None does not look for it.
        threads: the server is asked to hold the conversation.

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
    threads: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """Return the ids of the calls that lead to this loop, from the outermost down."""
        return tuple([call_id for _, call_id, _ in self.within]) if self.within else ()

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Return the iteration and the number of each of these runs, because ids may repeat."""
        return tuple([(iteration, run) for iteration, _, run in self.within]) if self.within else ()

    def repeatable(self, name: str) -> bool:
        """Return whether a tool may be run again without asking."""
        return any(facts.name == name and facts.effect != "once" for facts in self.tools)
