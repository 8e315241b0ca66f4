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
from hypothesis import HealthCheck, given, strategies as st
from starlette.requests import Request
from starlette.testclient import TestClient

from tests.inbox.page.visitor import ACTION, FORM, HIDDEN, Visitor
from tests.inbox.support import PARAMS, desk, desk_of, previewed
from tests.kit.effort import examples
from tests.kit.tools import transfer
from toolloop import Approve, Ask, Deny, LoopConfig, MemoryStore, Person, ToolLoopHandle, tool
from toolloop.inbox import inbox_app
from toolloop.inbox.page.forms import form_fields, typed_input
from toolloop.inbox.shown.keys import key_of
from toolloop.rules import Rules
from toolloop.testing import ScriptedProvider, call, reply
from toolloop.types import ToolAnnotations

EVIL = "</pre><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e{{7*7}}\x1b"
NAME = EVIL[:-1]  # an id has no control characters
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


def test_what_waits_is_decided_one_call_after_the_other(filled: Visitor) -> None:
    """One call is in focus with its whole input; after a decision it is the next one, and a line says what came."""
    assert filled.open("/") == 200
    assert filled.text.count('class="row"') == 2
    assert filled.text.count("<article") == 1
    answer = filled.follow(filled.send("approve"))
    assert answer.headers["location"] == "/?call=loop..c2&done=loop..c1"
    assert "✓ Approved pay in loop. It starts when 1 other call of this loop is decided." in filled.bare
    assert filled.text.count('class="row"') == 1
    filled.open("/", call="loop..c2", do="deny")
    assert filled.follow(filled.send("deny", reason="too much")).headers["location"] == "/?done=loop..c2"
    assert "✓ Denied pay in loop." in filled.bare
    assert "Nothing waits for you" in filled.text
    assert kinds(filled) == [("approve", "ana", None), ("deny", "ana", "too much")]
    filled.desk.drive()
    filled.open("/loop", id="loop")
    assert filled.desk.did == [("pay", "ana", 5)]
    assert "Both are paid." in filled.text
    assert "approved by ana" in filled.bare
    assert "too much" in filled.bare


def test_the_bar_is_the_last_element_of_a_call(filled: Visitor) -> None:
    """Nothing that decides stands before the end of the input, and no row of the queue decides."""
    filled.open("/", call="loop..c1")
    article = filled.text[filled.text.index("<article") : filled.text.index("</article>")]
    before, _, after = article.partition('<div class="bar"')
    assert "<button" not in before
    assert "<form" not in before
    assert 'class="input"' in before
    assert 'class="input"' not in after
    assert re.fullmatch(r"(?s).*</div>\s*", article)
    assert (
        "<button" not in filled.text[filled.text.index("<ol") : filled.text.index("</nav>", filled.text.index("<ol"))]
    )


def test_why_comes_with_what(filled: Visitor) -> None:
    """The request of the user, the model's last text, the rule that asks, and what the loop is about."""
    filled.open("/", call="loop..c1")
    assert "User Pay the bills" in filled.bare
    assert "owner ana" in filled.bare
    found = filled.desk
    found.script = (reply("I pay her.", calls=[call("pay", {"to": "ana", "euros": 5}, id="c1")]), reply("Done"))
    found.config = {"on_tool_call": lambda *_: Ask("a payment", rule="money")}
    found.drive("other")
    filled.open("/", call="other..c1")
    assert "Model I pay her. Rule money: a payment" in filled.bare


def test_an_edit_is_shown_before_it_is_sent(filled: Visitor) -> None:
    """Its form is made of the schema. The first press shows the change, the second sends it if it is the same."""
    filled.open("/", call="loop..c1", do="edit")
    answer = filled.follow(filled.send("edit", **{"field.1": "ana", "field.2": "6"}))
    assert answer.status_code == 200
    assert re.search(r'<span class="del">(<i>.?</i>){3}5', filled.text)
    assert re.search(r'<span class="add">(<i>.?</i>){3}6', filled.text)
    assert kinds(filled) == []
    filled.follow(filled.send("edit", **{"field.1": "ana", "field.2": "7"}))
    assert re.search(r'<span class="add">(<i>.?</i>){3}7', filled.text)
    answer = filled.follow(filled.send("edit", **{"field.1": "ana", "field.2": "7"}))
    assert answer.headers["location"] == "/?call=loop..c2&done=loop..c1"
    filled.decide("answer", "loop..c2", content="by hand\r\ntoday", error="on")
    filled.desk.drive()
    assert filled.desk.did == [("pay", "ana", 7)]
    assert [each.content for each in filled.desk.inbox.trail("loop")] == [{"to": "ana", "euros": 7}, "by hand\ntoday"]


