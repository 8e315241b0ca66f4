"""A handle in the child of a fork: the parent's goes on, and the copy in the child refuses to be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.each import each
from tests.kit.warm_python import run

# A thread drives, and is inside a tool, when the main thread forks. Arguments: the kind of handle, and the file.
PROGRAM = """
import asyncio, os, sys, threading, warnings
from toolloop import *
from toolloop.errors import IllegalCommand
from toolloop.stores import dump
from toolloop.testing import AsyncScriptedProvider, ScriptedProvider, call, reply

warnings.simplefilter("ignore")  # that a process with threads forks

running, forked = threading.Event(), threading.Event()

@tool
def pay() -> str:
    "Pay."
    running.set()
    forked.wait(30)
    print("paid", flush=True)
    return "paid"

@tool(needs_approval=True)
def rm() -> str:
    "Remove."
    return "gone"

is_async, store = sys.argv[1] == "async", SqliteStore(sys.argv[2]) if sys.argv[2] else None
script = [reply(calls=[call("pay", {}, id="t1")]), reply(calls=[call("rm", {}, id="t2")]), reply("done")]
params = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
given = {"params": params, "tools": [pay, rm], "store": store, "loop_id": "loop"}
if is_async:
    handle = AsyncToolLoopHandle(AsyncScriptedProvider(script), **given)
else:
    handle = ToolLoopHandle(ScriptedProvider(script), **given)

def wait(made):
    return asyncio.run(made) if is_async else made

async def driven():
    return await handle.run()

thread = threading.Thread(target=lambda: print(wait(driven() if is_async else handle.run()).reason, flush=True))
thread.start()
running.wait(30)

async def awaited(name, *arguments):
    return await getattr(handle, name)(*arguments)

def used(name, *arguments):
    try:
        if is_async and name in ("next_turn", "run", "flush", "close", "fork"):
            asyncio.run(awaited(name, *arguments))
        else:
            getattr(handle, name)(*arguments)
    except IllegalCommand as error:
        assert "belongs to the parent process" in str(error), error
        return
    raise AssertionError(name)

child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    forked.set()
    thread.join(30)
    print("child", os.waitstatus_to_exitcode(status), handle.pending[0].id, flush=True)
else:
    code = 1
    try:
        for name, *arguments in (
            ("next_turn",), ("run",), ("flush",), ("close",), ("snapshot",), ("fork",), ("retry",),
            ("decide", {"t1": Approve()}), ("resume", Continue()), ("resume", InjectMessages(params["messages"])),
            ("follow_up", params["messages"]), ("extend", 3), ("update_params",),
        ):
            used(name, *arguments)
        assert (handle.iterations, handle.pending, handle.is_finished) == (1, (), False)
        assert handle.view()["state"] == "Running" and handle.messages and repr(handle) and dump(handle.state)
        code = 0
    finally:
        sys.stdout.flush()
        if code:
            import traceback
            traceback.print_exc()
        os._exit(code)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() on this system")
@each(["kind", "stored"], [("sync", True), ("async", False)])
def test_a_copy_in_the_child_of_a_fork_refuses_every_command(kind: str, stored: bool, tmp_path: Path) -> None:
    """It neither hangs nor drives; reads go on, and the parent drives as if nothing had happened."""
    (program := tmp_path / "program.py").write_text(PROGRAM)
    done = run([str(program), kind, str(tmp_path / "loops.db") if stored else ""])
    assert (done.stdout.split("\n"), done.stderr) == (["paid", "decision_required", "child 0 t2", ""], "")
