"""Make the parts of a handle: for a new loop, from a snapshot or a store, or as a copy. Check them as a whole first."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from attrs import evolve, frozen

from toolloop._engine.sub_loops import SubLoop
from toolloop._handles.waking import OnDrift, WakeUp
from toolloop._interface.config import DEFAULT_CONFIG, DEFAULT_CONTEXT, LoopConfig, check_parts
from toolloop._interface.loop_params import add_reader, as_registry, begin_with, check_request, refuse_short_marks
from toolloop._journal.journal import read_clock
from toolloop._journal.store_access import Place, load_state
from toolloop._requests.output import add_format, drop_format, find_format
from toolloop._requests.params import Secrets, check_params, split
from toolloop.compaction.strategy import Strategy
from toolloop.errors import BadTool, LoopNotFound, UnreadableSnapshot
from toolloop.machine.queries import under_way
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import State
from toolloop.machine.tree import begin, step
from toolloop.machine.values.jsontext import JSON, decode, encode, to_canonical
from toolloop.prices import refuse_unpriced
from toolloop.providers import AsyncProvider, Provider, provider_for
from toolloop.stores.arguments import check_metadata, check_new_id, check_text, require_store
from toolloop.stores.protocol import Store
from toolloop.tools import Context, Tool, ToolRegistry
from toolloop.tools.registry import Tools
from toolloop.tools.signature import is_async as is_declared_async


@frozen
class Here:
    """The parts of a loop that exist only in this process, and in no store or snapshot.

    Attributes:
        provider: sends the model requests, sync or async like the handle.
        keeps_limits: whether to keep the stored limits, because no configuration was given.

    """

    provider: Provider | AsyncProvider
    tools: ToolRegistry
    config: LoopConfig
    context: Context
    clock: Callable[[], float]
    keeps_limits: bool = False

    @classmethod
    def of(  # noqa: PLR0913 - the arguments of a handle
        cls,
        provider: Any,
        tools: Tools,
        config: LoopConfig | None,
        context: Context | None,
        clock: Callable[[], float] = time.time,
        *,
        is_async: bool,
    ) -> Here:
        """Check the caller's arguments. Without a `config`, an existing loop keeps its limits.

        Raises:
            BadTool: two tools have the same name, a tool is async under a sync handle, or an object is not a tool.
            TypeError: an argument has the wrong type, or the provider is async under a sync handle, or the reverse.

        """
        provider = provider_for(provider, is_async=True) if is_async else provider_for(provider, is_async=False)
        keeps_limits, config = config is None, DEFAULT_CONFIG if config is None else config
        context = DEFAULT_CONTEXT if context is None else context
        check_parts(config, context, clock=clock)
        if config.has_async() and not is_async:
            raise TypeError("a callable of the config is async, and ToolLoopHandle is not: use AsyncToolLoopHandle")
        _check_strategies(config.strategies(), is_async=is_async)
        registry = add_reader(_make_registry(tools, is_async=is_async), config.keep_results)
        return cls(provider, registry, config, context, clock, keeps_limits)


@frozen
class LoopParts:
    """The parts of a handle.

    Attributes:
        state: the state of the loop.
        secrets: the parameters that are never stored.
        place: where it is stored; None keeps it only in the handle.
        wake_up: the changes to apply when the loop is driven; None for a new loop.
        take_over: whether to take the lease from another driver.

    """

    state: State
    here: Here
    secrets: Secrets
    place: Place | None = None
    wake_up: WakeUp | None = None
    take_over: bool = False

    @property
    def is_new(self) -> bool:
        """Whether its store, if it has one, does not have it yet."""
        return self.place is None or not self.place.rev


@frozen
class Opening:
    """A loop to open in a store, with what its caller gives: see `ToolLoopHandle.open`."""

    here: Here
    store: Store
    loop_id: str
    params: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] | None = None
    on_drift: OnDrift = "raise"
    take_over: bool = False

    def load(self) -> LoopParts:
        """Load the loop, or set it up if it does not exist and `params` are given.

        Changes of its configuration are recorded when it is driven.

        Raises:
            LoopNotFound: it does not exist, and there are no `params`.
            UnreadableSnapshot: the stored loop is damaged, not from toolloop, or in a newer format.
            BadTool, TypeError, ValueError: an argument is not valid.
            StoreError: the store failed.

        """
        require_store(self.store)
        check_text("loop_id", self.loop_id)
        kept = check_metadata(self.metadata)
        try:
            known = load_state(self.store, self.loop_id)
        except LoopNotFound:
            if self.params is None:
                raise
            new = make_loop(self.here, self.params, store=self.store, loop_id=self.loop_id)
            return evolve(new, place=None if new.place is None else evolve(new.place, metadata=kept))
        opened = LoopParts(known.state, self.here, Secrets(), known.place(self.store))
        parts = _configure(opened, self.params, on_drift=self.on_drift, asked="open()")
        return evolve(parts, take_over=self.take_over)


def make_loop(
    here: Here,
    params: Mapping[str, Any],
    *,
    store: Store | None = None,
    loop_id: str | None = None,
    asked: str = "ToolLoopHandle(...)",
) -> LoopParts:
    """Set up a new loop. It does no I/O and starts no clock.

    Raises:
        InvalidHistory: the API would refuse the messages.
        BadTool: two tools have the same name, a tool is async under a sync handle, or an object is not a tool.
        TypeError: an argument has the wrong type.
        UnpricedModel: the model has no price, and the budget limits the cost.
        ValueError: a parameter is missing, or cannot be set by the caller.

    """
    check_parts(here.config, here.context, loop_id=loop_id)
    if store is not None:
        require_store(store)
        check_new_id(loop_id or "new")
    begins = begin_with(params, here.tools, asked=asked, output=here.config.format())
    refuse_unpriced(begins.stored, here.config.limits().budget, here.config.pricing(), asked=asked)
    refuse_short_marks(begins.stored, here.tools, here.config.cache, asked=asked)
    messages = begins.messages or ()
    if messages:  # else `follow_up` begins it later
        begins.refuse_invalid(messages, here.tools, asked=asked)
    setup = begins.make_setup(here.tools, here.config, loop_id=loop_id or uuid.uuid4().hex, depth=here.context.depth)
    opened = ev.Opened(setup=setup, messages=messages, at=read_clock(here.clock, otherwise=0.0))
    place = None if store is None else Place(store, first=opened)
    return LoopParts(begin(opened), here, begins.secrets, place)


def restore_loop(
    here: Here,
    snapshot: Mapping[str, JSON],
    *,
    params: Mapping[str, Any] | None,
    store: Store | None,
    on_drift: OnDrift,
) -> LoopParts:
    """Set up a loop from its snapshot. In a store it is a new loop: two copies of one snapshot are two loops.

    Raises:
        UnreadableSnapshot: it is damaged, not a snapshot of toolloop, or in a newer format.
        BadTool, TypeError, ValueError: an argument is not valid.

    """
    from toolloop.stores.codec import load  # noqa: PLC0415 - cattrs is loaded when it is first needed

    if store is not None:
        require_store(store)
    opened = LoopParts(load(snapshot), here, Secrets())
    parts, state = _configure(opened, params, on_drift=on_drift, asked="restore()"), opened.state
    if under_way(state):
        state = step(state, ev.Woken(at=read_clock(here.clock, otherwise=state.root.now)))
    return evolve(parts, state=state, place=None if store is None else Place(store, first=ev.Adopted(state)))


# --- an existing loop, and its configuration in this process ---------------------------------------------------------


def _make_registry(tools: Tools, *, is_async: bool) -> ToolRegistry:
    """Return the tools as a registry.

    Args:
        tools: the tools, as a handle takes them.
        is_async: whether the handle is async.

    Raises:
        BadTool: two tools have the same name, a tool is async and the handle is not, or an object is not a tool.
        TypeError: as for `_check_strategies`, for a `sub_loop` among them.

    """
    registry = as_registry(tools)
    for tool in _list_tools(registry):
        if isinstance(tool, SubLoop):
            _check_strategies(tool.config.strategies(), is_async=is_async)
        if not is_async:
            _refuse_async(tool)
    return registry


def _check_strategies(strategies: Sequence[Strategy], *, is_async: bool) -> None:
    """Refuse compaction strategies whose provider or function the handle cannot call.

    Raises:
        TypeError: an async provider or function under a sync handle, or a sync provider under an async one.

    """
    if not strategies:
        return
    from toolloop.compaction.summarize import Summarize  # noqa: PLC0415 - most loops never summarize

    for strategy in strategies:
        if isinstance(strategy, Summarize):
            if strategy.function is not None and strategy.awaits and not is_async:
                raise TypeError(
                    "the function of Summarize is async, and ToolLoopHandle is not: use AsyncToolLoopHandle"
                )
            strategy.provider_for(is_async=is_async)


def _list_tools(registry: ToolRegistry) -> Iterator[Tool[..., Any]]:
    """Yield each tool; after a `sub_loop`, the tools of its loop."""
    for tool in registry:
        yield tool
        if isinstance(tool, SubLoop):
            yield from _list_tools(tool.registry)


def _refuse_async(tool: Tool[..., Any]) -> None:
    """Refuse a tool with a part that a sync handle cannot call."""
    name, use = tool.name, "use AsyncToolLoopHandle, or an ordinary function"
    parts = {f"needs_approval of the tool {name!r}": tool.needs_approval, f"preview of the tool {name!r}": tool.preview}
    problem = next(
        (f"{what} is async; {use}" for what, part in parts.items() if callable(part) and is_declared_async(part)), None
    )
    if tool.is_async:
        problem = f"the tool {name!r} is async, and ToolLoopHandle is not: use AsyncToolLoopHandle"
    elif isinstance(tool, SubLoop) and tool.config.has_async():
        problem = f"a callable in the config of the sub_loop {name!r} is async, and ToolLoopHandle is not: {use}"
    if problem is not None:
        raise BadTool(problem, tool=name)


def _configure(parts: LoopParts, params: Mapping[str, Any] | None, *, on_drift: OnDrift, asked: str) -> LoopParts:
    """Return an existing loop with its configuration in this process. They are compared when the loop is driven.

    Raises:
        UnreadableSnapshot: the stored parameters are not valid.
        BadTool, TypeError, ValueError: the caller's parameters are not valid.

    """
    if on_drift not in get_args(OnDrift):
        raise ValueError(f"on_drift is {on_drift!r}; give one of {', '.join(get_args(OnDrift))}")
    setup, here = parts.state.root.setup, parts.here
    if here.keeps_limits:  # without a configuration, the stored `keep_results` holds, with its tool
        here = evolve(here, tools=add_reader(here.tools, setup.keep_results))
    here = evolve(here, tools=here.tools.as_of(setup.tools))
    before = decode(setup.params)
    try:
        check_request(before, [{"name": facts.name, "input_schema": {}} for facts in setup.tools], asked=asked)
    except (BadTool, TypeError, ValueError) as error:
        raise UnreadableSnapshot(f"the stored parameters cannot be used: {error}") from error
    wanted: dict[str, Any] = {} if here.keeps_limits else here.config.parts()
    given = check_params({} if params is None else params, asked=asked)
    stored, secrets = split({name: value for name, value in given.items() if name != "messages"})
    # Parameters with a model are those of a whole request. Others only supply parameters that are not stored.
    after = stored if "model" in stored else {**before, **stored}
    if "compaction" not in before:
        after.pop("compaction", None)  # a compaction is requested only once, and that was done
    after = _set_format(after, parts, before, asked=asked)
    if to_canonical(after) != to_canonical(before):
        check_request(after, here.tools.definitions(), asked=asked)
        wanted["params"] = encode(after)
    refuse_short_marks(after, here.tools, here.config.cache, asked=asked)
    differs = {name: (getattr(setup, name), new) for name, new in wanted.items()}
    return evolve(parts, here=here, secrets=secrets, wake_up=WakeUp(on_drift, differs))


def _set_format(
    params: dict[str, JSON], parts: LoopParts, before: Mapping[str, JSON], *, asked: str
) -> dict[str, JSON]:
    """Return the parameters with the format of the result. Without a configuration, it is the stored one."""
    here = parts.here
    stored = find_format(before) if parts.state.root.setup.output else None
    wanted = stored if here.keeps_limits else here.config.format()
    if stored is None and wanted is None:
        return params
    given = drop_format(params) if find_format(params) == stored else params  # that of the loop, not of the caller
    return add_format(given, wanted, asked)