def test_an_edit_says_what_the_rules_say_of_it(filled: Visitor) -> None:
    """Before it is sent. A page without rules says nothing."""
    rules = [{"name": "large", "do": "ask", "match": {"euros": {"above": 6}}, "need": 2, "of": "finance"}]
    at = Visitor(filled.desk, more={"rules": Rules(rules)})
    for euros, expected in (("7", "Rule large asks for 2 approvals of finance. 'euros': it matches"), ("6", "No rule")):
        for visitor in (at, filled):
            visitor.open("/", call="loop..c1", do="edit")
            visitor.follow(visitor.send("edit", **{"field.1": "ana", "field.2": euros}))
        assert f"What the rules say of it {expected}" in at.bare
        assert "rules say" not in filled.bare


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
    filled.open("/", call="loop..c1", do="edit")
    answer = filled.follow(filled.send("edit", **{"field.1": "Ana María", "field.2": typed}))
    if answer.status_code == 200:  # the change is shown first
        answer = filled.follow(filled.send("edit", **{"field.1": "Ana María", "field.2": typed}))
    assert answer.status_code == 422
    assert said in filled.bare
    assert re.search(r"<textarea[^>]*>\nAna María</textarea>", filled.text)
    assert f'value="{typed}"' in filled.text
    assert re.search(r'role="alert"[^>]*autofocus', filled.text)
    assert kinds(filled) == []


def test_an_error_leads_to_its_field(filled: Visitor) -> None:
    """The message above the form is a link to the field, which says the same."""
    filled.open("/", call="loop..c1", do="edit")
    filled.follow(filled.send("edit", **{"field.1": "ana", "field.2": "six"}))
    assert re.search(r'<a href="#field-2"><bdi[^>]*>euros: expected a number', filled.text)
    assert re.search(r'id="field-2"[^>]*aria-invalid="true" aria-describedby="wrong-2"', filled.text)
    assert 'id="wrong-2"' in filled.text


def test_a_long_call_is_whole_and_its_row_is_cut(tmp_path: Path) -> None:
    """The row has the beginning of the input, the call all of it."""
    long = "x" * 3000
    found = desk(
        "memory", tmp_path, script=(reply(calls=[call("pay", {"to": long, "euros": 5}, id="c1")]), reply("Ok"))
    )
    found.drive()
    visitor = Visitor(found)
    visitor.open("/", call="loop..c1")
    assert visitor.text.count(long) == 1
    assert visitor.send("approve").status_code == 303


def test_an_approval_may_hold_for_the_rest_of_the_loop(filled: Visitor) -> None:
    """It is a grant for exactly this input, which the page of the loop lists and revokes."""
    filled.decide("grant", "loop..c1")
    filled.open("/loop", id="loop")
    assert "Standing grants" in filled.text
    assert filled.post(filled.form("revoke")).status_code == 303
    filled.open("/loop", id="loop")
    assert "Standing grants" not in filled.text
    assert [each[0] for each in kinds(filled)] == ["approve", "revoke"]


def one_form(visitor: Visitor, action: str) -> re.Match[str]:
    """The first form of the page that is sent to an address."""
    return next(found for found in FORM.finditer(visitor.text) if ACTION.findall(found["head"]) == [action])


def test_a_person_says_stops_and_retries(filled: Visitor) -> None:
    """The other forms of the page of a loop."""
    filled.desk.inbox.decide("loop", {"c1": Deny("no", by="bo"), "c2": Deny("no", by="bo")})
    filled.open("/loop", id="loop")
    forms = {ACTION.findall(found["head"])[0]: found for found in FORM.finditer(filled.text)}
    assert filled.post(forms["/say"], text="Hurry\r\nup").status_code == 303
    assert filled.post(forms["/stop"], reason="enough").status_code == 303
    assert [each[0] for each in kinds(filled)] == ["deny", "deny", "say", "stop"]
    filled.open("/loop", id="loop")
    assert "Retry" not in filled.text


def test_a_message_that_cannot_be_sent_comes_back(filled: Visitor) -> None:
    """409: with what was typed."""
    filled.open("/loop", id="loop")
    answer = filled.follow(filled.post(one_form(filled, "/say"), text="\xa0\xa0"))
    assert answer.status_code == 409
    assert "\xa0\xa0</textarea>" in filled.text
    assert "Not sent" in filled.text


