"""What the processes of these tests do: they drive what DBOS gives them. Their loops: `tests.promises.processes`."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.dbos.support import opened, until
from tests.kit.fork_server import Line, serve
from tests.promises.processes.programs import TOOLS, Worker as Part, model, warm_up
from toolloop import LoopContext
from toolloop.dbos import DurableLoops


def drive(line: Line, *, store: str, dbos: dict[str, Any], witness: str, hold: dict[str, Any] | None = None) -> str:
    """Drive until the test says that it is over. `hold`: stand still there, and be killed or told to end."""
    part = Part(line, witness, hold or {})
    loops = DurableLoops(
        opened(store),
        model(part, "sync", None),
        TOOLS,
        dbos=dbos,  # type: ignore[arg-type] # it came as JSON
        queue={"polling_interval_sec": 0.05},
        context=LoopContext(state=part),
        sweep_every=0.3,
    )
    loops.launch()
    if hold is None:
        line.say(launched=True)
        line.hear()
        loops.close()
        return "closed"
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    told.wait()
    closing = threading.Thread(target=loops.close)
    closing.start()
    until(lambda: not any(each.name == "sweeps-of-toolloop" for each in threading.enumerate()))
    line.say(closing=True)
    closing.join()
    return "closed"


PROGRAMS: dict[str, Callable[..., Any]] = {"drive": drive}

if __name__ == "__main__":
    warm_up()
    serve(socket.socket(fileno=int(sys.argv[1])), PROGRAMS)
