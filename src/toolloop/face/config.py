"""The configuration of a loop, checked at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from sys import float_info
from typing import Any, get_args

from attrs import field, fields, frozen
from attrs.validators import optional

from toolloop.compaction.strategy import Strategy
from toolloop.face.calls import View
from toolloop.face.watch_events import Observer
from toolloop.machine.jsontext import JSON, a_type
from toolloop.machine.setup import Budget, Execution, Limits, LoopAction, LoopDetection, Texts
from toolloop.machine.texts import PLACES
from toolloop.machine.values import Answer, Approve, Ask, Deny
from toolloop.tools.calls import ToolCall
from toolloop.tools.function import is_async

Opinion = Approve | Deny | Answer | Ask | None
Policy = Callable[[ToolCall, View], Opinion | Awaitable[Opinion]]
StopWhen = Callable[[View], bool | str | Awaitable[bool | str | None] | None]
ResultFilter = Callable[[ToolCall, JSON], JSON]  # JSON, or an awaitable of it


def _fits(test: Callable[[Any], bool], remedy: str) -> Callable[[Any, Any, Any], None]:
    """Return a validator that refuses a value of a field, and says what to give instead."""

    def check(_config: Any, attribute: Any, value: Any) -> None:
        if not test(value):
            raise ValueError(f"{attribute.name} is {value!r}; give {remedy}")

    return check


def _is_whole(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _whole(minimum: int) -> Callable[[Any, Any, Any], None]:
    fits = _fits(partial(_is_whole, minimum=minimum), f"a whole number from {minimum} up, or None for no limit")
    return optional(fits)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= float_info.max


_seconds = optional(_fits(_is_seconds, "a number of seconds from 0 up, or None for no limit"))
_callable = optional(_fits(callable, "a callable, or None"))
_EXECUTIONS = get_args(Execution)
_execution: Callable[[Any, Any, Execution], None] = _fits(_EXECUTIONS.__contains__, f"one of {', '.join(_EXECUTIONS)}")


def _is_not_zero(_config: Any, attribute: Any, value: Any) -> None:
    if value == 0:
        raise ValueError(f"{attribute.name} is 0, which no tool can keep; give more, or None for no limit")


def _is(kind: type, remedy: str) -> Callable[[Any, Any, Any], None]:
    return _fits(lambda value: isinstance(value, kind), remedy)


def _are(test: Callable[[Any], bool], remedy: str) -> Callable[[Any, Any, Any], None]:
    return _fits(lambda value: isinstance(value, tuple) and all(map(test, value)), remedy)


def _has_whole_parts(_config: Any, _attribute: Any, budget: Budget) -> None:
    for part in fields(Budget):
        _whole(0)(budget, part, getattr(budget, part.name))


def _is_detection(_config: Any, attribute: Any, value: LoopDetection) -> None:
    if not _is_whole(value.threshold, 1):
        raise ValueError(f"{attribute.name}.threshold is {value.threshold!r}; give a whole number from 1 up")
    if value.action not in (actions := get_args(LoopAction)):
        raise ValueError(f"{attribute.name}.action is {value.action!r}; give one of {', '.join(actions)}")


def _observes(value: Any) -> bool:
    return callable(value) or hasattr(type(value), "for_loop")


def _are_not_async(_config: Any, attribute: Any, value: Any) -> None:
    if any(map(is_async, value)):
        raise ValueError(f"{attribute.name} holds an async function, which is never awaited; give ordinary ones")


# The parameter of a converter is what type checkers take for the field's.
def _strategies(value: Strategy | Sequence[Strategy] | None) -> Any:
    return (value,) if isinstance(value, Strategy) else _tuple(value)


def _as_filters(value: Sequence[ResultFilter]) -> Any:
    return _tuple(value)


def _as_observers(value: Sequence[Observer]) -> Any:
    return _tuple(value)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) else value


def _can_be_said(_config: Any, attribute: Any, value: Texts) -> None:
    for part in fields(Texts):
        text = getattr(value, part.name)
        try:
            said = isinstance(text, str) and text.format(**PLACES[part.name]).strip()
        except (LookupError, ValueError, AttributeError) as error:
            raise ValueError(f"{attribute.name}.{part.name} cannot be filled in: {error!r}") from error
        if not said:
            raise ValueError(f"{attribute.name}.{part.name} is blank; the API refuses an error without a text")


_budget = optional([_is(Budget, "a Budget, or None for no limit"), _has_whole_parts])
_detection = optional([_is(LoopDetection, "a LoopDetection, or None for no detection"), _is_detection])
_filters = _are(callable, "a list of callables, each of which takes (call, content)")
_observers = [_are(_observes, "a list of callables, each of which takes one event"), _are_not_async]
_compaction = optional(
    _are(lambda value: isinstance(value, Strategy), "MaskResults, DropRounds or Summarize, a list of them, or None")
)
_depth = _fits(partial(_is_whole, minimum=0), "a whole number from 0 up")


def _is_set(value: object) -> str:
    return "None" if value is None else "set"


def _how_many(values: Sequence[object]) -> str:
    return f"{len(values)} set"


@frozen(kw_only=True)
class LoopConfig:
    """How a loop behaves. `None` is no limit.

    Args:
        max_iterations: answered requests in one user turn.
        max_pauses: how many times in a row a pause is resumed.
        max_calls_per_reply: client calls in one reply. A reply with more gives an `Error` with a `ProtocolError`, and
            none of its calls runs.
        timeout: active seconds in one user turn; waiting for the caller does not count.
        max_depth: the first depth at which no loop runs.
        budget: what the whole loop may use.
        max_parallel_tools: how many tools run at once; 1 is one after the other.
        tool_timeout: how many seconds a tool may take; its own `timeout` comes first. An async tool is cancelled then.
            A sync one is left behind in its thread, and its end does not count.
        decision_timeout: after how many seconds a call that waits for approval, or for an answer from outside, expires.
            A policy may say otherwise with `Ask(expires_in=...)`.
        execution: `barrier`: nothing runs while a call waits. `ready`: what is decided runs meanwhile.
        on_tool_call: `(call, view) -> Approve | Deny | Answer | Ask | None`: the policy. None: the tool's own
            `needs_approval` decides. If it raises, the call waits for the caller.
        stop_when: `(view) -> bool | str | None`: asked after each reply, before any tool runs; True or a reason ends
            the loop. If it raises, `next_turn()` raises that, and can be called again.
        result_filters: `(call, content) -> content | None`: each may replace the content that a tool
            returned; None leaves it. They run one after the other, before the result is recorded, and not on errors.
            One that raises leaves the result as it was.
        observers: each is called with every event of `toolloop.events`; one that raises is logged. One that has
            `around(event)` is also asked for a context manager around each model request and each run of a tool; it is
            entered and left in the thread or task that sends or runs, with the `RequestStarted` or `CallStarted`. One
            that has `for_loop(loop)` is asked, once for each handle, for the observer to call in its place;
            `loop.loop_id` says of which loop.
        loop_detection: what is done about a model that makes the same calls again and again; None does not look.
        compaction: a strategy of `toolloop.compaction`, or a list of them, tried in this order before each request;
            None leaves the history as it is.
        texts: what the model is told of a call that has no result of its own.
        threads: the server holds the conversation, and a request sends only what is new; see the docs on threads. A
            client or a model without threads gets the whole history, as without this.

    Raises:
        ValueError: a value that makes no sense; it names the field.

    """

    max_iterations: int | None = field(default=10, validator=_whole(0))
    max_pauses: int | None = field(default=10, validator=_whole(0))
    max_calls_per_reply: int | None = field(default=1000, validator=_whole(1))
    timeout: float | None = field(default=None, validator=_seconds)
    max_depth: int | None = field(default=3, validator=_whole(0))
    budget: Budget | None = field(default=None, validator=_budget)
    max_parallel_tools: int | None = field(default=8, validator=_whole(1))
    tool_timeout: float | None = field(default=None, validator=[_seconds, _is_not_zero])
    decision_timeout: float | None = field(default=None, validator=_seconds)
    execution: Execution = field(default="barrier", validator=_execution)
    on_tool_call: Policy | None = field(default=None, validator=_callable, repr=_is_set)
    stop_when: StopWhen | None = field(default=None, validator=_callable, repr=_is_set)
    result_filters: Sequence[ResultFilter] = field(
        default=(), converter=_as_filters, validator=_filters, repr=_how_many
    )
    observers: Sequence[Observer] = field(default=(), converter=_as_observers, validator=_observers, repr=_how_many)
    loop_detection: LoopDetection | None = field(default=None, validator=_detection)
    compaction: Strategy | Sequence[Strategy] | None = field(
        default=None, converter=_strategies, validator=_compaction, repr=_is_set
    )
    texts: Texts = field(factory=Texts, validator=[_is(Texts, "a Texts"), _can_be_said], repr=False)
    threads: bool = field(default=False, validator=_is(bool, "True or False"))

    def strategies(self) -> tuple[Strategy, ...]:
        """Return the strategies of compaction, in their order."""
        return self.compaction if isinstance(self.compaction, tuple) else ()

    def parts(self) -> dict[str, Any]:
        """Return what a loop keeps of the configuration, by the fields of `Setup`."""
        return {
            "limits": self.limits(),
            "execution": self.execution,
            "max_parallel_tools": self.max_parallel_tools,
            "tool_timeout": self.tool_timeout,
            "decision_timeout": self.decision_timeout,
            "loop_detection": self.loop_detection,
            "texts": self.texts,
            "callables": self.callables(),
            "threads": self.threads,
        }

    def limits(self) -> Limits:
        """Return the limits that the machine counts."""
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
        """Return whether a callable is async, as far as can be known without calling it."""
        given = (self.on_tool_call, self.stop_when, *self.result_filters)
        waits = any(getattr(strategy, "awaits", False) for strategy in self.strategies())
        return waits or any(each is not None and is_async(each) for each in given)


@frozen
class LoopContext:
    """What a loop is given by its caller: an object for its tools, and how deep it is nested.

    Args:
        state: the caller's own object; tools read it as `ToolContext.state`. It is in no snapshot.
        depth: 0 for an outermost loop. Inside a tool give its `ToolContext` as context instead.

    """

    state: Any = field(default=None, repr=False)
    depth: int = field(default=0, validator=_depth)


def check_parts(config: object, context: object, *, loop_id: object = None, clock: object = None) -> None:
    """Refuse a configuration, context, id or clock of another type.

    Raises:
        TypeError: names which, and what to give.

    """
    if not isinstance(config, LoopConfig):
        raise TypeError(f"config is {a_type(config)}; give a LoopConfig")
    if not _is_whole(getattr(context, "depth", None), minimum=0):
        raise TypeError(
            f"context is {a_type(context)} without a whole number as its depth; give a LoopContext, inside a tool its "
            "ToolContext, or any object with a depth, and with a state if tools need one"
        )
    if not isinstance(loop_id, str | None):
        raise TypeError(f"loop_id is {a_type(loop_id)}; give a string")
    if clock is not None and not callable(clock):
        raise TypeError(f"clock is {a_type(clock)}; give a callable that returns seconds since the epoch")


DEFAULT_CONFIG = LoopConfig()
DEFAULT_CONTEXT = LoopContext()