def test_a_message_is_kept_while_a_call_waits_and_can_be_withdrawn(filled: Visitor) -> None:
    """A form that is sent twice says it once. A person who withdraws it too late gets a message."""
    filled.open("/loop", id="loop")
    form = one_form(filled, "/say")
    for _ in range(2):
        assert filled.post(form, text="Hurry <up>").status_code == 303
    assert filled.post(form, text="Please").status_code == 303
    filled.open("/loop", id="loop")
    assert filled.text.count("Hurry &lt;up&gt;") == 2  # in the trail, and among what is kept
    assert len(re.findall(r"Kept for the next request: [^,]*ana", filled.text)) == 2
    (first, second), inbox = filled.desk.inbox.show("loop")["kept"], filled.desk.inbox
    assert [first["messages"][0]["content"], second["messages"][0]["content"]] == ["Hurry <up>", "Please"]
    withdraw = one_form(filled, "/withdraw")
    assert filled.post(withdraw).status_code == 303
    assert [each["id"] for each in inbox.show("loop")["kept"]] == [second["id"]]
    answer = filled.follow(filled.post(withdraw))
    assert (answer.status_code, "Not withdrawn." in filled.text) == (409, True)
    filled.open("/loop", id="loop")
    assert "Message withdrawn" in filled.text
    assert [(each.kind, each.by, each.via) for each in inbox.trail("loop")] == [
        ("say", "ana", "page"),
        ("say", "ana", "page"),
        ("withdraw", "ana", "page"),
    ]


def test_a_loop_that_failed_is_retried(filled: Visitor) -> None:
    """Also one that no worker could drive: then the failure is not in the loop, but in the head of it."""
    store = filled.desk.store
    row = store.head("loop")
    store.append("loop", [], expected_rev=row.rev, head=evolve(row.head, status="failed"))
    filled.open("/", view="failed")
    assert 'class="row" href="/loop?id=loop"' in filled.text
    filled.open("/loop", id="loop")
    assert filled.text.index("has failed") < filled.text.index(">Trail<")
    form = next(found for found in FORM.finditer(filled.text) if ACTION.findall(found["head"]) == ["/retry"])
    assert filled.post(form).status_code == 303
    assert store.head("loop").head.retry_at is not None


def test_a_loop_begins_with_what_waits(filled: Visitor) -> None:
    """Before the trail, and each leads to the call."""
    filled.open("/loop", id="loop")
    assert filled.text.index('href="/?call=loop..c1"') < filled.text.index(">Trail<")


def test_it_can_be_mounted(tmp_path: Path) -> None:
    """In an application of one's own: each address stands behind its path."""
    found = desk("memory", tmp_path)
    found.drive()
    visitor = Visitor(found, base="/approvals")
    visitor.open("/")
    assert set(re.findall(r'(?:href|src|action)="([^"#]*)"', visitor.text)) >= {"/approvals/decide"}
    assert all(each.startswith("/approvals/") for each in re.findall(r'(?:href|src|action)="([^"#]+)"', visitor.text))
    assert visitor.send("approve").headers["location"] == "/approvals/?call=loop..c2&done=loop..c1"
    visitor.open("/loop", id="loop")
    assert all(each.startswith("/approvals/") for each in re.findall(r'(?:href|src|action)="([^"#]+)"', visitor.text))
    assert visitor.http.get("/approvals/static/page.css").status_code == 200


def test_it_pages_through_many(tmp_path: Path) -> None:
    """A hundred calls, and thirty loops; the rest behind a link."""
    found = desk("memory", tmp_path)
    for number in range(52):
        found.drive(f"loop {number:02}")
    visitor = Visitor(found)
    visitor.open("/")
    assert visitor.text.count('class="row"') == 100
    assert visitor.open(html.unescape(re.findall(r'href="(/\?from=[^"]*)"', visitor.text)[0])) == 200
    assert visitor.text.count('class="row"') == 4
    visitor.open("/loops")
    assert visitor.text.count('class="row"') == 30
    assert visitor.open(html.unescape(re.findall(r'href="(/loops\?[^"]*)"', visitor.text)[0])) == 200
    assert visitor.text.count("needs decision") == 22


def test_an_address_filters_and_sorts(tmp_path: Path) -> None:
    """By text, by tool, by deadline or age; the filters stay after a decision."""
    found = desk("memory", tmp_path)
    found.drive("alpha")
    found.now += 5
    found.drive("beta", config=LoopConfig(decision_timeout=100))
    visitor = Visitor(found)
    visitor.open("/")
    assert visitor.text.index('data-calls="beta..c1"') < visitor.text.index('data-calls="alpha..c1"')
    visitor.open("/", sort="wait")
    assert visitor.text.index('data-calls="alpha..c1"') < visitor.text.index('data-calls="beta..c1"')
    visitor.open("/", q="ALPHA", tool="pay")
    assert "beta" not in visitor.text
    assert visitor.send("approve").headers["location"] == "/?tool=pay&q=ALPHA&call=alpha..c2&done=alpha..c1"
    visitor.open("/", tool="other")
    assert "No call fits these filters" in visitor.text


