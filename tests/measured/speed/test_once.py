"""A message is encoded once in its life and judged at most once; a reply is decoded once. Nothing is read again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.measured.speed.loops import FACES, PARAMS, WORDS, Face, Rote, add, config, sync
from tests.measured.speed.work import Work, counting
from toolloop import ToolLoopHandle, Yielded
from toolloop.machine.values.jsontext import decode, encode
from toolloop.providers.protocol import Request
from toolloop.testing import FakeMessagesAPI, call, reply


class Posting(Rote):
    """A provider that takes the body of each request, as one that posts it does."""

    def send(self, request: Request) -> Any:
        assert request.body()
        return super().send(request)


def held(face: Face, rounds: int) -> tuple[Work, list[str]]:
    """What rounds took, and the messages of the history that went out in them."""
    before = len(face.loop.state.root.messages)
    with counting() as work:
        for _ in range(rounds):
            face.turn()
    return work, face.loop.state.root.messages[before:-2]  # the last two are for the next request


def content_of(message: str) -> str:
    return encode(decode(message)["content"])


def test_over_many_rounds_each_message_is_handled_once() -> None:
    """Its JSON is written once, becomes bytes once, and is neither read again nor judged again."""
    with sync(Posting()) as face:
        work, messages = held(face, 30)
    assert len(messages) == 58
    assert {work.as_bytes[text] for text in messages} == {1}
    assert {work.encoded[content_of(text)] for text in messages[::2]} == {1}
    assert {work.decoded[text] for text in messages} == {0}
    assert max((work.judged[text] for text in messages), default=0) <= 1
    results = [decode(text)["content"][0]["content"] for text in messages[1::2]]
    assert {work.encoded[encode(result)] for result in results} == {1}


@pytest.mark.parametrize("name", FACES)
def test_in_every_face_a_message_becomes_bytes_once(name: str) -> None:
    """With every driver and store; and none is judged or read twice."""
    with FACES[name]() as face:
        work, messages = held(face, 8)
    assert len(messages) >= 12  # a runner's last round is open
    assert {work.as_bytes[text] for text in messages} == {1}
    assert {work.encoded[content_of(text)] for text in messages[::2]} == {1}
    assert max(work.judged[text] for text in messages) <= 1
    assert max(work.decoded[text] for text in messages) <= 1


def test_with_a_client_of_the_sdk_each_reply_is_decoded_once() -> None:
    """Unchanged; its text is kept, and not written again. The old messages of a request are those of the last one."""
    script = [reply(WORDS, calls=[call("add", {"a": number, "b": 1})]) for number in range(12)]
    with FakeMessagesAPI([*script, reply("done")]) as api:
        handle = ToolLoopHandle(api.client(), params=PARAMS, tools=[add], config=config())
        with counting() as work:
            handle.run()
        assert not api.refused
        bodies = [request.body for request in api.requests]
        messages = list(handle.state.root.messages)[1:-1]
    replies = {text: times for text, times in work.decoded.items() if '"type":"message"' in text.replace(" ", "")}
    assert len(replies) == len(bodies) == 13
    assert list(replies.values()) == [1] * 12 + [2]  # of the last one the caller gets a copy
    assert not any(text in work.encoded for text in replies)
    assert len(messages) == 24
    assert {work.as_bytes[text] for text in messages} == {1}
    assert {work.decoded[text] for text in messages} == {0}
    for earlier, later in pairwise(bodies):
        assert later.startswith(earlier.removesuffix(b"]}") + b",")


def test_streamed_by_a_client_of_the_sdk_a_message_becomes_bytes_once_too() -> None:
    """Though each request has parameters of its own, those with which it asks for a stream."""
    script = [reply(WORDS, calls=[call("add", {"a": number, "b": 1})]) for number in range(10)]
    with FakeMessagesAPI([*script, reply("done")]) as api:
        handle = ToolLoopHandle(api.client(), params=PARAMS, tools=[add], config=config())
        with counting() as work:
            while not handle.is_finished:
                with handle.stream_turn() as stream:
                    for _ in stream:
                        pass
                if isinstance(stream.turn, Yielded):
                    stream.turn.continue_loop()
        assert not api.refused
        assert all(request.json["stream"] for request in api.requests)
        messages = list(handle.state.root.messages)[1:-1]
    assert len(messages) == 20
    assert {work.as_bytes[text] for text in messages} == {1}
