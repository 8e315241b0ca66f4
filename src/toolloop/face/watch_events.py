"""What happened, for those who watch: on each result, and for `LoopConfig.observers`.

All are frozen, and told in the order in which things happened. The machine's own events, which are the journal of a
loop, are in `toolloop.machine`; these are for people and logs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from attrs import field, frozen

from toolloop.machine.jsontext import JSON
from toolloop.machine.loop import Loop
from toolloop.machine.state import Path, State
from toolloop.machine.terminations import Termination
from toolloop.machine.usage import Usage


@frozen
class WatchEvent:
    """Something that happened in a loop.

    Attributes:
        iteration: the number of the request it belongs to, counted from 1.
        path: the ids of the calls that lead to the loop it happened in, from the outermost down.

    """

    iteration: int
    path: tuple[str, ...] = field(default=(), kw_only=True)


@frozen
class RequestStarted(WatchEvent):
    """A model request goes out. `summary`: it asks for a summary of the history, for a compaction."""

    summary: bool = field(default=False, kw_only=True)


@frozen
class RequestAnswered(WatchEvent):
    """A model request was answered. `seconds`: how long it took; `summary`: it asked for one, for a compaction."""

    stop_reason: str | None
    usage: Usage
    seconds: float
    summary: bool = field(default=False, kw_only=True)


@frozen
class RequestFailed(WatchEvent):
    """A model request failed."""

    message: str
    retryable: bool


@frozen
class ThreadRefused(WatchEvent):
    """The server refused the message thread of a request, which is made again with the whole history.

    `error_code`: why, in the API's words, such as `thread_not_found`.
    """

    error_code: str


@frozen
class Delta(WatchEvent):
    """A piece of a reply as it comes in, told only while a turn is streamed. `index`: of its block in the reply.

    Deltas go to the stream and to observers. They are in no result's `events`: the reply itself is there by then.
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

    citation: JSON


@frozen
class InputDelta(Delta):
    """A piece of the JSON of a call's input, of a client's call or a server's. Pieces joined are the whole input."""

    call_id: str
    name: str
    partial_json: str


@frozen
class CallProposed(WatchEvent):
    """The model asks for a call."""

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
class CallWaiting(WatchEvent):
    """A call waits for the caller. `why`: `approval`, `external` or `uncertain`."""

    call_id: str
    name: str
    why: str


@frozen
class CallStarted(WatchEvent):
    """A tool starts."""

    call_id: str
    name: str


@frozen
class CallProgress(WatchEvent):
    """A running tool says how far it has come, with `ToolContext.report`. The numbers are in its own unit."""

    call_id: str
    name: str
    message: str | None
    progress: float | None
    total: float | None


@frozen
class ResultFiltered(WatchEvent):
    """A result filter changed a result. `before` and `after`: its size, in characters of JSON."""

    call_id: str
    name: str
    filter: str
    before: int
    after: int


@frozen
class CallFinished(WatchEvent):
    """A call has its result.

    Attributes:
        seconds: how long its tool ran, 0.0 where none did.
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
    """An injected message waits, because the API allows none at this place; it joins at the next legal one."""

    count: int


@frozen
class LoopDetected(WatchEvent):
    """The model repeats a round. `tool_name`: what it called; `count`: how many times in a row; `action`: as set."""

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
        strategy: which one did it: the name of its class (with "#2" for the second of a class), or "compaction" where
            the API did, as the parameter asks.
        before, after: about how many tokens a request took, and takes now.
        problem: why nothing changed, where nothing did.

    """

    strategy: str
    before: int
    after: int
    problem: str | None = None


@frozen
class ThinkingDropped(WatchEvent):
    """What stood before thinking blocks changed, so requests leave them out from now on. `count`: how many more."""

    count: int


@frozen
class BlocksLeftOut(WatchEvent):
    """Blocks of a reply did not join the history, because the API would refuse to take them back."""

    kinds: tuple[str, ...]


@frozen
class DriftAdopted(WatchEvent):
    """The loop goes on with other tools, parameters or limits than it was stored with. `changes`: each in words."""

    changes: tuple[str, ...]


@frozen
class LoopFinished(WatchEvent):
    """The loop ended."""

    termination: Termination


# --- those who watch -------------------------------------------------------------------------------------------------


class Source(Protocol):
    """Holds the state of a tree of loops: a journal."""

    state: State


class WatchedLoop:
    """The loop that an observer is asked to watch. It keeps nothing alive.

    Attributes:
        loop_id: of the outermost loop.
        depth: how many calls the outermost loop that the observer is told of runs inside of.

    """

    def __init__(self, loop_id: str, depth: int, source: Callable[[], Source | None]) -> None:
        """Made by the event bus of the loop."""
        self.loop_id = loop_id
        self.depth = depth
        self._source = source

    def at(self, path: Path) -> Loop | None:
        """Return the loop at a path as it is now; None if there is none."""
        source = self._source()
        return None if source is None else source.state.at(path)


class LoopObserver(Protocol):
    """An observer that is asked, once for each handle, for the one to call in its place."""

    def for_loop(self, loop: WatchedLoop) -> Callable[[WatchEvent], object] | None:
        """Return what is called with each event of this loop."""
        ...


Observer = Callable[[WatchEvent], object] | LoopObserver
