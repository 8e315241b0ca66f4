"""What is right in each result and too much in all together: the caller is told before anything is sent."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.handle.support import completed, params, refused, scene, user
from toolloop import Continue, Stop, tool
from toolloop.errors import InvalidHistory
from toolloop.handle.params import RequestMaker, Secrets
from toolloop.responses import FileResponse
from toolloop.testing import call, reply, server_call

PDF = b"%PDF-1.7\n"


def png(side: int) -> bytes:
    """The beginning of a picture, which says how large it is."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", side, side, 8, 2, 0, 0, 0) + b"\0" * 40


@tool
def shoot(side: int) -> FileResponse:
    """Take a picture."""
    return FileResponse("a.png", "image/png", png(side))


@tool
def say() -> str:
    """Say something."""
    return "a word"


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
    """None of them is large, so the history is never looked at as a whole."""
    shots = [reply(calls=[call("shoot", {"side": 10}) for _ in range(11)]) for _ in range(2)]
    words = [reply(calls=[call("say", {})]) for _ in range(2)]

    looked: list[bool] = []
    with scene([*shots, *words, reply("fine")], tools=[shoot, say], max_parallel_tools=None) as at:
        for _ in range(4):
            at.turn().continue_loop()
            looked.append(at.handle._kits.root.requests._passed is not None)
        assert at.done().text == "fine"
    assert looked == [False] * 4


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


# --- more images than a request takes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "most"), [("claude-sonnet-4-5", 100), ("claude-opus-5-5", 600)])
def test_the_caller_is_told_of_too_many_images(model: str, most: int) -> None:
    """How many a model takes depends on its context; one message more or less makes the difference."""
    picture = {"type": "image", "source": {"type": "url", "url": "https://e.x/i.png"}}
    asked = params(messages=[user([picture] * most)], model=model)
    with scene([reply(calls=[call("shoot", {"side": 10})]), reply("fine")], tools=[shoot], asked=asked) as at:
        at.turn().continue_loop()
        with refused(at.handle, InvalidHistory, "image-limits", f"{most + 1} images"):
            at.handle.next_turn()
        at.handle.messages_mut()[0]["content"].pop()
        assert at.done().text == "fine"


# --- more bytes than a request takes ---------------------------------------------------------------------------------

HALF = 16 * 1024 * 1024


def test_a_request_of_more_than_32_megabytes_is_not_sent() -> None:
    """Its messages are right each; the largest is named, and without it the loop goes on."""
    with scene(
        [reply(calls=[("say", {})]), reply("fine")], tools=[say], asked=params(messages=[user("ä" * (HALF // 2))])
    ) as at:
        at.turn().inject_and_continue([user("x" * (HALF + 1))])
        with refused(at.handle, InvalidHistory, "request-size", "messages[3]", "messages_mut()", "33,554,432"):
            at.handle.next_turn()
        assert at.count == 1
        at.handle.messages_mut()[0]["content"] = "shorter"
        assert at.done().text == "fine"


def test_what_goes_along_with_the_messages_counts_too() -> None:
    """A system prompt alone can be too much; the other parameters mend it."""
    with scene([reply("fine")], asked=params(system="x" * (2 * HALF))) as at:
        with refused(at.handle, InvalidHistory, "request-size", "messages[0]"):
            at.handle.next_turn()
        at.handle.update_params(system="Be brief.")
        assert at.done().text == "fine"


def test_a_request_that_just_fits_is_made() -> None:
    """Of the bytes a few are kept for what goes around the messages."""
    maker = RequestMaker([], Secrets())
    stored, first = '{"model":"m"}', '{"role":"user","content":"x"}'
    most = 2 * HALF - 1024 - len(stored) - len(first) - len('""') - 3

    def made(length: int) -> int:
        return len(maker.make(stored, [first, f'"{"x" * length}"'], "container_1").body())

    assert 2 * HALF - 1024 <= made(most) <= 2 * HALF
    with pytest.raises(InvalidHistory, match="request-size"):
        made(most + 1)
    assert made(most) <= 2 * HALF


# --- rounds that stay beside the history -----------------------------------------------------------------------------

CODE = {"type": "code_execution_20260120", "name": "code_execution"}
PROGRAM = server_call("code_execution", {"code": "look()"}, id="srvtoolu_c")
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_c"}
RAN = {"type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": []}
DONE = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_c", "content": RAN}
ENDS = reply(content=[DONE, {"type": "text", "text": "done"}])


@tool
def mark() -> list[Any]:
    """Say something to be cached."""
    return [{"type": "text", "text": "a word", "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize("by_code", [True, False])
def test_any_number_of_cache_marks_may_be_beside_the_history(by_code: bool) -> None:
    """Where nobody could take them out they do not go along."""
    more: dict[str, Any] = {"caller": CALLER} if by_code else {}
    asking = reply(content=[PROGRAM], calls=[call("mark", **more) for _ in range(5)], container="container_1")
    with scene([asking, ENDS], tools=[mark], asked=params(tools=[CODE])) as at:
        assert completed(at.handle.run()).text == "done"
        assert at.count == 2


def test_what_is_wrong_beside_the_history_is_said_to_be_there() -> None:
    """Nobody looks for it in the closed history; a stop is the way out, and then it can be mended."""
    asking = reply(content=[PROGRAM], calls=[call("shoot", {"side": 2001}) for _ in range(21)])
    with scene([asking, reply("fine")], tools=[shoot], asked=params(tools=[CODE]), max_parallel_tools=None) as at:
        at.turn().continue_loop()
        for _ in range(2):
            with refused(at.handle, InvalidHistory, "image-limits", "From messages[1] on", "resume(Stop())"):
                at.handle.next_turn()
            assert len(at.handle.messages_mut()) == 1
        at.handle.resume(Stop())
        at.done()
        for result in at.handle.messages_mut()[2]["content"]:
            result["content"] = "a picture that was taken out"
        at.handle.follow_up([user("and?")])
        assert at.done().text == "fine"


def test_what_is_wrong_together_can_be_mended_in_the_closed_history() -> None:
    """The other half of it is beside."""
    script = [reply(calls=[("read", {})]), reply(content=[PROGRAM], calls=[("search", {})]), ENDS]
    with scene(script, tools=[search, read], asked=params(tools=[CODE])) as at:
        at.turn().continue_loop()
        at.turn().continue_loop()
        with refused(at.handle, InvalidHistory, "mixed-citations", "From messages[3] on"):
            at.handle.next_turn()
        at.handle.messages_mut()[2]["content"][0]["content"] = "a document that was taken out"
        assert at.done().text == "done"
