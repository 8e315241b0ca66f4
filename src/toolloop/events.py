"""Watch events: for `LoopConfig.observers`, for streams, and in the `events` of each result.

All are frozen, and delivered in the order in which they happened. They are for people and logs. The machine's own
events, which make up the journal of a loop, are in `toolloop.machine`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

from toolloop._names import deprecated_names
from toolloop._usage import Usage
from toolloop.terminations import Termination

if TYPE_CHECKING:  # this file stands on the lowest floor
    from toolloop.machine import Loop, Path, State

__all__ = [
    "BlocksLeftOut",
    "CallApproved",
    "CallDecided",
    "CallFinished",
    "CallProgress",
    "CallProposed",
    "CallStarted",
    "CallWaiting",
    "CitationDelta",
    "Compacted",
    "Delta",
    "DriftAdopted",
    "HistoryReplaced",
    "InputDelta",
    "LoopFinished",
    "MessageHeld",
    "ModelRequestFailed",
    "RepetitionDetected",
    "RequestAnswered",
    "RequestStarted",
    "ResultFiltered",
    "TextDelta",
    "ThinkingDelta",
    "ThinkingDropped",
    "ThreadRefused",
    "WatchEvent",
    "WatchedLoop",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__


@frozen
class WatchEvent:
    """Something that happened in a loop.

    Attributes:
        iteration: the number of its request, counted from 1.
        path: the ids of the calls that lead to its loop, from the outermost down.

    """

    iteration: int
    path: tuple[str, ...] = field(default=(), kw_only=True)


@frozen
class RequestStarted(WatchEvent):
    """A model request is sent.

    Attributes:
        summary: whether it is for a summary of the history, for a compaction.
        message_id: the id that its reply will have in the conversation; None for a summary. A repeated request has
            another one. A reply without content leaves no message.

    """

    summary: bool = field(default=False, kw_only=True)
    message_id: str | None = field(default=None, kw_only=True)


@frozen
class RequestAnswered(WatchEvent):
    """A model request was answered. `seconds`: its duration; `summary`: whether it was for a summary."""

    stop_reason: str | None
    usage: Usage
    seconds: float
    summary: bool = field(default=False, kw_only=True)


@frozen
class ModelRequestFailed(WatchEvent):
    """A model request failed."""

    message: str
    retryable: bool


@frozen
class ThreadRefused(WatchEvent):
    """The server refused the message thread of a request. The request is repeated with the whole history.

    `error_code`: the reason, as a code of the API such as `thread_not_found`.
    """

    error_code: str


@frozen
class Delta(WatchEvent):
    """A piece of a streamed reply. `index`: the index of its block in the reply.

    Deltas go to the stream and to observers of a streamed turn. The `events` of a result do not contain them, because
    the whole reply is available then.
    """

    index: int


@frozen
class TextDelta(Delta):
    """A piece of text."""

    text: str


@frozen
class ThinkingDelta(Delta):
    """A piece of thinking."""

    thinking: str


@frozen
class CitationDelta(Delta):
    """A citation of the text of its block."""

    citation: Any


@frozen
class InputDelta(Delta):
    """A piece of the JSON of the input of a client or server call. The joined pieces are the whole input."""

    call_id: str
    name: str
    partial_json: str


@frozen
class CallProposed(WatchEvent):
    """The model proposed a call."""

    call_id: str
    name: str


@frozen
class CallDecided(WatchEvent):
    """A policy or the caller decided a call: `kind` is `approve`, `deny`, `answer` or `rerun`."""

    call_id: str
    name: str
    kind: str
    by: str | None


@frozen
class CallApproved(WatchEvent):
    """A person approved a call that still needs approvals of others. `missing`: how many."""

    call_id: str
    name: str
    by: str | None
    missing: int


@frozen
class CallWaiting(WatchEvent):
    """A call waits for the caller. `why`: `approval`, `external` or `uncertain`."""

    call_id: str
    name: str
    why: str


@frozen
class CallStarted(WatchEvent):
    """A tool was started."""

    call_id: str
    name: str


@frozen
class CallProgress(WatchEvent):
    """A running tool reported its progress with `ToolContext.report`. The numbers are in the tool's own unit."""

    call_id: str
    name: str
    message: str | None
    progress: float | None
    total: float | None


