"""A loop in a thread with a queue: the program at a terminal, and its two halves by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from tests.docs.examples.programs import at_terminal, imported
from toolloop import Stop, ToolLoopHandle
from toolloop.testing import FakeMessagesAPI, delayed, reply

SECONDS = 60.0  # a deadline, not a wait
BOTH = reply("Which?", calls=[("open_door", {"name": "north"}), ("open_door", {"name": "south"})])
PARAMS = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": [{"role": "user", "content": "Let me in"}]}

example = imported("thread_queue")


def results(api: FakeMessagesAPI) -> list[str]:
    return [block["content"] for block in api.requests[-1].json["messages"][-1]["content"]]


def test_the_window_draws_while_the_model_thinks_and_a_player_decides() -> None:
    """Frames appear while the request is held; each door is asked about once; what was denied did not run."""
    first = delayed(SECONDS, BOTH)
    with FakeMessagesAPI([first, reply("You are in the north.")]) as api, at_terminal("thread_queue.py", api) as window:
        assert first.arrived.wait(SECONDS)
        window.expect("..........")
        first.release()
        window.expect("open_door {'name': 'north'}? [y/n] ")
        window.type("y\n")
        window.expect("open_door {'name': 'south'}? [y/n] ")
        window.type("n\n")
        window.expect("You are in the north.")
        assert window.finish() == 0
        assert window.screen.count("[y/n]") == 2
        north, south = results(api)
        assert north == "the door north is open"
        assert south.endswith("the player said no")


@contextmanager
def at_work(handle: ToolLoopHandle) -> Iterator[tuple[SimpleQueue[Any], SimpleQueue[dict[str, Any]]]]:
    """The thread of the example, and its queues; the thread ends."""
    words: SimpleQueue[Any] = SimpleQueue()
    views: SimpleQueue[dict[str, Any]] = SimpleQueue()
    thread = threading.Thread(target=example.work, args=(handle, words, views))
    thread.start()
    try:
        yield words, views
    finally:
        words.put(None)
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_another_thread_may_look_and_stop_while_the_model_thinks() -> None:
    """The view is there at once, and the stop counts when the reply is in: nothing of it runs."""
    thinks = delayed(SECONDS, BOTH)
    with FakeMessagesAPI([thinks]) as api, api.client() as client:
        handle = ToolLoopHandle(client, params=PARAMS, tools=[example.open_door])
        with at_work(handle) as (words, views):
            words.put({})
            assert thinks.arrived.wait(SECONDS)
            assert handle.view()["state"] == "Requesting"
            handle.resume(Stop("the window was closed"))
            thinks.release()
            shown = views.get(timeout=SECONDS)
            assert (shown["state"], shown["termination"]) == ("Finished", "stop_condition")
