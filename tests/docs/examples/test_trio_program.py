"""Loops in a trio program: at a terminal, and under a clock that jumps."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.testing

from tests.docs.examples.programs import at_terminal, imported, order_asked
from toolloop.testing import FakeMessagesAPI, delayed, reply

SECONDS = 60.0  # a deadline, not a wait

example = imported("trio_program")


def test_one_clerk_decides_for_all_customers() -> None:
    """All are served at once, and each is asked about once; what was approved ran, what was denied did not."""
    together = threading.Event()
    first = {order: delayed(together, reply(calls=[("refund", {"order": order})])) for order in (7, 8)}

    def model(request: dict[str, Any]) -> Any:
        if len(request["messages"]) > 1:
            return reply(f"Then: {request['messages'][-1]['content'][0]['content']}.")
        return first[int(request["messages"][0]["content"].split()[1])]

    with FakeMessagesAPI(model) as api, at_terminal("trio_program.py", api) as terminal:
        for held in first.values():
            assert held.arrived.wait(SECONDS)
        together.set()
        for _ in range(2):
            terminal.type("y\n" if order_asked(terminal) == 7 else "n\n")
        assert terminal.finish() == 0
        assert "Order 7 came broken. Then: order 7 is paid back. (Finished)" in terminal.screen
        assert "the clerk said no. (Finished)" in terminal.screen
        assert len(api.requests) == 4


def test_a_customer_whose_time_is_up_leaves_a_loop_that_can_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """The request is given up when its time has come, as if it had not been made; the other customer is served."""
    never, clock = delayed(SECONDS, reply("Too late.")), trio.testing.MockClock()
    script: dict[str, Any] = {"slow": never, "quick": reply("Here you are.")}

    async def main(api: FakeMessagesAPI) -> None:
        send, desk = trio.open_memory_channel[Any](0)
        async with api.async_client() as client, desk, trio.open_nursery() as nursery:
            with send:
                for question in script:
                    nursery.start_soon(example.serve, question, client, send.clone())
            assert await trio.to_thread.run_sync(never.arrived.wait, SECONDS)
            while "Here you are." not in (said := capsys.readouterr().out):
                await trio.lowlevel.checkpoint()
            assert said == "quick Here you are. (Finished)\n"
            clock.jump(601)

    with FakeMessagesAPI(lambda request: script[request["messages"][0]["content"]]) as api:
        trio.run(main, api, clock=clock)
    assert capsys.readouterr().out == "slow None (Ready)\n"
