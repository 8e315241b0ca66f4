"""The commands for rules and trails: which rules answer, and whether an exported trail is whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cli.support import Command
from tests.inbox.test_export import private_pem, public_pem
from tests.kit.world import World
from toolloop import Deny
from toolloop.rules import Rules

FILE = """
[[rule]]
name = "small"
do = "allow"
tool = "pay"
match = {euros = {to = 50}}

[[rule]]
name = "large"
do = "ask"
tool = "pay"
match = {euros = {above = 50}, note = "*urgent*"}
need = 2
of = "finance"
"""


@pytest.fixture
def asked(toolloop: Command, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """The command on a file of rules."""
    file = tmp_path / "approvals.toml"
    file.write_text(FILE)

    def ran(*arguments: str) -> tuple[int, str]:
        code, out, error = toolloop("rules", str(file), *arguments, store=None)
        return code, out + error

    return ran


def test_a_call_is_judged_by_each_rule(asked: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """With what the rules do, which of them decide, and why the others do not."""
    digest = Rules.load(tmp_path / "approvals.toml").digest
    last = f"The digest of the file is {digest}.\n"
    code, out = asked("--tool", "pay", "--input", '{"euros": 60}')
    unknown = "'note' is not given, and the tool's schema is unknown, so it could match"
    small = "small\t-\tlets the call run\t'euros' is not to 50\n"
    large = f"large\tdecides\tasks for 2 approvals of finance\t'euros': it matches; {unknown}\n"
    assert (code, out) == (0, f"{small}{large}{last}")
    schema = '{"properties": {"note": {"default": "none"}, "euros": {}}}'
    code, out = asked("--tool", "pay", "--input", '{"euros": 60}', "--schema", schema)
    assert (code, out.splitlines()[-2]) == (0, "No rule matches: the tool's own needs_approval decides.")
    assert "large\tmatches" not in asked("--tool", "other")[1]
    code, out = asked("--tool", "pay", "--input", '{"euros": 5}', "--json")
    shown = json.loads(out)
    assert (shown["digest"], shown["decides"]) == (digest, "allow")
    assert shown["rules"][0] == {
        "rule": "small", "do": "allow", "matches": True, "decides": True, "effect": "lets the call run", "why": "",
    }  # fmt: skip
    assert asked() == (0, f"small\tlets the call run\nlarge\tasks for 2 approvals of finance\n{last}")
    assert json.loads(asked("--json")[1])["rules"][1] == {"rule": "large", "do": "ask"}


def test_the_stronger_rule_is_named(asked: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """Where a rule matches and another one wins."""
    file = tmp_path / "approvals.toml"
    file.write_text(FILE + '[[rule]]\nname = "all"\ndo = "deny"\n')
    out = asked("--tool", "pay", "--input", '{"euros": 5}')[1]
    assert out.startswith("small\tmatches\tlets the call run\ta rule that denies wins\n")


def test_a_wrong_file_is_wrong_usage(asked: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """With the line, or with the rule and the key."""
    file = tmp_path / "approvals.toml"
    file.write_text("[[rule]]\nname = 'a'\ndo = maybe\n")
    code, out = asked()
    assert (code, "approvals.toml: line 3: " in out) == (2, True)
    file.write_text("[[rule]]\nname = 'a'\ndo = 'maybe'\n")
    code, out = asked()
    assert (code, "rule 'a': do: expected one of allow, ask, deny, got 'maybe'" in out) == (2, True)


def test_an_exported_trail_is_verified(filled: World, toolloop: Command, tmp_path: Path) -> None:
    """Whole, signed or not; a change is named, and is exit code 1."""
    (first, _) = filled.inbox.pending()
    filled.inbox.decide("loop", {first: Deny("Grüße", by="sue")})
    key = Ed25519PrivateKey.generate()
    secret, public, file = tmp_path / "key.pem", tmp_path / "public.pem", tmp_path / "trail.jsonl"
    secret.write_bytes(private_pem(key))
    public.write_bytes(public_pem(key))
    file.write_text(toolloop("export", "loop", "--key", str(secret))[1], encoding="utf-8")
    code, out, _ = toolloop("verify", str(file), "--public-key", str(public), store=None)
    assert (code, out.startswith("All lines fit: 1 of the trail of loop, exported 20")) == (0, True)
    assert out.endswith(" The signature is of this key.\n")
    assert toolloop("verify", str(file), store=None)[1].endswith(" No signature was verified.\n")
    assert toolloop("verify", str(file), "--json", store=None)[:2] == (0, '{\n  "problem": null\n}\n')
    file.write_text(file.read_text(encoding="utf-8").replace("sue", "ana"), encoding="utf-8")
    problem = "line 2: it was changed, or a line before it was removed, added or moved"
    assert toolloop("verify", str(file), store=None) == (1, f"{problem}\n", "")
    assert json.loads(toolloop("verify", str(file), "--json", store=None)[1]) == {"problem": problem}
    assert toolloop("export", "other")[0] == 3
