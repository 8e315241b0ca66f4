"""The setup of a loop: its limits, parameters, texts for the model, and facts about its tools."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import Any, Literal

from attrs import evolve, field, frozen

from toolloop._public import set_module
from toolloop._usage import as_decimal
from toolloop.machine.values.jsontext import JSON, decode, encode

Execution = Literal["barrier", "ready"]
OnExpiry = Literal["continue", "stop"]
LoopAction = Literal["warn", "stop", "inject_warning"]
# Whether a tool may run again. A "once" tool must not, because its effects would be repeated.
ToolEffect = Literal["pure", "keyed", "once"]
# Which calls of a tool wait for a decision.
Approval = Literal["never", "predicate", "always"]


# Type checkers use the type of a converter's parameter for the field.
def _to_dollars(value: Decimal | float | str | None) -> Any:
    return as_decimal(value)


@set_module("toolloop")
@frozen
class Budget:
    """How much a loop may use; None means no limit. All are checked before a request, `tool_calls` also before tools.

    Args:
        requests: answered model requests.
        tool_calls: started tools.
        input_tokens: the sum of uncached input, cache writes and cache reads.
        output_tokens: output, including thinking.
        total_tokens: input plus output.
        cost: dollars, as far as the prices are known; needs `LoopConfig.prices`. The last request, and those of nested
            loops that are in progress, may pass it. A reply of a model without a price also ends the loop.

    """

    requests: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: Decimal | None = field(default=None, converter=_to_dollars)


@set_module("toolloop")
@frozen
class LoopDetection:
    """Detect a model that repeats the same calls, with the same results, in consecutive rounds.

    Args:
        threshold: how many equal rounds in a row are a repetition. It is reported then, and at each multiple.
        action: `warn` emits an event and logs it. `stop` also ends the loop before any call of the round is judged or
            run. `inject_warning` also sends the model a warning, after the results of the round.

    """

    threshold: int = 3
    action: LoopAction = "warn"


@set_module("toolloop")
@frozen
class KeepResults:
    """Keep long results out of the history: the model gets both ends, and reads the rest with the tool `read_result`.

    Args:
        over: texts of results with more characters are long.
        head: how many characters of the beginning the model gets.
        tail: how many characters of the end. One call of `read_result` returns at most `head + tail` characters.

    """

    over: int = 50_000
    head: int = 2_000
    tail: int = 2_000


@frozen
class Limits:
    """The limits of a loop; None means no limit. See `LoopConfig`."""

    max_iterations: int | None = 10
    max_pauses: int | None = 10
    max_calls_per_reply: int | None = 1000
    timeout: float | None = None
    max_depth: int | None = 3
    budget: Budget = field(factory=Budget)


@set_module("toolloop")
@frozen
class Texts:
    """The texts that the model gets. Each is a format string with its own names in braces.

    Replace one with `LoopConfig(texts=Texts(denied="Not allowed: {reason}"))`. A text must not be blank, because the
    API refuses an error without text.
    """

    denied: str = "This call was denied and did not run. Reason: {reason}"
    not_run: str = "This call was not run: the loop stopped before it started."
    cancelled: str = "This call was cancelled while it ran. It may have had effects."
    uncertain: str = "This call was started, but its outcome is unknown. It may have had effects. Note: {reason}"
    unknown_tool: str = "There is no tool named {name!r}. The tools are: {known}."
    tool_gone: str = "The tool {name!r} is no longer there. This call did not run."
    invalid_input: str = "The input does not fit the schema of {name}, so the call did not run:\n{problems}"
    timed_out: str = "This call took longer than {seconds} seconds and was cancelled. It may have had effects."
    left_behind: str = (
        "This call took longer than {seconds} seconds and was abandoned. It may still be running, and may have effects."
    )
    failed: str = "{error}"
    edited: str = "Note: the call {id} ({name}) ran with another input than the one you gave: {input}"
    expired: str = "This call expired: no decision arrived in time, and it did not run here."
    loop_warning: str = (
        "You called {name} {count} times in a row with identical arguments. If that brings you no further, try "
        "something else, or say what stands in the way."
    )
    no_answer: str = "The loop inside this call came to an end without an answer: {reason}."
    misfit: str = (
        "Your answer does not fit the format that was asked for:\n{problems}\nGive the whole corrected answer again."
    )
    member_not_run: str = "Not executed: an earlier {kind}action in this turn failed."
    cut_short: str = "The loop inside this call was cut short: {reason}. Its last words were: {text}"


@set_module("toolloop.types")
@frozen
class ToolAnnotations:
    """The hints of an MCP server about a tool, with the defaults of the protocol (source: MCP specification).

    They are not checked: trust them as far as you trust the server.

    Attributes:
        read_only_hint: the tool changes nothing.
        destructive_hint: it may destroy or overwrite something; if False, it only adds. Only for tools that change
            something; so is the next one.
        idempotent_hint: running it again with the same input changes nothing more.
        open_world_hint: it may reach things outside the server, such as the web.

    """

    read_only_hint: bool = False
    destructive_hint: bool = True
    idempotent_hint: bool = False
    open_world_hint: bool = True


@frozen
class ToolFacts:
    """Facts about a tool, compared when another driver takes a loop over.

    Attributes:
        digest: the digest of its definition.
        input_schema: its schema as JSON text, also for decisions without the tool; None if it has none.
        inside: facts about the loops in its calls, for a tool whose calls are loops.
        diff: the parameters with the old and the new text, which are shown as one diff; empty if there are none.
        path: the parameter that names the file of the diff.
        secret: the parameters whose values are hidden from persons.
        annotations: the hints of the server; None for a tool of another kind, and in old journals.

    """

    name: str
    effect: ToolEffect
    approval: Approval
    digest: str
    input_schema: str | None = None
    inside: LoopFacts | None = None
    diff: tuple[str, ...] = ()
    path: str | None = None
    secret: tuple[str, ...] = ()
    annotations: ToolAnnotations | None = None


@frozen
class LoopFacts:
    """Facts about the loops inside the calls of a tool, as in `Setup`. `params`: the digest of their parameters."""

    params: str
    tools: tuple[ToolFacts, ...]
    callables: frozenset[str]
    gone_tools: tuple[ToolFacts, ...] = ()


@frozen
class Setup:
    """The setup of a loop.

    Attributes:
        params: the JSON text of the request parameters, without `messages` and secrets.
        gone: the names of tools that the loop had before it was reopened without them, or they left its parameters.
        tool_timeout: the limit in seconds for a tool without its own; None means no limit.
        within: the calls that this loop runs inside, from the outermost down: for each its iteration, its id, and the
            number of its run, counted from 1.
        callables: the names of the callables that the configuration set (`on_tool_call`, `stop_when`,
            `result_filters`).
        decision_timeout: the limit in seconds for the wait for a decision, unless its policy sets another; None means
            no limit.
        loop_detection: the handling of a model that repeats the same round; None turns detection off.
        threads: whether to ask the server to keep the conversation.
        on_expiry: with `stop`, the loop ends when a call of it expires.
        stop_grace: for how many seconds a loop that is to end waits for its running calls before its driver returns.
        gone_secrets: the secret parameters of tools that are gone, by the name of the tool; only in old journals.
        gone_tools: facts about tools that are gone. If one comes back, it is compared with them.
        output: whether the last text of an answer must fit `output_config.format` of the parameters.
        brought: the names of the tools in the parameters that came with something that a person said. The front end of
            that person answers their calls.
        keep_results: which results are long; None leaves all of them in the history.
        members: whether a call of a member of a toolset is named after both, and waits for the results of the earlier
            members of that toolset; not in old journals.

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
    on_expiry: OnExpiry = "continue"
    stop_grace: float = 5.0
    gone_secrets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    gone_tools: tuple[ToolFacts, ...] = ()
    output: bool = False
    brought: frozenset[str] = frozenset()
    keep_results: KeepResults | None = None
    members: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """Return the ids of the calls that lead to this loop, from the outermost down."""
        return tuple([call_id for _, call_id, _ in self.within]) if self.within else ()

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """Return the iteration and the number of each of these runs, because ids may repeat."""
        return tuple([(iteration, run) for iteration, _, run in self.within]) if self.within else ()

    def tool(self, name: str) -> ToolFacts | None:
        """Return the facts about a tool, or None."""
        return next((facts for facts in self.tools if facts.name == name), None)

    def secrets_of(self, name: str) -> tuple[str, ...]:
        """Return the secret parameters of a tool, which may be gone."""
        known = {facts.name: facts.secret for facts in (*self.gone_tools, *self.tools)}
        return {**dict(self.gone_secrets), **known}.get(name, ())

    def is_taken(self, name: str) -> bool:
        """Return whether the loop has, or had, a tool of this name."""
        known = {facts.name for facts in (*self.tools, *self.gone_tools)}
        return name in known | self.gone | self.find_definitions().keys()

    def find_definitions(self) -> dict[str, JSON]:
        """Return the tools in the parameters that have a name, by name."""
        tools = decode(self.params).get("tools") or ()
        return {tool["name"]: tool for tool in tools if isinstance(tool, dict) and isinstance(tool.get("name"), str)}

    def repeatable(self, name: str) -> bool:
        """Return whether a tool may run again without a decision."""
        return any(facts.name == name and facts.effect != "once" for facts in self.tools)


