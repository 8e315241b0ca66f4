"""A loop in a plain thread, with a queue: a window or a game draws its frames, and never waits for the model.

python docs/examples/thread_queue.py        # it needs ANTHROPIC_API_KEY
"""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from anthropic import Anthropic

from toolloop import Approve, Deny, LoopView, ToolLoopHandle, tool
from toolloop.errors import ToolLoopError

Words = SimpleQueue[dict[Any, Approve | Deny] | None]
Views = SimpleQueue[LoopView]


@tool(needs_approval=True)
def open_door(name: str) -> str:
    """Open a door of the castle."""
    return f"the door {name} is open"


def work(handle: ToolLoopHandle, words: Words, views: Views) -> None:
    """The thread. It alone drives: it takes a word, goes on as far as nobody is needed, and shows where that is."""
    for word in iter(words.get, None):
        try:
            handle.decide(word)
            handle.run()
            views.put(handle.view())
        except ToolLoopError as error:  # such as a click on what is no longer so; the loop is as it was
            views.put({**handle.view(), "error": str(error)})


def window(words: Words, views: Views) -> None:
    """The event loop: a frame, twenty times a second, whatever the other thread does."""
    words.put({})  # nothing is decided yet: just go on
    shown: LoopView | None = None
    while shown is None or shown["state"] not in ("Finished", "Failed"):
        print(".", end="", flush=True)  # draws a frame
        try:
            shown = views.get(timeout=1 / 20)
        except Empty:
            continue
        print(shown["text"], shown["error"] or "")
        yes = {call["id"]: input(f"{call['name']} {call['input']}? [y/n] ") == "y" for call in shown["pending"]}
        words.put({call_id: Approve() if ok else Deny("the player said no") for call_id, ok in yes.items()})


if __name__ == "__main__":
    question = {"role": "user", "content": "I stand before the doors north and south. Let me in."}
    params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": [question]}
    inbox, outbox = Words(), Views()
    castle = ToolLoopHandle(Anthropic(), params=params, tools=[open_door])
    Thread(target=work, args=(castle, inbox, outbox), daemon=True).start()
    window(inbox, outbox)
