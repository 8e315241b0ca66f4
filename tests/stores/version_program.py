"""A program that uses a store with whichever version of toolloop is on its path: see `test_earlier_versions`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import toolloop
from toolloop import Approve, Ask, Inbox, LoopConfig, SqliteStore, ToolLoopHandle, tool
from toolloop.errors import ToolLoopError
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider, call, reply

SCRIPT = (reply(calls=[call("pay", {"to": "ana"}, id="c1")]), reply("Paid."))
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "Pay"}]}


def open_store(where: str) -> Store:
    if "://" not in where:
        return SqliteStore(where)
    from toolloop.stores import PostgresStore  # noqa: PLC0415 - not always installed

    return PostgresStore(where)


STORE = open_store(sys.argv[1])


@tool(needs_approval=True)
def pay(to: str) -> str:
    """Pay a person."""
    return f"paid {to}"


def answer(request: Any) -> Any:
    return SCRIPT[sum(message["role"] == "assistant" for message in request["messages"])]


def version() -> str:
    return str(Path(toolloop.__file__).parents[1])


def drive(loop_id: str, asks: dict[str, Any] | None) -> str:
    config = LoopConfig() if asks is None else LoopConfig(on_tool_call=lambda *_: Ask(**asks))
    with ToolLoopHandle.open(
        STORE, loop_id, ScriptedProvider(answer), tools=[pay], params=PARAMS, config=config
    ) as handle:
        return getattr(handle.run(), "reason", "end")


def decide(loop_id: str, by: str) -> None:
    (waiting,) = STORE.head(loop_id).pending
    Inbox(STORE).decide(loop_id, {waiting: Approve(by=by)})


def say(loop_id: str, text: str) -> str:
    return Inbox(STORE).say(loop_id, text)


def old_rows() -> list[Any]:
    return [[row.loop_id, row.status, [each.id for each in row.pending]] for row in STORE.list()]


def rows() -> list[Any]:
    return [[row.loop_id, row.status, [[each.id, each.named] for each in row.pending]] for row in STORE.list()]


def main() -> None:
    for line in sys.stdin:
        try:
            result = eval(line)
        except ToolLoopError as error:
            result = type(error).__name__
        print(json.dumps(result), flush=True)  # noqa: T201 - a program that answers


if __name__ == "__main__":
    main()