# --- groups ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def refunds(tmp_path: Path) -> Visitor:
    """A visitor of a loop in which four calls are alike."""
    calls = [call("pay", {"to": "ana", "euros": 5 + number}, id=f"c{number}") for number in range(4)]
    found = desk("memory", tmp_path, script=(reply(calls=calls), reply("Done.")))
    found.drive()
    return Visitor(found)


def chosen(text: str) -> dict[str, str]:
    """The boxes of a group, each with its name."""
    return dict(re.findall(r'name="(chosen[^"]*)" value="([^"]*)"', text))


def test_calls_that_are_alike_are_decided_together(refunds: Visitor) -> None:
    """One row leads to a page with each value of each call. Each call is decided by itself."""
    refunds.open("/")
    assert refunds.text.count('class="row"') == 1
    assert "4 alike" in refunds.text
    (there,) = re.findall(r'class="row" href="([^"]*)"', refunds.text)
    refunds.open(html.unescape(there))
    assert "Same in all 4" in refunds.text
    assert re.findall(r'data-of="euros" class="n"><[^>]*>(\d+)<', refunds.text) == ["5", "6", "7", "8"]
    assert re.findall(r"data-sum[^>]*>([^<]*)<", refunds.text) == ["26"]
    refunds.desk.inbox.decide("loop", {"c1": Deny("no", by="bo")})
    boxes = dict(list(chosen(refunds.text).items())[:3])
    answer = refunds.follow(refunds.send("approve", **boxes))
    assert answer.status_code == 303
    assert "2 of 3 approved. 1 was not: see its line." in refunds.bare
    assert "denied by bo" in refunds.text
    assert kinds(refunds) == [("deny", "bo", "no"), ("approve", "ana", None), ("approve", "ana", None)]


def test_a_group_without_a_choice_is_shown_again(refunds: Visitor) -> None:
    """422, and nothing is decided."""
    refunds.open("/group", of="loop..c0", one="1")
    answer = refunds.follow(refunds.send("approve"))
    assert answer.status_code == 422
    assert "Choose at least one call" in refunds.text
    assert kinds(refunds) == []


def test_a_group_is_bound_to_what_was_shown(refunds: Visitor) -> None:
    """A call that changed since is not decided, the others are."""
    refunds.open("/group", of="loop..c0", one="1")
    one, two, *_ = chosen(refunds.text).items()
    refunds.follow(refunds.send("approve", **{one[0]: f"loop..c0 {'0' * 64}", two[0]: two[1]}))
    assert kinds(refunds) == [("approve", "ana", None)]
    assert "1 of 2 approved" in refunds.bare


@pytest.mark.parametrize("text", ["x" * 5_000, "x" * 5_000 + "\u200b"], ids=["long", "an odd character at the end"])
def test_large_calls_are_in_no_group(tmp_path: Path, text: str) -> None:
    """The queue has only the beginning of their inputs, so they could hold odd characters or be too long to approve."""
    calls = [call("pay", {"to": text, "euros": 5}, id=f"c{number}") for number in range(3)]
    found = desk("memory", tmp_path, script=(reply(calls=calls), reply("Done.")))
    found.drive()
    visitor = Visitor(found)
    visitor.open("/")
    assert visitor.text.count('class="row"') == 3
    visitor.open("/group", of="loop..c0")
    assert chosen(visitor.text) == {}


# --- several persons, expiry, uncertain calls ------------------------------------------------------------------------


def test_a_call_says_who_is_missing(tmp_path: Path) -> None:
    """It needs two; the first person sees that one is missing and cannot approve again, the second completes it."""
    found = desk("memory", tmp_path, config={"on_tool_call": lambda *_: Ask("much", need=2)})
    found.drive()
    ana, bo = Visitor(found), Visitor(found, "bo")
    ana.open("/", call="loop..c1")
    assert "Needs two people. After your approval, it needs one more person." in ana.bare
    assert "Approve, 1 of 2" in ana.bare
    ana.follow(ana.send("approve"))
    assert "✓ Approved pay in loop, 1 of 2. It runs when one more person approves." in ana.bare
    ana.open("/", call="loop..c1")
    assert not ana.has("approve")
    assert ana.has("deny")
    assert "1 of 2: you, 0 s ago; one more person." in ana.bare
    assert "You have approved. Waits for one more person, 1 of 2." in ana.bare
    ana.open("/", view="others")
    assert "1 of 2, you" in ana.text
    bo.open("/", call="loop..c1")
    assert "1 of 2: ana, 0 s ago; one more person. Your approval is the second: the call then runs." in bo.bare
    bo.follow(bo.send("approve"))
    assert "✓ Approved pay in loop." in bo.bare


