"""Good journals, and how to spoil them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from toolloop import Approve, Deny, Grant, LoopConfig, ToolLoopHandle, Yielded, tool
from toolloop.machine import Event
from toolloop.stores import Entry, Head, MemoryStore
from toolloop.stores.events import decode_event, encode_event
from toolloop.testing import ScriptedProvider, call, reply


@tool(effect="pure")
def look(path: str) -> str:
    """Read a text file."""
    return f"text of {path}"


@tool(needs_approval=True)
def write(path: str, text: str) -> str:
    """Replace a text file."""
    return f"wrote {path}"


PARAMS: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 256,
    "messages": [{"role": "user", "content": "Fix the typo"}],
}
# A round with a call that runs unasked, one that runs as edited, and one that is denied; then one by a grant; the end.
REPLIES = (
    reply(
        calls=[
            call("look", {"path": "a"}, id="looked"),
            call("write", {"path": "a", "text": "x"}, id="edited"),
            call("write", {"path": "b", "text": "x"}, id="denied"),
        ]
    ),
    reply(calls=[call("write", {"path": "c", "text": "y"}, id="granted")]),
    reply("done"),
)


def decide(turn: Yielded) -> None:
    """What a person says to what waits."""
    for each in turn.pending:
        if each.id == "denied":
            turn.deny(each, "not that one", by="bo")
        else:
            grant = Grant(match={"path": "?"}, uses=1)
            turn.approve(each.id, {"path": "a", "text": "z"}, by="ana", reason="typo", remember=grant)


def clock(start: float = 1_800_000_000.0) -> Callable[[], float]:
    """A clock that goes on by a second each time it is asked."""
    seconds = iter(range(1_000_000))
    return lambda: start + next(seconds)


def a_journal(
    replies: Sequence[Any] = REPLIES,
    ask: Callable[[Yielded], None] = decide,
    config: LoopConfig | None = None,
    tools: Sequence[Any] = (look, write),
    seconds: Callable[[], float] | None = None,
) -> tuple[Entry, ...]:
    """The journal of a loop that ran to its end."""
    store = MemoryStore()
    handle = ToolLoopHandle(
        ScriptedProvider(replies),
        params=PARAMS,
        tools=tools,
        config=config or LoopConfig(max_parallel_tools=1),
        store=store,
        loop_id="loop",
        clock=seconds or clock(),
    )
    with handle:
        handle.run(ask)
    return store.load("loop").entries


def events(journal: Iterable[Entry]) -> list[Event]:
    return [decode_event(entry.body) for entry in journal]


def entries(journal: Iterable[Event]) -> list[Entry]:
    """The same events again, with ids of their own."""
    return [Entry(f"entry-{number}", encode_event(event)) for number, event in enumerate(journal)]


def find(journal: Sequence[Event], kind: type[Event], call_id: str | None = None) -> int:
    """Where the first event of a kind is, of a call if it is named."""
    return next(
        at
        for at, event in enumerate(journal)
        if isinstance(event, kind) and (call_id is None or getattr(event, "call_id", None) == call_id)
    )


APPROVED, DENIED = Approve(by="ana"), Deny("no", by="bo")
HEAD = Head("ended")
