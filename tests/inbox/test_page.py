"""The approval page over HTTP: what it shows, what its forms do, and what it refuses."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings, strategies as st
from starlette.requests import Request
from starlette.testclient import TestClient

from tests.inbox.support import PARAMS, desk, previewed
from tests.inbox.visitor import FORM, HIDDEN, Visitor
from toolloop import Approve, Deny, ToolLoopHandle, tool
from toolloop.inbox import inbox_app
from toolloop.inbox.page.forms import form_fields, typed_input
from toolloop.testing import ScriptedProvider, call, reply

EVIL = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e{{7*7}}\x1b"
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Visitor]:
    """A visitor of a store with a loop in which two calls wait."""
    found = desk("memory", tmp_path)
    found.drive(metadata={"owner": "ana"})
    with Visitor(found).http:
        yield Visitor(found)


def kinds(visitor: Visitor, loop_id: str = "loop") -> list[tuple[str, str | None, str | None]]:
    return [(each.kind, each.by, each.reason) for each in visitor.desk.inbox.trail(loop_id)]


# --- what it shows and does ------------------------------------------------------------------------------------------


def test_what_waits_is_decided_on_the_first_page(filled: Visitor) -> None:
    """Approve one call, deny the other with a reason; the page says who it was, and the loop goes on."""
    assert filled.open("/") == 200
    assert filled.text.count('class="card"') == 2
    assert filled.send("approve").headers["location"] == "/"
    filled.open("/")
    assert filled.send("deny", reason="too much").status_code == 303
    filled.open("/")
    assert "No calls are waiting" in filled.text
    assert kinds(filled) == [("approve", "ana", None), ("deny", "ana", "too much")]
    filled.desk.drive()
    filled.open("/loop", id="loop")
    assert filled.desk.ran == ["ana 5"]
    assert "Both are paid." in filled.text
    assert "approved by ana" in filled.text
    assert "too much" in filled.text


def test_an_edit_is_a_form_made_of_the_schema(filled: Visitor) -> None:
    """What was typed runs; what was not touched stays as it was."""
    filled.open("/loop", id="loop")
    assert filled.send("edit", **{"field.1": "ana", "field.2": "6"}).headers["location"] == "/loop?id=loop"
    filled.open("/loop", id="loop")
    filled.send("answer", content="by hand\r\ntoday", error="on")
    filled.desk.drive()
    assert filled.desk.ran == ["ana 6"]
    assert [each.content for each in filled.desk.inbox.trail("loop")] == [{"to": "ana", "euros": 6}, "by hand\ntoday"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("six", "euros: expected a number, got 'six'"),
        ("6.5", "does not fit"),
        ("NaN", "expected a number"),
        ("[" * 9999, "expected a"),
    ],
)
def test_an_edit_that_does_not_fit_is_shown_again(filled: Visitor, typed: str, said: str) -> None:
    """422: the form is open, with what was typed, and the reason; nothing is decided."""
    filled.open("/loop", id="loop")
    answer = filled.send("edit", **{"field.1": "Ana María", "field.2": typed})
    assert answer.status_code == 422
    assert said in html.unescape(answer.text)
    assert 'value="Ana María"' in answer.text
    assert f'value="{typed}"' in answer.text
    assert kinds(filled) == []


def test_a_shortened_call_is_approved_where_it_is_whole(tmp_path: Path) -> None:
    """The first page shows a part of it and does not approve it; the page of the loop has it all."""
    long = "x" * 5000
    found = desk(
        "memory", tmp_path, script=(reply(calls=[call("pay", {"to": long, "euros": 5}, id="c1")]), reply("Ok"))
    )
    found.drive()
    visitor = Visitor(found)
    visitor.open("/")
    assert 'value="approve"' not in visitor.text
    assert long not in visitor.text
    visitor.open("/loop", id="loop")
    assert long in visitor.text
    assert visitor.send("approve").status_code == 303


def test_a_person_says_stops_and_retries(filled: Visitor) -> None:
    """The other forms of the page of a loop."""
    filled.desk.inbox.decide("loop", {"c1": Deny("no", by="bo"), "c2": Deny("no", by="bo")})
    filled.open("/loop", id="loop")
    forms = {found["action"]: found for found in FORM.finditer(filled.text)}
    assert filled.post(forms["/say"], text="Hurry\r\nup").status_code == 303
    assert filled.post(forms["/stop"], reason="enough").status_code == 303
    assert [each[0] for each in kinds(filled)] == ["deny", "deny", "say", "stop"]
    filled.open("/loop", id="loop")
    assert "Retry" not in filled.text


def test_a_loop_that_failed_is_retried(filled: Visitor) -> None:
    """Also one that no worker could drive: then the failure is not in the loop, but in the head of it."""
    store = filled.desk.store
    row = store.head("loop")
    store.append("loop", [], expected_rev=row.rev, head=evolve(row.head, status="failed"))
    filled.open("/loop", id="loop")
    form = next(found for found in FORM.finditer(filled.text) if found["action"] == "/retry")
    assert filled.post(form).status_code == 303
    assert store.head("loop").head.retry_at is not None


def test_it_can_be_mounted(tmp_path: Path) -> None:
    """In an application of one's own: each address stands behind its path."""
    found = desk("memory", tmp_path)
    found.drive()
    visitor = Visitor(found, base="/approvals")
    visitor.open("/")
    assert set(re.findall(r'(?:href|src|action|data-changes)="([^"#]*)"', visitor.text)) >= {"/approvals/decide"}
    assert all(each.startswith("/approvals/") for each in re.findall(r'(?:href|src|action)="([^"#]+)"', visitor.text))
    assert visitor.send("approve").headers["location"] == "/approvals/"
    visitor.open("/loop", id="loop")
    assert visitor.send("approve").headers["location"] == "/approvals/loop?id=loop"
    assert visitor.http.get("/approvals/static/page.css").status_code == 200


