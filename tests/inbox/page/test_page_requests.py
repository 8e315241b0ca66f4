"""Requests to the page and their answers: hosts, prefixes, people, sites, times, and what gets into logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.inbox.page.visitor import FORM, HIDDEN, Visitor
from tests.inbox.support import desk
from toolloop import Person
from toolloop.inbox import inbox_app
from toolloop.inbox.shown.keys import key_of

DECIDE = ("/decide", "/say", "/stop", "/retry")


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Visitor]:
    """A visitor of a store with a loop in which two calls wait."""
    found = desk("memory", tmp_path)
    found.drive()
    visitor = Visitor(found)
    with visitor.http:
        yield visitor


def form_of(visitor: Visitor, path: str = "/") -> dict[str, str]:
    """The fields of the first form of a page, which approves."""
    visitor.open(path)
    found = next(each for each in FORM.finditer(visitor.text) if 'value="approve"' in each["body"])
    return {each["name"]: each["value"] for each in HIDDEN.finditer(found["body"])} | {"kind": "approve"}


# --- hosts and prefixes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        (None, "evil.example", 200),
        (["approve.example.org"], "approve.example.org", 200),
        (["approve.example.org"], "Approve.Example.org.:8443", 200),
        (["approve.example.org"], "evil.example", 421),
        (["approve.example.org"], "approve.example.org.evil.example", 421),
        (["approve.example.org"], "localhost", 421),
        (["approve.example.org"], "", 421),
        (["::1", "127.0.0.1"], "[::1]:80", 200),
        (["[::1]"], "[::1]", 200),
        (["127.0.0.1"], "127.0.0.1", 200),
        ([], "127.0.0.1", 421),
    ],
)
def test_the_host_names_of_a_mounted_page(filled: Visitor, hosts: list[str] | None, host: str, status: int) -> None:
    """Without `hosts`, the application around it decides; else pages, forms, files and links answer these alone."""
    app = inbox_app(filled.desk.store, who=lambda _: "ana", hosts=hosts)
    client = TestClient(Starlette(routes=[Mount("/calls", app)]), headers={"host": host})
    answers = [client.get(f"/calls{path}") for path in ("/", "/static/page.css", "/changes")]
    assert [answer.status_code for answer in answers] == [status] * 3
    refused = client.post("/calls/decide", data={"csrf": "x"}).status_code
    assert refused == (status if status == 421 else 403)


def test_one_text_is_not_a_collection_of_hosts(filled: Visitor) -> None:
    """Its letters would be."""
    with pytest.raises(TypeError, match="hosts: expected a collection"):
        inbox_app(filled.desk.store, who=lambda _: "ana", hosts="localhost")


@pytest.mark.parametrize(
    ("prefix", "status"),
    [
        *((prefix, 200) for prefix in ("", "/calls", "/a/b.c~d_e-f")),
        *((prefix, 400) for prefix in ("//evil.example", "/a b", "/a/", "x", "/ä", '/"><script>', "/a\n")),
    ],
)
def test_a_prefix_cannot_lead_to_another_site(filled: Visitor, prefix: str, status: int) -> None:
    """It is in each address of the page, whether it was configured or forwarded."""
    client = TestClient(inbox_app(filled.desk.store, who=lambda _: "ana"), root_path=prefix)
    answer = client.get(f"{prefix if status == 200 else ''}/")
    assert answer.status_code == status
    assert ("evil" in answer.text) is False


# --- people ----------------------------------------------------------------------------------------------------------


@define
class Login:
    """The login of an application, which may fail."""

    says: Any = "ana"

    def who(self, _: Request) -> Any:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ("ana", 200),
        (Person("ana", groups=("finance",)), 200),
        (None, 403),
        ("", 403),
        (Person(""), 403),
        (RuntimeError("the directory is down"), 503),
        (b"ana", 503),
        (HTTPException(401, "Log in first", {"www-authenticate": "Basic"}), 401),
    ],
)
def test_the_person_of_a_request(filled: Visitor, says: Any, status: int) -> None:
    """A name or a `Person`; None is a 403, a failure a 503; an answer of the login itself is passed on."""
    login = Login(says)
    with TestClient(inbox_app(filled.desk.store, who=login.who), raise_server_exceptions=False) as client:
        for path in ("/", "/loop?id=loop", "/changes"):
            answer = client.get(path)
            assert answer.status_code == status
            assert "directory" not in answer.text
        assert all(
            client.post(path, data={"csrf": "x"}).status_code == (403 if status == 200 else status) for path in DECIDE
        )
        assert client.get("/static/page.css").status_code == 200
    if status == 401:
        assert answer.headers["www-authenticate"] == "Basic"


def test_a_login_that_fails_is_logged_once(filled: Visitor, caplog: pytest.LogCaptureFixture) -> None:
    """Open pages ask each second. It is logged again when it has worked meanwhile."""
    login = Login(RuntimeError("the directory is down"))
    client = TestClient(inbox_app(filled.desk.store, who=login.who))
    assert [client.get("/changes").status_code for _ in range(5)] == [503] * 5
    (record,) = caplog.records
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the directory is down"
    login.says = "ana"
    assert client.get("/changes").status_code == 200
    login.says = RuntimeError("again")
    assert client.get("/changes").status_code == 503
    assert len(caplog.records) == 2


def test_the_groups_of_a_person_are_recorded(filled: Visitor) -> None:
    """As the login says them now."""
    login = Login(Person("ana", groups=("finance",)))
    visitor = Visitor(filled.desk)
    visitor.http = TestClient(inbox_app(filled.desk.store, who=login.who, clock=filled.desk.clock))
    assert visitor.http.post("/decide", data=form_of(visitor), follow_redirects=False).status_code == 303
    (entry,) = filled.desk.inbox.trail("loop")
    assert (entry.by, entry.groups) == ("ana", ("finance",))


def test_rights_that_are_withdrawn_count_at_the_next_request(filled: Visitor) -> None:
    """Of a page that is open: when it asks what changed, and when it sends its form."""
    login = Login("ana")
    visitor = Visitor(filled.desk)
    visitor.http = TestClient(inbox_app(filled.desk.store, who=login.who, clock=filled.desk.clock))
    form = form_of(visitor)
    login.says = None
    assert visitor.http.get("/changes").status_code == 403
    assert visitor.http.post("/decide", data=form).status_code == 403
    login.says = "bo"
    assert visitor.http.post("/decide", data=form).status_code == 403
    assert filled.desk.inbox.trail("loop") == ()


# --- sites and times -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, 303),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://testserver"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({}, 303),
        ({"origin": "null"}, 303),
        ({"origin": "http://testserver"}, 303),
        ({"origin": "http://testserver:81"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://[evil"}, 403),
        ({"origin": "null", "referer": "http://testserver/loop?id=loop"}, 303),
        ({"origin": "null", "referer": "http://evil.example/testserver"}, 403),
        ({"referer": "http://evil.example/"}, 403),
    ],
)
def test_a_form_of_another_site_is_refused(filled: Visitor, headers: dict[str, str], status: int) -> None:
    """By `Sec-Fetch-Site`; where it is absent, by the host of `Origin` or `Referer`. The token is good."""
    answer = filled.http.post("/decide", data=form_of(filled), headers=headers, follow_redirects=False)
    assert answer.status_code == status
    assert len(filled.desk.inbox.trail("loop")) == (status == 303)


def test_a_form_is_valid_for_a_day(filled: Visitor) -> None:
    """By the clock of the server."""
    form = form_of(filled)
    filled.desk.now += 86_400
    assert filled.http.post("/decide", data=form).status_code == 403
    filled.desk.now -= 1
    assert filled.http.post("/decide", data=form, follow_redirects=False).status_code == 303


@pytest.mark.parametrize(("path", "waits"), [("/", False), (f"/?done={key_of('loop', ('c2',))}", True)])
def test_the_first_half_second_of_a_new_call_takes_no_decision(filled: Visitor, path: str, waits: bool) -> None:
    """After a decision, the next call is where the last one was: the second click of two is refused and told."""
    form = form_of(filled, path)
    filled.desk.now += 0.4
    early = filled.http.post("/decide", data=form, follow_redirects=False)
    assert early.status_code == (409 if waits else 303)
    assert ("This click came too soon after a new call appeared" in early.text) == waits
    assert len(filled.desk.inbox.trail("loop")) == (not waits)
    filled.desk.now += 0.2
    assert filled.http.post("/decide", data=form, follow_redirects=False).status_code == 303


def test_a_time_cannot_be_made_up(filled: Visitor) -> None:
    """It is signed with the token."""
    form = form_of(filled, "/?done=x")
    forged = {**form, "csrf": re.sub(r"^.{20}", lambda found: found[0][::-1], form["csrf"])}
    assert filled.http.post("/decide", data=forged).status_code == 403


# --- methods and logs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(("GET", path, 405) for path in DECIDE),
        *(("PUT", path, 405) for path in DECIDE),
        ("POST", "/", 405),
        ("POST", "/changes", 405),
        ("DELETE", "/loop", 405),
        ("POST", "/static/page.css", 405),
        ("GET", "/events", 404),
        ("HEAD", "/", 200),
    ],
)
def test_each_address_has_its_methods(filled: Visitor, method: str, path: str, status: int) -> None:
    """A page is read, a decision is posted; the stream of events of earlier versions is gone."""
    assert filled.http.request(method, path).status_code == status


@pytest.mark.parametrize("root", ["", "/calls"])
def test_links_stay_out_of_access_logs(filled: Visitor, root: str) -> None:
    """Servers write the path of the scope when the response starts. A link is a secret: who has it decides."""
    page: Any = inbox_app(filled.desk.store, who=lambda _: "ana")
    app: Any = Starlette(routes=[Mount(root, page)]) if root else page
    token = filled.desk.inbox.link("loop", "c1")
    logged: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def ask(path: str) -> None:
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "root_path": "", "headers": []}
        scope |= {"scheme": "http", "server": ("test", 80), "http_version": "1.1"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                logged.append(f"{scope['path']} {message['status']}")

        await app(scope, receive, send)

    for path in (f"/link/{token}", f"/link/{token}x", "/loop"):
        anyio.run(ask, root + path)
    assert logged == [f"{root}/link/- 200", f"{root}/link/- 410", f"{root}/loop 422"]
