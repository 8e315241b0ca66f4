"""The bodies of forms: none is read for an unknown visitor, and each one is limited in size."""

from __future__ import annotations

import http.client
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st
from starlette.requests import Request

from tests.inbox.page.visitor import FORM, HIDDEN, Visitor
from tests.inbox.support import desk
from tests.inbox.test_serving import serving
from toolloop.inbox import inbox_app
from toolloop.inbox.page.bodies import LONGEST, MOST, read_form

TYPE = {"content-type": "application/x-www-form-urlencoded"}
PATHS = ("/decide", "/say", "/stop", "/retry")
MB = 1_000_000
_END = {"type": "http.request", "body": b""}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Visitor]:
    """A visitor of a store with a loop in which two calls wait."""
    found = desk("memory", tmp_path)
    found.drive()
    visitor = Visitor(found)
    with visitor.http:
        yield visitor


def parts(count: int, size: int, read: list[int]) -> Iterator[bytes]:
    """A body in chunks, which counts what was asked for."""
    for number in range(count):
        read.append(size)
        yield f"f{number}=".encode() + b"x" * size + b"&"


# --- before the person is named --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_read_from_an_unknown_visitor(filled: Visitor, path: str) -> None:
    """403, and not a byte of the body is asked for."""
    filled.http.headers.pop("x-user")
    read: list[int] = []
    assert filled.http.post(path, content=parts(300, MB, read), headers=TYPE).status_code == 403
    assert read == []


def scope(**headers: str) -> dict[str, Any]:
    """A form to `/decide`, for a server."""
    found = {
        "type": "http",
        "method": "POST",
        "path": "/decide",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
    }
    given = [(name.encode(), value.encode()) for name, value in (TYPE | headers).items()]
    return found | {"headers": given, "server": ("test", 80), "http_version": "1.1"}


