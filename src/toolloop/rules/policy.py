"""The policy that rules are: which of them answer for a call, and which of these decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from toolloop._interface.calls import PolicyView
from toolloop._public import set_module
from toolloop.machine.rules.grants import matches
from toolloop.machine.values.calls import Approve, Deny
from toolloop.machine.values.demands import Ask
from toolloop.machine.values.jsontext import JSON, to_canonical, to_plain
from toolloop.machine.values.names import to_name_key
from toolloop.rules.matching import Finding, match_narrowly, match_widely
from toolloop.rules.reading import Rule, RuleAction, read_rules, read_toml
from toolloop.rules.texts import WideText
from toolloop.tools.calls import ToolCall

_STRENGTH = ("deny", "ask", "allow")  # the first that matches decides


@set_module("toolloop.rules")
@frozen
class RuleResult:
    """What a rule says of a call.

    Attributes:
        rule: the name of the rule.
        do: `allow`, `ask` or `deny`.
        matches: whether the rule matches the call.
        decides: whether the call is treated by this rule: none that matches is stronger.
        effect: what the rule does to calls that it matches, in words.
        why: why the rule matches, or why not; empty if the rule names no input.

    """

    rule: str
    do: RuleAction
    matches: bool
    decides: bool
    effect: str
    why: str


@set_module("toolloop.rules")
class Rules:
    """A policy made of rules: `LoopConfig(on_tool_call=Rules.load("approvals.toml"))`.

    A denial wins over an ask, and an ask over an allow; each ask that matches is a demand. If no rule matches, the
    tool's own `needs_approval` decides.

    Attributes:
        digest: the SHA-256 of the file, which each decision of a rule is recorded with. For mappings: of their JSON.

    """

    def __init__(self, rules: Iterable[Mapping[str, Any]]) -> None:
        """Read rules.

        Args:
            rules: mappings with these keys. `name`; `do`: `allow`, `ask` or `deny`; `tool`: the name of the tool, or a
                pattern; `match`: patterns, values or bounds (`above`, `below`, `from`, `to`) by key of the input;
                `reason`. A rule that asks may have those of `Ask`, too: `need`, `of`, `not_by`, `fresh`, `expires_in`,
                `remind_after`. In `not_by`, `metadata:KEY` is the person whom the metadata of the loop names. A rule
                without `tool` is for all tools. A `tool` without a dot matches no member of a toolset, such as
                `computer.wait`.

        Raises:
            ValueError: a rule is not valid; the error names the rule and the key.

        """
        given = list(rules)
        self._rules = read_rules(given, "rules")
        self.digest: str = sha256(to_canonical(to_plain(given)).encode()).hexdigest()

    @classmethod
    def load(cls, path: str | Path) -> Rules:
        """Read the `[[rule]]` tables of a TOML file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not valid; the error names the line, or the rule and the key.

        """
        data, name = Path(path).read_bytes(), str(path)
        loaded = cls(())
        loaded._rules = read_rules(read_toml(data, name), name)
        loaded.digest = sha256(data).hexdigest()
        return loaded

    def explain(
        self, tool: str, given: Mapping[str, JSON], *, schema: Mapping[str, JSON] | None = None
    ) -> tuple[RuleResult, ...]:
        """Return what each rule says of a call, in the order of the rules.

        Args:
            tool: the name of the tool.
            given: the input.
            schema: the JSON Schema of the input. If it is None, rules that ask or deny also match calls in which a key
                that they name is not given.

        """
        widen = cache(WideText)
        found = [(rule, _find(rule, tool, given, schema, widen)) for rule in self._rules]
        matched = {rule.do for rule, finding in found if finding.matches}
        wins = next((each for each in _STRENGTH if each in matched), None)
        return tuple(
            RuleResult(
                rule.name, rule.do, finding.matches, finding.matches and rule.do == wins, describe(rule), finding.why
            )
            for rule, finding in found
        )

    def __call__(self, call: ToolCall, view: PolicyView) -> Approve | Deny | list[Ask] | None:
        """Return what the rules that decide say of a call; see `LoopConfig.on_tool_call`."""
        results = self.explain(call.name, call.effective_input, schema=call.input_schema)
        decisive = [rule for rule, result in zip(self._rules, results, strict=True) if result.decides]
        if not decisive:
            return None
        first = decisive[0]
        match first.do:
            case "deny":
                reason = first.reason or f"the rule {first.name!r} denies it"
                return Deny(reason, rule=first.name, rule_digest=self.digest)
            case "allow":
                return Approve(reason=first.reason, rule=first.name, rule_digest=self.digest)
        return [self._ask(rule, call, view) for rule in decisive]

    def _ask(self, rule: Rule, call: ToolCall, view: PolicyView) -> Ask:
        """Return what a rule asks for. Persons whom the metadata has named since the call began to wait stay out."""
        ask = evolve(rule.ask, rule_digest=self.digest)
        if not rule.excluded:
            return ask
        metadata = view.metadata
        before = [name for each in call.demands if each.rule == rule.name for name in each.not_by]
        named = [metadata[key] for key in rule.excluded if to_name_key(metadata.get(key))]
        ask = evolve(ask, not_by=tuple(dict.fromkeys((*before, *ask.not_by, *named))))
        if missing := [key for key in rule.excluded if not to_name_key(metadata.get(key))]:
            why = f"no person can be excluded by metadata {', '.join(map(repr, missing))}, which the loop does not have"
            return evolve(ask, reason=f"{ask.reason}; {why}" if ask.reason else why, fresh=True)
        return ask

    def __repr__(self) -> str:
        return f"<Rules: {', '.join(rule.name for rule in self._rules) or 'none'}>"


def _find(rule: Rule, tool: str, given: Mapping[str, JSON], schema: Any, widen: Callable[[str], WideText]) -> Finding:
    """Return whether a rule matches a call. Only a rule that allows must be certain."""
    if rule.tool is not None and "." in tool and "." not in rule.tool:
        return Finding(matches=False, why=f"{tool!r} is a member of a toolset, and {rule.tool!r} has no dot")
    if rule.do == "allow":
        is_of_tool = rule.tool is None or matches(rule.tool, tool)
        return match_narrowly(rule.match, given) if is_of_tool else _other_tool(rule)
    is_of_tool = rule.tool is None or widen(tool).why(rule.tool) is not None
    return match_widely(rule.match, given, schema, widen) if is_of_tool else _other_tool(rule)


def _other_tool(rule: Rule) -> Finding:
    return Finding(matches=False, why=f"the tool is not {rule.tool!r}")


def describe(rule: Rule) -> str:
    """Return what a rule does to calls that it matches."""
    if rule.do != "ask":
        return {"allow": "lets the call run", "deny": "denies the call"}[rule.do]
    persons: Sequence[str] = (*rule.ask.not_by, *(f"metadata {key!r}" for key in rule.excluded))
    of = f" of {' or '.join(rule.ask.of)}" if rule.ask.of else ""
    never = f", not by {' or '.join(persons)}" if persons else ""
    return f"asks for {rule.ask.need} approval{'s' if rule.ask.need > 1 else ''}{of}{never}"
