"""What `docs/why.md` says of toolloop is so, row by row."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.kit.warm_python import Piped, run
from toolloop import (
    Approve,
    AsyncToolLoopHandle,
    Grant,
    LoopConfig,
    MemoryStore,
    SqliteStore,
    ToolLoopHandle,
    Yielded,
    terminations,
    tool,
)
from toolloop.errors import IllegalCommand, UndecidedCalls, UnreadableSnapshot
from toolloop.testing import AsyncScriptedProvider, FakeMessagesAPI, ScriptedProvider, reply

PARAMS: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Go"}],
}
TWO = [("pay", {"euros": 1}), ("pay", {"euros": 2})]
# The tool leaves a word in a file of its own.
PROGRAM = """
import os, sys
from toolloop import *
from toolloop.errors import Conflict
from toolloop.testing import ScriptedProvider, reply

@tool(needs_approval=True)
def pay(euros: int) -> str:
    "Pay."
    with open("paid.txt", "a") as paid:
        paid.write("paid ")
    if "die" in sys.argv:
        os._exit(9)
    return "fine"

provider = ScriptedProvider([reply("ok")])
sys.stdin.readline()
try:
    with ToolLoopHandle.open(SqliteStore("why.db"), "pay", provider, tools=[pay]) as handle:
        if "approve" in sys.argv:
            handle.decide({call: Approve() for call in handle.pending})
        handle.run()
        print("success" if handle.is_finished else handle.pending[0].why)
except Conflict:
    print("Conflict")
"""


@tool(needs_approval=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete."""
    return f"{path} is gone"


@tool
def look(path: str) -> str:
    """Look."""
    return path[:1] * 900


def paused(handle: ToolLoopHandle) -> Yielded:
    turn = handle.next_turn()
    assert isinstance(turn, Yielded)
    return turn


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteStore:
    """A stored loop whose one call waits for a decision."""
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    store = SqliteStore("why.db")
    with ToolLoopHandle.open(
        store, "pay", ScriptedProvider([reply(calls=[("pay", {"euros": 1})])]), tools=[pay], params=PARAMS
    ) as handle:
        handle.run()
    return store


def test_two_processes_run_an_approved_call_once(stored: SqliteStore) -> None:
    """The other one gets `Conflict`, or comes when the work is done."""
    with ToolLoopHandle.open(stored, "pay", ScriptedProvider([]), tools=[pay]) as handle:
        handle.decide({handle.pending[0]: Approve(by="ana")})
    waits, go = os.pipe()
    with Piped(["program.py"], stdin=waits) as one, Piped(["program.py"], stdin=waits) as other:
        os.close(waits)
        os.close(go)
        found = sorted(each.stdout.read().strip() for each in (one, other))
    assert found in (["Conflict", "success"], ["success", "success"])
    assert Path("paid.txt").read_text() == "paid "


@pytest.mark.usefixtures("stored")
def test_a_call_whose_process_was_killed_is_uncertain() -> None:
    """It does not run again by itself."""
    assert run(["program.py", "approve", "die"]).returncode == 9
    assert run(["program.py"]).stdout == "uncertain\n"
    assert Path("paid.txt").read_text() == "paid "


def test_always_approve_is_for_the_exact_input() -> None:
    """The same call runs without a question; another path is asked about."""
    script = [reply(calls=[("delete_file", {"path": path})]) for path in ("tmp.txt", "tmp.txt", "/")]
    handle = ToolLoopHandle(ScriptedProvider(script), params=PARAMS, tools=[delete_file])
    turn = paused(handle)
    turn.approve(turn.pending[0], remember=Grant())
    assert [call.input for call in handle.run().pending] == [{"path": "/"}]