def test_it_pages_through_many(tmp_path: Path) -> None:
    """Fifty calls, and thirty loops; the rest behind a link."""
    found = desk("memory", tmp_path)
    for number in range(52):
        found.drive(f"loop {number}")
    visitor = Visitor(found)
    visitor.open("/")
    assert visitor.text.count('class="card"') == 50
    for link in re.findall(r'href="(/\?[^"]*)"', visitor.text):
        assert visitor.open(html.unescape(link)) == 200
    assert visitor.text.count("needs decision") == 22


# --- what it refuses -------------------------------------------------------------------------------------------------


def test_a_second_person_is_told_who_was_quicker(filled: Visitor) -> None:
    """409, by whom and how, also where the loop has gone on."""
    filled.open("/loop", id="loop")
    late = Visitor(filled.desk, "bo")
    late.open("/loop", id="loop")
    filled.send("approve")
    for kind in ("deny", "edit"):
        answer = late.send(kind, **{"field.2": "7"})
        assert answer.status_code == 409
        assert "by ana" in answer.text
    filled.desk.inbox.decide("loop", {"c2": Deny("no")})
    filled.desk.drive()
    answer = late.send("deny")
    assert answer.status_code == 409
    assert "(approve by ana at" in answer.text


@pytest.mark.parametrize("kind", ["approve", "edit"])
def test_a_stale_page_is_refused(filled: Visitor, kind: str) -> None:
    """The digest of the form is not that of the call: 409, and nothing is decided."""
    filled.open("/loop", id="loop")
    filled.text = re.sub(r'name="digest" value="\w+"', f'name="digest" value="{"0" * 64}"', filled.text)
    assert filled.send(kind).status_code == 409
    assert kinds(filled) == []


@pytest.mark.parametrize("field_name", ["digest", "loop", "call", "kind"])
def test_an_incomplete_form_is_refused(filled: Visitor, field_name: str) -> None:
    """422; a decision without a digest would be one about whatever has that id by now."""
    filled.open("/")
    assert filled.send("approve", **{field_name: ""}).status_code == 422
    assert kinds(filled) == []


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
def test_a_form_from_another_site_is_refused(filled: Visitor, site: str) -> None:
    """403, also with a good token."""
    filled.open("/")
    filled.site = site
    assert filled.send("approve").status_code == 403
    assert kinds(filled) == []


@pytest.mark.parametrize("token", ["", "forged", "ImFuYSI.aaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaa"])
def test_a_form_without_a_good_token_is_refused(filled: Visitor, token: str) -> None:
    """403 on every address that changes something, for a browser that does not say which site asks, too."""
    filled.open("/loop", id="loop")
    for path in ("/decide", "/say", "/stop", "/retry"):
        data = {"csrf": token, "loop": "loop", "call": "c1", "digest": "0" * 64, "kind": "approve", "text": "x"}
        assert filled.http.post(path, data=data).status_code == 403
    assert kinds(filled) == []


