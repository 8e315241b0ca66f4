"""The configuration of a loop, validated when it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from sys import float_info
from typing import Any, get_args

from attrs import field, fields, frozen
from attrs.validators import optional

from toolloop._interface.calls import PolicyView
from toolloop._public import set_module
from toolloop._requests.automatic_marks import CacheLifetime
from toolloop._requests.output import Output
from toolloop.compaction.strategy import Strategy
from toolloop.events import Observer
from toolloop.machine.values.calls import Answer, Approve, Deny
from toolloop.machine.values.demands import Ask
from toolloop.machine.values.jsontext import JSON, describe_type
from toolloop.machine.values.setup import (
    Budget,
    Execution,
    KeepResults,
    Limits,
    LoopAction,
    LoopDetection,
    OnExpiry,
    Texts,
)
from toolloop.machine.values.texts import PLACES
from toolloop.prices import Price, Prices
from toolloop.tools.calls import ToolCall
from toolloop.tools.signature import is_async

Opinion = Approve | Deny | Answer | Ask | Sequence[Ask] | None
Policy = Callable[[ToolCall, PolicyView], Opinion | Awaitable[Opinion]]
StopWhen = Callable[[PolicyView], bool | str | Awaitable[bool | str | None] | None]
ResultFilter = Callable[[ToolCall, JSON], JSON]  # JSON, or an awaitable of it


def _make_check(test: Callable[[Any], bool], remedy: str) -> Callable[[Any, Any, Any], None]:
    """Return a validator for a field. `remedy`: the values that it accepts, for the error."""

    def check(_config: Any, attribute: Any, value: Any) -> None:
        if not test(value):
            raise ValueError(f"{attribute.name} is {value!r}; give {remedy}")

    return check


def _is_whole(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _make_whole_check(minimum: int) -> Callable[[Any, Any, Any], None]:
    fits = _make_check(partial(_is_whole, minimum=minimum), f"a whole number ({minimum} or more), or None for no limit")
    return optional(fits)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= float_info.max


_grace = _make_check(_is_seconds, "a number of seconds (0 or more)")
_seconds = optional(_make_check(_is_seconds, "a number of seconds (0 or more), or None for no limit"))
_cost = optional(
    _make_check(
        lambda value: isinstance(value, Decimal) and value.is_finite() and value >= 0,
        "dollars (0 or more), or None for no limit",
    )
)
_callable = optional(_make_check(callable, "a callable, or None"))
_EXECUTIONS = get_args(Execution)
_execution: Callable[[Any, Any, Execution], None] = _make_check(
    _EXECUTIONS.__contains__, f"one of {', '.join(_EXECUTIONS)}"
)
_ON_EXPIRY = get_args(OnExpiry)
_on_expiry: Callable[[Any, Any, OnExpiry], None] = _make_check(
    _ON_EXPIRY.__contains__, f"one of {', '.join(_ON_EXPIRY)}"
)


def _is_not_zero(_config: Any, attribute: Any, value: Any) -> None:
    if value == 0:
        raise ValueError(f"{attribute.name} is 0, but every tool takes some time; give more, or None for no limit")


def _is(kind: type, remedy: str) -> Callable[[Any, Any, Any], None]:
    return _make_check(lambda value: isinstance(value, kind), remedy)


def _make_each_check(test: Callable[[Any], bool], remedy: str) -> Callable[[Any, Any, Any], None]:
    return _make_check(lambda value: isinstance(value, tuple) and all(map(test, value)), remedy)


def _has_sound_parts(_config: Any, _attribute: Any, budget: Budget) -> None:
    for part in fields(Budget):
        check = _cost if part.name == "cost" else _make_whole_check(0)
        check(budget, part, getattr(budget, part.name))


def _is_detection(_config: Any, attribute: Any, value: LoopDetection) -> None:
    if not _is_whole(value.threshold, 1):
        raise ValueError(f"{attribute.name}.threshold is {value.threshold!r}; give a whole number (1 or more)")
    if value.action not in (actions := get_args(LoopAction)):
        raise ValueError(f"{attribute.name}.action is {value.action!r}; give one of {', '.join(actions)}")


def _keeps(_config: Any, attribute: Any, value: KeepResults) -> None:
    for name in ("over", "head", "tail"):
        if not _is_whole(part := getattr(value, name), 1):
            raise ValueError(f"{attribute.name}.{name} is {part!r}; give a whole number (1 or more)")
    if value.head + value.tail > value.over:
        raise ValueError(f"{attribute.name}.over is {value.over}; give at least head + tail, {value.head + value.tail}")


def _observes(value: Any) -> bool:
    return callable(value) or hasattr(type(value), "for_loop")


def _refuse_async(_config: Any, attribute: Any, value: Any) -> None:
    if any(map(is_async, value)):
        raise ValueError(f"{attribute.name} contains an async function, which is not supported; give plain functions")


# Type checkers use the type of a converter's parameter for the field.
def _as_prices(value: Prices | Mapping[str, Price] | None) -> Any:
    return value if value is None or isinstance(value, Prices) else Prices(value)


def _as_output(value: Any) -> Any:
    return value if value is None or isinstance(value, Output) else Output.of(value)


def _to_strategies(value: Strategy | Sequence[Strategy] | None) -> Any:
    return (value,) if isinstance(value, Strategy) else _to_tuple(value)


def _as_filters(value: Sequence[ResultFilter]) -> Any:
    return _to_tuple(value)


def _as_observers(value: Sequence[Observer]) -> Any:
    return _to_tuple(value)


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) else value


def _can_be_said(_config: Any, attribute: Any, value: Texts) -> None:
    for part in fields(Texts):
        text = getattr(value, part.name)
        try:
            said = isinstance(text, str) and text.format(**PLACES[part.name]).strip()
        except (LookupError, ValueError, AttributeError) as error:
            raise ValueError(f"{attribute.name}.{part.name} cannot be filled in: {error!r}") from error
        if not said:
            raise ValueError(f"{attribute.name}.{part.name} is blank, and the API refuses an error without text")


_budget = optional([_is(Budget, "a Budget, or None for no limit"), _has_sound_parts])
_keeping = optional([_is(KeepResults, "a KeepResults, or None"), _keeps])
_detection = optional([_is(LoopDetection, "a LoopDetection, or None for no detection"), _is_detection])
_filters = _make_each_check(callable, "a list of callables, each of which takes (call, content)")
_observers = [_make_each_check(_observes, "a list of callables, each of which takes one event"), _refuse_async]
_compaction = optional(
    _make_each_check(
        lambda value: isinstance(value, Strategy), "MaskResults, DropRounds or Summarize, a list of them, or None"
    )
)
_depth = _make_check(partial(_is_whole, minimum=0), "a whole number (0 or more)")


_LIFETIMES = get_args(CacheLifetime)
_lifetime: Callable[[Any, Any, CacheLifetime | None], None] = optional(
    _make_check(_LIFETIMES.__contains__, f"one of {', '.join(_LIFETIMES)}, or None for no cache marks")
)


def _is_set(value: object) -> str:
    return "None" if value is None else "set"


def _describe_count(values: Sequence[object]) -> str:
    return f"{len(values)} set"


@set_module("toolloop")
@frozen(kw_only=True)
class LoopConfig:
    """The configuration of a loop. `None` means no limit.

    Args:
        max_iterations: the maximum number of answered requests in one user turn.
        max_pauses: how many pauses in a row are resumed.
        max_calls_per_reply: the maximum number of client calls in one reply. A reply with more gives an `Error` with a
            `ProtocolError`, and none of its calls runs.
        timeout: the maximum active time of one user turn in seconds, without waits for the caller.
        max_depth: the maximum nesting; loops at this depth or deeper are refused.
        budget: the maximum usage of the whole loop.
        prices: the prices of models, so that usage has a `cost`: `known_prices()` of `toolloop.prices`, or a mapping of
            models to prices. They are not stored. A loop inside a call uses those around it, unless it has its own.
        max_parallel_tools: how many tools may run at once; 1 runs them one after the other. Of sync tools, at most
            8 run at once.
        tool_timeout: the limit in seconds for a tool without its own `timeout`. At the limit, an async tool is
            cancelled; a sync one is left behind in its thread, and its end is ignored.
        stop_grace: after a stop or a limit, for how many seconds a turn waits for the calls that run and for a request
            that is not streamed. Then it returns, and the calls that still run are in `Completed.running`.
        decision_timeout: after how many seconds a call expires that waits for approval or for an external answer. A
            policy can set another limit with `Ask(expires_in=...)`.
        on_expiry: with `continue`, the model gets the result that the call expired. With `stop`, the loop ends with the
            termination `Expired`. A loop inside a call uses its own `config`.
        execution: with `barrier`, no call runs while another one waits. With `ready`, decided calls run meanwhile.
        on_tool_call: `(call, view) -> Approve | Deny | Answer | Ask | None`: the policy. If it returns None, the tool's
            own `needs_approval` decides. An `Ask` adds to what that demands: more persons, a group, or `fresh`. If it
            raises, the call waits for the caller.
        stop_when: `(view) -> bool | str | None`: called after each reply, before any tool runs. True or a reason ends
            the loop. If it raises, `next_turn()` raises that exception, and you can call it again.
        result_filters: `(call, content) -> content | None`: each may replace the content that a tool
            returned; None keeps it. They run in order before the result is recorded, but not on errors. If one raises,
            the result is unchanged.
        observers: each is called with every event of `toolloop.events`. If one raises, that is logged. If it has a
            method `around(event)`, the method returns a context manager for each model request and each run of a tool;
            it is entered and left in the thread or task of the request or run, with the `RequestStarted` or
            `CallStarted`. If it has a method `for_loop(loop)`, the method is called once for each handle, and returns
            the observer to call instead; `loop.loop_id` is the id of the loop.
        loop_detection: how to handle a model that repeats the same calls; None turns detection off.
        compaction: a strategy of `toolloop.compaction`, or a list of them, tried in this order before each request;
            None keeps the history.
        output: the class of the result: of the types that tools take, such as a dataclass or a pydantic model. The API
            is asked for JSON of its schema (`output_config.format`), and `Completed.output` is the object. A reply that
            does not fit is answered once with what is wrong. Only the schema is stored.
        keep_results: keeps long results out of the history, and lets the model read their rest with a tool of the loop,
            `read_result`; None leaves them whole. Masked results are read in the same way.
        texts: the texts that the model gets for calls without a result of their tools.
        threads: whether the server keeps the conversation, so that a request sends only new messages; see the docs on
            threads. A client or a model without threads gets the whole history.
        cache: how long the server keeps the beginning of a request, so that the next one reads it for a fraction of the
            price: `5m` or `1h`. The loop then adds cache marks to its requests. It is not stored. None adds no marks.

    Raises:
        ValueError: a value is not valid; the error names the field.

    """

    max_iterations: int | None = field(default=10, validator=_make_whole_check(0))
    max_pauses: int | None = field(default=10, validator=_make_whole_check(0))
    max_calls_per_reply: int | None = field(default=1000, validator=_make_whole_check(1))
    timeout: float | None = field(default=None, validator=_seconds)
    max_depth: int | None = field(default=3, validator=_make_whole_check(0))
    budget: Budget | None = field(default=None, validator=_budget)
    prices: Prices | Mapping[str, Price] | None = field(default=None, converter=_as_prices, repr=_is_set)
    max_parallel_tools: int | None = field(default=32, validator=_make_whole_check(1))
    tool_timeout: float | None = field(default=None, validator=[_seconds, _is_not_zero])
    stop_grace: float = field(default=5.0, validator=_grace)
    decision_timeout: float | None = field(default=None, validator=_seconds)
    on_expiry: OnExpiry = field(default="continue", validator=_on_expiry)
    execution: Execution = field(default="barrier", validator=_execution)
    on_tool_call: Policy | None = field(default=None, validator=_callable, repr=_is_set)
    stop_when: StopWhen | None = field(default=None, validator=_callable, repr=_is_set)
    result_filters: Sequence[ResultFilter] = field(
        default=(), converter=_as_filters, validator=_filters, repr=_describe_count
    )
    observers: Sequence[Observer] = field(
        default=(), converter=_as_observers, validator=_observers, repr=_describe_count
    )
    loop_detection: LoopDetection | None = field(default=None, validator=_detection)
    compaction: Strategy | Sequence[Strategy] | None = field(
        default=None, converter=_to_strategies, validator=_compaction, repr=_is_set
    )
    output: Any = field(default=None, converter=_as_output, repr=_is_set)
    keep_results: KeepResults | None = field(default=None, validator=_keeping)
    texts: Texts = field(factory=Texts, validator=[_is(Texts, "a Texts"), _can_be_said], repr=False)
    threads: bool = field(default=False, validator=_is(bool, "True or False"))
    cache: CacheLifetime | None = field(default=None, validator=_lifetime)

    def pricing(self) -> Prices | None:
        """Return the prices, if there are some."""
        return self.prices if isinstance(self.prices, Prices) else None

    def typed(self) -> Output | None:
        """Return the class of the result, if there is one."""
        return self.output if isinstance(self.output, Output) else None

    def format(self) -> str | None:
        """Return the JSON text of `output_config.format`, if the result has a class."""
        return None if self.typed() is None else self.output.format

    def strategies(self) -> tuple[Strategy, ...]:
        """Return the strategies of compaction, in their order."""
        given: tuple[Strategy, ...] = self.compaction if isinstance(self.compaction, tuple) else ()
        return given if self.keep_results is None else tuple(each.for_reading() for each in given)

    def parts(self) -> dict[str, Any]:
        """Return the values that a loop stores, by the fields of `Setup`."""
        return {
            "limits": self.limits(),
            "execution": self.execution,
            "max_parallel_tools": self.max_parallel_tools,
            "tool_timeout": self.tool_timeout,
            "stop_grace": self.stop_grace,
            "decision_timeout": self.decision_timeout,
            "on_expiry": self.on_expiry,
            "loop_detection": self.loop_detection,
            "texts": self.texts,
            "callables": self.callables(),
            "threads": self.threads,
            "output": self.output is not None,
            "keep_results": self.keep_results,
        }

    def limits(self) -> Limits:
        """Return the limits that the machine enforces."""
        return Limits(
            max_iterations=self.max_iterations,
            max_pauses=self.max_pauses,
            max_calls_per_reply=self.max_calls_per_reply,
            timeout=self.timeout,
            max_depth=self.max_depth,
            budget=self.budget or Budget(),
        )

    def callables(self) -> frozenset[str]:
        """Return the names of the callables that are set."""
        names = ("on_tool_call", "stop_when", "result_filters", "compaction")
        return frozenset(name for name in names if getattr(self, name))

    def has_async(self) -> bool:
        """Return whether a callable is async, as far as this is known without calling it."""
        given = (self.on_tool_call, self.stop_when, *self.result_filters)
        waits = any(getattr(strategy, "awaits", False) for strategy in self.strategies())
        return waits or any(each is not None and is_async(each) for each in given)


@set_module("toolloop")
@frozen
class LoopContext:
    """The context of a loop: an object for its tools, and its depth.

    Args:
        state: an object of yours; tools read it as `ToolContext.state`. It is not in snapshots.
        depth: 0 for an outermost loop. Inside a tool, pass its `ToolContext` as the context instead.

    """

    state: Any = field(default=None, repr=False)
    depth: int = field(default=0, validator=_depth)


def check_parts(config: object, context: object, *, loop_id: object = None, clock: object = None) -> None:
    """Refuse a configuration, context, id or clock of the wrong type.

    Raises:
        TypeError: one of them has the wrong type.

    """
    if not isinstance(config, LoopConfig):
        raise TypeError(f"config is {describe_type(config)}; give a LoopConfig")
    if not _is_whole(getattr(context, "depth", None), minimum=0):
        raise TypeError(
            f"context is {describe_type(context)} without a whole number as its depth; give a LoopContext, inside "
            "a tool its ToolContext, or any object with a depth, and with a state if tools need one"
        )
    if not isinstance(loop_id, str | None):
        raise TypeError(f"loop_id is {describe_type(loop_id)}; give a string")
    if clock is not None and not callable(clock):
        raise TypeError(f"clock is {describe_type(clock)}; give a callable that returns seconds since the epoch")


DEFAULT_CONFIG = LoopConfig()
DEFAULT_CONTEXT = LoopContext()
