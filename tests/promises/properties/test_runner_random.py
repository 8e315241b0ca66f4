"""The runner with random bodies: what goes out, what runs and what is shown is what the design says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.kit.concurrency import play
from tests.kit.effort import examples
from tests.kit.runners import drive_runner
from tests.kit.tools import MODEL
from tests.promises.properties.runner_model import Model, Player, programs, user, work
from toolloop.testing import call, reply, server_call, server_result

PARAMS: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 256,
    "messages": [user("hi")],
    "tools": [{"type": "web_search_20250305", "name": "web_search"}],
}


def script_of(program: list[Any]) -> Any:
    """The replies of a program; one that follows a pause begins with what the server found."""
    replies = iter(enumerate([*program, (0, [])]))

    def answer(request: Any) -> Any:
        number, (calls, _) = next(replies)
        said = [*found(request), {"type": "text", "text": f"reply {number}"}]
        if calls < 0:
            searching = server_call("web_search", {"query": "q"}, id=f"srvtoolu_{number}")
            return reply(content=[*said, searching], stop_reason="pause_turn")
        return reply(content=[*said, *(call("work", {}, id=f"toolu_{number}_{place}") for place in range(calls))])

    return answer


def found(request: Any) -> list[Any]:
    """The result of a search that a request goes on with."""
    content = request["messages"][-1]["content"]
    last = content[-1] if isinstance(content, list) else {}
    if last.get("type") != "server_tool_use":
        return []
    return [server_result("web_search", [], id=last["id"])]


def played(driver: str, program: list[Any]) -> list[Any]:
    """Play a program against the model, and give the bodies of its requests."""
    bodies: list[Any] = []

    async def story() -> None:
        async with drive_runner(driver, script_of(program), PARAMS, tools=[work], max_iterations=None) as driven:
            player = Player(driven, Model([user("hi")]))
            await player.step()
            for _, acts in program:
                for act in acts:
                    await player.act(act)
                final = player.is_final()
                await player.step()
                if final:
                    break
            bodies.extend(request.body for request in driven.api.requests)

    play(driver, story)
    return bodies


@examples(30)
@given(programs)
def test_a_runner_does_what_the_design_says(program: list[Any]) -> None:
    """No call runs twice unless it is named again, none that was answered or left out runs, no orphan goes out."""
    played("sync", program)


@pytest.mark.parametrize("driver", ["asyncio", "trio"])
def test_the_async_runner_does_the_same(driver: str) -> None:
    """The same requests to the byte, and the same model holds for it."""

    @examples(8)
    @given(programs)
    def agree(program: list[Any]) -> None:
        assert played(driver, program) == played("sync", program)

    agree()
