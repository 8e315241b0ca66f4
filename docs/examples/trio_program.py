"""Loops in a trio program: each customer's in a task of its own, and one clerk who decides for all of them.

python docs/examples/trio_program.py        # it needs ANTHROPIC_API_KEY, and trio
"""

from __future__ import annotations

import trio
from anthropic import AsyncAnthropic

from toolloop import AsyncToolLoopHandle, Yielded, tool

Desk = tuple[Yielded, trio.Event]
BANK = trio.CapacityLimiter(1)  # tools may be trio's own


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Pay an order back."""
    async with BANK:
        return f"order {order} is paid back"


async def serve(question: str, client: AsyncAnthropic, desk: trio.MemorySendChannel[Desk]) -> None:
    """One customer: a loop, and what it came to."""
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": [{"role": "user", "content": question}]}
    handle = AsyncToolLoopHandle(client, params=params, tools=[refund])

    async def ask(turn: Yielded) -> None:
        await desk.send((turn, decided := trio.Event()))  # waits while the desk is busy
        await decided.wait()

    with desk:
        with trio.move_on_after(600):  # seconds; who is cut off there may go on with the handle later
            await handle.run(ask)
        print(f"{question} {handle.view()['text']} ({handle.view()['state']})")


async def clerk(desk: trio.MemoryReceiveChannel[Desk]) -> None:
    """One person decides after the other, while all the rest goes on."""
    async for turn, decided in desk:
        for call in turn.pending:
            said = await trio.to_thread.run_sync(input, f"{call.name} {call.input}? [y/n] ")
            turn.approve(call) if said == "y" else turn.deny(call, "the clerk said no")
        decided.set()


async def main(questions: list[str]) -> None:
    """Serve the customers, all at once."""
    send, receive = trio.open_memory_channel[Desk](0)
    async with AsyncAnthropic() as client, trio.open_nursery() as nursery:
        nursery.start_soon(clerk, receive)
        with send:
            for question in questions:
                nursery.start_soon(serve, question, client, send.clone())


if __name__ == "__main__":
    trio.run(main, ["Order 7 came broken.", "Order 8 never came."])