@contextmanager
def memory_of(pid: int) -> Iterator[Callable[[], float]]:
    """How much the memory of a process grew at its peak, in MB."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")

    def in_kb(name: str) -> int:
        return int(re.findall(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])

    before = in_kb("VmRSS")
    yield lambda: (in_kb("VmHWM") - before) / 1024


def post(netloc: str, path: str, body: Any, **headers: str) -> int:
    """The status for a body that the server may refuse before it is sent."""
    connection = http.client.HTTPConnection(netloc, timeout=30)
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.request("POST", path, body, TYPE | headers, encode_chunked="content-length" not in headers)
    try:
        return connection.getresponse().status
    except ConnectionError:
        return 0
    finally:
        connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is that of Linux")
def test_the_memory_of_a_server_stays_small(tmp_path: Path) -> None:
    """100 fields of 1 MB from an unknown visitor, with a length and in chunks, grow it by less than 5 MB."""
    desk("sqlite", tmp_path).drive()
    (tmp_path / "mylogin.py").write_text("def who(request):\n    return request.headers.get('x-user')\n")
    with serving(tmp_path, "--who", "mylogin:who") as (link, pid):
        netloc = urlsplit(link).netloc
        assert post(netloc, "/decide", b"a=b", **{"content-length": "3"}) == 403
        for length in ({"content-length": str(sum(map(len, parts(100, MB, []))))}, {"transfer-encoding": "chunked"}):
            with memory_of(pid) as grown:
                assert post(netloc, "/decide", parts(100, MB, []), **length) in (403, 0)
                assert grown() < 5


# --- after that ------------------------------------------------------------------------------------------------------


def test_a_body_has_an_end(filled: Visitor) -> None:
    """More than 7 MB is a 413: by its length before it is read, else as soon as it has come."""
    app: Any = inbox_app(filled.desk.store, who=lambda _: "ana")
    for told, most in ((dict[str, str](), MOST + 2 * MB), ({"content-length": str(MOST + 1)}, 0)):
        answers: list[Any] = []
        read: list[int] = []
        body = parts(300, MB, read)

        async def receive(body: Iterator[bytes] = body) -> dict[str, Any]:
            return {"type": "http.request", "body": next(body), "more_body": True}

        async def send(message: Any, answers: list[Any] = answers) -> None:
            answers.append(message)

        anyio.run(app, scope(**told), receive, send)
        assert (answers[0]["status"], dict(answers[0]["headers"])[b"connection"]) == (413, b"close")
        assert b"larger than 7,000,000 bytes" in answers[1]["body"]
        assert sum(read) <= most


def test_a_link_reads_no_more_than_a_form(filled: Visitor) -> None:
    """It needs no login."""
    link, read = filled.desk.inbox.link("loop", "c1"), list[int]()
    assert filled.http.post(f"/link/{link}x", content=parts(300, MB, read), headers=TYPE).status_code == 410
    assert read == []
    assert filled.http.post(f"/link/{link}", content=parts(300, MB, read), headers=TYPE).status_code == 413


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 415),
        (b"", "", 415),
        (b"--x\r\n", "multipart/form-data; boundary=x", 415),
        (b"csrf=%FF", TYPE["content-type"], 422),
        (b"csrf=\xff", TYPE["content-type"], 422),
        (b"csrf=%zz", TYPE["content-type"], 422),
        (b"csrf=%", TYPE["content-type"], 422),
        (b"csrf=a\nb", TYPE["content-type"], 422),
        (b"a=1&" * 20_001, TYPE["content-type"], 422),
        (b"csrf=x", f"{TYPE['content-type']}; charset=UTF-8", 403),
    ],
)
def test_another_body_is_refused(filled: Visitor, body: bytes, kind: str, status: int) -> None:
    """What is not a form, or cannot be decoded."""
    assert filled.http.post("/decide", content=body, headers={"content-type": kind}).status_code == status


def test_a_value_of_2_mb_is_accepted_and_a_longer_one_is_refused_beside_its_field(filled: Visitor) -> None:
    """In any language: the form comes back with what was typed, and nothing is decided."""
    filled.open("/", call="loop..c1", do="edit")
    most = "ü" * (LONGEST // 2)
    answer = filled.send("edit", **{"field.1": f"{most}x", "field.2": "6"})
    assert answer.status_code == 422
    assert "field.1: the value has 2,000,001 bytes; at most 2,000,000 bytes are accepted" in answer.text
    assert f"{most}x" in answer.text
    assert filled.desk.inbox.trail("loop") == ()
    filled.follow(filled.send("edit", **{"field.1": most, "field.2": "6"}))  # shows the change
    assert filled.send("edit", **{"field.1": most, "field.2": "6"}).status_code == 303
    (entry,) = filled.desk.inbox.trail("loop")
    assert entry.content == {"to": most, "euros": 6}


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_a_form_is_read_as_it_was_sent(fields: dict[str, str]) -> None:
    """Any text in any field, in pieces of any size."""
    body = urlencode(fields).encode()
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    messages = iter([*({"type": "http.request", "body": each, "more_body": True} for each in pieces), _END])

    async def receive() -> Any:
        return next(messages)

    assert anyio.run(read_form, Request(scope(), receive)) == fields


def test_slow_forms_end_after_20_seconds(filled: Visitor) -> None:
    """400 of them, from a visitor who is known; by a clock that does not wait."""
    app: Any = inbox_app(filled.desk.store, who=lambda _: "ana")
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        await trio.sleep(5)
        return {"type": "http.request", "body": b"a", "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answers.append((message["status"], dict(message["headers"])[b"connection"], trio.current_time()))

    async def main() -> float:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(400):
                nursery.start_soon(app, scope(), receive, send)
        return began

    began = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(answers) == 400
    assert {(status, connection) for status, connection, _ in answers} == {(408, b"close")}
    assert all(20 <= at - began < 21 for *_, at in answers)


def test_the_token_is_the_first_field_of_each_form(filled: Visitor) -> None:
    """So that a form that was cut has it."""
    link = filled.desk.inbox.link("loop", "c1")
    for path in ("/", "/loop?id=loop", f"/link/{link}"):
        filled.open(path)
        forms = list(FORM.finditer(filled.text))
        assert forms
        assert all(next(HIDDEN.finditer(each["body"]))["name"] == "csrf" for each in forms)
