"""What the tests of message threads share."""

from __future__ import annotations

import threading
from typing import Any

from attrs import define, field

from tests.kit.concurrency import wait_for
from toolloop import LoopConfig
from toolloop.events import ThreadRefused
from toolloop.providers import AnthropicProvider
from toolloop.testing import FakeMessagesAPI, call, reply

ADD = call("add", {"a": 1, "b": 2})
ON = LoopConfig(threads=True)


def adds(count: int) -> list[Any]:
    return [reply(calls=[ADD]) for _ in range(count)]


def shape(api: FakeMessagesAPI) -> list[str]:
    """Of each request: what it does to a thread, with how many messages."""
    bodies = [request.json for request in api.requests]
    return [f"{(body.get('thread') or {'type': 'whole'})['type']} {len(body['messages'])}" for body in bodies]


def list_taken(api: FakeMessagesAPI) -> list[int]:
    """How many messages the model saw with each request that was not refused."""
    return [len(request.whole["messages"]) for request in api.requests if request.refusal is None]


def refusals(result: Any) -> list[str]:
    return [event.error_code for event in result.events if isinstance(event, ThreadRefused)]


@define
class Gated:
    """A provider that holds each request back until it is let through."""

    inner: AnthropicProvider
    takes_threads: bool = True
    arrived: threading.Event = field(factory=threading.Event)
    go: threading.Event = field(factory=threading.Event)

    def send(self, request: Any) -> Any:
        self.arrived.set()
        wait_for(self.go)
        return self.inner.send(request)
