"""What is right in each result and too much in all together: the caller is told before anything is sent."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.handle.support import refused, scene
from toolloop import Continue, tool
from toolloop.errors import InvalidHistory
from toolloop.responses import FileResponse
from toolloop.testing import call, reply

PDF = b"%PDF-1.7\n"


def png(side: int) -> bytes:
    """The beginning of a picture, which says how large it is."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", side, side, 8, 2, 0, 0, 0) + b"\0" * 40


@tool
def shoot(side: int) -> FileResponse:
    """Take a picture."""
    return FileResponse("a.png", "image/png", png(side))


@tool
def read() -> FileResponse:
    """Read a document."""
    return FileResponse("a.pdf", "application/pdf", PDF)


@tool
def search() -> list[Any]:
    """Find something, to be cited."""
    found = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}
    return [{**found, "citations": {"enabled": True}}]


def test_many_images_have_to_be_smaller_each() -> None:
    """Each of 20 may be large; with one more none may be. The large ones can be taken out, and the loop goes on."""
    shots = [reply(calls=[call("shoot", {"side": 3000 if number == 0 else 10})]) for number in range(21)]
    with scene([*shots, reply("fine")], tools=[shoot], max_iterations=None) as at:
        for _ in range(21):
            at.turn().continue_loop()
        with refused(at.handle, InvalidHistory, "image-limits", "2000"):
            at.handle.next_turn()
        assert at.count == 21
        results = at.handle.messages_mut()[2]["content"]
        results[0]["content"] = "a picture that was taken out"
        assert at.done().text == "fine"


def test_many_images_in_one_round_are_counted_too() -> None:
    """Whichever way they come."""
    script = [reply(calls=[call("shoot", {"side": 2001}) for _ in range(21)])]
    with scene(script, tools=[shoot], max_parallel_tools=None) as at:
        at.turn().continue_loop()
        with refused(at.handle, InvalidHistory, "image-limits"):
            at.handle.next_turn()


def test_small_images_may_be_many() -> None:
    """What was looked at and found right is not looked at again until there is more of it."""
    shots = [reply(calls=[call("shoot", {"side": 10}) for _ in range(11)]) for _ in range(2)]
    words = [reply(calls=[call("say", {})]) for _ in range(2)]

    @tool
    def say() -> str:
        """Say something."""
        return "a word"

    looked: list[bool] = []
    with scene([*shots, *words, reply("fine")], tools=[shoot, say], max_parallel_tools=None) as at:
        for _ in range(4):
            at.turn().continue_loop()
            looked.append(at.handle._requests._passed is not None)
        assert at.done().text == "fine"
        assert at.handle._requests.may_add_up() is False
    assert looked == [False, False, True, True]


@pytest.mark.parametrize("at_once", [True, False])
def test_sources_are_cited_all_or_none(at_once: bool) -> None:
    """A search result that is cited, and a document that is not: in one round or in two."""
    both = [reply(calls=[("search", {}), ("read", {})])]
    script = both if at_once else [reply(calls=[("search", {})]), reply(calls=[("read", {})])]
    with scene([*script, reply("fine")], tools=[search, read]) as at:
        for _ in script:
            at.turn().continue_loop()
        with refused(at.handle, InvalidHistory, "mixed-citations"):
            at.handle.next_turn()
        for message in at.handle.messages_mut():
            for result in message["content"] if message["role"] == "user" and message["content"] != "hello" else ():
                for block in result["content"]:
                    block.pop("citations", None)
        assert at.done().text == "fine"


def test_sources_that_are_all_cited_pass() -> None:
    """And so does a text that only says the words."""

    @tool
    def quote() -> str:
        """Quote a request."""
        return '{"citations":{"enabled":true},"type":"document"}'

    script = [reply(calls=[("search", {}), ("quote", {})]), reply(calls=[("search", {})]), reply("fine")]
    with scene(script, tools=[search, quote]) as at:
        at.turn().continue_loop()
        at.turn()
        at.handle.resume(Continue())
        assert at.done().text == "fine"
