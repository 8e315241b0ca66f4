"""The container in which the model's code runs is named in the request that gives the code its results."""

from __future__ import annotations

import json
from typing import Any

from tests.each import each
from tests.loop.concurrency import run_async
from tests.loop.support import TOOLS, Scene, completed, failed, params, refused, scene, user, yielded
from toolloop import Approve, AsyncToolLoopHandle, ToolLoopHandle
from toolloop.errors import InvalidHistory
from toolloop.providers.sdk_arguments import MOST_UNSTREAMED
from toolloop.testing import FakeMessagesAPI, call, fault, reply, server_call

CODE = {"type": "code_execution_20260120", "name": "code_execution"}
PROGRAM = server_call("code_execution", {"code": "look()"}, id="srvtoolu_c")
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_c"}
RAN = {"type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []}
DONE = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_c", "content": RAN}
SAID = {"type": "text", "text": "done"}


def asks(container: str | None = "container_1", name: str = "look", call_id: str = "toolu_1") -> dict[str, Any]:
    """A reply whose program asks for a file."""
    given = {"path": "a"} if name == "look" else {"path": "a", "text": "b"}
    first = [PROGRAM] if call_id == "toolu_1" else []
    return reply(content=first, calls=[call(name, given, id=call_id, caller=CALLER)], container=container)


ENDS = reply(content=[DONE, SAID], container="container_1")


def approve(handle: ToolLoopHandle | AsyncToolLoopHandle) -> None:
    """Decide what waits, without a turn in hand."""
    handle.decide({call.id: Approve() for call in handle.pending})


def containers(at: Scene) -> list[Any]:
    """The container that each request named."""
    return [request.json.get("container") for request in at.api.requests]


@each("max_tokens", [256, MOST_UNSTREAMED + 1])
def test_the_results_of_calls_made_by_code_go_out_with_its_container(max_tokens: int) -> None:
    """And no other request does: neither the first, nor those of later turns."""
    script = [asks(), asks(None, call_id="toolu_2"), ENDS, reply(calls=[("look", {"path": "b"})]), reply("fine")]
    with scene(script, asked=params(tools=[CODE], max_tokens=max_tokens)) as at:
        assert completed(at.handle.run()).text == "done"
        at.handle.follow_up([user("again")])
        assert completed(at.handle.run()).text == "fine"
        assert containers(at) == [None, "container_1", "container_1", None, None]


def test_a_container_of_the_reply_takes_the_place_of_the_given_one() -> None:
    """The skills that the caller asked for stay; afterwards the parameters are as they were."""
    skills = [{"type": "anthropic", "skill_id": "xlsx"}]
    asked = params(tools=[CODE], container={"id": "container_0", "skills": skills})
    with scene([asks(), ENDS, reply("fine")], asked=asked) as at:
        at.handle.run()
        at.handle.follow_up([user("again")])
        at.handle.run()
        mine, theirs = ({"id": name, "skills": skills} for name in ("container_0", "container_1"))
        assert containers(at) == [mine, theirs, mine]


def test_a_given_container_is_replaced_by_the_one_that_the_code_runs_in() -> None:
    with scene([asks(), ENDS], asked=params(tools=[CODE], container="container_0")) as at:
        at.handle.run()
        assert containers(at) == ["container_0", "container_1"]


def test_other_parameters_from_then_on_go_out_with_the_same_container() -> None:
    with scene([asks(), ENDS], asked=params(tools=[CODE])) as at:
        turn = at.turn()
        at.handle.update_params(max_tokens=512)
        turn.continue_loop()
        at.done()
        assert [at.api.requests[1].json[name] for name in ("container", "max_tokens")] == ["container_1", 512]


def test_a_container_outlives_failed_requests() -> None:
    """Nothing was consumed, so the next try names it too."""
    nonsense = reply(stop_reason="tool_use", container="container_2")
    with scene([asks(), fault(529), nonsense, ENDS], asked=params(tools=[CODE])) as at:
        for _ in range(2):
            failed(at.handle.run())
            at.handle.retry()
        assert completed(at.handle.run()).text == "done"
        assert containers(at) == [None, *["container_1"] * 3]


def test_a_container_is_dropped_with_a_stop_and_kept_by_a_limit() -> None:
    script = [asks(), ENDS, asks(), reply("fine")]
    with scene(script, asked=params(tools=[CODE]), max_iterations=1) as at:
        assert completed(at.handle.run()).termination.kind == "max_iterations"
        at.handle.extend(max_iterations=9)
        assert completed(at.handle.run()).text == "done"
        at.handle.follow_up([user("again")])
        at.turn().stop()
        at.done()
        at.handle.follow_up([user("once more")])
        assert completed(at.handle.run()).text == "fine"
        assert containers(at) == [None, "container_1", None, None]


def test_a_paused_program_is_resumed_in_its_container() -> None:
    paused = reply(content=[PROGRAM], stop_reason="pause_turn", container="container_1")
    with scene([paused, ENDS], asked=params(tools=[CODE])) as at:
        assert completed(at.handle.run()).text == "done"
        assert containers(at) == [None, "container_1"]


def test_a_loop_that_slept_over_an_approval_goes_on_in_the_container() -> None:
    with scene([asks(name="write"), ENDS], asked=params(tools=[CODE])) as at:
        at.turn()
        snapshot = json.loads(json.dumps(at.handle.snapshot()))
        woken = ToolLoopHandle.restore(snapshot, at.api.client(), tools=TOOLS)
        approve(woken)
        assert completed(woken.run()).text == "done"
        assert containers(at) == [None, "container_1"]


def test_a_copy_of_a_loop_goes_on_in_the_container() -> None:
    with scene([asks(name="write"), ENDS], asked=params(tools=[CODE])) as at:
        at.turn()
        copy = at.handle.fork()
        approve(copy)
        assert completed(copy.run()).text == "done"
        assert containers(at) == [None, "container_1"]


@each("named", ["container_9", None])
def test_one_that_the_caller_names_or_takes_away_counts_while_code_waits(named: str | None) -> None:
    """An expired one is left out of the next request (source: rule 25), and another may take its place."""
    script = [asks(), fault(400, "invalid_request_error", "container: expired"), ENDS]
    with scene(script, asked=params(tools=[CODE]), refusals=0 if named else 1) as at:
        failed(at.handle.run())
        at.handle.update_params(container=named)
        at.handle.retry()
        done = at.handle.run()
        assert named is None or completed(done).text == "done"
        assert containers(at) == [None, "container_1", named]


def test_the_tool_cannot_go_while_code_waits() -> None:
    """The results would find no program; afterwards it may."""
    with scene([asks(), ENDS, reply("fine")], asked=params(tools=[CODE])) as at:
        turn = at.turn()
        with refused(at.handle, InvalidHistory, "server-tool-gone", "code_execution"):
            at.handle.update_params(tools=None)
        turn.continue_loop()
        at.done()
        at.handle.update_params(tools=None)
        at.handle.follow_up([user("again")])
        at.done()


@each("tools", [TOOLS, ()])
def test_the_tool_cannot_go_while_a_paused_call_waits(tools: Any) -> None:
    """Also where no tool at all would be left."""
    paused = reply(content=[PROGRAM], stop_reason="pause_turn")
    with scene([paused, ENDS], tools=tools, asked=params(tools=[CODE])) as at:
        turn = at.turn()
        with refused(at.handle, InvalidHistory, "server-tool-gone", "code_execution"):
            at.handle.update_params(tools=None)
        turn.continue_loop()
        assert at.done().text == "done"


def test_without_it_the_api_refuses_the_results() -> None:
    """What the other tests would meet if the container did not go along."""
    with scene([asks(None)], asked=params(tools=[CODE]), refusals=1) as at:
        assert "container_id is required" in str(failed(at.handle.run()).error)


def test_under_the_async_handle_it_goes_along_too() -> None:
    """Also after a sleep between the approval and the request."""

    async def main() -> None:
        with FakeMessagesAPI([asks(name="write"), fault(529), ENDS]) as api:
            async with api.async_client() as client:
                handle = AsyncToolLoopHandle(client, params=params(tools=[CODE]), tools=TOOLS)
                yielded(await handle.next_turn())
                woken = AsyncToolLoopHandle.restore(handle.snapshot(), client, tools=TOOLS)
                approve(woken)
                failed(await woken.run())
                woken.retry()
                assert completed(await woken.run()).text == "done"
            assert [request.json.get("container") for request in api.requests] == [None, "container_1", "container_1"]

    run_async("asyncio", main)