@pytest.mark.parametrize(
    ("asks", "says", "row"),
    [
        (Ask(need=2, of="finance"), "Needs two of finance. You are not in finance.", "finance, 0 of 2"),
        (Ask(not_by="ana"), "Needs one person (not ana). You are excluded from approving this call.", "for others"),
        (
            [Ask(of="finance"), Ask(of=("legal", "board"), reason="a")],
            "Needs one of finance and one of legal or board. You are not in finance or legal or board.",
            "finance or legal or board, 0 of 2",
        ),
    ],
)
def test_the_page_says_in_words_why_approve_is_missing(asks: Any, says: str, row: str) -> None:
    """The call stands among those for others, who are named; a person of the group finds it among theirs."""
    at = desk_of(MemoryStore(), config={"on_tool_call": lambda *_: asks})
    at.drive()
    ana = Visitor(at)
    ana.open("/")
    assert "Nothing waits for you" in ana.text
    ana.open("/", view="others", call="loop..c1")
    assert (ana.has("approve"), ana.has("deny")) == (False, True)
    assert says in ana.bare
    assert row in ana.bare
    bo = Visitor(at, more={"who": lambda _: Person("bo", ("finance", "legal"))})
    bo.open("/", call="loop..c1")
    assert bo.has("approve")


def test_an_expired_call_takes_nothing(tmp_path: Path) -> None:
    """Its page says when it expired and has no button, a page that was open before is refused in plain words."""
    found = desk("memory", tmp_path, config={"decision_timeout": 60})
    found.drive()
    visitor = Visitor(found)
    visitor.open("/", call="loop..c1")
    late = visitor.form("approve")
    found.now += 61
    answer = visitor.follow(visitor.post(late, kind="approve"))
    assert answer.status_code == 409
    assert "Not sent: this call has expired." in visitor.bare
    assert "1 s ago. It did not run." in visitor.bare
    for _ in range(2):  # whether or not a driver has noticed it
        visitor.open("/", call="loop..c1")
        assert "expired" in visitor.text
        assert not visitor.has("approve")
        assert not visitor.has("deny")
        found.drive()
    assert found.ran == []


def test_an_uncertain_call_is_run_again(tmp_path: Path) -> None:
    """It says that it may have had its effects, takes no approval, and asks before it runs again."""
    found = desk("memory", tmp_path)
    runs: list[str] = []

    @tool
    def pay(to: str, euros: int) -> str:
        """Pay."""
        runs.append(to)
        if len(runs) == 1:
            raise KeyboardInterrupt
        return "paid"

    script = ScriptedProvider([reply(calls=[call("pay", {"to": "ana", "euros": 5}, id="c1")]), reply("Paid")])
    with (
        ToolLoopHandle.open(found.store, "loop", script, tools=[pay], params=PARAMS) as handle,
        pytest.raises(KeyboardInterrupt),
    ):
        handle.run()
    visitor = Visitor(found)
    visitor.open("/")
    assert "This call may have run." in visitor.text
    assert not visitor.has("approve")
    visitor.open("/", call="loop..c1", do="rerun")
    assert "Run pay a second time?" in visitor.bare
    assert visitor.send("rerun").status_code == 303
    with ToolLoopHandle.open(found.store, "loop", script, tools=[pay]) as handle:
        assert handle.run().text == "Paid"
    assert runs == ["ana", "ana"]


# --- what it refuses -------------------------------------------------------------------------------------------------


def test_a_second_person_learns_who_was_quicker(filled: Visitor) -> None:
    """409 with the decision that stands, and what was typed; also where the loop has gone on."""
    filled.open("/", call="loop..c1")
    late = Visitor(filled.desk, "bo")
    late.open("/", call="loop..c1", do="deny")
    deny = late.form("deny")
    late.open("/", call="loop..c1", do="edit")
    edit = late.form("edit")
    filled.send("approve")
    for form, typed in ((deny, {"kind": "deny", "reason": "too dear"}), (edit, {"kind": "edit", "field.2": "7"})):
        answer = late.follow(late.post(form, **typed))
        assert answer.status_code == 409
        assert "Not sent: ana approved this already." in late.bare
        assert "There is nothing left to decide." in late.bare
    late.follow(late.post(deny, kind="deny", reason="too dear"))
    assert re.search(r"<textarea[^>]*readonly>\ntoo dear</textarea>", late.text)
    filled.desk.inbox.decide("loop", {"c2": Deny("no")})
    filled.desk.drive()
    answer = late.follow(late.post(deny, kind="deny", reason="no"))
    assert answer.status_code == 409
    assert "Not sent: ana approved this already." in late.bare