def test_one_of_two_calls_is_decided_and_the_model_learns_of_an_edit() -> None:
    """A malformed decision changes nothing; the history keeps the input that the model wrote."""
    handle = ToolLoopHandle(
        ScriptedProvider([reply(calls=TWO), reply("ok")]),
        params=PARAMS,
        tools=[pay],
        config=LoopConfig(execution="ready"),
    )
    turn = paused(handle)
    before = handle.state
    for bad in ({"euros": "many"}, {"dollars": 1}):
        with pytest.raises(IllegalCommand):
            turn.approve(turn.pending[0], bad)
        assert handle.state is before
    turn.approve(turn.pending[1])
    turn.continue_loop()
    turn = paused(handle)
    assert [result and result.content for result in turn.results] == [None, "paid 2"]
    turn.approve(turn.pending[0], {"euros": 3})
    assert handle.run().text == "ok"
    assert handle.messages[1]["content"][0]["input"] == {"euros": 1}
    told = json.dumps(handle.messages[2])
    assert "paid 3" in told
    assert "ran with another input" in told


def test_a_message_while_calls_wait_is_refused() -> None:
    """Nothing changes."""
    handle = ToolLoopHandle(ScriptedProvider([reply(calls=TWO)]), params=PARAMS, tools=[pay])
    turn = paused(handle)
    before = handle.state
    with pytest.raises(UndecidedCalls):
        turn.inject_and_continue([{"role": "user", "content": "Hello?"}])
    assert handle.state is before


def test_a_changed_input_in_a_snapshot_is_found() -> None:
    """By its digest."""
    handle = ToolLoopHandle(ScriptedProvider([reply(calls=TWO)]), params=PARAMS, tools=[pay])
    paused(handle)
    sound = json.dumps(handle.snapshot())
    forged = sound.replace('{\\"euros\\":2}', '{\\"euros\\":9}')
    assert forged != sound
    with pytest.raises(UnreadableSnapshot):
        ToolLoopHandle.restore(json.loads(forged), ScriptedProvider([]), tools=[pay])


def test_a_limit_holds_over_approvals_and_resumes() -> None:
    """The count is part of the loop."""
    provider = ScriptedProvider([reply(calls=TWO), reply(calls=TWO)])
    handle = ToolLoopHandle(provider, params=PARAMS, tools=[pay], config=LoopConfig(max_iterations=2))
    for _ in range(30):
        handle = ToolLoopHandle.restore(json.loads(json.dumps(handle.snapshot())), provider, tools=[pay])
        if turn := handle.pending_turn:
            turn.approve_all()
            turn.continue_loop()
        handle.next_turn()
    assert handle.into_result().termination == terminations.MaxIterations(2)


def test_what_is_stored_is_little_more_than_the_messages() -> None:
    """A run of 31 calls: one snapshot, and the events of a journal."""
    script = [*(reply("Step", calls=[("look", {"path": f"/srv/{number}"})]) for number in range(31)), reply("Done")]
    store = MemoryStore()
    handle = ToolLoopHandle(
        ScriptedProvider(script),
        params=PARAMS,
        tools=[look],
        config=LoopConfig(max_iterations=None),
        store=store,
        loop_id="size",
    )
    handle.run()
    plain = len(json.dumps(handle.messages))
    assert len(json.dumps(handle.snapshot())) < 1.25 * plain
    assert sum(len(entry.body) for entry in store.load("size").entries) < 1.65 * plain


def test_with_threads_a_turn_uploads_the_new_messages() -> None:
    """The request of round 100 has as many bytes as the second one, but for the digits of a call's input."""
    script = [*(reply("Step", calls=[("look", {"path": f"/srv/{number:03}"})]) for number in range(100)), reply("Done")]
    with FakeMessagesAPI(script, enforce=False) as api:
        config = LoopConfig(max_iterations=None, threads=True)
        ToolLoopHandle(api.client(), params=PARAMS, tools=[look], config=config).run()
        sizes = [len(request.body) for request in api.requests]
    assert len(sizes) == 101
    assert sizes[100] == sizes[1]


def test_it_runs_under_trio() -> None:
    """The async handle."""

    async def main() -> str | None:
        handle = AsyncToolLoopHandle(AsyncScriptedProvider([reply("Hello")]), params=PARAMS, tools=[pay])
        return (await handle.run()).text

    assert trio.run(main) == "Hello"
