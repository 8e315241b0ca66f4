"""What the processes of these tests do: they work on the loops of a store. Their loops: `tests.promises.processes`."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import anyio

from tests.kit.fork_server import Line, serve
from tests.promises.processes.programs import TOOLS, Worker as Part, model, store_of, warm_up
from toolloop import AsyncWorker, LoopConfig, LoopContext, ToolContext, Worker, tool
from toolloop._journal import lease
from toolloop._worker import asynchronous, desk, sync
from toolloop.inbox import InboxCall
from toolloop.machine.values.jsontext import JSON
from toolloop.prices import Price
from toolloop.stores.watchers import Watchers
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply


class Shared(Line):
    """A line on which several threads talk."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._lock = threading.Lock()

    def say(self, **words: JSON) -> None:
        with self._lock:
            self._line.say(**words)

    def hear(self) -> dict[str, Any]:
        return self._line.hear()


class Ends(logging.Handler):
    """Tells the test that the worker has noticed a signal."""

    def __init__(self, talk: Line) -> None:
        super().__init__(logging.INFO)
        self._talk = talk

    def emit(self, record: logging.LogRecord) -> None:
        if "stops" in record.getMessage():
            self._talk.say(ends=True)


def work(
    line: Line,
    *,
    path: str,
    witness: str,
    kind: str = "sync",
    hold: dict[str, Any] | None = None,
    tells: bool = False,
    agent: str | None = None,
    remind_after: Sequence[float] = (),
    price: float | None = None,
) -> str:
    """Work until a signal arrives, and report that.

    Args:
        line: the line to the test.
        path: the store.
        witness: the file of the witness.
        kind: `sync`, or the event loop.
        hold: where to stand still.
        tells: whether it also reports its notifications to the test.
        remind_after: after how many seconds it reminds of a call.
        price: of a million tokens, in dollars.
        agent: the kind of loops that it takes. The witness has each that it begins to drive.

    """
    talk = Shared(line)
    logging.getLogger("toolloop.worker").addHandler(Ends(talk))
    logging.getLogger("toolloop.worker").setLevel(logging.INFO)
    part = Part(talk, witness, hold or {})

    def notify(call: InboxCall) -> None:
        part.stand(at="notify", number=call.reminder)
        part.note("told", call.loop_id, call.id, call.why, call.notification_id)
        if tells:
            talk.say(told=[call.loop_id, call.id, call.why])

    parts: dict[str, Any] = {"context": LoopContext(state=part), "notify": notify, "remind_after": remind_after}
    if price is not None:
        parts["config"] = LoopConfig(prices={"*": Price(input=price, output=price)})
    if agent is not None:
        parts |= {"metadata": {"agent": agent}, "params": lambda loop_id: part.note("drives", agent, loop_id)}
    worker = (Worker if kind == "sync" else AsyncWorker)(store_of(path), model(part, kind, None), TOOLS, **parts)
    try:
        if isinstance(worker, Worker):
            worker.run()
        else:
            anyio.run(worker.run, backend=kind)
    except KeyboardInterrupt:
        return "interrupted"
    return "drained"


def stand_by(line: Line, *, path: str, kind: str, poll: float, deaf: bool = False, stubborn: bool = False) -> None:
    """Work, and say what reaches this process: a loop that waits, a call that was approved, a stop.

    Args:
        line: the line to the test.
        path: the store.
        kind: `sync`, or the event loop.
        poll: seconds between two polls of any kind.
        deaf: whether no watch tells of a change.
        stubborn: whether the tool runs on after it was cancelled.

    """
    talk = Shared(line)
    changed: list[tuple[Any, str, Any]] = [(each, "POLL", poll) for each in (desk, sync, asynchronous)]
    changed.append((lease, "_LOOK_EVERY", poll))
    if deaf:
        changed.append((Watchers, "tell", lambda _: None))
    for owner, name, value in changed:  # this process does nothing else
        setattr(owner, name, value)

    @tool(needs_approval=True)
    def hold(context: ToolContext) -> str:
        """Wait for a stop."""
        talk.say(reached="decision")
        while not context.cancelled:
            time.sleep(0.005)
        talk.say(reached="stop")
        while stubborn:
            time.sleep(0.01)
        return ""

    def answer(_request: Any) -> Any:
        return reply(calls=[call("hold", {}, id="hold")])

    provider: Any = ScriptedProvider(answer) if kind == "sync" else AsyncScriptedProvider(answer)
    parts: dict[str, Any] = {"notify": lambda _: talk.say(reached="loop")}
    worker = (Worker if kind == "sync" else AsyncWorker)(store_of(path), provider, [hold], **parts)
    if isinstance(worker, Worker):
        worker.run()
    else:
        anyio.run(worker.run, backend=kind)


PROGRAMS: dict[str, Callable[..., Any]] = {"work": work, "stand_by": stand_by}

if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])), PROGRAMS)