@frozen
class ResultFiltered(WatchEvent):
    """A result filter changed a result. `before`, `after`: its size in characters of JSON."""

    call_id: str
    name: str
    filter: str
    before: int
    after: int


@frozen
class CallFinished(WatchEvent):
    """A call has its result.

    Attributes:
        seconds: the duration of the run; 0.0 if no tool ran.
        plain_text: as in `ToolResult`. It is not logged.

    """

    call_id: str
    name: str
    outcome: str
    is_error: bool
    seconds: float
    plain_text: str = field(repr=False)


@frozen
class MessageHeld(WatchEvent):
    """An injected message is queued, because the API does not allow it yet. It joins as soon as the API allows it."""

    count: int


@frozen
class RepetitionDetected(WatchEvent):
    """The model repeated a round. `tool_name`: the called tools; `count`: how often; `action`: as configured."""

    tool_name: str
    count: int
    action: str


@frozen
class HistoryReplaced(WatchEvent):
    """The caller replaced the closed history."""

    before: int
    after: int


@frozen
class Compacted(WatchEvent):
    """The history was compacted.

    Attributes:
        strategy: the class name of the strategy (with "#2" for a second one of a class), or "compaction" for a
            compaction by the API.
        before, after: the estimated tokens of a request, before and after.
        problem: the reason if nothing changed.

    """

    strategy: str
    before: int
    after: int
    problem: str | None = None


@frozen
class ThinkingDropped(WatchEvent):
    """The prefix of thinking blocks changed, so requests leave them out from now on. `count`: how many more."""

    count: int


@frozen
class BlocksLeftOut(WatchEvent):
    """Blocks of a reply did not join the history, because the API would refuse them in a request."""

    kinds: tuple[str, ...]


@frozen
class DriftAdopted(WatchEvent):
    """The loop continues with a configuration that changed since it was stored. `changes`: their descriptions."""

    changes: tuple[str, ...]


@frozen
class LoopFinished(WatchEvent):
    """The loop ended."""

    termination: Termination


# --- observers -------------------------------------------------------------------------------------------------------


class Source(Protocol):
    """An object with the state of a tree of loops: a journal."""

    state: State


class WatchedLoop:
    """The loop that an observer watches. It keeps no object alive.

    Attributes:
        loop_id: the id of the outermost loop.
        depth: how many calls the outermost observed loop is inside of.

    """

    def __init__(self, loop_id: str, depth: int, source: Callable[[], Source | None]) -> None:
        """Keep the parts. The event bus of the loop calls this."""
        self.loop_id = loop_id
        self.depth = depth
        self._source = source

    def at(self, path: Path) -> Loop | None:
        """Return the current loop at a path, or None."""
        source = self._source()
        return None if source is None else source.state.at(path)


class LoopObserver(Protocol):
    """An observer that returns, once for each handle, the observer to call instead."""

    def for_loop(self, loop: WatchedLoop) -> Callable[[WatchEvent], object] | None:
        """Return the function to call with each event of this loop, or None."""
        ...


Observer = Callable[[WatchEvent], object] | LoopObserver

if not TYPE_CHECKING:  # to a type checker, a module-level `__getattr__` means that every name exists
    __getattr__ = deprecated_names(
        __name__,
        {
            "LoopDetected": "toolloop.events:RepetitionDetected",
            "RequestFailed": "toolloop.events:ModelRequestFailed",
            **{
                name: f"toolloop.types:{name}"
                for name in ("AsyncReplyStream", "AsyncTurnStream", "ReplyStream", "TurnStream")
            },
        },
    )
