"""What one person sees and may do on the page: without the right, each address answers as that of an empty store."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.routing import Mount, Route

from tests.inbox.page.visitor import Visitor
from tests.inbox.support import desk_of
from tests.kit.world import World
from toolloop import Ask, AsyncInbox, Deny, Inbox, MemoryStore, Person
from toolloop.inbox.page.app import routes_of
from toolloop.inbox.page.changes import LOOPS, Changes
from toolloop.inbox.page.people import People
from toolloop.inbox.page.security import FormTokens
from toolloop.inbox.page.views import Views
from toolloop.stores import Entry, Head

SECRET = "s"
CALL = {"call": "loop..c1", "digest": "d", "back": "", "next": ""}
# Each address, as somebody asks for it who has learnt the ids of a loop; `LINK` is a link to its call.
REQUESTS: dict[tuple[str, str], tuple[Any, ...]] = {
    ("GET", "/"): ({}, {"call": "loop..c1"}, {"done": "loop..c1"}, {"q": "ana", "tool": "pay", "view": "others"}),
    ("GET", "/changes"): ({}, {"calls": "loop..c1"}, {"loop": "loop", "calls": "loop..c1"}, {"q": "ana"}),
    ("GET", "/loops"): ({}, {"before": "1"}, {"before": "9"}),
    ("GET", "/loop"): ({"id": "loop"},),
    ("GET", "/statistics"): ({}, {"days": "7"}),
    ("GET", "/group"): ({"of": "loop..c1"}, {"of": "loop..c1", "done": "loop..c1 loop..c2"}),
    ("POST", "/group"): ({"kind": "approve", "chosen.loop..c1": "loop..c1 d", "of": "loop..c1"},),
    ("POST", "/decide"): tuple(
        {**CALL, "kind": kind} for kind in ("approve", "deny", "answer", "edit", "rerun", "grant")
    ),
    ("POST", "/stop"): ({"loop": "loop"},),
    ("POST", "/say"): ({"loop": "loop", "text": "Hi", "key": "k"},),
    ("POST", "/withdraw"): ({"loop": "loop", "said": "k"},),
    ("POST", "/retry"): ({"loop": "loop"},),
    ("POST", "/revoke"): ({"loop": "loop", "grant": "g"},),
    ("GET", "/link/{token}"): ({}, {"do": "deny"}),
    ("POST", "/link/{token}"): ({"kind": "approve"}, {"kind": "deny", "reason": "no"}),
}


def test_the_table_has_every_address() -> None:
    """A new address is one more way to a loop. The static files are the same for all."""
    store = MemoryStore()
    people = People(AsyncInbox(store), store, lambda _: "ana", None, None)
    views = Views(SECRET, people, FormTokens(SECRET, lambda: 0.0), Changes(lambda: 0.0, 1.0))
    routes = routes_of(views)
    addresses = {
        (method, route.path)
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert addresses == {*REQUESTS}
    assert [route.path for route in routes if isinstance(route, Mount)] == ["/static"]


def filled_desk(*, is_empty: bool = False, **more: Any) -> World:
    at = desk_of(MemoryStore(), **more)
    if not is_empty:
        at.drive(metadata={"owner": "ana"})
    return at


def visitor(at: World, by: str = "bo", **more: Any) -> Visitor:
    return Visitor(at, by, more={"secret": SECRET, "refresh": 0.0, **more})


def answers(at: World, method: str, path: str, link: str, sees: Any) -> list[tuple[Any, ...]]:
    """Return all that a person gets at an address: the status, the headers and the text."""
    who = visitor(at, sees=sees)
    found = []
    for given in REQUESTS[method, path]:
        address = path.replace("{token}", link)
        subject = f"link {link}" if "token" in path else "person bo"
        csrf = {"csrf": FormTokens(SECRET, at.clock).of(subject)}
        asked = {"params": given} if method == "GET" else {"data": csrf | given}
        answer = who.http.request(method, address, follow_redirects=False, **asked)
        found.append((answer.status_code, sorted(answer.headers.items()), answer.text))
    return found


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_for_loops_that_are_not_seen_every_answer_is_that_of_an_empty_store(method: str, path: str) -> None:
    """Byte for byte: rows, counts, cursors, values of filters, versions of changes, errors, dead links."""
    full, empty = filled_desk(), filled_desk(is_empty=True)
    link = Inbox(full.store, SECRET, clock=full.clock).link("loop", "c1", person="bo")
    full.inbox.decide("loop", {"c2": Deny("no", by="ana")})
    before = full.store.load("loop")
    for seen in ([], [{"owner": "bo"}]):
        got = [answers(each, method, path, link, lambda _, seen=seen: seen) for each in (full, empty)]
        assert got[0] == got[1]
    assert full.store.load("loop") == before
    shown = answers(full, method, path, link, lambda _: [{"owner": "ana"}])
    assert shown != got[0] or (method, path) == ("POST", "/group")  # it leads to the page of the group in any case


def test_the_address_of_older_loops_counts_no_others() -> None:
    """It is the same text each time, names no row, and stays valid when the last loop of the page is deleted."""
    at = filled_desk(is_empty=True)
    for number in range(2 * LOOPS + 4):
        owner = "ana" if number % 2 else "bo"
        at.store.create(f"{owner}-{number}", [Entry("e", "{}")], head=Head("ended"), metadata={"owner": owner})
    who = visitor(at, sees=lambda _: [{"owner": "ana"}])
    texts = [who.open("/loops") and who.text for _ in range(2)]
    assert texts[0] == texts[1]
    assert "bo-" not in who.text
    (older,) = re.findall(r"/loops\?before=(\w+)", who.text)
    assert len(older) == 96
    at.store.delete("ana-5")
    who.open("/loops", before=older)
    assert re.findall(r"ana-\d+", who.bare) == ["ana-3", "ana-1"]
    wrong = f"{int(older[0], 16) ^ 1:x}{older[1:]}"
    assert [who.open("/loops", before=each) for each in ("1", "9999", wrong, "x", "")] == [422] * 5


@pytest.mark.parametrize("of", [{}, {"of": ""}])
def test_a_group_that_is_not_named_is_refused_before_anything_is_decided(of: dict[str, str]) -> None:
    """Whatever is chosen."""
    at = filled_desk()
    who = visitor(at)
    csrf = FormTokens(SECRET, at.clock).of("person bo")
    chosen = {f"chosen.{each.id}": f"loop..{each.id} {each.digest}" for each in at.inbox.pending()}
    assert who.http.post("/group", data={"csrf": csrf, "kind": "approve", **chosen, **of}).status_code == 422
    assert at.inbox.trail("loop") == ()


def test_the_version_of_a_person_changes_with_what_they_see() -> None:
    """A change of another loop is not even told as a change."""
    at = filled_desk()
    at.drive("other", metadata={"owner": "bo"})
    who = visitor(at, sees=lambda _: [{"owner": "bo"}])
    version = who.http.get("/changes").json()["v"]
    at.inbox.decide("loop", {"c1": Deny("no")})
    assert who.http.get("/changes", params={"since": version}).status_code == 204
    at.inbox.decide("other", {"c1": Deny("no")})
    assert who.http.get("/changes", params={"since": version}).status_code == 200


@pytest.mark.parametrize("kind", ["approve", "deny", "answer", "grant", "edit"])
def test_what_may_does_not_allow_is_not_offered_and_refused(kind: str) -> None:
    """With what was typed; the rest is still there."""
    at, allowed = filled_desk(), {"approve", "deny", "answer", "grant"}
    who = visitor(at, may=lambda _, action, *__: action in allowed)
    address = {"call": "loop..c1", **({"do": kind} if kind != "approve" else {})}
    who.open("/", **address)
    open_form = who.form(kind)
    allowed.discard("approve" if kind == "edit" else kind)
    typed = {"deny": {"reason": "too much"}, "answer": {"content": "too much"}, "edit": {"field.1": "too much"}}
    before = at.store.load("loop")
    sent = who.post(open_form, kind=kind, **typed.get(kind, {}))
    if kind == "edit":  # the page shows the change first
        who.text = sent.text
        assert not who.has("approve")
        return
    assert sent.status_code == 403
    assert "Not sent: your rights do not include this." in sent.text
    assert ("too much" in sent.text) == (kind in typed)
    assert at.store.load("loop") == before
    who.open("/", **address)
    assert not who.has(kind)
    others = {"approve", "deny"} - {kind}
    who.open("/", call="loop..c1", do="deny")
    assert {each for each in others if who.has(each)} == others


def test_the_page_says_why_approve_is_missing() -> None:
    """A person may read and deny, and no more."""
    who = visitor(filled_desk(), may=lambda _, action, *__: action == "deny")
    who.open("/", call="loop..c1")
    assert not who.has("approve")
    assert "Your rights do not include approving this call." in who.bare
    assert "This runs if another person approves" in who.bare


def test_an_edit_is_judged_by_what_was_typed() -> None:
    """Up to five euros, by the edited input."""
    at = filled_desk()
    who = visitor(at, may=lambda _, action, __, call: action != "approve" or call.effective_input["euros"] <= 5)
    for euros, status in (("6", 403), ("4", 303)):
        who.open("/", call="loop..c1", do="edit")
        who.text = who.send("edit", **{"field.1": "ana", "field.2": euros}).text
        sent = who.send("edit", **{"field.1": "ana", "field.2": euros})
        assert sent.status_code == status
    assert [each.content for each in at.inbox.trail("loop")] == [{"to": "ana", "euros": 4}]


def test_the_page_of_a_loop_offers_what_a_person_may_do() -> None:
    """No message box, no stop and no button for a grant without the right; a form of before is refused."""
    at, allowed = filled_desk(), {"say", "stop"}
    who = visitor(at, may=lambda _, action, *__: action in allowed)
    who.open("/loop", id="loop")
    text = who.text
    allowed.clear()
    for path, more in (
        ("/say", {"text": "Hi", "key": "k"}),
        ("/stop", {}),
        ("/retry", {}),
        ("/revoke", {"grant": "g"}),
    ):
        csrf = FormTokens(SECRET, at.clock).of("person bo")
        assert who.http.post(path, data={"csrf": csrf, "loop": "loop", **more}).status_code == 403
    assert at.inbox.trail("loop") == ()
    who.open("/loop", id="loop")
    for path in ("/say", "/stop"):
        assert f'action="{path}"' in text
        assert f'action="{path}"' not in who.text


def test_a_group_has_the_calls_that_a_person_may_decide() -> None:
    """Each call is asked about; the others are decided on their own pages, if at all."""
    at = filled_desk()
    who = visitor(at, may=lambda _, action, __, call: action == "deny" or call.effective_input["to"] == "bo")
    who.open("/group", of="loop..c1")
    assert "Approve 1 call" in who.bare
    sent = who.send("approve", **{f"chosen.{each.id}": f"loop..{each.id} {each.digest}" for each in at.inbox.pending()})
    assert sent.status_code == 303
    assert [(each.path, each.by) for each in at.inbox.trail("loop")] == [(("c2",), "bo")]
    (call,) = at.inbox.pending()
    who.open("/group", of="loop..c1", do="deny")
    assert "Deny 1 call" in who.bare
    form = {"kind": "approve", "of": "loop..c1", "chosen.1": f"loop..c1 {call.digest}"}
    csrf = FormTokens(SECRET, at.clock).of("person bo")
    assert who.http.post("/group", data={"csrf": csrf, **form}).status_code == 403


@pytest.mark.parametrize("withdrawn", ["sees", "may"])
def test_rights_are_withdrawn_between_opening_and_sending(withdrawn: str) -> None:
    """The page that is still open decides nothing."""
    at, has = filled_desk(), {"sees", "may"}
    who = visitor(at, may=lambda *_: "may" in has, sees=lambda _: None if "sees" in has else [])
    who.open("/", call="loop..c1")
    has.remove(withdrawn)
    assert who.send("approve").status_code == (403 if withdrawn == "may" else 404)
    assert at.inbox.trail("loop") == ()


@pytest.mark.parametrize("withdrawn", ["sees", "may", "groups"])
def test_rights_are_withdrawn_while_a_link_lies_in_a_mailbox(withdrawn: str) -> None:
    """The link is that of a person, whose rights count when it is opened and when it is used."""
    at, has = filled_desk(config={"on_tool_call": lambda *_: Ask(of="finance")}), {"sees", "may"}
    parts: dict[str, Any] = {"may": lambda *_: "may" in has, "sees": lambda _: None if "sees" in has else []}
    token = Inbox(at.store, SECRET, clock=at.clock).link("loop", "c1", person=Person("bo", "finance"))
    if withdrawn == "groups":  # the login knows the groups of now
        parts["who"] = lambda _: Person("bo", "support")
    who = visitor(at, **parts)
    who.by = ""
    who.http.headers.pop("x-user")
    assert who.open(f"/link/{token}") == 200
    if withdrawn == "groups":
        assert not who.has("approve")
        return
    has.remove(withdrawn)
    sent = who.send("approve", number=who.bare.partition("Type ")[2][:2])
    assert sent.status_code == (403 if withdrawn == "may" else 410)
    assert at.inbox.trail("loop") == ()
    who.open(f"/link/{token}")
    assert not who.has("approve")
    has.add(withdrawn)
    who.open(f"/link/{token}")
    assert who.send("approve", number=who.bare.partition("Type ")[2][:2]).status_code == 200
    assert [(each.by, each.via) for each in at.inbox.trail("loop")] == [("bo", "link")]


@pytest.mark.parametrize(
    ("person", "user", "status"),
    [("bo", "bo", 200), ("bo", None, 200), ("bo", "ana", 403), (None, "ana", 200), (None, None, 403)],
)
def test_who_may_open_a_link_where_rights_count(person: str | None, user: str | None, status: int) -> None:
    """A person with a name: a link without a person needs a login."""
    at = filled_desk()
    token = Inbox(at.store, SECRET, clock=at.clock).link("loop", "c1", person=person)
    who = visitor(at, user or "", may=lambda *_: True)
    if user is None:
        who.http.headers.pop("x-user")
    assert who.open(f"/link/{token}") == status
    if status == 200:
        typed = {"number": who.bare.partition("Type ")[2][:2]} if user is None else {}
        assert who.send("approve", **typed).status_code == 200
        assert [each.by for each in at.inbox.trail("loop")] == [user or person]


@pytest.mark.parametrize("name", ["who", "sees"])
def test_a_function_that_fails_opens_nothing_and_is_logged_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It answers 503, at every address."""

    def fail(_: Any) -> Any:
        raise RuntimeError("the directory is down")

    more: dict[str, Any] = {name: fail}
    who = visitor(filled_desk(), **more)
    assert [who.open(path) for path in ("/", "/loops", "/changes")] == [503] * 3
    assert len(caplog.records) == 1


def test_the_functions_may_be_async() -> None:
    """As `who` may."""

    async def may(_: Person, action: str, *__: Any) -> bool:
        return action == "approve"

    async def sees(_: Person) -> list[dict[str, str]]:
        return [{"owner": "ana"}]

    at = filled_desk()
    who = visitor(at, may=may, sees=sees)
    who.open("/", call="loop..c1")
    assert (who.has("approve"), who.has("deny")) == (True, False)
    assert who.send("approve").status_code == 303
    assert [each.by for each in at.inbox.trail("loop")] == ["bo"]
