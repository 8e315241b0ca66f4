"""Rules as the policy of a loop: which of them decide, what they demand, and what is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from tests.kit.effort import examples
from tests.rules.support import FAY, FRED, PARAMS, PAY, SUE, Payment
from toolloop import (
    Approve,
    Ask,
    Inbox,
    LoopConfig,
    MemoryStore,
    Person,
    ToolLoopHandle,
    Yielded,
    sub_loop,
    tool,
)
from toolloop.errors import IllegalCommand
from toolloop.rules import RuleResult, Rules
from toolloop.testing import ScriptedProvider, call, reply

ALLOW = {"name": "small", "do": "allow", "tool": "pay", "match": {"amount": {"to": 1000}}}
ASK = {"name": "large", "do": "ask", "tool": "pay", "match": {"amount": {"above": 500}}, "need": 2, "of": "finance"}
DENY = {"name": "never", "do": "deny", "match": {"to": "*evil*"}, "reason": "evil is not paid"}

PERSONS = st.lists(st.sampled_from([FAY, FRED, SUE, Person("ana", "support")]), unique=True, max_size=3)
MATCH = st.fixed_dictionaries(
    {}, optional={"to": st.sampled_from(["ana", "*a*", "bo"]), "amount": st.sampled_from([{"above": 500}, {"to": 700}])}
)
# What the tool itself says.
NEEDS = st.sampled_from([False, True, lambda _: Ask(need=2), lambda _: Ask(of="finance", fresh=True)])
DECIDING = st.fixed_dictionaries({"do": st.sampled_from(["deny", "allow"]), "match": MATCH})
ASKING = st.fixed_dictionaries(
    {"do": st.just("ask"), "match": MATCH},
    optional={
        "need": st.integers(1, 3),
        "of": st.sampled_from(["finance", "support", ["finance", "support"]]),
        "not_by": st.sampled_from(["ana", "metadata:owner"]),
        "fresh": st.booleans(),
    },
)
DENYING = st.fixed_dictionaries({"do": st.just("deny"), "match": MATCH})
RULES = st.lists(st.one_of(DECIDING, ASKING), max_size=4)


def named(rules: Sequence[Any]) -> Rules:
    return Rules([{**rule, "name": f"r{number}"} for number, rule in enumerate(rules)])


@given(RULES, ASKING | DENYING, st.integers(0, 4), PERSONS, NEEDS)
@examples(40)
def test_a_further_rule_that_denies_or_asks_lets_nothing_more_run(
    rules: list[Any], added: Any, place: int, persons: list[Person], needs_approval: Any
) -> None:
    """In any place: what did not run with these approvals does not run now."""
    stricter = named([*rules[:place], added, *rules[place:]])
    if Payment(stricter, needs_approval=needs_approval).drive(*persons):
        assert Payment(named(rules), needs_approval=needs_approval).drive(*persons)


@given(RULES, PERSONS, NEEDS)
@examples(40)
def test_without_a_rule_that_allows_nothing_more_runs(
    rules: list[Any], persons: list[Person], needs_approval: Any
) -> None:
    """Whichever one is removed."""
    for place, rule in enumerate(rules):
        fewer = named([*rules[:place], *rules[place + 1 :]])
        if rule["do"] == "allow" and Payment(fewer, needs_approval=needs_approval).drive(*persons):
            assert Payment(named(rules), needs_approval=needs_approval).drive(*persons)


def test_a_denial_wins_over_an_ask_and_an_ask_over_an_allow() -> None:
    """In any order of the rules."""
    for rules in ([ALLOW, ASK, DENY], [DENY, ASK, ALLOW]):
        denied = Payment(rules, {"to": "evil", "amount": 600})
        assert not denied.drive(FAY, FRED)
        asked = Payment(rules)
        assert (asked.drive(FAY), asked.approve(FRED)) == (False, True)
        allowed = Payment(rules, {"to": "ana", "amount": 5}, needs_approval=True)
        assert allowed.drive()


def test_no_rule_leaves_it_to_the_tool() -> None:
    """A tool that needs approval waits, another one runs."""
    given = {"to": "ana", "amount": 2000}
    assert Payment([ALLOW, DENY], given).drive()
    assert not Payment([ALLOW, DENY], given, needs_approval=True).drive()


def test_a_rule_that_asks_adds_to_what_the_tool_demands() -> None:
    """It replaces nothing. A tool that only needs approval adds no demand."""
    one = [{"name": "one", "do": "ask"}]
    payment = Payment(one, needs_approval=lambda _: [Ask(need=2, rule="tool"), Ask()])
    assert not payment.drive()
    assert [(each.rule, each.need) for each in payment.call.demands] == [("one", 1), ("tool", 2)]
    assert [payment.approve(each) for each in (FAY, SUE)] == [False, True]
    plain = Payment(one, needs_approval=True)
    plain.drive()
    assert [each.rule for each in plain.call.demands] == ["one"]


def test_each_rule_that_asks_is_a_demand_and_the_shortest_time_holds() -> None:
    """One approval may count for several demands."""
    more = {"name": "all", "do": "ask", "expires_in": 60, "not_by": ["fay"], "remind_after": [10, 30], "fresh": True}
    payment = Payment([{**ASK, "expires_in": 3600, "reason": "a large sum"}, more])
    before = datetime.now(UTC)
    assert not payment.drive()
    large, every = payment.call.demands
    assert (large.need, large.of, large.rule, large.expires_in) == (2, ("finance",), "large", 3600)
    assert (every.not_by, every.fresh, every.remind_after, every.rule) == (("fay",), True, (10, 30), "all")
    assert payment.call.reason == "a large sum"
    assert payment.call.expires_at is not None
    assert timedelta(seconds=59) < payment.call.expires_at - before < timedelta(seconds=90)
    assert [payment.approve(each) for each in (FAY, FRED)] == [False, True]


def test_what_a_rule_decides_is_recorded_with_its_name_and_the_digest_of_the_file(tmp_path: Path) -> None:
    """Of a denial, an approval and a demand; `sha256sum approvals.toml` prints the same digest."""
    file = tmp_path / "approvals.toml"
    file.write_text(
        "[[rule]]\nname = 'small'\ndo = 'allow'\nmatch = {amount = {to = 10}}\n"
        "[[rule]]\nname = 'never'\ndo = 'deny'\nmatch = {to = 'evil'}\n"
        "[[rule]]\nname = 'rest'\ndo = 'ask'\nmatch = {amount = {above = 10}}\n"
    )
    rules = Rules.load(file)
    digest = sha256(file.read_bytes()).hexdigest()
    assert rules.digest == digest
    store = MemoryStore()
    inputs = [{"to": "ana", "amount": 5}, {"to": "evil", "amount": 5}, {"to": "ana", "amount": 50}]
    calls = [call("pay", each, id=f"c{number}") for number, each in enumerate(inputs)]

    @tool
    def pay(to: str, amount: float) -> str:
        """Pay."""
        return f"paid {to} {amount}"

    provider = ScriptedProvider([reply(calls=calls)])
    config = LoopConfig(on_tool_call=rules)
    with ToolLoopHandle.open(store, "loop", provider, tools=[pay], params=PARAMS, config=config) as handle:
        handle.run()
        (waiting,) = handle.pending
        assert [(each.rule, each.rule_digest) for each in waiting.demands] == [("rest", digest)]
    trail = Inbox(store).trail("loop")
    assert [(each.kind, each.by, each.rule, each.rule_digest, each.by_policy) for each in trail] == [
        ("approve", "rule: small", "small", digest, True),
        ("deny", "rule: never", "never", digest, True),
    ]
    assert trail[1].reason == "the rule 'never' denies it"


def opened(store: Any, rules: Rules, **more: Any) -> ToolLoopHandle:
    @tool
    def pay(to: str, amount: float) -> str:
        """Pay."""
        return "paid"

    provider = ScriptedProvider([reply(calls=[call("pay", PAY, id="c1")]), reply("Done.")])
    parts = {"tools": [pay], "params": PARAMS, "config": LoopConfig(on_tool_call=rules), **more}
    return ToolLoopHandle.open(store, "loop", provider, **parts)


OWNED = {"name": "own", "do": "ask", "not_by": "metadata:owner"}


def test_the_person_whom_the_metadata_names_may_not_approve() -> None:
    """Each person who has the role in this loop, not a name in the file."""
    store = MemoryStore()
    with opened(store, Rules([OWNED]), metadata={"owner": "Ana"}) as handle:
        turn = handle.run()
        assert isinstance(turn, Yielded)
        assert handle.pending[0].demands[0].not_by == ("Ana",)
        with pytest.raises(IllegalCommand, match="an approval of ana does not count"):
            turn.approve("c1", by="ana")
        assert turn.approve("c1", by="bo").missing == 0


class Renamed:
    """A store whose loops have other metadata meanwhile."""

    def __init__(self, inner: MemoryStore, owner: str) -> None:
        self._inner, self._owner = inner, owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def head(self, loop_id: str) -> Any:
        return evolve(self._inner.head(loop_id), metadata={"owner": self._owner})


def test_a_person_who_was_excluded_stays_so() -> None:
    """The metadata change; a later judging adds the new name, and an equal one leaves the demand as it is."""
    store, other = MemoryStore(), {"name": "other", "do": "ask", "not_by": "eve"}
    rules = Rules([other, {**OWNED, "need": 2}])
    with opened(store, rules, metadata={"owner": "ana"}) as handle:
        handle.run()
    decided(store, "bo", "cy")
    with opened(Renamed(store, "bo"), rules, params=None) as handle:
        handle.run()
        assert [each.not_by for each in handle.pending[0].demands] == [("eve",), ("ana", "bo")]
        assert handle.pending[0].missing == 1
    decided(store, "ana")
    assert Inbox(store).pending()[0].missing == 1
    decided(store, "di")
    with opened(Renamed(store, "ana"), rules, params=None) as handle:
        handle.run()
        assert handle.iterations == 2  # the call has run


def decided(store: Any, *persons: str) -> None:
    for person in persons:
        (waiting,) = Inbox(store).pending()
        Inbox(store).decide("loop", {waiting: Approve(by=person)})


def test_without_the_key_it_asks_and_says_that_no_person_is_excluded() -> None:
    """So does an empty value, and a loop without a store."""
    for metadata in ({}, {"owner": " "}, None):
        store = MemoryStore()
        if metadata is None:
            payment = Payment([{**OWNED, "reason": "four eyes"}])
            payment.drive()
            waiting = payment.call
        else:
            with opened(store, Rules([{**OWNED, "reason": "four eyes"}]), metadata=metadata) as handle:
                handle.run()
                (waiting,) = handle.pending
        assert waiting.reason == (
            "four eyes; no person can be excluded by metadata 'owner', which the loop does not have"
        )
        assert (waiting.demands[0].not_by, waiting.demands[0].fresh) == ((), True)


INNER = {name: value for name, value in PARAMS.items() if name != "messages"}


def test_rules_reach_down_and_read_the_metadata_of_the_outermost_loop() -> None:
    """Those of the loop around forbid and ask in its whole tree; what they allow is left to the inner loop."""
    ran = []

    @tool
    def pay(to: str, amount: float) -> str:
        """Pay."""
        ran.append(to)
        return "paid"

    agent = sub_loop("agent", "Delegate.", params=INNER, tools=[pay])
    replies = [call("agent", {"prompt": "Pay"}, id="c1")], [call("pay", PAY, id="c2")]
    outer = ScriptedProvider([reply(calls=each) for each in replies])
    rules = Rules([{**OWNED, "tool": "pay"}, {"name": "rest", "do": "allow"}])
    parts: Any = {"params": PARAMS, "tools": [agent], "config": LoopConfig(on_tool_call=rules)}
    store = MemoryStore()
    with ToolLoopHandle.open(store, "loop", outer, metadata={"owner": "ana"}, **parts) as handle:
        handle.run()
        (waiting,) = handle.pending
        assert (waiting.path, waiting.demands[0].not_by, ran) == (("c1", "c2"), ("ana",), [])


def test_explain_says_what_each_rule_says() -> None:
    """Which match, which decide, and why the others do not."""
    rules = Rules([ALLOW, ASK, DENY, {"name": "own", "do": "ask", "tool": "own", "not_by": ["bo", "metadata:owner"]}])
    assert rules.explain("pay", PAY) == (
        RuleResult("small", "allow", True, False, "lets the call run", ""),
        RuleResult("large", "ask", True, True, "asks for 2 approvals of finance", "'amount': it matches"),
        RuleResult("never", "deny", False, False, "denies the call", "'to' is not '*evil*'"),
        RuleResult(
            "own", "ask", False, False, "asks for 1 approval, not by bo or metadata 'owner'", "the tool is not 'own'"
        ),
    )
    assert rules.explain("pay", {"amount": "much"})[0].why == "'amount' is not to 1000"
    assert rules.explain("pay", {"to": "ana"})[0].why == "'amount' is not given"
    assert rules.explain("pay", {"to": "ana", "amount": "500"})[1].why == "'amount' is a str, so it could match"
    assert repr(rules) == "<Rules: small, large, never, own>"
    assert repr(Rules([])) == "<Rules: none>"


def test_a_tool_may_be_named_by_a_pattern() -> None:
    """Narrowly to allow, widely to ask and deny."""
    for do, names in (("allow", ["mcp__a"]), ("deny", ["mcp__a", "MCP__b", "mcp__"])):
        rules = Rules([{"name": "r", "do": do, "tool": "mcp__*"}])
        found = [name for name in ("mcp__a", "MCP__b", "mcp__", "other") if rules.explain(name, {})[0].matches]
        assert found == names


def test_a_tool_that_only_the_parameters_define_has_a_schema_too() -> None:
    """A tool of the API does not: what is left out there could be anything."""
    rules = Rules([{"name": "r", "do": "deny", "match": {"path": "/etc/*"}}])
    schema = {"type": "object", "properties": {"path": {"type": "string", "default": "/srv"}}}
    tools = [
        {"name": "theirs", "description": "", "input_schema": schema},
        {"type": "bash_20250124", "name": "bash"},
    ]
    seen = {}

    def policy(asked: Any, view: Any) -> Any:
        seen[asked.name] = asked.input_schema
        return rules(asked, view)

    provider = ScriptedProvider([reply(calls=[call("theirs", {}, id="c1"), call("bash", {}, id="c2")])])
    handle = ToolLoopHandle(provider, params=PARAMS | {"tools": tools}, config=LoopConfig(on_tool_call=policy))
    turn = handle.next_turn()
    assert isinstance(turn, Yielded)
    assert seen == {"theirs": schema, "bash": None}
    assert [each.name for each in turn.pending] == ["theirs"]


def test_rules_that_are_equal_ask_the_same_again() -> None:
    """So that what is `fresh` is not asked for again after each decision."""
    rules = [{"name": "r", "do": "ask", "fresh": True, "need": 2}]
    store = MemoryStore()
    with opened(store, Rules(rules)) as handle:
        handle.run()
        handle.decide({"c1": Approve(by="ana", digest=handle.pending[0].digest)})
    with opened(store, Rules(rules), params=None, take_over=True) as handle:
        handle.run()
        assert handle.pending[0].missing == 1
        assert isinstance(handle.pending[0].demands[0].rule_digest, str)


@pytest.mark.parametrize("do", ["allow", "ask", "deny"])
def test_a_pattern_without_a_dot_matches_no_member_of_a_toolset(do: str) -> None:
    """A tool may have the name of a member. A rule without a tool is for members, too."""

    def covers(pattern: str | None, name: str) -> bool:
        rule = {"name": "r", "do": do} | ({} if pattern is None else {"tool": pattern})
        (found,) = Rules([rule]).explain(name, {"duration": 1})
        return found.matches

    for pattern in ("wait", "*", "*wait", "comp*", "?*"):
        assert not covers(pattern, "computer.wait")
    for pattern in ("computer.wait", "computer.*", "*.wait", "comp*.w?it"):
        assert (covers(pattern, "computer.wait"), covers(pattern, "wait")) == (True, False)
    assert all(covers(pattern, "wait") for pattern in ("wait", "*", None))
    assert covers(None, "computer.wait")
