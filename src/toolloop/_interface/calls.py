"""Views of a loop: its calls for the caller, and `PolicyView` for policies and stop conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen

from toolloop._public import set_module
from toolloop._usage import Usage
from toolloop.machine.queries import driven, find_open_round
from toolloop.machine.record.loop import Loop, Round, State
from toolloop.machine.values.jsontext import JSON, decode
from toolloop.tools.calls import ToolCall, ToolResult


def calls_of(loop: Loop, round_: Round | None) -> tuple[ToolCall, ...]:
    """Return the calls of a round of a loop, in the model's order."""
    return () if round_ is None else tuple(ToolCall(call, loop.setup, round_.iteration) for call in round_.calls)


@set_module("toolloop.types")
@frozen
class RunningCall:
    """A call whose tool still runs.

    Attributes:
        id: its id, as decisions and views name it; below a nested loop, with the ids of the calls above it.
        name: the name of its tool.
        since: when the tool began, in UTC; None if another process runs it and has not stored that yet.
        message: the last `message` of `ToolContext.report`; `progress` and `total` likewise. They are None before that.

    """

    id: str
    name: str
    since: datetime | None
    message: str | None = None
    progress: float | None = None
    total: float | None = None


def list_pending_calls(state: State) -> tuple[ToolCall, ...]:
    """Return the waiting calls in the whole tree of a loop; the root's calls come first."""
    return tuple(
        call
        for _, loop in driven(state)
        for call in calls_of(loop, find_open_round(loop))
        if call.why is not None  # it waits
    )


@set_module("toolloop")
@frozen(eq=False, repr=False)
class PolicyView:
    """A loop as a policy or a stop condition sees it.

    All policies get the same view, so it cannot be changed.

    Attributes:
        outer: the view of the loop around it, if it is nested.

    """

    _loop: Loop
    outer: PolicyView | None = None
    _metadata: Callable[[], Mapping[str, str]] = dict

    @property
    def iteration(self) -> int:
        """The number of the reply, counted from 1."""
        return self._loop.iterations

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the outermost loop now. The store is read each time; a loop without a store has none."""
        return dict(self._metadata())

    @property
    def total_usage(self) -> Usage:
        """The usage so far, including this reply."""
        return self._loop.total_usage

    @property
    def reply(self) -> dict[str, JSON]:
        """The reply as received."""
        value: dict[str, JSON] = decode(self._loop.response or "{}")
        return value

    @property
    def messages(self) -> tuple[JSON, ...]:
        """The closed history."""
        return tuple(decode(text) for text in self._loop.messages)

    @property
    def calls(self) -> tuple[JSON, ...]:
        """The `tool_use` blocks of the started calls that are still in the history."""
        started = set(self._loop.started)
        return tuple(block for block in self._list_blocks("tool_use") if block["id"] in started)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results that are still in the history."""
        return tuple(
            ToolResult(block["tool_use_id"], block.get("content", ""), bool(block.get("is_error")))
            for block in self._list_blocks("tool_result")
        )

    def _list_blocks(self, kind: str) -> Sequence[Any]:
        contents = (message["content"] for message in self.messages)
        return [
            block for content in contents if isinstance(content, list) for block in content if block["type"] == kind
        ]

    def __repr__(self) -> str:
        return f"<PolicyView of iteration {self.iteration}>"


def text_of(blocks: Sequence[JSON]) -> str | None:
    """Return the text of some blocks, joined by newlines, or None if there is none."""
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return "\n".join(texts) if texts else None


def find_last_usage(loop: Loop) -> Usage:
    """Return the usage of the last reply; zero if a runner began with calls of an earlier reply."""
    replies = (entry.usage for entry in reversed(loop.usage_log) if not entry.path and entry.kind == "reply")
    return next(replies, Usage())


def find_last_message(loop: Loop) -> str:
    """Return the last reply, or the caller's assistant message if a runner's open round is based on that."""
    if loop.round is not None and loop.round.reply is not None:
        blocks = () if loop.response is None else decode(loop.response)["content"]
        if [call.id for call in loop.round.calls] != [block["id"] for block in blocks if block["type"] == "tool_use"]:
            return loop.round.reply
    return loop.response or "{}"
