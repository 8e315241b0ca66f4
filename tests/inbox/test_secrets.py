"""Secret values: hidden from the persons who decide, and whole for the model, the tool and the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given, strategies as st

from tests.inbox.support import PARAMS
from tests.kit.effort import examples
from tests.kit.world import store_at
from toolloop import Approve, Deny, Inbox, LoopConfig, ToolLoopHandle, Worker, sub_loop, tool
from toolloop.stores import Store
from toolloop.testing import ScriptedProvider, call, reply
from toolloop.tools.secrets import give_no_key, hide_secrets, restore_secrets

TOKEN = "sk-live-0123456789abcdef0123456789abc-9f"
OTHER = "sk-live-0123456789abcdef0123456789xyz-9f"
GIVEN = {"host": "a.example", "token": TOKEN}
DEPLOY = call("deploy", GIVEN, id="c1")


@define
class Site:
    """A store, and a loop that deploys with a token."""

    store: Store
    ran: list[str] = field(factory=list)
    requests: list[Any] = field(factory=list)
    script: tuple[Any, ...] = (reply(calls=[DEPLOY]), reply("deployed"))

    def tools(self) -> list[Any]:
        @tool(needs_approval=True, secret=("token",))
        def deploy(host: str, token: str) -> str:
            """Deploy."""
            self.ran.append(token)
            return f"deployed to {host}"

        return [deploy]

    def provider(self) -> ScriptedProvider:
        def answer(request: Any) -> Any:
            self.requests.append(request)
            said = sum(message["role"] == "assistant" for message in request["messages"])
            return self.script[min(said, len(self.script) - 1)]

        return ScriptedProvider(answer)

    def run(self, tools: Any = None, loop_id: str = "loop", **more: Any) -> Any:
        found = self.tools() if tools is None else tools
        with ToolLoopHandle.open(self.store, loop_id, self.provider(), params=PARAMS, tools=found, **more) as handle:
            return handle.run()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(store_at("sqlite", tmp_path))
    site.run()
    return site


def shown(site: Site) -> str:
    """All that an inbox says of the loop and its call, as JSON texts and reprs."""
    inbox = Inbox(site.store)
    pending = [*inbox.pending()]
    link = [inbox.linked(inbox.link("loop", each)) for each in pending]
    parts = [pending, [each.input for each in pending], link, [each.input for each in link], inbox.trail("loop")]
    return "\n".join(map(repr, [*parts, site.store.list(), json.dumps(inbox.show("loop"))]))


def test_a_secret_is_hidden_wherever_persons_look(site: Site) -> None:
    """Rows, links, the loop and the trail; not in the journal, for the model and for the tool."""
    inbox = Inbox(site.store)
    assert TOKEN not in shown(site)
    (waits,) = inbox.pending()
    assert waits.input["host"] == "a.example"
    assert waits.input["token"].startswith("hidden, 40 characters, ends in 9f, fingerprint ")
    assert inbox.show("loop")["pending"][0]["input"] == waits.input
    assert site.store.head("loop").pending[0].named["secret"] == ["token"]
    inbox.decide("loop", {waits: Approve(by="ana")})
    assert TOKEN not in shown(site)
    assert site.run().unwrap().text == "deployed"
    assert TOKEN not in shown(site)
    assert site.ran == [TOKEN]
    assert TOKEN in str(site.requests[-1]["messages"])
    assert TOKEN in str(site.store.load("loop").entries)


def test_a_worker_notifies_without_the_secret(tmp_path: Path) -> None:
    """What it passes on goes to chats and mails."""
    site, notified = Site(store_at("memory", tmp_path)), list[Any]()
    with ToolLoopHandle.open(site.store, "loop", site.provider(), params=PARAMS, tools=site.tools()):
        pass
    Worker(site.store, site.provider(), site.tools(), notify=notified.append).run_once()
    assert [each.id for each in notified] == ["c1"]
    assert TOKEN not in repr(notified) + repr([each.input for each in notified])


def test_an_edit_keeps_a_secret_that_comes_back_as_it_was_shown(site: Site) -> None:
    """A form knows nothing else of it. The other fields are edited."""
    inbox = Inbox(site.store)
    (waits,) = inbox.pending()
    inbox.decide("loop", {waits: Approve({**waits.input, "host": "b.example"}, by="ana")})
    assert site.run().unwrap().text == "deployed"
    assert site.ran == [TOKEN]
    assert "b.example" in str(site.requests[-1]["messages"])
    assert TOKEN not in shown(site)


def test_an_edited_secret_is_hidden_too(site: Site) -> None:
    """Also in the trail, and in the note by which the model knows what ran."""
    inbox = Inbox(site.store)
    (waits,) = inbox.pending()
    inbox.decide("loop", {waits: Approve({**waits.input, "token": OTHER}, by="ana")})
    assert site.run().unwrap().text == "deployed"
    assert site.ran == [OTHER]
    assert OTHER in str(site.requests[-1]["messages"])
    assert OTHER not in shown(site)
    assert "ran with another input" in json.dumps(inbox.show("loop"))
    (approved,) = inbox.trail("loop")
    assert approved.content["token"] != approved.input["token"]  # the fingerprints differ


def test_a_secret_stays_hidden_when_its_tool_is_gone(site: Site) -> None:
    """A deploy removed it, and its call still waits."""
    site.run(tools=[], on_drift="accept")
    Inbox(site.store).decide("loop", {"c1": Deny("no", by="ana")})
    site.run(tools=[], on_drift="accept")
    assert TOKEN not in shown(site)
    site.run(tools=site.tools(), on_drift="accept")
    assert TOKEN not in shown(site)


def test_a_secret_of_a_nested_loop_is_hidden(tmp_path: Path) -> None:
    """By the tools of that loop."""
    site = Site(store_at("memory", tmp_path), script=(reply(calls=[DEPLOY]), reply("deployed")))
    params = {name: value for name, value in PARAMS.items() if name != "messages"}
    agent = sub_loop("agent", "Do it.", params=params, tools=site.tools(), config=LoopConfig())
    site.script = (reply(calls=[call("agent", {"prompt": "go"}, id="p")]), reply("deployed"))

    def answer(request: Any) -> Any:
        is_inside = request["messages"][0]["content"] == "go"
        return reply(calls=[DEPLOY]) if is_inside else site.script[0]

    with ToolLoopHandle.open(site.store, "loop", ScriptedProvider(answer), params=PARAMS, tools=[agent]) as handle:
        handle.run()
    assert TOKEN not in shown(site)
    assert list(Inbox(site.store).show("loop")["shown"]) == ["p/c1"]


def test_a_view_without_a_store_hides_secrets() -> None:
    """`view()` is for a page. The calls of the handle are the caller's own."""
    site = Site(store_at("memory", Path()))
    handle = ToolLoopHandle(site.provider(), params=PARAMS, tools=site.tools())
    handle.run()
    assert TOKEN not in json.dumps(handle.view())
    assert handle.pending[0].input == GIVEN
    handle.decide({"c1": Approve({**handle.view()["pending"][0]["input"], "host": "b.example"})})
    handle.run()
    assert site.ran == [TOKEN]


