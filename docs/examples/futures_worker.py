"""Loops as jobs of a `concurrent.futures` pool. A job may be done again, in any process: the loop is in the store.

    python docs/examples/futures_worker.py      # it needs ANTHROPIC_API_KEY

LOOPS names the file that keeps the loops, BANK the address of the service that pays. Run it again after a crash.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx2
from anthropic import Anthropic

from toolloop import Approve, Deny, LoopView, Rerun, SqliteStore, ToolLoopHandle, tool


@tool(needs_approval=True)
def refund(order: int) -> str:
    """Pay an order back."""
    return httpx2.post(os.environ["BANK"], json={"order": order, "euros": 5}, timeout=60).raise_for_status().text


STORE, CLIENT, TOOLS = SqliteStore(Path(os.environ.get("LOOPS", "loops.db"))), Anthropic(), [refund]


def job(loop_id: str, question: str) -> LoopView:
    """Begin a loop, or find it in the store; drive it as far as it goes without a person; show where that is."""
    messages = [{"role": "user", "content": question}]
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": messages}
    with ToolLoopHandle.open(STORE, loop_id, CLIENT, tools=TOOLS, params=params) as handle:
        handle.run()
        return handle.view()


def word(call: Mapping[str, Any]) -> Approve | Deny | Rerun:
    """A person's word on a call. It is `uncertain` where a process was killed that ran it."""
    if input(f"{call['why']}: {call['name']} {call['input']}? [y/n] ") != "y":
        return Deny("the clerk said no")
    return Rerun() if call["why"] == "uncertain" else Approve()


if __name__ == "__main__":
    questions = {"ana": "Order 7 came broken.", "ben": "Order 8 never came."}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(job, *each) for each in questions.items()}
        while jobs:
            done, jobs = wait(jobs, return_when=FIRST_COMPLETED)
            for view in [each.result() for each in done]:
                print(view["loop_id"], view["text"], view["error"] or "")
                if words := {call["id"]: word(call) for call in view["pending"]}:
                    with ToolLoopHandle.open(STORE, view["loop_id"], CLIENT, tools=TOOLS) as handle:
                        handle.decide(words)
                    jobs.add(pool.submit(job, view["loop_id"], questions[view["loop_id"]]))
