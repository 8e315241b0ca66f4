"""The JSON of the command: all of its fields, because programs read them."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.support import Command
from tests.inbox.support import desk
from tests.kit.world import World
from toolloop import Approve, Deny
from toolloop.prices import Price
from toolloop.stores import Left
from toolloop.stores.optional import mark_left
from toolloop.testing import call, reply

WAITING = [
    {
        "path": [call_id],
        "name": "pay",
        "input": given,
        "truncated": False,
        "why": "approval",
        "reason": None,
        "takes": ["approve", "deny", "answer"],
        "expires_at": None,
        "preview": None,
    }
    for call_id, given in (("c1", {"to": "ana", "euros": 5}), ("c2", {"to": "bo", "euros": 7}))
]
NOW = "2027-01-15T08:00:00+00:00"


def without_digests(value: Any) -> Any:
    if isinstance(value, list):
        return [without_digests(each) for each in value]
    return (
        {key: without_digests(each) for key, each in value.items() if key != "digest"}
        if isinstance(value, dict)
        else value
    )


def test_the_json_of_list_is_stable(filled: World, toolloop: Command) -> None:
    """All fields of a loop, with those of its calls."""
    code, out, _ = toolloop("list", "--json")
    assert code == 0
    assert without_digests(json.loads(out)) == [
        {
            "loop_id": "loop",
            "status": "needs_decision",
            "created": NOW,
            "changed": NOW,
            "deadline": None,
            "retry_at": None,
            "left_to_others": None,
            "cost": None,
            "metadata": {"owner": "ana"},
            "pending": WAITING,
        }
    ]
    assert [len(each["digest"]) for each in json.loads(out)[0]["pending"]] == [64, 64]


def test_the_json_of_show_and_trail_is_that_of_the_inbox(filled: World, toolloop: Command) -> None:
    """As `Inbox.show` returns it, and an entry field by field."""
    assert json.loads(toolloop("show", "loop", "--json")[1]) == filled.inbox.show("loop")
    first = min(filled.inbox.pending(), key=lambda each: each.id)
    filled.inbox.decide("loop", {"c1": Approve({"to": "ana", "euros": 6}, by="bo", reason="more")})
    assert json.loads(toolloop("trail", "loop", "--json")[1]) == [
        {
            "kind": "approve",
            "at": NOW,
            "by": "bo",
            "reason": "more",
            "path": ["c1"],
            "name": "pay",
            "input": {"to": "ana", "euros": 5},
            "content": {"to": "ana", "euros": 6},
            "by_policy": False,
            "via": "inbox",
            "groups": [],
            "digest": first.digest,
            "rule": None,
            "rule_digest": None,
            "missing": 0,
            "outcome": None,
            "demands": [],
            "remember": None,
            "grant": None,
        }
    ]


def test_the_json_of_pending_is_that_of_the_inbox(filled: World, toolloop: Command) -> None:
    """The fields of `InboxCall`, but for the id of its notification."""
    code, out, _ = toolloop("pending", "--json")
    first, second = json.loads(out)
    digest = filled.inbox.pending()[0].digest
    assert (code, first.pop("digest"), second["path"]) == (0, digest, ["c2"])
    assert first == {
        "loop_id": "loop",
        "path": ["c1"],
        "names": ["pay"],
        "why": "approval",
        "takes": ["approve", "deny", "answer"],
        "reason": None,
        "expires_at": None,
        "input": {"to": "ana", "euros": 5},
        "truncated": False,
        "metadata": {"owner": "ana"},
        "preview": None,
        "demands": [],
        "approvals": [],
        "missing": 1,
        "edited": None,
        "progress": "",
        "gist": "ana · 5",
        "size": 22,
        "since": NOW,
        "asked": "Pay the bills",
        "said": None,
        "usage": {"input_tokens": 10, "total_input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        "cost": None,
        "reminder": 0,
        "secret": [],
        "left": None,
    }  # fmt: skip


def test_a_digest_stands_only_beside_a_whole_input(toolloop: Command, tmp_path: Any) -> None:
    """`pending` and `list` shorten a long input, and give no digest for it; `show` has both."""
    long = call("pay", {"to": "x" * 5000, "euros": 5}, id="c1")
    desk("sqlite", tmp_path, script=(reply(calls=[long]), reply("Done"))).drive()
    for of in (json.loads(toolloop("pending", "--json")[1]), json.loads(toolloop("list", "--json")[1])[0]["pending"]):
        assert (of[0]["truncated"], of[0]["digest"]) == (True, None)
    whole = json.loads(toolloop("show", "loop", "--json")[1])["pending"][0]
    assert (len(whole["input"]["to"]), len(whole["digest"])) == (5000, 64)


def test_each_json_says_in_the_same_way_why_a_loop_is_left_to_others(filled: World, toolloop: Command) -> None:
    """In `list` and `show`, and beside a call that still waits."""
    left = Left("no worker has the tools 'pay'", ("pay",), filled.now)
    mark_left(filled.store, filled.store.head("loop"), left)
    expected = {"why": left.why, "missing": ["pay"], "since": NOW}
    assert json.loads(toolloop("list", "--json")[1])[0]["left_to_others"] == expected
    assert json.loads(toolloop("show", "loop", "--json")[1])["left_to_others"] == expected
    assert [each["left"] for each in json.loads(toolloop("pending", "--json")[1])] == [expected] * 2


def test_the_json_of_decisions_and_commands_names_the_loop_and_its_status(filled: World, toolloop: Command) -> None:
    """A decision has what stands in the call, too."""
    found = json.loads(toolloop("deny", "loop", "c1", "--reason", "no", "--json")[1])
    standing = found.pop("standing")
    at = standing.pop("at")
    assert found == {"loop_id": "loop", "status": "needs_decision"}
    assert standing == {
        "kind": "deny", "by": "ana", "reason": "no", "is_yours": True, "missing": 0, "is_judged": True,
    }  # fmt: skip
    assert at.endswith("+00:00")
    for arguments in (("say", "loop", "Hurry"), ("stop", "loop")):
        assert json.loads(toolloop(*arguments, "--json")[1]).keys() == {"loop_id", "status"}
    assert json.loads(toolloop("delete", "loop", "--yes", "--json")[1]) == {"deleted": ["loop"], "erased": True}


def test_stats_are_those_of_the_inbox(tmp_path: Any, toolloop: Command) -> None:
    """As JSON, and in a pipe as a row a line."""
    found = desk("sqlite", tmp_path, config={"prices": {"*": Price(input=100_000, output=0)}})
    found.drive(metadata={"owner": "ana"})
    assert toolloop("stats")[1].split() == ["2027-01-15", "$1.00", "all", "$1.00"]
    first, second = found.inbox.pending()
    found.now += 100
    found.inbox.decide("loop", {first: Approve(by="ana")})
    found.now += 60 * 86_400
    found.inbox.decide("loop", {second: Deny("no")})
    code, out, _ = toolloop("stats", "--json", "--metadata", "owner=ana")
    assert code == 0
    assert json.loads(out) == found.inbox.statistics().to_json()
    assert [line.split("\t") for line in toolloop("stats")[1].splitlines() if line] == [
        ["pay", "2", "1 approved, 1 denied"],
        ["ana", "1", "1 approved"],
        ["-", "1", "1 denied"],
        ["pay", "2", "2 min", "more than 30 days"],
        ["2027-01-15", "$1.00"],
        ["all", "$1.00"],
    ]
    assert json.loads(toolloop("stats", "--since", "2027-02-01", "--json")[1])["calls"] == {"pay": {"denied": 1}}
    code, out, errors = toolloop("stats", "--metadata", "owner=bo")
    assert (code, out, errors) == (0, "", "No calls and no cost.\n")
    assert json.loads(toolloop("list", "--json")[1])[0]["cost"] == {"dollars": "1", "is_partial": False}
    assert toolloop("list")[1].split("\t")[-1].strip() == "$1.00"
