"""toolloop with threads: one handle, one tool, `run()`; the API keeps the history, and a request has what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.measured.benchmarks.contestants import client_post, toolloop_handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from anthropic import Anthropic

connect = client_post.connect


def conversation(client: Anthropic, turns: int) -> Callable[[], str]:
    return toolloop_handle.conversation(client, turns, threads=True)