def follow_definitions(old: Setup, new: Setup) -> Setup:
    """Return the new setup, with the names that left its parameters.

    A brought tool is forgotten, so that it may come back as another's. The name of any other stays taken, because calls
    of it may still wait, and they are not those of a front end that brings the name later.
    """
    if new.params == old.params:
        return new
    had, has = old.find_definitions().keys(), new.find_definitions().keys()
    return evolve(new, brought=new.brought & has, gone=(new.gone | (had - old.brought)) - has)


def drop_brought(setup: Setup, names: Collection[str]) -> Setup:
    """Return the setup without the brought tools of these names, because the loop has tools of its own of these."""
    taken = setup.brought.intersection(names)
    if not taken:
        return setup
    params = decode(setup.params)
    kept = [tool for tool in params["tools"] if not isinstance(tool, dict) or tool.get("name") not in taken]
    rest = {name: value for name, value in params.items() if name != "tools"}
    return evolve(
        setup, params=encode({**rest, "tools": kept} if kept else rest), brought=setup.brought.difference(taken)
    )


def keep_gone(
    old: Setup | LoopFacts, tools: tuple[ToolFacts, ...]
) -> tuple[tuple[ToolFacts, ...], tuple[ToolFacts, ...]]:
    """Return the facts about the new tools of a loop, and about those that are gone. Likewise inside its calls."""
    before = {facts.name: facts for facts in (*old.gone_tools, *old.tools)}
    new = tuple([_keep_inside(before.pop(facts.name, facts), facts) for facts in tools])
    return new, tuple(before.values())


