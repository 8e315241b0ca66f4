"""Loops as jobs of a process pool, for real: workers, one SQLite file, a person at a terminal, a worker killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.examples.programs import at_terminal, order_asked
from tests.examples.web_service import SECONDS, a_bank
from toolloop import SqliteStore
from toolloop.testing import FakeMessagesAPI, reply

ORDERS = {"Order 7 came broken.": 7, "Order 8 never came.": 8}


def model(request: dict[str, Any]) -> dict[str, Any]:
    """Asks for the refund of the order in question, and then says so."""
    order = ORDERS[request["messages"][0]["content"]]
    if len(request["messages"]) > 1:
        return reply(f"Order {order} is settled.")
    return reply(f"Order {order}?", calls=[("refund", {"order": order})])


def test_the_loops_of_a_pool_are_decided_at_a_terminal(tmp_path: Path) -> None:
    """What was approved ran, once; what was denied did not."""
    with FakeMessagesAPI(model) as api, a_bank() as bank:
        with at_terminal("futures_worker.py", api, LOOPS=str(tmp_path / "loops.db"), BANK=bank.url) as terminal:
            for _ in ORDERS:
                terminal.type("y\n" if order_asked(terminal) == 7 else "n\n")
            assert terminal.finish() == 0
            assert "Order 7 is settled." in terminal.screen
            assert "Order 8 is settled." in terminal.screen
        assert bank.paid == [7]


@pytest.mark.deep
def test_a_worker_is_killed_in_the_tool_and_the_next_run_of_the_program_says_so(tmp_path: Path) -> None:
    """The loops are in the store: no request is repeated, and only a person may repeat the refund."""
    loops = tmp_path / "loops.db"
    with FakeMessagesAPI(model) as api, a_bank() as bank:
        bank.open.clear()
        with at_terminal("futures_worker.py", api, LOOPS=str(loops), BANK=bank.url) as terminal:
            for _ in ORDERS:
                terminal.type("y\n" if order_asked(terminal) == 7 else "n\n")
            assert bank.asked.get(timeout=SECONDS) == 7
            with SqliteStore(loops) as store:
                lease = store.lease("ana")
            assert lease
            os.kill(json.JSONDecoder().raw_decode(lease.owner)[0]["pid"], signal.SIGKILL)
            terminal.expect("BrokenProcessPool")
            assert terminal.finish() == 1
        bank.open.set()
        asked = len(api.requests)
        with at_terminal("futures_worker.py", api, LOOPS=str(loops), BANK=bank.url) as terminal:
            terminal.expect("uncertain: refund {'order': 7}? [y/n] ")
            terminal.type("n\n")
            assert terminal.finish() == 0
            assert "Order 7 is settled." in terminal.screen
        assert bank.paid == [7]
        with SqliteStore(loops) as store:
            assert {(loop.loop_id, loop.status) for loop in store.list()} == {("ana", "ended"), ("ben", "ended")}
        ends = [request.json["messages"][-1]["content"] for request in api.requests[asked:]]
        assert [block["content"] for (block,) in ends if "nobody saw it end" in block["content"]] != []