def test_the_token_of_another_person_or_of_a_link_is_refused(filled: Visitor) -> None:
    """A token is good for the person whose page it is in."""
    other = Visitor(filled.desk, "bo")
    other.open("/")
    token = re.findall(r'name="csrf" value="([^"]*)"', other.text)[0]
    filled.open("/")
    assert filled.send("approve", csrf=token).status_code == 403
    assert other.send("approve").status_code == 303


def test_nobody_without_a_name_sees_or_decides(filled: Visitor) -> None:
    """403 for every address but links and files; a coroutine may say who it is."""
    filled.http.headers.pop("x-user")
    for path in ("/", "/loop?id=loop", "/changes"):
        assert filled.http.get(path).status_code == 403
    assert filled.http.post("/decide", data={}).status_code == 403

    async def who(request: Request) -> str | None:
        return request.headers.get("x-user")

    client = TestClient(inbox_app(filled.desk.store, who=who))
    assert client.get("/").status_code == 403
    assert client.get("/", headers={"x-user": "ana"}).status_code == 200


def test_no_address_decides_on_a_get(filled: Visitor) -> None:
    """Whatever is in the address."""
    filled.open("/")
    hidden = {each["name"]: html.unescape(each["value"]) for each in HIDDEN.finditer(filled.text)} | {"kind": "approve"}
    link = filled.desk.inbox.link("loop", "c1")
    for path in ("/decide", "/say", "/stop", "/retry", "/", "/loop", f"/link/{link}"):
        for method in ("GET", "HEAD", "OPTIONS"):
            filled.http.request(method, path, params=hidden | {"id": "loop"})
    assert kinds(filled) == []


def test_what_is_not_there_is_a_404(filled: Visitor) -> None:
    """Loops, calls, addresses and files."""
    assert filled.open("/loop", id="other") == 404
    assert filled.open("/other") == 404
    assert filled.open("/static/../app.py") == 404
    assert filled.open("/static/%2e%2e/app.py") == 404
    assert filled.open("/loop") == 422
    assert "Method Not Allowed" in filled.http.put("/decide").text
    filled.open("/")
    assert filled.send("approve", call="c9").status_code == 404


# --- text of others --------------------------------------------------------------------------------------------------


def test_markup_is_text_everywhere(tmp_path: Path) -> None:
    """In ids, metadata, names, inputs, results, reasons and what the model says: on the page and in attributes."""
    script = (
        reply(EVIL, calls=[call("pay", {"to": EVIL, "euros": 5}, id="c1"), call("nothing", {EVIL: EVIL}, id="c2")]),
        reply(EVIL),
    )
    found = desk("memory", tmp_path, script=script)
    found.drive(EVIL, metadata={"owner": EVIL})
    visitor = Visitor(found, "ana")
    link = found.inbox.link(EVIL, "c1")
    pages = []
    for path in ("/", f"/loop?id={quote(EVIL)}", f"/link/{link}"):
        assert visitor.open(path) == 200
        pages.append(visitor.text)
    assert visitor.open(f"/loop?id={quote(EVIL)}") == 200
    assert visitor.send("deny", reason=EVIL).status_code == 303
    found.drive(EVIL)
    visitor.open(f"/loop?id={quote(EVIL)}")
    for text in [*pages, visitor.text]:
        assert "<script>" not in text
        assert "<img src=x" not in text
        assert "\u202e" not in re.sub(r'value="[^"]*"', "", re.sub(r"(?s)<textarea.*?</textarea>", "", text))
        assert "{{7*7}}" in text
        assert not re.search(r"\son\w+=", re.sub(r"&[#\w]+;.*?(?=<)", "", text))


@pytest.mark.parametrize("loop_id", ["../..", "a/b?c#d", " ", "%2e%2e", "ä\r\nset-cookie: x", "\n", "x" * 500])
def test_a_loop_may_have_any_id(tmp_path: Path, loop_id: str) -> None:
    """It is encoded in each address and form, and no header can be made with it."""
    found = desk("memory", tmp_path)
    found.drive(loop_id)
    visitor = Visitor(found)
    visitor.open("/")
    (link, *_) = re.findall(r'href="(/loop[^"]*)"', visitor.text)
    assert visitor.open(html.unescape(link)) == 200
    answer = visitor.send("approve")
    assert answer.status_code == 303
    assert "set-cookie" not in answer.headers
    assert visitor.open(answer.headers["location"]) == 200
    assert kinds(visitor, loop_id) == [("approve", "ana", None)]