def test_the_same_decision_a_moment_later_says_so(filled: Visitor) -> None:
    """This is not an error, and changes nothing: the page says who had decided."""
    late = Visitor(filled.desk, "bo")
    late.open("/", call="loop..c1")
    filled.open("/", call="loop..c1")
    filled.send("approve")
    filled.desk.now += 4
    assert late.follow(late.send("approve")).status_code == 303
    assert "ana had approved pay in loop already, 4 s ago. Your decision changed nothing." in late.bare
    assert kinds(filled) == [("approve", "ana", None)]


@pytest.mark.parametrize("kind", ["approve", "edit"])
def test_a_stale_page_is_refused(filled: Visitor, kind: str) -> None:
    """The digest of the form is not that of the call: 409 with the call as it is now, and nothing is decided."""
    filled.open("/", call="loop..c1", do=kind)
    typed = {"field.2": "6"}
    if kind == "edit":
        filled.follow(filled.send("edit", **typed))
    answer = filled.follow(filled.send(kind, digest="0" * 64, **typed))
    assert answer.status_code == 409
    assert "The call has changed since this page showed it." in filled.bare
    assert kinds(filled) == []


@pytest.mark.parametrize("field_name", ["digest", "call", "kind"])
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


PLACES = ("/decide", "/group", "/say", "/withdraw", "/stop", "/retry", "/revoke")


@pytest.mark.parametrize("token", ["", "forged", "ImFuYSI.aaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaaaa"])
def test_a_form_without_a_good_token_is_refused(filled: Visitor, token: str) -> None:
    """403 on every address that changes something, for a browser that does not say which site asks, too."""
    for path in PLACES:
        data = {"csrf": token, "loop": "loop", "call": "loop..c1", "digest": "0" * 64, "kind": "approve", "text": "x"}
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


def test_a_visitor_without_a_name_cannot_see_or_decide(filled: Visitor) -> None:
    """403 for every address but links and files; a coroutine may say who it is."""
    filled.http.headers.pop("x-user")
    for path in ("/", "/loops", "/loop?id=loop", "/group?of=loop..c1"):
        assert filled.http.get(path).status_code == 403
    for path in PLACES:
        assert filled.http.post(path, data={}).status_code == 403

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
    for path in (*PLACES, "/", "/loop", f"/link/{link}"):
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
    assert filled.open("/", call="loop..c9") == 404
    assert filled.open("/", call="other..c9") == 404
    assert filled.open("/", call="no key") == 422
    assert filled.open("/", done="loop..c9") == 200
    assert "Method Not Allowed" in filled.http.put("/decide").text
    filled.open("/")
    assert filled.send("approve", call="loop..c9").status_code == 404


# --- text of others --------------------------------------------------------------------------------------------------


def test_markup_is_text_everywhere(tmp_path: Path) -> None:
    """In ids, metadata, names, inputs, results, reasons and what the model says: on the page and in attributes."""
    script = (
        reply(EVIL, calls=[call("pay", {"to": EVIL, "euros": 5}, id="c1"), call("nothing", {EVIL: EVIL}, id="c2")]),
        reply(EVIL),
    )
    found = desk("memory", tmp_path, script=script)
    found.drive(NAME, metadata={"owner": EVIL})
    visitor = Visitor(found, "ana")
    link = found.inbox.link(NAME, "c1")
    key = key_of(NAME, ("c1",))
    pages = []
    for path in (
        "/",
        f"/?call={key}&do=edit",
        f"/group?of={key}",
        "/loops",
        f"/loop?id={quote(NAME)}",
        f"/link/{link}",
    ):
        assert visitor.open(path) == 200
        pages.append(visitor.text)
    assert visitor.decide("deny", key, reason=EVIL).status_code == 303
    pages.append(visitor.text)
    found.drive(NAME)
    visitor.open(f"/loop?id={quote(NAME)}")
    for text in [*pages, visitor.text]:
        assert "<script>" not in text
        assert "<img src=x" not in text
        assert "\u202e" not in re.sub(r'value="[^"]*"', "", re.sub(r"(?s)<textarea.*?</textarea>", "", text))
        assert "{{7*7}}" in text
        assert not re.search(r"\son\w+=", re.sub(r"&[#\w]+;.*?(?=<)", "", text))


