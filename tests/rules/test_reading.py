"""Files of rules that are wrong: the error names the line, or the rule and the key."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.kit.each import each
from tests.kit.effort import examples
from toolloop import LoopConfig, MemoryStore, Worker
from toolloop.rules import Rules
from toolloop.testing import ScriptedProvider

RULE: dict[str, Any] = {"name": "r", "do": "ask"}


@each(("text", "error"), [
    ("[[rule]]\nname = 'a'\ndo = ask\n", "approvals.toml: line 3: Invalid value"),
    ("[[rule]]\nname = 'a", "approvals.toml: line 2: "),
    ("[[rule]]\nname = 'a'\nname = 'b'\n", "approvals.toml: line 3: Cannot overwrite a value"),
    ("", "approvals.toml has no rules; expected only tables that begin with [[rule]]"),
    ("rule = 5", "approvals.toml has no rules; "),
    ("[rule]\nname = 'a'", "approvals.toml has no rules; "),
    ("[[rules]]\nname = 'a'", "approvals.toml has 'rules'; expected only tables that begin with [[rule]]"),
    ("[[rule]]\ndo = 'ask'", "approvals.toml: rule 1: name: it is missing"),
    ("[[rule]]\nname = 'a'", "approvals.toml: rule 'a': do: it is missing"),
    ("[[rule]]\nname = 'a'\ndo = 'ask'\n[rule.match]\nday = 2026-01-01", "rule 'a': match: day: expected a text, a"),
])  # fmt: skip
def test_a_file_that_is_wrong(text: str, error: str, tmp_path: Path) -> None:
    """TOML errors have the line; others name what is expected."""
    file = tmp_path / "approvals.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"approvals\.toml") as raised:
        Rules.load(file)
    assert error in str(raised.value)


def test_a_file_of_other_bytes_names_the_line(tmp_path: Path) -> None:
    """TOML is UTF-8."""
    file = tmp_path / "approvals.toml"
    file.write_bytes(b"[[rule]]\nname = 'caf\xe9'\n")
    with pytest.raises(ValueError, match="line 2: it is not UTF-8"):
        Rules.load(file)


def test_a_worker_that_cannot_read_its_file_does_not_start(tmp_path: Path) -> None:
    """The error comes before there is a worker."""
    with pytest.raises(FileNotFoundError):
        Worker(
            MemoryStore(),
            ScriptedProvider([]),
            [],
            config=LoopConfig(on_tool_call=Rules.load(tmp_path / "approvals.toml")),
        )


@each(("rule", "error"), [
    ("a text", "rules: rule 1 is a str; expected a mapping"),
    ({**RULE, "name": ""}, "rules: rule 1: name: expected a text, got ''"),
    ({**RULE, "name": "rule: x"}, "name: 'rule: x' is refused, because names that begin with 'rule:'"),
    ({**RULE, "name": 5}, "rule 1: name: expected a text, got 5"),
    ({**RULE, "do": "maybe"}, "rule 'r': do: expected one of allow, ask, deny, got 'maybe'"),
    ({**RULE, "do": ["ask"]}, "do: expected one of"),
    ({**RULE, "tool": 5}, "tool: expected a text"),
    ({**RULE, "reason": " "}, "reason: expected a text"),
    ({**RULE, "need": 0}, "need: Ask: need must be an int from 1"),
    ({**RULE, "need": True}, "need: expected a whole number"),
    ({**RULE, "of": []}, "of: expected a name, or a list of at least one"),
    ({**RULE, "of": [""]}, "of: expected names that are not empty"),
    ({**RULE, "not_by": "metadata:"}, "not_by: expected names that are not empty"),
    ({**RULE, "not_by": {"a": 1}}, "not_by: expected a name"),
    ({**RULE, "fresh": "yes"}, "fresh: expected true or false, got 'yes'"),
    ({**RULE, "expires_in": 0}, "expires_in: expected a number of seconds above 0"),
    ({**RULE, "expires_in": float("inf")}, "expires_in: expected a number"),
    ({**RULE, "expires_in": 10**400}, "expires_in: expected a number of seconds above 0, at most"),
    ({**RULE, "remind_after": 5}, "remind_after: expected a list"),
    ({**RULE, "remind_after": [0]}, "remind_after: expected a number of seconds"),
    ({**RULE, "match": []}, "match: expected keys of the input"),
    ({**RULE, "match": {5: "a"}}, "match: expected a text as the key"),
    ({**RULE, "match": {"a": {}}}, "match: a: expected one or more of above, below, from, to, got {}"),
    ({**RULE, "match": {"a": {"over": 5}}}, "match: a: expected one or more of above"),
    ({**RULE, "match": {"a": {"above": "5"}}}, "match: a: above: expected a number, got '5'"),
    ({**RULE, "match": {"a": ["b"]}}, "match: a: expected a text, a number, true, false, or bounds"),
    ({**RULE, "match": {"a": None}}, "match: a: expected a text"),
    ({**RULE, "match": {"a": float("nan")}}, "match: a: expected a text"),
    ({**RULE, "neeed": 2}, "rule 'r': neeed: unknown key; the keys are name, do, tool, match, reason, need"),
    ({**RULE, "do": "deny", "need": 2}, "need: unknown key, which only rules with do = 'ask' have; the keys are name"),
])  # fmt: skip
def test_a_rule_that_is_wrong(rule: Any, error: str) -> None:
    """A key that is unknown is an error: a misspelled demand would demand nothing."""
    with pytest.raises(ValueError, match="rule") as raised:
        Rules([rule])
    assert error in str(raised.value)


def test_two_rules_have_two_names() -> None:
    """The trail names a rule, so each name means one."""
    with pytest.raises(ValueError, match="rules: rule 'r': name: an earlier rule has this name, too"):
        Rules([RULE, {"name": "s", "do": "deny"}, RULE])
    with pytest.raises(ValueError, match="rule 1"):
        Rules(RULE)  # type: ignore[arg-type]  # a mapping, not a list of them


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(["name", "do", "tool", "match", "need", "of", "not_by", "fresh", "expires_in", "remind_after"])


@given(st.lists(st.dictionaries(KEYS, JSON_VALUES | st.sampled_from(["ask", "deny", {"a": {"to": 1}}]), max_size=6)))
@examples(60)
def test_any_rule_is_read_or_refused_by_a_value_error(rules: Any) -> None:
    """With no other error. What is read is the same rule each time."""
    with suppress(ValueError):
        assert Rules(rules).digest == Rules(json.loads(json.dumps(rules))).digest
