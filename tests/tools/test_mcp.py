"""Tools of a real MCP server, over stdio, in a loop over real HTTP."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.support import results_in
from tests.kit.world import open_over_http
from tests.tools.mcp_server import CONTENTS, ECHO, PNG
from tests.tools.mcp_support import Server
from toolloop import Tool
from toolloop.events import CallProgress
from toolloop.testing import reply
from toolloop.tools.mcp import open_mcp

Tools = list[Tool[..., Any]]
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Server:
    return Server(tmp_path_factory.mktemp("mcp") / "ran.jsonl")


@pytest.fixture(scope="module")
def opened(shared: Server) -> Iterator[Tools]:
    """One server for all tests here; none changes it."""
    with open_mcp(shared.program()) as tools:
        yield tools


@pytest.fixture
def server(shared: Server) -> Server:
    shared.file.unlink(missing_ok=True)
    return shared


def answer(tools: Tools, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the result that is sent to the API for one call."""
    with open_over_http([reply(calls=[(name, given)]), reply("fine")], tools=tools) as story:
        story.turn().continue_loop()
        story.expect_done()
        (result,) = results_in(story.list_sent()[-1])
        return dict(result)


def test_the_definitions_are_the_servers_in_its_order(opened: Tools, server: Server) -> None:
    """All pages of the list, with the schema as the server gave it."""
    with open_over_http([reply("fine")], tools=opened) as story:
        story.expect_done()
        sent: Any = story.api.requests[0].json["tools"]
    assert sent[0] == {"name": "echo", "description": "Say it back.", "input_schema": ECHO}
    assert list(sent[0]["input_schema"]["properties"]) == ["text", "times", "tone"]
    assert [each["name"] for each in sent][1:5] == ["contents", "structured", "refuse", "files_read_one"]
    assert sent[1]["description"] == "Contents of each kind"
    assert len(sent) == 12


def test_a_denied_call_never_reaches_the_server(shared: Server, server: Server) -> None:
    """Approval works as for any tool."""
    calls = [("echo", {"text": "yes"}), ("echo", {"text": "no"})]
    with (
        server.open("echo", needs_approval=lambda call: call.input["text"] != "free") as tools,
        open_over_http([reply(calls=[*calls, ("echo", {"text": "free"})]), reply("fine")], tools=tools) as story,
    ):
        turn = story.turn()
        assert [(call.input, call.why) for call in turn.pending] == [(given, "approval") for _, given in calls]
        assert server.ran == []
        turn.approve(turn.pending[0], by="ana")
        turn.deny(turn.pending[0], "not today", by="ana")
        turn.continue_loop()
        story.turn().continue_loop()
        story.expect_done()
        contents = [result["content"] for result in results_in(story.list_sent()[-1])]
    assert sorted(map(str, server.ran)) == ["['echo', {'text': 'free'}]", "['echo', {'text': 'yes'}]"]
    assert contents[0] == 'echo: {"text": "yes"}'
    assert "not today" in contents[1]


def test_a_tool_is_called_by_the_servers_own_name_for_it(opened: Tools, server: Server) -> None:
    """The name for the API may differ."""
    assert answer(opened, "files_read_one", {})["content"] == "files/read.one: {}"
    assert server.ran == [["files/read.one", {}]]


def test_an_error_of_the_server_is_an_error_result(opened: Tools, server: Server) -> None:
    """`isError` is the tool's own failure; an error of the protocol is one, too."""
    refused = answer(opened, "refuse", {})
    assert (refused["content"], refused["is_error"]) == ("the disk is full", True)
    protested = answer(opened, "protest", {})
    assert protested["content"].endswith("no such thing")
    assert protested["is_error"]


EACH_KIND: dict[str, Any] = {
    "text": "some words",
    "image": [IMAGE],
    "misnamed": [IMAGE],
    "text file": "a note",
    "picture file": [IMAGE],
    "link": '{"name":"the page","url":"https://example.com/page"}',
}


def test_each_kind_of_content_is_converted(opened: Tools, server: Server) -> None:
    """Images are judged by their bytes; text stays text."""
    for kind, content in EACH_KIND.items():
        result = answer(opened, "contents", {"kinds": [kind]})
        assert result["content"] == content
        assert not result.get("is_error")


def test_content_that_cannot_be_shown_is_named(opened: Tools, server: Server) -> None:
    """Audio, and other kinds of files."""
    cases: list[tuple[str, str]] = [("audio", "audio"), ("zip", "resource")]
    for kind, name in cases:
        content = answer(opened, "contents", {"kinds": [kind]})["content"]
        assert isinstance(content, str)
        assert name in content


def test_empty_content_is_a_result(opened: Tools, server: Server) -> None:
    """An error is never empty."""
    cases: list[tuple[list[str], bool]] = [([], False), ([], True)]
    for kinds, error in cases:
        result = answer(opened, "contents", {"kinds": kinds, "error": error})
        assert result["content"] == (
            "The MCP server reports that the tool failed, without a reason." if error else "ok"
        )
        assert result.get("is_error", False) is error


def test_structured_content_is_used_without_other_content(opened: Tools, server: Server) -> None:
    """Servers repeat it as text."""
    assert answer(opened, "structured", {})["content"] == '{"b":1,"a":[null,2.5]}'
    assert answer(opened, "structured", {"content": [CONTENTS["text"]]})["content"] == "some words"


def test_progress_is_reported(opened: Tools, server: Server) -> None:
    """A progress notification of the server is an event of the loop."""
    with open_over_http([reply(calls=[("climb", {})])], tools=opened) as story:
        turn = story.turn()
        seen = [event for event in turn.events if isinstance(event, CallProgress)]
    assert [(event.name, event.message, event.progress, event.total) for event in seen] == [
        ("climb", "half way", 1, 2),
        ("climb", None, 2, 2),
    ]


def test_a_tool_can_be_called_without_a_loop(opened: Tools, server: Server) -> None:
    """It takes one mapping of arguments."""
    echo = opened[0]
    assert echo({"text": "hello"}) == 'echo: {"text": "hello"}'
    assert echo.needs_approval is False
    assert (echo.effect, echo.is_async, echo.timeout) == ("once", False, None)


@pytest.mark.parametrize("missing", ["mcp", "jsonschema"])
def test_without_the_extra_the_import_says_what_to_install(missing: str) -> None:
    """`import toolloop` does not need it."""
    code = f"import sys; sys.modules[{missing!r}] = None; import toolloop; import toolloop.tools.mcp"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError")
    assert "pip install 'toolloop[mcp]'" in last