def test_a_secret_is_on_no_page(tmp_path: Path) -> None:
    """The call says above its buttons that it is approved unread, and is in no group; an edit keeps the value."""
    token, ran = "sk-live-0123456789abcdef0123456789abc-9f", list[str]()

    @tool(needs_approval=True, secret=("token",))
    def pay(to: str, token: str) -> str:
        """Pay."""
        ran.append(f"{to} {token}")
        return "paid"

    found = desk("memory", tmp_path)
    calls = [call("pay", {"to": to, "token": token}, id=to) for to in ("ana", "bo", "eve")]
    script = ScriptedProvider([reply(calls=calls), reply("Paid.")])
    with ToolLoopHandle.open(found.store, "loop", script, tools=[pay], params=PARAMS, clock=found.clock) as handle:
        handle.run()
    visitor, link = Visitor(found), found.inbox.link("loop", "ana")
    for path in ("/", "/?call=loop..ana&do=edit", "/loop?id=loop", f"/link/{link}", "/group?of=loop..ana"):
        visitor.open(path)
        assert token not in visitor.text
    visitor.open("/")
    assert "alike" not in visitor.bare
    assert visitor.text.index("you approve it unread") < visitor.text.index('class="bar"')
    visitor.open("/", call="loop..ana", do="edit")
    visitor.follow(visitor.send("edit", **{"field.1": "ana maria"}))
    assert token not in visitor.text
    visitor.follow(visitor.send("edit", **{"field.1": "ana maria"}))
    for name in ("bo", "eve"):
        visitor.decide("approve", f"loop..{name}")
    with ToolLoopHandle.open(found.store, "loop", script, tools=[pay], clock=found.clock) as handle:
        handle.run()
    assert sorted(ran) == [f"{to} {token}" for to in ("ana maria", "bo", "eve")]
    visitor.open("/loop", id="loop")
    assert token not in visitor.text


def test_two_texts_of_a_tool_are_shown_as_one_diff(tmp_path: Path) -> None:
    """With all lines of both, where the tool names them."""
    found = desk("memory", tmp_path)

    @tool(needs_approval=True, diff=("old", "new"), path="file")
    def edit(file: str, old: str, new: str) -> str:
        """Edit."""
        return f"{file} {old} {new}"

    script = ScriptedProvider([reply(calls=[call("edit", {"file": "a", "old": "x\ny", "new": "x\nz"}, id="c1")])])
    with ToolLoopHandle.open(found.store, "loop", script, tools=[edit], params=PARAMS, clock=found.clock) as handle:
        handle.run()
    visitor = Visitor(found)
    visitor.open("/")
    assert "both whole, every line, as one diff" in visitor.bare
    assert visitor.text.count('class="del"') == 1


@pytest.mark.parametrize(
    ("hints", "says"),
    [
        ({}, "destructive, open world"),
        ({"read_only_hint": True, "open_world_hint": False}, "read only, closed world"),
        ({"destructive_hint": False, "idempotent_hint": True}, "only adds, idempotent, open world"),
    ],
)
def test_a_call_says_what_its_server_says_of_the_tool(tmp_path: Path, hints: Any, says: str) -> None:
    """In the order of the protocol. A tool of another kind has no such line."""
    found = desk("memory", tmp_path)
    found.tools = [evolve(transfer, annotations=ToolAnnotations(**hints))]
    found.drive()
    visitor = Visitor(found)
    visitor.open("/", call="loop..c1")
    assert f"Server {says} (hints, not checked)" in visitor.bare


@pytest.mark.parametrize("loop_id", ["../..", "a/b?c#d", " ", "%2e%2e", "ä%0d%0aset-cookie: x", "x" * 256])
def test_a_loop_may_have_any_id_without_control_characters(tmp_path: Path, loop_id: str) -> None:
    """It is encoded in each address and form, and no header can be made with it."""
    found = desk("memory", tmp_path)
    found.drive(loop_id)
    visitor = Visitor(found)
    visitor.open("/")
    (link, *_) = re.findall(r'href="(/loop\?[^"]*)"', visitor.text)
    answer = visitor.send("approve")
    assert answer.status_code == 303
    assert "set-cookie" not in answer.headers
    assert visitor.open(answer.headers["location"]) == 200
    assert visitor.open(html.unescape(link)) == 200
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


def number(text: str) -> str:
    """The number that a person at a link types."""
    return str(re.findall(r"Type (\d\d) to decide", text)[0])


def test_a_link_leads_to_a_page_that_asks(filled: Visitor) -> None:
    """A person need not be logged in; it works once, and only for what it allows."""
    filled.http.headers.pop("x-user")
    link = filled.desk.inbox.link("loop", "c1", ("approve", "deny"), base_url="/").removeprefix("/")
    assert filled.open(f"/{link}") == 200
    assert filled.has("approve")
    assert not filled.has("answer")
    page = filled.text
    assert filled.send("approve", digest="0" * 64, number=number(page)).status_code == 200
    assert kinds(filled) == [("approve", None, None)]
    assert filled.open(f"/{link}") == 410
    assert "The call of pay in loop was approved by a person without a name" in filled.bare
    filled.text = page
    assert filled.send("deny", number=number(page)).status_code == 410
    assert kinds(filled) == [("approve", None, None)]