def test_a_loop_says_how_the_inputs_of_its_calls_are_shown(tmp_path: Path) -> None:
    """So that a page without the tools can show a diff."""

    @tool(needs_approval=True, diff=("old_string", "new_string"), path="file_path", secret="token")
    def edit(file_path: str, old_string: str, new_string: str, token: str | None = None) -> str:
        """Edit."""
        return file_path + old_string + new_string + str(token)

    given = {"file_path": "a", "old_string": "b", "new_string": "c"}
    calls = [call("edit", given, id="c1"), call("deploy", GIVEN, id="c2")]
    site = Site(store_at("memory", tmp_path), script=(reply(calls=calls), reply("done")))
    site.run(tools=[edit, *site.tools()])
    assert Inbox(site.store).show("loop")["shown"] == {
        "c1": {"diff": ["old_string", "new_string"], "path": "file_path", "secret": ["token"]},
        "c2": {"diff": [], "path": None, "secret": ["token"]},
    }
    assert Inbox(site.store).pending()[0].input == given


# --- the text --------------------------------------------------------------------------------------------------------

PLAIN_VALUES = st.none() | st.booleans() | st.integers() | st.text()
JSON_VALUES = st.recursive(PLAIN_VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
KEYS = st.sampled_from((give_no_key, lambda: "key"))


@examples(100)
@given(st.dictionaries(st.sampled_from("abc"), JSON_VALUES), st.sets(st.sampled_from("abc")), KEYS)
def test_what_is_hidden_comes_back(given_: dict[str, Any], names: set[str], key: Any) -> None:
    """Only secret values are replaced, but no `None`; and an input that comes back unchanged is the input."""
    hidden = hide_secrets(given_, names, key)
    assert [name for name in given_ if hidden[name] != given_[name]] == [
        name for name in given_ if name in names and given_[name] is not None
    ]
    assert restore_secrets(hidden, given_, names, key) == given_
    assert restore_secrets(hide_secrets(given_, names, give_no_key), given_, names, key) == given_


@pytest.mark.parametrize("value", ["1234", "hunter2", "x" * 15])
def test_a_short_secret_shows_no_end(value: str) -> None:
    """Two of its characters would say too much."""
    assert hide_secrets({"pin": value}, ("pin",), give_no_key) == {"pin": f"hidden, {len(value)} characters"}


def test_two_secrets_differ_by_their_fingerprints() -> None:
    """Equal ones do not, in any loop of the store. Without the key of the store, a fingerprint says nothing."""
    texts = [hide_secrets({"token": value}, ("token",), lambda: "key")["token"] for value in (TOKEN, OTHER, TOKEN)]
    assert texts[0] == texts[2] != texts[1]
    assert hide_secrets({"token": TOKEN}, ("token",), lambda: "other")["token"] != texts[0]