def test_every_response_is_protected(filled: Visitor) -> None:
    """Pages, files, refusals, redirects, and a failure of the server."""
    link = filled.desk.inbox.link("loop", "c1")
    filled.open("/")
    pages = ("/", "/loop?id=loop", "/loop?id=none", "/none", f"/link/{link}", "/link/x", "/static/page.css", "/static/")
    answers = [filled.http.get(path) for path in pages]
    answers += [filled.send("approve"), filled.send("approve", csrf=""), filled.http.put("/decide")]

    def broken(_: Request) -> str:
        raise RuntimeError("the login is gone")

    client = TestClient(inbox_app(filled.desk.store, who=broken), raise_server_exceptions=False)
    answers.append(client.get("/"))
    assert {answer.status_code for answer in answers} == {200, 303, 403, 404, 405, 410, 503}
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy


# --- links -----------------------------------------------------------------------------------------------------------


def test_a_link_leads_to_a_page_that_asks(filled: Visitor) -> None:
    """Nobody has to be logged in; it works once, and only for what it allows."""
    filled.http.headers.pop("x-user")
    link = filled.desk.inbox.link("loop", "c1", ("approve", "deny"), base_url="/").removeprefix("/")
    assert filled.open(f"/{link}") == 200
    assert 'value="approve"' in filled.text
    assert 'value="answer"' not in filled.text
    page = filled.text
    assert filled.send("approve", digest="0" * 64).status_code == 200
    assert kinds(filled) == [("approve", None, None)]
    assert filled.open(f"/{link}") == 410
    assert "is already decided (approve at " in filled.text
    filled.text = page
    assert filled.send("deny").status_code == 410
    assert kinds(filled) == [("approve", None, None)]


def unread() -> Iterator[bytes]:
    """A body that is not asked for."""
    raise AssertionError("the body was read")
    yield b""


def test_a_dead_link_is_gone(filled: Visitor) -> None:
    """Forged, expired, of another call than the one shown, and after a decision: 410, and nothing is decided."""
    inbox = filled.desk.inbox
    short, used = inbox.link("loop", "c1", expires_in=10), inbox.link("loop", "c2")
    assert filled.open(f"/link/{short}x") == 410
    filled.open(f"/link/{short}")
    page = filled.text
    filled.desk.now += 11
    assert filled.open(f"/link/{short}") == 410
    assert "expired" in filled.text
    filled.text = page
    assert filled.send("approve").status_code == 410
    assert filled.http.post(f"/link/{short}x", content=unread()).status_code == 410
    inbox.decide("loop", {"c2": Approve(by="bo")})
    assert filled.open(f"/link/{used}") == 410
    assert "by bo" in filled.text


def test_the_form_of_a_link_is_guarded_too(filled: Visitor) -> None:
    """Its token is of this link alone, and what the link does not allow is refused without spending it."""
    one, two = (filled.desk.inbox.link("loop", each, ("approve", "deny")) for each in ("c1", "c2"))
    filled.open(f"/link/{one}")
    token = re.findall(r'name="csrf" value="([^"]*)"', filled.text)[0]
    assert filled.http.post(f"/link/{two}", data={"csrf": token, "kind": "approve"}).status_code == 403
    filled.site = "cross-site"
    assert filled.send("approve").status_code == 403
    assert filled.http.post(f"/link/{one}", data={"csrf": token, "kind": "answer", "content": "x"}).status_code == 409
    assert kinds(filled) == []
    filled.site = "same-origin"
    assert filled.send("approve").status_code == 200