@pytest.mark.parametrize("typed", ["", "1", "100"])
def test_a_link_asks_for_a_number_that_no_mail_scanner_types(filled: Visitor, typed: str) -> None:
    """422 without it, with what was typed; the link is not spent. A person who is logged in is not asked."""
    link = filled.desk.inbox.link("loop", "c1")
    named = Visitor(filled.desk)
    filled.http.headers.pop("x-user")
    filled.open(f"/link/{link}", do="deny")
    answer = filled.follow(filled.send("deny", number=typed, reason="too much"))
    assert answer.status_code == 422
    assert 'value="too much"' in filled.text
    assert kinds(filled) == []
    named.open(f"/link/{link}")
    assert "to decide" not in named.bare.replace("You can decide", "")
    assert named.send("deny", reason="too much").status_code == 200
    assert kinds(filled) == [("deny", "ana", "too much")]


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


@pytest.mark.parametrize(
    ("becomes", "title", "text"),
    [
        ("denied", "Already decided", "denied by bo (“wrong cell”) 2 min ago. It did not run. There is nothing left"),
        ("expired", "This call has expired", "It expired 1 min ago. It did not run. The model gets a result"),
        ("noticed", "This call has expired", "It expired 1 min ago. It did not run. The model gets a result"),
        ("late", "This link has expired", "It expired 5 s ago. If the call still waits, ask for a new link."),
        ("half", "Already approved", "Your approval is stored. Waits for one more person, 1 of 2."),
        ("stopped", "This call is closed", "It no longer waits, and was not decided. It did not run."),
        ("deleted", "This link is not valid", "its loop 'loop' was deleted."),
        ("again", "This link has expired", "It expired 5 s ago."),
        ("cut", "This link is not valid", "This link is incomplete or changed"),
    ],
)
def test_a_dead_link_says_what_became_of_the_call(tmp_path: Path, becomes: str, title: str, text: str) -> None:
    """Each way for a link to end has words of its own."""
    found = desk("memory", tmp_path, config={"decision_timeout": 300.0})

    @tool(needs_approval=lambda _: Ask("much", need=2 if becomes == "half" else 1))
    def pay(to: str, euros: int) -> str:
        """Pay."""
        return f"{to} {euros}"

    found.drive(tools=[pay])
    link = found.inbox.link("loop", "c1", expires_in=10.0 if becomes in ("late", "again") else 86_400.0, person="ana")
    match becomes:
        case "denied":
            found.inbox.decide("loop", {"c1": Deny("wrong cell", by="bo")})
            found.now += 120
        case "expired" | "noticed":
            found.now += 360
        case "half":
            found.inbox.redeem(link, Approve())
        case "late":
            found.now += 15
        case "stopped":
            found.inbox.stop("loop")
        case "deleted" | "again":
            found.store.delete("loop")
        case "cut":
            link = link[:-2]
    if becomes in ("noticed", "again"):
        found.drive(tools=[pay])
    found.now += 15 * (becomes == "again")
    with Visitor(found).http:
        visitor = Visitor(found)
        assert visitor.open(f"/link/{link}") == 410
    assert f"<h1>{title}</h1>" in visitor.text
    assert text in visitor.bare


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


# --- previews --------------------------------------------------------------------------------------------------------


def test_a_preview_is_shown_wherever_a_call_is_decided(tmp_path: Path) -> None:
    """The lines of a diff are marked, and none is markup."""
    diff = "--- a.txt\n+++ a.txt\n@@ -1,2 +1 @@\n-<b>old</b>\n+new\n--- a comment\n"
    found = previewed(lambda _: diff, tmp_path)
    visitor = Visitor(found)
    for path in ("/", f"/link/{found.inbox.link('loop', 'c1')}"):
        visitor.open(path)
        assert "Not what runs" in visitor.text
        assert '<span class="del">-&lt;b&gt;old&lt;/b&gt;\n</span><span class="add">+new\n</span>' in visitor.text
        assert '<span class="hunk">---' in visitor.text
        assert '<span class="del">---' in visitor.text  # a removed line, which begins like the name of a file


def test_a_long_preview_is_whole(tmp_path: Path) -> None:
    """And the input stands below it, whole, too."""
    visitor = Visitor(previewed(lambda given: "x" * 5000 + given["text"], tmp_path))
    visitor.open("/")
    assert "xxxnew" in visitor.text
    assert visitor.text.index("xxxnew") < visitor.text.index('class="input"')


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


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(max_size=4), VALUES, max_size=4),
    st.dictionaries(st.text(max_size=4), RULES, max_size=4),
)
def test_an_untouched_form_gives_the_input_back(value: dict[str, Any], rules: dict[str, Any]) -> None:
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