def keep_annotations(old: Setup, tools: tuple[ToolFacts, ...]) -> tuple[ToolFacts, ...]:
    """Return the facts about new tools, with the stricter of each hint: that of the loop, or of the server now."""
    before = {facts.name: facts.annotations for facts in (*old.gone_tools, *old.tools)}
    kept = ((facts, before.get(facts.name, facts.annotations)) for facts in tools)
    return tuple([evolve(facts, annotations=_take_stricter(was, facts.annotations)) for facts, was in kept])


def _take_stricter(was: ToolAnnotations | None, now: ToolAnnotations | None) -> ToolAnnotations | None:
    if now is None:
        return None
    was = was or ToolAnnotations()  # the strictest: the tool was not of a server, or an old journal has it
    return ToolAnnotations(
        was.read_only_hint and now.read_only_hint,
        was.destructive_hint or now.destructive_hint,
        was.idempotent_hint and now.idempotent_hint,
        was.open_world_hint or now.open_world_hint,
    )


def _keep_inside(old: ToolFacts, new: ToolFacts) -> ToolFacts:
    if old.inside is None or new.inside is None:
        return new
    tools, gone = keep_gone(old.inside, new.inside.tools)
    return evolve(new, inside=evolve(new.inside, tools=tools, gone_tools=gone))