# --- forms -----------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
RULES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "boolean"},
        {"enum": ["a", 1, None]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"anyOf": [{"$ref": "#/$defs/Kind"}, {"type": "null"}]},
        {"$ref": "#/$defs/None"},
        {"type": "array"},
        {"anyOf": 5, "enum": 5, "type": 5, "$ref": 5},
        {},
        True,
    ]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(max_size=4), VALUES, max_size=4),
    st.dictionaries(st.text(max_size=4), RULES, max_size=4),
)
def test_a_form_that_nobody_touched_gives_the_input_back(value: dict[str, Any], rules: dict[str, Any]) -> None:
    """Whatever it holds and whatever its schema says, with the line ends that a browser sends."""
    fields = form_fields({"properties": rules, "$defs": {"Kind": {"enum": ["x", "y"]}}}, value)
    texts = [each.text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n") for each in fields]
    typed = typed_input(fields, {f"field.{number}": text for number, text in enumerate(texts, 1)})
    assert typed == value
    assert {key: type(each) for key, each in typed.items()} == {key: type(each) for key, each in value.items()}


@pytest.mark.parametrize("part", [["a"], 5, None])
def test_a_schema_that_is_none_gives_fields_of_json(part: Any) -> None:
    """A tool server may use another draft of JSON Schema, or none."""
    (only,) = form_fields({"properties": part, "required": part, "$defs": part}, {"b": 1})
    assert (only.name, only.kind) == ("b", "json")
    (only,) = form_fields({"properties": {"b": {"$ref": "#/$defs/B"}}, "$defs": part}, {"b": 1})
    assert (only.name, only.kind) == ("b", "json")


def test_each_kind_of_field_is_read_as_its_schema_says() -> None:
    """Texts as they are, numbers and JSON by JSON, a choice by its value; what is emptied is left out."""
    properties = {
        "to": {"type": "string"},
        "euros": {"anyOf": [{"type": "number"}, {"type": "null"}], "description": "How much"},
        "urgent": {"type": "boolean"},
        "kind": {"$ref": "#/$defs/Kind"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string"},
    }
    schema = {"properties": properties, "required": ["to"], "$defs": {"Kind": {"enum": ["a", "b"]}}}
    fields = form_fields(schema, {"to": "5", "euros": 7, "note": "x"})
    assert [each.kind for each in fields] == ["text", "number", "choice", "choice", "json", "text"]
    assert [each.required for each in fields] == [True, False, False, False, False, False]
    assert fields[1].description == "How much"
    typed = ["6", "7.5", "true", '"b"', '["x"]', ""]
    assert typed_input(fields, {f"field.{number}": text for number, text in enumerate(typed, 1)}) == {
        "to": "6",
        "euros": 7.5,
        "urgent": True,
        "kind": "b",
        "tags": ["x"],
        "note": "",
    }
    assert typed_input(fields, {"field.2": ""}) == {"to": "5", "note": "x"}


def test_an_uncertain_call_is_run_again(tmp_path: Path) -> None:
    """It says that it may have had its effects, and takes no approval."""
    found = desk("memory", tmp_path)
    runs: list[str] = []

    @tool
    def pay(to: str, euros: int) -> str:
        """Pay."""
        runs.append(to)
        if len(runs) == 1:
            raise KeyboardInterrupt
        return "paid"

    script = ScriptedProvider([reply(calls=[call("pay", {"to": "ana", "euros": 5})]), reply("Paid")])
    with (
        ToolLoopHandle.open(found.store, "loop", script, tools=[pay], params=PARAMS) as handle,
        pytest.raises(KeyboardInterrupt),
    ):
        handle.run()
    visitor = Visitor(found)
    visitor.open("/loop", id="loop")
    assert "may already have had effects" in visitor.text
    assert 'value="approve"' not in visitor.text
    assert visitor.send("rerun").status_code == 303
    with ToolLoopHandle.open(found.store, "loop", script, tools=[pay]) as handle:
        assert handle.run().text == "Paid"
    assert runs == ["ana", "ana"]


# --- previews --------------------------------------------------------------------------------------------------------


def test_a_preview_is_shown_wherever_a_call_is_decided(tmp_path: Path) -> None:
    """The lines of a diff are marked, and none is markup."""
    diff = "--- a.txt\n+++ a.txt\n@@ -1,2 +1 @@\n-<b>old</b>\n+new\n--- a comment\n"
    found = previewed(lambda _: diff, tmp_path)
    visitor = Visitor(found)
    for path in ("/", "/loop?id=loop", f"/link/{found.inbox.link('loop', 'c1')}"):
        visitor.open(path)
        assert '<span class="removed">-&lt;b&gt;old&lt;/b&gt;\n</span><span class="added">+new\n</span>' in visitor.text
        assert '<span class="file">--- a.txt\n' in visitor.text
        assert '<span class="removed">--- a comment\n' in visitor.text


def test_a_long_preview_is_whole_on_the_page_of_the_loop(tmp_path: Path) -> None:
    """The first page has a part of it, and does not approve the call."""
    visitor = Visitor(previewed(lambda given: "x" * 5000 + given["text"], tmp_path))
    visitor.open("/")
    assert 'value="approve"' not in visitor.text
    visitor.open("/loop", id="loop")
    assert "xxxnew" in visitor.text
